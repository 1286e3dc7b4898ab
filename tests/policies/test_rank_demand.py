"""LoRAServe's Algorithm 1, step by step, and what holds of every plan."""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simlora.core.adapter import Adapter
from simlora.core.request import Request
from simlora.policies.placement.base import Placed
from simlora.policies.placement.contiguous import Contiguous
from simlora.policies.placement.random import Random
from simlora.policies.placement.rank_demand import RankDemand, assigned, budgets, continued, permuted
from simlora.policies.routing.routing_table import RoutingTable
from tests.policies import hand

POINTS = {8: 1000.0, 128: 500.0}


def adapters(*ranks: int) -> tuple[Adapter, ...]:
    return tuple(Adapter(id, f"a{id}", rank, 100 * rank, rank) for id, rank in enumerate(ranks))


def plan(ranks: Sequence[int], load: Sequence[float], replicas: int) -> list[dict[int, float]]:
    found = assigned(np.array(ranks), np.array(load, dtype=float), replicas)
    return [{id: pytest.approx(share) for id, share in held.items()} for held in found]


class Later(hand.Cluster):
    """The same cluster at another time."""

    def __init__(self, now_s: float, asked_tokens: Sequence[int], replicas: int = 2, **more: object) -> None:
        super().__init__((0,) * replicas, asked_tokens=asked_tokens, **more)  # type: ignore[arg-type]
        self.now_s = now_s


def table(placed: Placed) -> dict[int, dict[int, float]]:
    """By adapter, by replica, the share."""
    return {
        id: dict(zip(at.tolist(), placed.shares[id].tolist(), strict=True))
        for id, at in placed.serves.items()
    }


# Step 1: demand ----------------------------------------------------------------------------


def test_what_comes_next_is_on_the_line_of_least_squares_through_what_came_and_never_below_nothing():
    tps = np.array([3.0, 1.0, 4.0, 1.0, 5.0])
    slope, level = np.polyfit(np.arange(5), tps, 1)
    assert continued(tps[:, None]) == pytest.approx([slope * 5 + level])
    assert continued(np.array([[7.0]])) == pytest.approx([7.0])
    assert continued(np.array([[9.0, 4.0], [3.0, 4.0], [0.0, 4.0]])) == pytest.approx([0.0, 4.0])


def test_demand_is_tokens_of_the_last_period():
    """The first has had twice the tokens, and its rank needs twice as many seconds for each: four of five replicas."""
    policy = RankDemand(POINTS, period_s=10.0)
    both = adapters(128, 8)
    policy.place(both, Later(0.0, (0, 0), 5))
    placed = policy.place(both, Later(10.0, (20_000, 10_000), 5))
    assert sorted(map(len, placed.serves.values())) == [1, 4]
    assert len(placed.serves[0]) == 4
    assert placed.shares[0] == pytest.approx([0.25] * 4)


def test_points_between_two_ranks_lie_on_the_line_between_them():
    """Rank 68 is half-way: 750 tokens/s. Three of it to two of rank 128 need the same."""
    policy = RankDemand(POINTS, period_s=10.0)
    both = adapters(68, 128)
    policy.place(both, Later(0.0, (0, 0)))
    placed = policy.place(both, Later(10.0, (3000, 2000)))
    assert table(placed) in ({0: {0: 1.0}, 1: {1: 1.0}}, {0: {1: 1.0}, 1: {0: 1.0}})


def test_before_anything_is_known_all_are_alike_or_as_in_the_days_before():
    both = adapters(8, 8)
    assert table(RankDemand(POINTS).place(both, Later(0.0, (0, 0)))) == {0: {0: 1.0}, 1: {1: 1.0}}
    known = RankDemand(POINTS).place(both, Later(0.0, (0, 0), history_rps=(3.0, 1.0)))
    assert known.shares[0] == pytest.approx([2 / 3, 1 / 3])
    assert known.serves[1].tolist() == [1]


def test_while_no_request_arrives_the_plan_stays():
    policy = RankDemand(POINTS, period_s=10.0)
    both = adapters(8, 128)
    first = policy.place(both, Later(0.0, (0, 0), history_rps=(1.0, 5.0)))
    assert table(policy.place(both, Later(10.0, (0, 0)))) == table(first)


# Step 2: budgets ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "needs, replicas, found",
    [
        ((1.2, 1.8), 3, [1, 2]),
        ((0.4, 0.4, 3.2), 4, [0, 0, 3]),
        ((0.8,) * 5, 4, [0, 1, 1, 1, 1]),
        ((2.6, 0.6, 0.8), 4, [3, 0, 1]),
        ((4.0,), 4, [4]),
    ],
)
def test_a_rank_has_the_replicas_that_it_needs_rounded(needs, replicas, found):
    """Where they are too many the one that was rounded up most has one less."""
    assert budgets(np.array(needs), replicas).tolist() == found


# Steps 3 and 4: packing --------------------------------------------------------------------


@pytest.mark.parametrize(
    "ranks, load, replicas, found",
    [
        # the busiest fill replicas one after the other: with a target of 1 the second is parted
        ([8, 8, 8], [0.7, 0.8, 0.5], 2, [{1: 1.0, 0: 0.2 / 0.7}, {0: 0.5 / 0.7, 2: 1.0}]),
        # an adapter that needs several replicas has its share of each
        ([8, 8], [2.5, 0.5], 3, [{0: 0.4}, {0: 0.4}, {0: 0.2, 1: 1.0}]),
        ([128, 8, 8], [1.0, 0.5, 0.5], 2, [{1: 1.0, 2: 1.0}, {0: 1.0}]),  # ranks have replicas of their own
        # what is left goes where a higher rank with room is already: rank 8 slows none down
        ([8, 64, 128], [0.2, 1.0, 0.8], 2, [{1: 1.0}, {2: 1.0, 0: 1.0}]),
        # or where there is room at all: rank 128 has no budget either, and goes first
        ([8, 16, 128], [0.95, 0.75, 0.3], 2, [{0: 1.0}, {1: 1.0, 2: 1.0}]),
    ],
)
def test_adapters_are_packed_by_rank(ranks, load, replicas, found):
    assert plan(ranks, load, replicas) == found


def test_an_adapter_that_is_not_asked_for_lies_with_its_rank():
    found = assigned(np.array([8, 8, 128]), np.array([1.0, 0.0, 1.0]), 2)
    assert [set(held) for held in found] == [{0, 1}, {2}]


# Step 5: permuting -------------------------------------------------------------------------


def test_most_bytes_stay_where_they_are():
    last: list[dict[int, float]] = [{0: 1.0}, {1: 1.0}, {2: 1.0}]
    new: list[dict[int, float]] = [{1: 1.0}, {2: 1.0}, {0: 1.0}]
    assert permuted(new, last, np.array([10.0, 20.0, 30.0])) == last


def test_a_large_one_stays_rather_than_two_small_ones():
    last: list[dict[int, float]] = [{0: 1.0}, {1: 1.0, 2: 1.0}]
    new: list[dict[int, float]] = [{1: 1.0, 2: 1.0, 0: 0.5}, {3: 1.0, 0: 0.5}]
    assert permuted(new, last, np.array([50.0, 10.0, 10.0, 1.0]))[0] == {3: 1.0, 0: 0.5}


def moved(new: list[dict[int, float]], last: list[dict[int, float]], sizes: np.ndarray) -> float:
    """Bytes that replicas need and did not have."""
    return sum(float(sizes[id]) for held, had in zip(new, last, strict=True) for id in held if id not in had)


# All of it ---------------------------------------------------------------------------------

LOADS = st.lists(
    st.tuples(st.sampled_from((8, 16, 32, 64, 128)), st.one_of(st.just(0.0), st.floats(0.001, 3.0))),
    min_size=1,
    max_size=30,
).filter(lambda loads: sum(load for _, load in loads) > 0)


@given(loads=LOADS, before=LOADS, replicas=st.integers(1, 9))
def test_every_plan_keeps_what_was_promised(loads, before, replicas):
    ranks, load = np.array([rank for rank, _ in loads]), np.array([load for _, load in loads])
    found = assigned(ranks, load, replicas)
    shares = np.zeros((replicas, len(loads)))
    for replica, held in enumerate(found):
        for id, share in held.items():
            assert share > 0
            shares[replica, id] = share
    assert shares.sum(axis=0) == pytest.approx(np.ones(len(loads))), "shares are 1 together"
    target = load.sum() / replicas
    for replica, held in enumerate(found):
        used = float(shares[replica] @ load)
        last = max((load[id] * share for id, share in held.items()), default=0.0)
        assert used <= target + last + 1e-6, "above the target by more than an adapter's share"
    other = assigned(np.array([rank for rank, _ in before]), np.array([load for _, load in before]), replicas)
    sizes = np.arange(1.0, 1.0 + max(len(loads), len(before)))
    same = permuted(found, other, sizes)
    assert sorted(map(str, same)) == sorted(map(str, found)), "the plan is another one"
    assert moved(same, other, sizes) <= moved(found, other, sizes), (
        "moves more than if no replica were renamed"
    )


# The other placements ----------------------------------------------------------------------


def test_contiguous_has_like_ranks_together_and_as_many_on_each():
    placed = Contiguous().place(adapters(128, 8, 64, 8, 16), hand.Cluster((0,) * 2))
    assert {id: at.tolist() for id, at in placed.serves.items()} == {1: [0], 3: [0], 4: [0], 2: [1], 0: [1]}


def test_random_has_one_replica_for_each_and_all_are_as_likely():
    placed = Random().place(adapters(*(8,) * 4000), hand.Cluster((0,) * 4))
    counts = np.bincount([int(at[0]) for at in placed.serves.values()], minlength=4)
    assert counts.sum() == 4000
    assert abs(counts - 1000).max() < 4 * (4000 * 0.25 * 0.75) ** 0.5


# The routing table -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "shares", [(0.1, 0.6, 0.3), None], ids=["told", "where nothing is said all are alike"]
)
def test_requests_are_routed_by_their_adapters_shares(shares):
    view = hand.Cluster((0,) * 4, shares={0: shares} if shares else None)
    candidates, (adapter,) = np.array([0, 2, 3]), adapters(8)
    request = Request(0, adapter, 0.0, 1, 1)
    counts = np.bincount([RoutingTable().route(request, candidates, view) for _ in range(3000)], minlength=4)
    assert counts[1] == 0
    expected = 3000 * np.array(shares or (1 / 3,) * 3)
    assert (abs(counts[candidates] - expected) < 4 * np.sqrt(expected)).all()
