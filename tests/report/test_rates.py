"""What a report shows over time, by rank and of adapter slots, on rows made by hand."""

import pytest

from simlora.metrics.slo import SloTargets
from simlora.report.rates import by_rank, by_time
from simlora.report.slots import slots_of, spells, waited
from tests.metrics.frames import finished, lost, table

A_SECOND = SloTargets(ttft_s=1.5)


def test_each_stretch_has_what_happened_in_it():
    rows = table(
        finished(0.0, ttft_s=1.0, latency_s=3.0, output_tokens=20),
        finished(1.5, ttft_s=2.0, latency_s=2.5, output_tokens=5),
    )
    frame = by_time(rows, A_SECOND, stretches=2)  # of 2 s each
    assert frame["time_s"].tolist() == [1.0, 3.0]
    assert frame["arrivals_rps"].tolist() == [1.0, 0.0]
    assert frame["first_tokens_rps"].tolist() == [0.5, 0.5]
    assert frame["finished_rps"].tolist() == [0.0, 1.0]
    assert frame["tokens_per_s"].tolist() == [5.0, 7.5], "half of twenty by 2 s, the rest and all five later"
    assert frame["attainment"].tolist()[0] == 0.5
    assert frame["ttft_p50_s"].tolist()[0] == 1.5
    assert frame[["attainment", "ttft_p95_s"]].isna().to_numpy()[1].all(), "none arrived there"


def test_a_request_that_never_began_counts_as_an_arrival_that_missed():
    frame = by_time(table(finished(0.0), lost("aborted", arrival_s=0.1)), A_SECOND, stretches=1)
    assert frame["attainment"].tolist() == [0.5]
    assert frame["arrivals_rps"].sum() == pytest.approx(2 / 3.0)
    assert by_time(table(), A_SECOND).empty


def test_ranks_have_their_own_figures_and_the_base_model_is_rank_0():
    rows = table(
        finished(adapter="a", rank=8),
        finished(adapter="b", rank=8, ttft_s=2.0),
        finished(adapter=None, rank=float("nan")),
    )
    found = by_rank(rows, A_SECOND)
    assert found["rank"].tolist() == [0, 8]
    assert found["adapters"].tolist() == [0, 2]
    assert found["requests"].tolist() == [1, 2]
    assert found["attainment"].tolist() == [1.0, 0.5]
    assert found["ttft_p95_s"].tolist() == pytest.approx([1.0, 1.95])


def test_an_adapter_is_in_use_while_any_of_its_requests_is():
    rows = table(
        finished(0.0, queue_s=0.5, latency_s=3.0, adapter="a"),
        finished(1.0, queue_s=0.5, latency_s=4.0, adapter="a"),
        finished(6.0, queue_s=0.0, latency_s=1.0, adapter="a"),
        finished(0.0, queue_s=0.5, latency_s=3.0, adapter="b", replica=1),
    )
    found = spells(rows)
    rows = found[["replica", "begin_s", "end_s"]].to_numpy().tolist()
    assert rows == [[0, 0.5, 5.0], [0, 6.0, 7.0], [1, 0.5, 3.0]]


def test_a_request_waited_for_a_slot_if_others_held_all_of_them_when_it_came():
    rows = table(
        finished(0.0, queue_s=0.0, latency_s=3.0, adapter="a"),
        finished(1.0, queue_s=2.0, latency_s=4.0, adapter="b"),
        finished(1.0, queue_s=0.2, latency_s=4.0, adapter="a"),
        finished(9.0, queue_s=0.2, latency_s=1.0, adapter="b"),
    )
    assert waited(rows, spells(rows), {0: 1}).tolist() == [False, True, False, False]
    assert waited(rows, spells(rows), {0: 2}).tolist() == [False] * 4


def test_slots_are_those_of_each_kind_of_replica():
    run = {"replicas": 3, "max_loras": 8, "others": [{"replicas": 1, "max_loras": 4}]}
    assert slots_of({"run": run}) == {0: 8, 1: 8, 2: 4}
    assert slots_of({"run": run | {"max_loras": None}}) == {}
    assert slots_of({}) == {}
