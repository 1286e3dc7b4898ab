"""Replicas on other GPUs or with other limits: each has its own times and memory, and policies are told so."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from simlora.api.facts import adapter_facts
from simlora.core.adapter import Adapter
from simlora.core.errors import InputError
from simlora.core.request import Request
from simlora.engine.cluster.simulation import Simulation
from simlora.engine.scenario import Kind
from simlora.policies.migration.base import Copy, Migration, Move, Plan
from simlora.policies.placement.base import Placed, Placement
from simlora.policies.routing.rank_aware import RankAware
from simlora.policies.views import ClusterView
from tests.engine.by_hand import load_s, prefill_s, steps_s
from tests.engine.cases import ROUTERS, Case, Row

ONE = Row(0.0, None, 9, 5, 5)


def case(*rows: Row, **changes: object) -> Case:
    known = {
        "ranks": (1, 8),
        "replicas": 2,
        "others": 1,
        "kernel": "mbgmv",
        "reserve": "full",
        "eviction": "lru",
    }
    return Case(rows=rows, **(known | changes))  # type: ignore[arg-type]


def test_each_takes_its_own_times() -> None:
    """The second computes in half as long again, and loads in half the time."""
    table = case(ONE, ONE).run().requests()
    assert table.replica.tolist() == [0, 1]
    first_s = prefill_s(9) + steps_s(4, 10)
    assert table.finish_s.tolist() == pytest.approx([first_s, 1.5 * first_s])
    rows = (Row(0.0, 0, 9, 1, 1), Row(0.0, 0, 9, 1, 1))
    loaded = case(*rows).run().requests()
    assert loaded.cold_start_s.tolist() == pytest.approx([load_s(1), load_s(1) / 2])


def test_each_has_its_own_memory() -> None:
    """A request of 100 slots fits only the second, whose pool is half as large again."""
    large = Row(0.0, None, 90, 10, 10)
    of = case(large, large, capacity=80)
    assert of.run().requests().replica.tolist() == [1, 1]
    assert [replica.config.kv_token_budget for replica in of.simulation().fleet.replicas] == [80, 120]
    assert of.simulation().view.kv_token_budgets.tolist() == [80, 120]


def test_a_replica_that_is_too_small_for_a_request_is_not_asked() -> None:
    """Of three the last has half as much memory again; what fits none is rejected."""
    large, small, huge = (Row(i / 10, None, prompt, 10, 10) for i, prompt in enumerate((90, 9, 300)))
    table = case(large, small, huge, capacity=80, replicas=3, router="most_idle").run().requests()
    assert table.status.tolist() == ["finished", "finished", "rejected"]
    assert table.replica.tolist()[:2] == [2, 0]


def test_routers_are_told_each_ones_times() -> None:
    """Of two empty replicas the rank-aware router prefers the faster; alike, the first."""
    of = case(ONE, replicas=3, others=2, router="rank_aware")
    simulation = of.simulation()
    costs = RankAware().one_by_one(Request(9, None, 9.0, 10, 10), simulation.view, 10.0)
    assert costs == [0.0, 0.0, 0.0], "there is no request that could be slowed down"
    steps = [iteration.decode_s(4, 40) for iteration, _ in simulation.view.models]
    assert steps == pytest.approx([steps[0], 1.5 * steps[0], 1.5 * steps[0]])
    loads = case(ONE, ONE, ONE._replace(arrival_s=0.01), replicas=2, router="rank_aware").run().requests()
    assert loads.replica.tolist() == [0, 1, 0], "the third slows down those on the faster one less"


def test_kinds_that_differ_in_nothing_are_as_one() -> None:
    rows = tuple(Row(i / 50, i % 2, 9, 20, 20) for i in range(20))
    of = case(*rows, others=0, replicas=3, router="rank_aware")
    scenario = of.scenario()
    twin = Kind(replicas=1, replica=scenario.replica, calibration=scenario.calibration)
    groups = replace(scenario.cluster, replica_groups=(twin,))
    alike, split = Simulation(scenario), Simulation(replace(of.scenario(), cluster=groups))
    alike.run()
    split.run()
    assert split.recorder.requests().equals(alike.recorder.requests())


@pytest.mark.parametrize(
    "changes, message",
    [
        (
            {"others": 2},
            "cluster.replica_groups has all of the replicas, must leave at least one of cluster.replicas",
        ),
        ({"engines_per_gpu": 2}, "cluster.replica_groups needs cluster.engines_per_gpu=1"),
        (
            {"placement": "rank_demand"},
            "cluster.replica_groups needs another placement: this one takes all replicas for alike",
        ),
        (
            {"migrates_every_s": 1.0, "migration": "selective_ilp"},
            "cluster.replica_groups needs another migration: this one takes all replicas for alike",
        ),
    ],
)
def test_what_cannot_be_is_said_plainly(changes: dict, message: str) -> None:
    with pytest.raises(InputError) as error:
        Simulation(case(ONE, **changes).scenario())
    assert str(error.value) == message


# Slots of another rank ----------------------------------------------------------------------

LOW, HIGH = 0, 1
"""Adapters of rank 1 and 8. The first replica has two slots of rank 1, the others have one of rank 8."""


def slots(*rows: Row, **changes: object) -> Case:
    known = {
        "kernel": "merged",
        "eviction": "lru",
        "reserve": "paged",
        "router": "most_idle",
        "adapter_memory": "slots",
        "max_loras": 2,
        "max_lora_rank": 1,
        "adapter_region_tokens": 2 * 4,
        "own": {"max_loras": 1, "max_lora_rank": 8, "adapter_region_tokens": 32, "max_num_seqs": 3},
    }
    return case(*rows, **(known | changes))


def short(arrival_s: float, adapter: int | None) -> Row:
    return Row(arrival_s, adapter, 9, 5, 5)


@pytest.mark.parametrize("router", ROUTERS)
def test_no_router_sends_a_rank_to_slots_that_do_not_hold_it(router: str) -> None:
    rows = tuple(short(i / 20, (LOW, HIGH, None)[i % 3]) for i in range(30))
    table = slots(*rows, replicas=4, others=1, router=router).run().requests()
    assert (table.status == "finished").all()
    assert (table.replica[1::3] == 3).all()
    assert (table.replica[0::3] != 3).any()


def test_each_has_slots_of_its_own_size_and_number() -> None:
    """One slot of rank 8 makes the second of two requests wait; two of rank 1 hold both adapters of rank 1."""
    simulation = slots(short(0.0, HIGH), short(0.0, 2), ranks=(1, 8, 8)).simulation()
    assert [[each.kv_tokens for each in own] for own in simulation.fleet.adapters] == [[4] * 3, [32] * 3]
    first, second = simulation.recorder.requests().itertuples()
    assert second.queue_s > first.latency_s > 0.0
    both = slots(
        short(0.0, LOW), short(0.0, 2), ranks=(1, 8, 1), replicas=3, others=2, placement="by_max_rank"
    )
    assert both.run().requests().queue_s.max() == pytest.approx(load_s(1) + load_s(1))


def test_policies_and_facts_have_the_limits_of_each() -> None:
    of = slots(short(0.0, LOW), short(0.1, HIGH))
    simulation = of.but(own=of.own | {"max_cpu_loras": 1}).simulation()
    assert adapter_facts(simulation, 1.0)["host_adapters"] == [2, 1]
    view = simulation.view
    assert view.max_num_seqs.tolist() == [1000, 3]
    assert view.max_loras.tolist() == [2, 1]
    assert view.max_lora_ranks.tolist() == [1, 8]
    assert view.kv_token_budgets.tolist() == [1000, 1500]


def test_why_a_rank_cannot_be_served_is_said() -> None:
    alone = slots(short(0.0, HIGH), short(0.0, LOW), replicas=1, others=0).run().requests()
    assert alone.status.tolist() == ["rejected", "finished"]
    assert alone.reason[0] == "its adapter has rank 8, more than replica.max_lora_rank 1"
    beside = slots(short(0.0, 2), short(0.0, HIGH), ranks=(1, 8, 9)).run().requests()
    assert beside.status.tolist() == ["rejected", "finished"]
    assert beside.reason[0] == "no replica is left that holds rank 9"


class Wrong(Placement):
    """Gives every adapter to the first replica, half of the requests for rank 8 to the last, and preloads anywhere."""

    def place(self, adapters: Sequence[Adapter], view: ClusterView) -> Placed:
        first, both = np.array([0]), np.array([0, 2])
        return Placed(
            {LOW: first, HIGH: both, 2: first}, dict.fromkeys(range(3), both), {HIGH: np.array([0.5, 0.5])}
        )


def test_a_placement_is_kept_only_where_the_rank_is_held() -> None:
    scenario = slots(short(0.0, HIGH), short(0.0, 2), ranks=(1, 8, 8), replicas=3).scenario()
    simulation = Simulation(replace(scenario, policies=replace(scenario.policies, placement=Wrong())))
    planner, caches = simulation.placement, simulation.fleet.caches
    assert {id: replicas.tolist() for id, replicas in planner.serves.items()} == {LOW: [0], HIGH: [2], 2: [2]}
    assert planner.shares(simulation.adapters[HIGH], planner.serves[HIGH]).tolist() == [1.0]
    assert [sorted(cache.ready_s) for cache in caches] == [[LOW], [], [LOW]]
    simulation.run()
    assert simulation.recorder.requests().replica.tolist() == [2, 2]


class Away(Migration):
    """Wants all requests of the second replica, and its adapter, on the first."""

    period_s, brings = 2**-4, True

    def plan(self, view: ClusterView) -> Plan:
        moves = tuple(Move(request, 1, 0) for request in view.requests_of(1))
        return Plan(moves, "all to the first", copies=(Copy(view.adapters[HIGH], 0),))


def test_neither_requests_nor_adapters_move_where_the_rank_is_not_held() -> None:
    scenario = slots(Row(0.0, HIGH, 9, 40, 40), Row(0.0, LOW, 9, 40, 40), placement="by_max_rank").scenario()
    simulation = Simulation(replace(scenario, policies=replace(scenario.policies, migration=Away())))
    table = simulation.run().requests()
    assert table.replica.tolist() == [1, 0]
    assert table.migrations.tolist() == [0, 0]
    assert HIGH not in simulation.fleet.caches[0].ready_s


def test_a_request_that_moves_takes_the_slots_of_its_new_replica() -> None:
    """The host of the third, of rank 8, fails; its requests for rank 1 go on in slots of rank 1."""
    of = slots(*(Row(0.0, LOW, 9, 40, 40) for _ in range(3)), replicas=3, failures=((2, 0.3, None),))
    simulation = of.simulation()
    assert (simulation.recorder.requests().status == "finished").all()
    assert sorted(simulation.recorder.requests().migrations) == [0, 0, 1]
    assert [cache.adapter_tokens for cache in simulation.fleet.caches[:2]] == [4, 4]


@pytest.mark.parametrize("back_s, status", [(2.0, "finished"), (None, "rejected")])
def test_a_rank_waits_for_the_host_that_holds_it_if_that_comes_back(
    back_s: float | None, status: str
) -> None:
    rows = (Row(0.0, HIGH, 9, 40, 40), short(1.0, HIGH), short(1.0, LOW))
    table = slots(*rows, failures=((1, 0.5, back_s),)).run().requests()
    assert table.status.tolist() == [status, status, "finished"]
    if back_s is None:
        assert set(table.reason[:2]) == {"no replica is left that holds rank 8"}
    else:
        assert table.first_token_s[1] > back_s
        assert (table.replica[:2] == 1).all()


def test_an_autoscaler_keeps_every_rank_served() -> None:
    says = (
        "adapter adapter-1 has rank 8, must be at most 1 with an autoscaler, the highest replica.max_lora_rank of the "
        "first cluster.least_replicas=1 replicas, which stay on"
    )
    with pytest.raises(InputError) as error:
        slots(short(0.0, HIGH), autoscaler="by_queue").scenario()
    assert str(error.value) == says
    slots(short(0.0, HIGH), autoscaler="by_queue", least_replicas=2).scenario()
