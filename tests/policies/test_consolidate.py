"""Whom Punica's consolidation moves, on hand-made clusters, and what moving costs in a real run."""

import pytest

from simlora.core.adapter import Adapter
from simlora.core.request import Request
from simlora.policies.migration.consolidate import Consolidate
from simlora.policies.migration.stay import Stay
from tests.engine.cases import Case, Row
from tests.policies.hand import Cluster as ByHand


def some(*ids: int, tokens: int = 10) -> list[Request]:
    return [Request(id, None, float(id), tokens - 1, 1) for id in ids]


def cluster(*held: list[Request], **changes: object) -> ByHand:
    return ByHand((0,) * len(held), {i: (requests, []) for i, requests in enumerate(held)}, **changes)


def moves(view: ByHand, **arguments: int | None) -> list[tuple[int, int, int]]:
    return [(move.request.id, move.source, move.target) for move in Consolidate(**arguments).plan(view).moves]


@pytest.mark.parametrize(
    "held, most_requests, moved",
    [
        # the least loaded is emptied into the fullest
        ((some(1, 2), some(3), some(4, 5, 6)), None, [(3, 1, 2)]),
        # what does not fit into the fullest goes to the next
        ((some(1, 2, 3), some(4, 5), some(6, 7, 8, 9)), 5, [(4, 1, 2), (5, 1, 0)]),
        ((some(1, 2, 3), some(4, 5), some(6, 7, 8, 9)), 4, []),  # none moves unless all can
        (([], some(1), []), None, []),  # one replica alone keeps its requests
        (([], some(1), some(2, 3)), None, [(1, 1, 2)]),  # an empty replica gets nothing
        ((some(1), some(2), some(3)), None, [(3, 2, 0)]),  # of equals the highest id goes to the lowest
    ],
)
def test_the_least_loaded_replica_is_emptied(held, most_requests, moved):
    assert moves(cluster(*held), most_requests=most_requests) == moved
    assert Stay().plan(cluster(*held)).moves == ()


def test_no_request_moves_to_slots_that_do_not_hold_the_rank():
    high = Adapter(0, "high", 64, 512, 32)
    held = (
        [Request(1, None, 1.0, 9, 1)] * 2,
        [Request(2, high, 2.0, 9, 1)],
        [Request(3, None, 3.0, 9, 1)] * 2,
    )
    assert moves(cluster(*held, max_lora_ranks=(16, 64, 64))) == [(2, 1, 2)]
    assert moves(cluster(*held, max_lora_ranks=(16, 64, 16))) == []


def test_memory_counts_too():
    view = cluster(some(1, 2), some(3), budgets=(29, 100))
    assert moves(view) == []
    assert moves(cluster(some(1, 2), some(3), budgets=(30, 100))) == [(3, 1, 0)]


TWO = Case(
    replicas=2,
    max_wait_tokens=0,
    kernel="merged",
)


@pytest.mark.parametrize("fast_forward", [True, False])
def test_what_comes_at_a_boundary_of_its_target_waits_for_the_next_one(fast_forward):
    """Equal replicas: both are at a boundary when the request leaves, and the target's, of lower number, is over."""
    equal = TWO.but(rows=(Row(0.0, None, 4, 30, 30),) * 2, migrates_every_s=0.25)
    found = equal.run(fast_forward=fast_forward).requests()
    assert found.finish_s[0] == found.finish_s[1]


def test_a_wait_for_weights_that_ends_with_a_move_counts_as_long_as_it_was():
    slow = {**TWO.coefficients, "adapter_load.latency_s": 0.5}
    rows = Row(0.0, 0, 4, 400, 400), Row(0.9, 0, 4, 20, 20)
    found = (
        TWO.but(rows=rows, loader="asynchronous", coefficients=slow, migrates_every_s=1.0).run().requests()
    )
    assert found.migrations[1] == 1
    assert found.cold_start_s[1] == pytest.approx(1.0 - 0.9)
    assert found.cold_start_s[1] <= found.queue_s[1]
