"""Replicas on other GPUs or with other limits: each has its own times and memory, and policies are told so."""

import numpy as np
import pytest

from simlora.api.facts import adapter_facts
from simlora.core.request import Request
from simlora.engine.cluster.simulation import Simulation
from simlora.policies.migration.base import Copy, Move, Plan
from simlora.policies.routing.rank_aware import RankAware
from simlora.policies.views import ClusterView
from tests.engine.by_hand import load_s
from tests.engine.cases import ROUTERS, Case, Row
from tests.engine.moving import Fixed, Planned

ONE = Row(0.0, None, 9, 5, 5)
case = Case(ranks=(1, 8), replicas=2, others=1, reserve="full", eviction="lru").of


def test_each_has_its_own_memory_and_one_that_is_too_small_for_a_request_is_not_asked():
    """Of three the last has half as much memory again; what fits none is rejected."""
    large, small, huge = (Row(i / 10, None, prompt, 10, 10) for i, prompt in enumerate((90, 9, 300)))
    simulation = case(large, small, huge, capacity=80, replicas=3, router="most_idle").simulation()
    table = simulation.recorder.requests()
    assert table.status.tolist() == ["finished", "finished", "rejected"]
    assert table.replica.tolist()[:2] == [2, 0]
    assert [replica.config.kv_token_budget for replica in simulation.fleet.replicas] == [80, 80, 120]
    assert simulation.view.kv_token_budgets.tolist() == [80, 80, 120]


def test_routers_are_told_each_ones_times():
    """Of two empty replicas the rank-aware router prefers the faster; alike, the first."""
    simulation = case(ONE, replicas=3, others=2, router="rank_aware").simulation()
    costs = RankAware().one_by_one(Request(9, None, 9.0, 10, 10), simulation.view, 10.0)
    assert costs == [0.0, 0.0, 0.0], "there is no request that could be slowed down"
    steps = [iteration.decode_s(4, 40) for iteration, _ in simulation.view.models]
    assert steps == pytest.approx([steps[0], 1.5 * steps[0], 1.5 * steps[0]])
    table = case(ONE, ONE, ONE._replace(arrival_s=0.01), router="rank_aware").table()
    assert table.replica.tolist() == [0, 1, 0], "the third slows down those on the faster one less"


# Slots of another rank ----------------------------------------------------------------------

LOW, HIGH = 0, 1
"""Adapters of rank 1 and 8. The first replica has two slots of rank 1, the others have one of rank 8."""


OWN = {"max_loras": 1, "max_lora_rank": 8, "adapter_region_tokens": 32, "max_num_seqs": 3}
IN_SLOTS = case(adapter_memory="slots", max_loras=2, max_lora_rank=1, adapter_region_tokens=2 * 4, own=OWN)
slots = IN_SLOTS.but(kernel="merged", reserve="paged", router="most_idle").of


def short(arrival_s: float, adapter: int | None) -> Row:
    return Row(arrival_s, adapter, 9, 5, 5)


def long(adapter: int) -> Row:
    return Row(0.0, adapter, 9, 40, 40)


@pytest.mark.parametrize("router", ROUTERS)
def test_no_router_sends_a_rank_to_slots_that_do_not_hold_it(router):
    rows = tuple(short(i / 20, (LOW, HIGH, None)[i % 3]) for i in range(30))
    table = slots(*rows, replicas=4, others=1, router=router).table()
    assert (table.status == "finished").all()
    assert (table.replica[1::3] == 3).all()
    assert (table.replica[0::3] != 3).any()


def test_each_has_slots_of_its_own_size_and_number():
    """One slot of rank 8 makes the second of two requests wait; two of rank 1 hold both adapters of rank 1."""
    simulation = slots(short(0.0, HIGH), short(0.0, 2), ranks=(1, 8, 8)).simulation()
    assert [[each.kv_tokens for each in own] for own in simulation.fleet.adapters] == [[4] * 3, [32] * 3]
    first, second = simulation.recorder.requests().itertuples()
    assert second.queue_s > first.latency_s > 0.0
    both = slots(
        short(0.0, LOW), short(0.0, 2), ranks=(1, 8, 1), replicas=3, others=2, placement="by_max_rank"
    )
    assert both.table().queue_s.max() == pytest.approx(load_s(1) + load_s(1))


def test_policies_and_facts_have_the_limits_of_each():
    of = slots(short(0.0, LOW), short(0.1, HIGH))
    simulation = of.but(own=of.own | {"max_cpu_loras": 1}).simulation()
    assert adapter_facts(simulation, 1.0)["host_adapters"] == [2, 1]
    view = simulation.view
    limits = (view.max_num_seqs, view.max_loras, view.max_lora_ranks, view.kv_token_budgets)
    assert [each.tolist() for each in limits] == [[1000, 3], [2, 1], [1, 8], [1000, 1500]]


@pytest.mark.parametrize(
    "rows, changes, reason",
    [
        (
            (short(0.0, HIGH), short(0.0, LOW)),
            {"replicas": 1, "others": 0},
            "its adapter has rank 8, more than replica.max_lora_rank 1",
        ),
        ((short(0.0, 2), short(0.0, HIGH)), {"ranks": (1, 8, 9)}, "no replica is left that holds rank 9"),
    ],
)
def test_why_a_rank_cannot_be_served_is_said(rows, changes, reason):
    table = slots(*rows, **changes).table()
    assert table.status.tolist() == ["rejected", "finished"]
    assert table.reason[0] == reason


def test_a_placement_is_kept_only_where_the_rank_is_held():
    """It gives every adapter to the first, half of the requests for rank 8 to the last, and preloads anywhere."""
    first, both = np.array([0]), np.array([0, 2])
    serves, preloads = {LOW: first, HIGH: both, 2: first}, dict.fromkeys(range(3), both)
    wrong = Fixed(serves=serves, preloads=preloads, shares={HIGH: np.array([0.5, 0.5])})
    of = slots(short(0.0, HIGH), short(0.0, 2), ranks=(1, 8, 8), replicas=3)
    simulation = Simulation(of.scenario(placement=wrong))
    planner, caches = simulation.placement, simulation.fleet.caches
    assert {id: replicas.tolist() for id, replicas in planner.serves.items()} == {LOW: [0], HIGH: [2], 2: [2]}
    assert planner.shares(simulation.adapters[HIGH], planner.serves[HIGH]).tolist() == [1.0]
    assert [sorted(cache.ready_s) for cache in caches] == [[LOW], [], [LOW]]
    assert simulation.run().requests().replica.tolist() == [2, 2]


def test_neither_requests_nor_adapters_move_where_the_rank_is_not_held():
    def all_to_the_first(view: ClusterView) -> Plan:
        moves = tuple(Move(request, 1, 0) for request in view.requests_of(1))
        return Plan(moves, "all to the first", copies=(Copy(view.adapters[HIGH], 0),))

    migration = Planned(all_to_the_first, 2**-4, brings=True, plans=99)
    simulation = slots(long(HIGH), long(LOW), placement="by_max_rank").simulation(migration=migration)
    table = simulation.recorder.requests()
    assert (table.replica.tolist(), table.migrations.tolist()) == ([1, 0], [0, 0])
    assert HIGH not in simulation.fleet.caches[0].ready_s


@pytest.mark.parametrize("back_s, status", [(2.0, "finished"), (None, "rejected")])
def test_a_rank_waits_for_the_host_that_holds_it_if_that_comes_back(back_s, status):
    table = slots(long(HIGH), short(1.0, HIGH), short(1.0, LOW), failures=((1, 0.5, back_s),)).table()
    assert table.status.tolist() == [status, status, "finished"]
    if back_s is None:
        assert set(table.reason[:2]) == {"no replica is left that holds rank 8"}
    else:
        assert table.first_token_s[1] > back_s
        assert (table.replica[:2] == 1).all()
