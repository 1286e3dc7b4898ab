"""What dLoRA's released code copies after a plan, by hand: places that plans leave, and adapters in demand."""

from collections.abc import Sequence

from simlora.core.adapter import Adapter
from simlora.policies.migration.base import Move, Plan
from simlora.policies.migration.refill import Refill
from simlora.policies.migration.selective_ilp import SelectiveIlp
from tests.policies.hand import A, B, C
from tests.policies.test_ilp import Cluster, some

D = Adapter(3, "d", 2, 128, 8)


def copies(
    at: dict[Adapter, set[int]],
    held: Sequence[list],
    asked: Sequence[int],
    replicas: Sequence[int],
    *moves: Move,
) -> list[tuple[str, int]]:
    """The copies after a plan for these replicas, of four adapters that had been asked for so often."""
    there = {adapter.id: replicas for adapter, replicas in at.items()}
    view = Cluster(*held, at=there, adapters=(A, B, C, D), asked_requests=asked)
    refill = Refill()
    refill.begin(view)
    return [(adapter.name, replica) for adapter, replica in refill.copies(replicas, Plan(moves), view)]


def test_a_place_that_a_plan_leaves_goes_to_the_most_requested():
    """B has no request on 1 any more, and C none on 2. Both have other copies, and A is asked for most."""
    at = {A: {0}, B: {0, 1}, C: {0, 2}, D: {1, 2}}
    held = [[], some(1, of=D), some(2, of=D)]
    assert copies(at, held, [9, 2, 2, 2], [1, 2]) == [("a", 1), ("a", 2)]
    assert copies(at, held, [9, 2, 2, 2], [1]) == [("a", 1)], "2 takes no part: C keeps its place"


def test_the_first_copy_is_of_the_adapter_with_the_fewest():
    at = {A: {0, 1, 2}, B: {0}, C: {0, 1, 2}, D: {1, 2}}
    held = [[], some(1, of=D), some(2, of=A)]
    assert copies(at, held, [9, 2, 2, 2], [1]) == [("b", 1), ("a", 1)]


def test_an_adapter_without_a_copy_comes_first():
    """B and C lose their only place, one after the other: C is the second, although A is asked for most."""
    at = {A: {0}, B: {1}, C: {1}, D: {0, 1}}
    assert copies(at, [[], some(1, of=D)], [9, 2, 1, 2], [1]) == [("b", 1), ("c", 1)]


def test_adapters_go_where_their_requests_move():
    at = {A: {0, 1}, B: {0}, C: {1}, D: {0}}
    request = some(1, of=B)[0]
    held = [[request], some(2, 3, of=C)]
    assert copies(at, held, [1, 1, 1, 9], [0, 1], Move(request, 0, 1)) == [("d", 0), ("a", 0)], (
        "B and C have the two places of 1, and 0 has three free ones"
    )


def test_only_the_released_code_copies_after_a_plan():
    view = Cluster(
        some(*range(40)), some(50, of=B), at={A.id: {0}, B.id: {1}, C.id: {0, 1}}, asked_requests=(9, 8, 7)
    )
    assert SelectiveIlp().plan(view).copies == ()
    assert SelectiveIlp("released").plan(view).copies != ()
    assert SelectiveIlp("released").plan(Cluster(some(1), some(2))).copies == (), (
        "without a cause there is no plan"
    )
