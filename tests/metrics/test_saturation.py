"""The load label says whether requests arrive faster than they can be served, or that the run is too short to tell."""

import tracemalloc

import numpy as np
import pandas as pd
import pytest

from experiments.coverage import models
from experiments.coverage.models import Queue, exponential, labels, right
from simlora.metrics import saturation
from simlora.metrics.saturation import RATE_LIMITED, independent, load
from tests.metrics.frames import finished, lost, table


def arrivals(waits_s: list[float], gap_s: float = 1.0) -> pd.DataFrame:
    """Requests `gap_s` apart, each waiting as told and then taking 10 s."""
    rows = [
        finished(arrival_s=i * gap_s, queue_s=wait_s, ttft_s=wait_s + 1, latency_s=wait_s + 10)
        for i, wait_s in enumerate(waits_s)
    ]
    return table(*rows)


def test_a_queue_that_stays_short_is_below_saturation():
    found = load(arrivals([0.1] * 200))
    assert found["label"] == "below"
    assert found["ratio"] is None, "no request waited behind another"
    assert found["drift_s"] == pytest.approx(0.0)
    assert found["wait_ratio"] == pytest.approx(0.01)


def test_a_queue_that_grows_all_the_time_is_past_saturation():
    frame = arrivals([0.2 * i for i in range(100)])  # 20 % more arrives than is served
    found = load(frame)
    assert found["label"] == "past"
    assert found["ratio"] == pytest.approx(1.2, rel=0.03)
    assert found["drift_s"] == pytest.approx(0.2 * 67, rel=0.02)
    assert found["drain_s"] == pytest.approx(0.2 * 99)
    assert found["arrivals_s"] == pytest.approx(99.0)
    assert load(frame.iloc[::-1]) == found, "the order of the rows does not matter"


@pytest.mark.parametrize(
    "waits_s, gap_s, label",
    [
        ([3.0] * 200, 1.0, "near"),  # a queue that never empties and does not grow is near saturation
        ([0.1] * 190 + [float(i) for i in range(10)], 1.0, "below"),  # a burst at the end is no saturation
        ([0.1] * 29, 1.0, "unknown"),  # a few requests say nothing
        ([0.1] * 100, 0.5, "unknown"),  # a run as short as a few services says nothing
        ([0.1] * 50, 0.0, "unknown"),  # arrivals at one instant say nothing
    ],
)
def test_waits_have_a_label(waits_s, gap_s, label):
    assert load(arrivals(waits_s, gap_s))["label"] == label


def test_last_come_first_served_cannot_hide_saturation():
    """Of five requests, one is served when no other comes any more."""
    found = load(arrivals([1000.0 - i if i % 5 == 0 else 0.1 for i in range(500)]))
    assert found["drift_s"] < 0
    assert found["label"] == "past"


def test_giving_up_on_requests_is_past_saturation_though_the_queue_is_short():
    kept = [finished(arrival_s=float(i)) for i in range(90)]
    given_up = [lost("aborted", arrival_s=9 * i + 0.5) for i in range(10)]
    found = load(table(*kept, *given_up))
    assert found["given_up_share"] == pytest.approx(0.1)
    assert found["label"] == "past"


@pytest.mark.parametrize(
    ("lost_of_a_thousand", "label"), [(5, "below"), (8, "below"), (13, "near"), (45, "near"), (55, "past")]
)
def test_a_few_that_are_given_up_are_near_saturation_and_one_in_twenty_past(lost_of_a_thousand, label):
    every = 1_000 // lost_of_a_thousand
    given_up = {every * i for i in range(lost_of_a_thousand)}
    rows = [
        lost("aborted", arrival_s=float(i)) if i in given_up else finished(arrival_s=float(i))
        for i in range(1_000)
    ]
    assert load(table(*rows))["label"] == label


def test_requests_turned_away_count_as_offered():
    """A cluster at thirteen times what it serves is not below saturation because twelve of thirteen never enter it."""
    queue = Queue(1, exponential, max_outstanding=2)
    found = load(queue.recorded(13.0, 1_000, seed=0).requests())
    assert found["given_up_share"] == pytest.approx(12 / 13, abs=0.02)
    assert found["label"] == "past"


@pytest.mark.parametrize(
    ("reason", "label"),
    [
        (f"{RATE_LIMITED} admits 0.5 requests/s of an adapter, 1 of them at once", "below"),
        ("cluster.max_outstanding, 2 requests, were there already", "past"),
    ],
)
def test_requests_past_a_rate_limit_say_nothing_about_the_load_but_those_past_a_full_cluster_do(
    reason, label
):
    kept = [finished(arrival_s=float(i), queue_s=0.1, latency_s=4.0) for i in range(50)]
    rejected = [lost("rejected", arrival_s=float(i), reason=reason) for i in range(50)]
    assert load(table(*kept, *rejected))["label"] == label


def test_requests_too_large_to_serve_say_nothing_about_the_load():
    kept = [finished(arrival_s=float(i), queue_s=0.1, latency_s=4.0) for i in range(50)]
    too_large = [lost("rejected", arrival_s=float(i), replica=0) for i in range(50)]
    assert load(table(*kept, *too_large))["label"] == "below"


def test_a_label_takes_little_memory_a_request(monkeypatch):
    """A column of times takes 8 bytes a request: besides those of the rows no more than three are there at once."""
    monkeypatch.setattr(saturation, "BLOCK", 20_000)
    n = 400_000
    arrival_s = np.arange(n) * 0.1
    frame = pd.DataFrame(
        {
            "arrival_s": arrival_s,
            "admitted_s": arrival_s + 0.3,
            "queue_s": 0.3,
            "ttft_s": 0.5,
            "latency_s": 10.3,
            "status": pd.Categorical.from_codes(np.zeros(n, dtype=np.int8), ["finished"]),
            "replica": np.arange(n, dtype=np.int32) % 7,
        }
    )
    tracemalloc.start()
    load(frame)
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak_bytes < 27 * n


@pytest.mark.parametrize("block", [1, 7, 100, 400])
def test_replicas_are_told_together_or_a_few_at_a_time(monkeypatch, block):
    frame = arrivals([0.2 * (i % 40) for i in range(800)])
    frame = frame.assign(replica=[-1 if i % 50 == 0 else i % 3 for i in range(800)])
    frame.loc[frame["replica"] < 0, "admitted_s"] = np.nan
    together = load(frame)
    monkeypatch.setattr(saturation, "BLOCK", block)
    assert load(frame) == pytest.approx(together)
    assert together["ratio"] is not None


def test_one_replica_with_a_queue_leaves_the_others_theirs():
    """Of eight replicas one has a queue at any time: together they are no nearer to saturation than each alone."""
    frame = arrivals([2.0 if i // 50 % 8 == i % 8 else 0.1 for i in range(800)])
    assert load(frame.assign(replica=frame["request_id"] % 8))["label"] == "below"


@pytest.fixture(scope="module")
def soon_saturated():
    """What S-LoRA serves per second is measured of 4,000 requests, not of 20,000."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(models, "SATURATING", 4_000)
        patch.setitem(models.MODELS, "S-LoRA", models.Slora())
        yield


@pytest.mark.usefixtures("soon_saturated")
@pytest.mark.parametrize("model", ["M/M/1", "S-LoRA"])
@pytest.mark.parametrize("rho", [0.8, 1.0, 1.2])
def test_labels_of_a_thousand_requests_are_right(model, rho):
    """If 95 % are right, 8 of 10 are in 98 cases of 100; `python -m experiments.coverage labels` has more of both."""
    count = labels(model, rho, 1_000, range(10))
    assert sum(number for label, number in count.items() if right(label, rho)) >= 8, count


def test_a_hundred_requests_at_four_fifths_are_not_called_past():
    count = labels("M/M/1", 0.8, 100, range(40))
    assert count["past"] <= 3
    assert count["unknown"] >= 20, "mostly too short to tell"


def test_requests_are_as_independent_as_the_slowest_are_apart():
    """Of 400 requests 20 are slow: one by one, in two bursts, or all alike."""
    apart, bursts = np.ones(400), np.ones(400)
    apart[::20] = 9.0
    bursts[100:110] = bursts[300:310] = 9.0
    bursts[305] = np.nan
    assert independent(apart) == 400
    assert independent(bursts) == 40
    assert independent(np.ones(400)) == 400
    assert independent(np.ones(7)) == 7
