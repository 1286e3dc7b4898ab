"""Early abort in the engine: a target of 0.75 s, a margin of 0.125 s, so 0.625 s of patience."""

from __future__ import annotations

from itertools import accumulate

import pytest

from tests.engine.by_hand import prefill_s, step_s
from tests.engine.cases import Case, Row

LONG = Row(0.0, None, 4, 60, 60)
CASE = Case(rows=(), scheduler="early_abort", max_num_seqs=1, max_wait_tokens=0)
ENDS_S = list(accumulate((step_s(context) for context in range(5, 5 + 59)), initial=prefill_s(4)))
"""Ends of the prefill and of the steps of LONG alone."""


@pytest.mark.parametrize("comes_s", [2**-10, 2**-7, 0.1])
def test_a_waiting_request_is_aborted_at_the_first_boundary_at_which_its_patience_is_over(
    comes_s: float,
) -> None:
    table = CASE.but(rows=(LONG, Row(comes_s, 0, 4, 1, 1))).table()
    assert table.status.tolist() == ["finished", "aborted"]
    assert table.reason[1] == "too old to meet its first-token target"
    assert table.finish_s[1] == min(end_s for end_s in ENDS_S if end_s >= comes_s + 0.625)
    assert table.finish_s[0] == ENDS_S[-1]


@pytest.mark.parametrize("late_s, status", [(-(2**-20), "aborted"), (0.0, "aborted"), (2**-20, "finished")])
def test_patience_is_over_at_exactly_the_target_less_the_margin(late_s: float, status: str) -> None:
    """The seat becomes free at the end of the long request; the other one has come 0.625 s before it."""
    late = CASE.but(rows=(LONG, Row(ENDS_S[-1] - 0.625 + late_s, None, 4, 1, 1))).table().loc[1]
    assert late.status == status
    assert late.finish_s == ENDS_S[-1] + (prefill_s(4) if status == "finished" else 0.0)


def test_a_replica_whose_requests_were_all_aborted_is_idle_until_the_next_arrival() -> None:
    rows = (LONG, Row(2**-10, None, 4, 1, 1), Row(9.0, None, 4, 1, 1))
    simulation = CASE.but(rows=rows).simulation()
    assert simulation.recorder.requests().latency_s[2] == prefill_s(4)
    assert simulation.fleet.replicas[0].busy_s == pytest.approx(ENDS_S[-1] + prefill_s(4))
    assert simulation.fleet.outstanding.tolist() == [0]


def test_looks_at_an_empty_queue_let_the_arrivals_sink_also_when_no_request_ever_waited():
    """Three arrivals make both averages 2, and looks at the empty queue the first one 0.

    After 14 steps the blocks of the three outgrow the pool and the two admitted last, which are the older ones,
    are preempted: two arrivals make int(1.4 + 0) = 1 < 2, so the older one of them goes on first.
    """
    paged = {"capacity": 48, "reserve": "paged", "block_size": 16, "watermark": 0.0}
    case = CASE.but(rows=(Row(0.0, None, 1, 17, 17),) * 3, max_num_seqs=1000, max_wait_tokens=2, **paged)
    table = case.table()
    assert table.preemptions.tolist() == [1, 1, 0]
    assert table.finish_s[2] < table.finish_s[0] < table.finish_s[1]
