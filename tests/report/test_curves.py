"""The numbers behind the figures."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simlora.metrics.timeline import LEVELS
from simlora.report.curves import ALL, by_adapter, cdf, losses, thinned_ranks, timelines
from simlora.report.results import TIMELINE_COLUMNS
from tests.metrics.frames import finished, lost, table


def test_a_cdf_by_hand_and_of_nothing_which_stops_before_the_tail():
    at, shares = cdf(np.array([3.0, 1.0, np.nan, 2.0, 2.0]), upto=1.0)
    assert at.tolist() == [1.0, 2.0, 2.0, 3.0]
    assert shares.tolist() == [0.25, 0.75, 0.75, 1.0]
    assert [len(part) for part in cdf(np.array([np.nan]))] == [0, 0]
    at, shares = cdf(np.arange(1000.0))
    assert (at[-1], shares[-1]) == (994.0, 0.995)


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=300), st.integers(2, 50))
def test_a_thinned_cdf_is_exact_where_it_has_points(values, points):
    at, shares = cdf(np.array(values), points, upto=1.0)
    assert len(at) <= points
    assert shares.tolist() == [np.mean(np.array(values) <= x) for x in at]


def samples(*rows):
    """Rows of (replica, time_s, running), everything else in step with them."""
    frame = pd.DataFrame(rows, columns=["replica", "time_s", "running"])
    frame["waiting"] = frame["running"] * 2
    frame["kv_tokens"] = frame["running"] * 100
    frame["adapter_tokens"] = 10
    frame[["idle_kv_tokens", "invalid_kv_tokens", "host_kv_tokens"]] = 0
    frame["capacity_tokens"] = 1_000
    frame[["region_used_tokens", "region_largest_free_tokens", "region_capacity_tokens"]] = 0
    return frame[TIMELINE_COLUMNS]


@pytest.mark.parametrize(
    "rows, running",
    [
        pytest.param([(0, 0.0, 4), (0, 1.0, 8), (0, 4.0, 0)], [6.0, 8.0], id="until the next sample"),
        pytest.param([(0, 2.0, 4), (0, 4.0, 4)], [0.0, 4.0], id="nothing before the first"),
        pytest.param([(0, 0.0, 4), (1, 0.0, 1), (1, 4.0, 1)], [4.0, 4.0], id="for good after the last"),
        pytest.param(
            [(0, 0.0, 1), (0, 2.0, 50), (0, 2.0, 3), (0, 4.0, 3)], [1.0, 3.0], id="the last of an instant"
        ),
    ],
)
def test_levels_hold(rows, running):
    times_s, levels = timelines(samples(*rows), points=2)
    assert times_s.tolist() == [0.0, 2.0]
    assert levels["0"]["running"].tolist() == running
    assert levels["0"]["kv_tokens"].tolist() == [100 * level for level in running]
    assert levels["0"]["capacity_tokens"].tolist() == [1_000.0, 1_000.0], (
        "the memory is there from the beginning"
    )


def test_all_replicas_add_up():
    _, levels = timelines(samples((0, 0.0, 1), (0, 4.0, 1), (1, 0.0, 2), (1, 3.0, 2)), points=3)
    assert list(levels) == [ALL, "0", "1"]
    for name in LEVELS:
        assert levels[ALL][name] == pytest.approx(levels["0"][name] + levels["1"][name])


@pytest.mark.parametrize("frame", [pd.DataFrame(), samples(), samples((0, 0.0, 1))])
def test_a_timeline_without_duration_shows_nothing(frame):
    assert timelines(frame)[1] == {}


MIXED = table(
    finished(adapter="b", rank=8, ttft_s=1.0, cold_start_s=0.2),
    finished(adapter="b", rank=8, ttft_s=3.0, cold_start_s=0.0, kv_cold_start_s=0.4, blocked_s=0.6),
    lost("rejected", adapter="c", rank=64),
    finished(adapter="", rank=0, ttft_s=2.0),
    lost("aborted", adapter="a", rank=16),
)


@pytest.mark.parametrize("kind", ["object", "category", "str"])
def test_one_row_an_adapter_most_requested_first(kind):
    found = by_adapter(MIXED.astype({"adapter": kind, "status": kind}))
    assert found["adapter"].tolist() == ["b", "", "a", "c"]
    assert found["requests"].tolist() == [2, 1, 1, 1]
    assert found["rank"].tolist() == [8, 0, 16, 64]
    assert found["ttft_s"].tolist() == pytest.approx([2.0, 2.0, np.nan, np.nan], nan_ok=True)
    assert found["cold_start_s"].tolist() == pytest.approx([0.1, 0.0, np.nan, np.nan], nan_ok=True)
    assert found["kv_cold_start_s"].tolist() == pytest.approx([0.2, 0.0, np.nan, np.nan], nan_ok=True)
    assert found["blocked_s"].tolist() == pytest.approx([0.3, 0.0, np.nan, np.nan], nan_ok=True)


def test_a_null_adapter_is_the_base_model():
    assert by_adapter(table(finished(adapter=None)))["adapter"].tolist() == [""]


def test_losses_are_counted_by_status_and_reason():
    long = lost("rejected", reason="too long")
    frame = table(finished(), lost("aborted", reason="too late"), long, long, lost("unfinished", reason=None))
    expected = [["rejected", "too long", 2], ["aborted", "too late", 1], ["unfinished", "", 1]]
    assert losses(frame).to_numpy().tolist() == expected


@pytest.mark.parametrize("length", [0, 1, 300, 301, 100_000])
def test_thinned_ranks_keep_both_ends(length):
    ranks = thinned_ranks(length)
    assert len(ranks) <= 300
    assert ranks.tolist() == sorted(set(ranks.tolist()))
    assert ranks[[0, -1]].tolist() == [0, length - 1] if length else not len(ranks)
