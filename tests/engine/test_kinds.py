"""Replicas on different GPUs: each takes its own times, has its own memory, and routers are told so."""

from __future__ import annotations

from dataclasses import replace

import pytest

from simlora.core.errors import InputError
from simlora.core.request import Request
from simlora.engine.cluster.simulation import Simulation
from simlora.engine.scenario import Kind
from simlora.policies.routing.rank_aware import RankAware
from tests.engine.by_hand import load_s, prefill_s, steps_s
from tests.engine.cases import Case, Row

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
