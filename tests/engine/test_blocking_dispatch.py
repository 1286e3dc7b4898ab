"""Dispatch that asks every replica first, from the event loop that also begins their iterations."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray

from simlora.core.request import Request
from simlora.engine.clients import Clients
from simlora.engine.cluster.client_simulation import ClientSimulation
from simlora.policies.routing.base import Router
from simlora.policies.views import ClusterView
from tests.engine.by_hand import BOTH, prefill_s, step_s, steps_s
from tests.engine.cases import COEFFICIENTS, Case, Row

P = prefill_s(4)
TICK_S = 2**-10
CASE = Case(max_wait_tokens=0, capacity=10_000)


class To(Router):
    """Asks all replicas, and sends the requests to these, one after the other."""

    asks = True

    def __init__(self, replicas: Sequence[int]) -> None:
        self._replicas = iter(replicas)

    def route(self, request: Request, candidates: NDArray[np.int64], view: ClusterView) -> int:
        return next(self._replicas)


def ran(
    *requests: tuple[float, int, int, int], call_s: float = 0.0, replicas: int = 3, fast_forward: bool = True
) -> pd.DataFrame:
    """Serve requests of the base model: arrival, prompt, output, and the replica that the router chooses."""
    rows = [Row(at_s, None, prompt, output, output) for at_s, prompt, output, _ in requests]
    known = {**COEFFICIENTS, "front_end.per_call_s": call_s}
    router = To([replica for *_, replica in requests])
    return CASE.of(*rows, replicas=replicas, coefficients=known).table(
        router=router, fast_forward=fast_forward
    )


@BOTH
def test_a_request_is_dispatched_when_the_iterations_under_way_are_over(fast_forward):
    """The second comes during the first decode step of the first, which loses no time."""
    table = ran((0.0, 4, 4, 0), (P + TICK_S, 4, 1, 1), fast_forward=fast_forward)
    answered_s = P + step_s(5)
    assert table.admitted_s[1] == answered_s
    assert table.first_token_s[1] == answered_s + P
    assert table.finish_s[0] == P + steps_s(3, 5)


@BOTH
def test_until_all_have_answered_no_replica_begins_another_iteration(fast_forward):
    """The prompt of replica 1 takes longer than that of replica 0, which has the third request when both are over."""
    table = ran((0.0, 4, 2, 0), (0.0, 60, 1, 1), (TICK_S, 8, 1, 0), fast_forward=fast_forward)
    answered_s = prefill_s(60)
    assert table.first_token_s[0] == P < answered_s
    assert table.admitted_s[2] == answered_s, "together with what else the replica does next"
    assert table.finish_s[0] == answered_s + prefill_s(8) + step_s(5)


def test_a_replica_begins_its_next_iteration_two_passes_later_for_each_request_that_it_gets():
    """Two run. Of the requests that wait, one a pass is dispatched. A replica needs 3 passes, and 2 for each request.

    With two, nothing waits in the third pass. With four, replica 0 begins in the third pass, and the last request waits
    for that iteration, and the replica that gets the others with it. One that was idle needs one pass, and 2 for the
    first request: it begins in the third pass, too, with those that have come meanwhile.
    """
    running = (0.0, 4, 9, 0), (0.0, 4, 9, 1)
    few = ran(*running, *((TICK_S, 4, 1, 1),) * 2)
    assert few.admitted_s[2:].tolist() == [P] * 2
    many = ran(*running, *((TICK_S, 4, 1, 1),) * 4)
    assert many.admitted_s[2:].tolist() == [P + step_s(5)] * 4
    idle = ran(*running, *((TICK_S, 4, 1, 2),) * 4)
    assert idle.admitted_s[2:].tolist() == [P] * 3 + [P + prefill_s(4, 4, 4)]


def test_requests_that_come_while_others_are_added_hold_nothing_up():
    """As above: the first three have come by replica 1's turn, which then takes 6 passes.

    Replica 0 begins in the third of nine passes and in the sixth, and each time the next dispatch waits for it. With
    the ninth pass replica 1 begins, with all that have come by then, and the last request waits for that.
    """
    running = (0.0, 4, 9, 0), (0.0, 4, 9, 1)
    table = ran(*running, *((TICK_S, 4, 1, 1),) * 10)
    begins_s = P + steps_s(2, 5)
    assert table.admitted_s[2:].tolist() == [begins_s] * 9 + [begins_s + prefill_s(*(4,) * 9)]


def test_the_replicas_are_called_one_after_the_other():
    call_s = 2**-9
    table = ran((0.0, 4, 2, 1), (3 * call_s + TICK_S, 4, 1, 2), call_s=call_s)
    assert table.admitted_s[0] == 3 * call_s
    assert table.admitted_s[1] == 3 * call_s + P + 2 * call_s, "the call of replica 1 ends with its iteration"
    late = ran((0.0, 4, 2, 1), (3 * call_s + P - TICK_S, 4, 1, 2), call_s=call_s)
    assert late.admitted_s[1] == 3 * call_s + P - TICK_S + 3 * call_s, "it is over before it is called"


@pytest.mark.parametrize("call_s", [0.0, 2**-9])
@pytest.mark.parametrize("requests", [1, 3, 5, 7])
def test_requests_that_come_at_a_boundary_find_the_iteration_over_also_where_fast_forward_passes_over_it(
    requests, call_s
):
    """Two replicas decode, and no event marks the boundary between two steps."""
    begun_s = 3 * call_s
    running = (0.0, 4, 9, 0), (0.0, 4, 9, 1)
    rows = (*running[: 1 if call_s else 2], *((begun_s + P + step_s(5), 4, 1, 0),) * requests)
    fast, plain = (ran(*rows, call_s=call_s, fast_forward=fast) for fast in (True, False))
    pd.testing.assert_frame_equal(fast, plain)


def test_limits_of_the_front_end_look_at_a_request_when_it_arrives():
    """Request 1 is rejected while request 0 runs, though that has ended when all replicas have answered."""
    rows = Row(0.0, None, 300, 1, 1), Row(TICK_S, None, 4, 1, 1), Row(2.0, None, 4, 1, 1)
    table = CASE.of(*rows, replicas=2, max_outstanding=1).table(router=To([0, 1]))
    assert table.status.tolist() == ["finished", "rejected", "finished"]
    slow = Row(0.0, 0, 1500, 1, 1), Row(0.5, 0, 4, 1, 1), Row(1.0, 0, 4, 1, 1)
    assert prefill_s(1500) > 2.0
    limited = CASE.of(*slow, replicas=2, max_num_batched_tokens=2000, adapter_rps=2.0, adapter_burst=1)
    assert limited.table(router=To([0, 1, 1])).status.tolist() == ["finished"] * 3, (
        "as fast as they may arrive"
    )


def test_a_run_may_end_while_a_replica_is_held():
    rows = Row(0.0, None, 4, 9, 9), Row(0.0, None, 300, 2, 2), Row(TICK_S, None, 4, 2, 2)
    table = CASE.of(*rows, replicas=2, until_s=0.5 * prefill_s(300)).table(router=To([0, 1, 0]))
    assert table.status.tolist() == ["unfinished"] * 3
    assert table.replica.tolist() == [0, 1, -1]


def test_where_nothing_runs_dispatch_does_not_block():
    rows = tuple(Row(float(at_s), at_s % 2, 8, 5, 5) for at_s in range(6))
    tables = [CASE.of(*rows, replicas=2, router=router).table() for router in ("asking", "pending_time")]
    pd.testing.assert_frame_equal(*tables)


def test_a_client_may_leave_while_its_request_waits_to_be_dispatched():
    """The iteration under way takes longer than its patience; the request behind it is dispatched after that."""
    rows = Row(0.0, None, 300, 1, 1), Row(TICK_S, None, 4, 1, 1), Row(prefill_s(300) - TICK_S, None, 4, 1, 1)
    scenario = CASE.of(*rows, replicas=2).scenario(router=To([0, 1]))
    patience_s = 0.75 * prefill_s(300)
    simulation = ClientSimulation(replace(scenario, clients=Clients(patience_s=patience_s)))
    simulation.run()
    table = simulation.requests()
    assert table.status.tolist() == ["aborted", "aborted", "finished"]
    assert table.replica[1] == -1
    assert table.admitted_s[2] == prefill_s(300), "the GPU goes on to the end"
