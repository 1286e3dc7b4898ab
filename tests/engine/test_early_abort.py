"""Early abort in the engine: a target of 0.75 s, a margin of 0.125 s, so 0.625 s of patience."""

from __future__ import annotations

import pytest

from tests.engine.by_hand import prefill_s, step_s
from tests.engine.cases import Case, Row

LONG = Row(0.0, None, 4, 60, 60)
CASE = Case(rows=(), scheduler="early_abort", max_num_seqs=1, max_wait_tokens=0)


def boundaries(count: int) -> list[float]:
    """Ends of the prefill and of the steps of LONG alone."""
    ends = [prefill_s(4)]
    for context in range(5, 5 + count):
        ends.append(ends[-1] + step_s(context))
    return ends


@pytest.mark.parametrize("fast_forward", [True, False])
@pytest.mark.parametrize("comes_s", [2**-10, 2**-7, 0.1])
def test_a_waiting_request_is_aborted_at_the_first_boundary_at_which_its_patience_is_over(
    comes_s: float, fast_forward: bool
) -> None:
    table = CASE.but(rows=(LONG, Row(comes_s, 0, 4, 1, 1))).run(fast_forward=fast_forward).requests()
    ends = boundaries(59)
    assert table.status.tolist() == ["finished", "aborted"]
    assert table.reason[1] == "too old to meet its first-token target"
    assert table.finish_s[1] == min(end for end in ends if end >= comes_s + 0.625)
    assert table.finish_s[0] == ends[-1]


@pytest.mark.parametrize("late_s, status", [(-(2**-20), "aborted"), (0.0, "aborted"), (2**-20, "finished")])
def test_patience_is_over_at_exactly_the_target_less_the_margin(late_s: float, status: str) -> None:
    """The seat becomes free at the end of the long request; the other one has come 0.625 s before it."""
    end_s = boundaries(59)[-1]
    table = CASE.but(rows=(LONG, Row(end_s - 0.625 + late_s, None, 4, 1, 1))).run().requests()
    assert table.status[1] == status
    assert table.finish_s[1] == (end_s if status == "aborted" else end_s + prefill_s(4))


def test_a_replica_whose_requests_were_all_aborted_is_idle_until_the_next_arrival() -> None:
    ends = boundaries(59)
    rows = (LONG, Row(2**-10, None, 4, 1, 1), Row(9.0, None, 4, 1, 1))
    simulation = CASE.but(rows=rows).simulation()
    table = simulation.recorder.requests()
    assert table.latency_s[2] == prefill_s(4)
    assert simulation.fleet.replicas[0].busy_s == pytest.approx(ends[-1] + prefill_s(4))
    assert simulation.fleet.outstanding.tolist() == [0]


@pytest.mark.parametrize("fast_forward", [True, False])
def test_looks_at_an_empty_queue_let_the_arrivals_sink_also_when_no_request_ever_waited(
    fast_forward: bool,
) -> None:
    """Three arrivals make both averages 2, and looks at the empty queue the first one 0.

    After 14 steps the blocks of the three outgrow the pool and the two admitted last, which are the older ones,
    are preempted: two arrivals make int(1.4 + 0) = 1 < 2, so the older one of them goes on first.
    """
    case = CASE.but(
        rows=(Row(0.0, None, 1, 17, 17),) * 3,
        max_num_seqs=1000,
        max_wait_tokens=2,
        capacity=48,
        reserve="paged",
        block_size=16,
        watermark=0.0,
    )
    table = case.run(fast_forward=fast_forward).requests()
    assert table.preemptions.tolist() == [1, 1, 0]
    assert table.finish_s[2] < table.finish_s[0] < table.finish_s[1]
