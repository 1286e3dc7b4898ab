"""A placement that plans again and again, and adapters that come from another host: what arrives where, and when."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from simlora.api.facts import adapter_facts, placement_facts
from simlora.core.adapter import Adapter
from simlora.core.errors import InputError
from simlora.engine.cluster.simulation import Simulation
from simlora.metrics.journal import Replanned
from simlora.policies.placement.base import Placed, Placement
from simlora.policies.views import ClusterView
from tests.engine.by_hand import load_s, prefill_s
from tests.engine.cases import Case, Row

NETWORK_S = 2**-9 + 64 / 1024
"""An adapter of rank 1 over the network: its latency, and its 64 bytes."""


class Planned(Placement):
    """Plan after plan, one every second; keeps what it was shown."""

    period_s = 1.0

    def __init__(self, *plans: dict[int, tuple[int, ...]]) -> None:
        self.plans = list(plans)
        self.shown: list[tuple[float, list[int]]] = []

    def place(self, adapters: Sequence[Adapter], view: ClusterView) -> Placed:
        self.shown.append((view.now_s, view.asked_tokens.tolist()))
        plan = self.plans[min(len(self.shown), len(self.plans)) - 1]
        return Placed({id: np.array(replicas) for id, replicas in plan.items()})


def ran(of: Case, placement: Placement) -> Simulation:
    scenario = of.scenario()
    simulation = Simulation(replace(scenario, policies=replace(scenario.policies, placement=placement)))
    simulation.run()
    return simulation


def case(*rows: Row, **changes: object) -> Case:
    known = {"ranks": (1, 1), "replicas": 2, "kernel": "merged", "reserve": "full", "eviction": "lru"}
    return Case(rows=rows, **(known | {"adapter_pool": "distributed"} | changes))  # type: ignore[arg-type]


EACH = {0: (0,), 1: (1,)}
SWAPPED = {0: (1,), 1: (0,)}


def test_requests_go_where_the_plan_of_their_moment_says() -> None:
    rows = (Row(0.5, 0, 1, 1, 1), Row(0.5, 1, 1, 1, 1), Row(1.5, 0, 1, 1, 1), Row(2.5, 1, 1, 1, 1))
    simulation = ran(case(*rows), Planned(EACH, SWAPPED, EACH))
    assert simulation.recorder.requests().replica.tolist() == [0, 1, 1, 1]


def test_a_plan_comes_before_a_request_that_arrives_after_it_and_after_one_that_arrives_with_it() -> None:
    """At the same moment arrivals are first, as always."""
    rows = (Row(1.0, 0, 1, 1, 1), Row(1.0 + 2**-20, 0, 1, 1, 1))
    simulation = ran(case(*rows), Planned(EACH, SWAPPED))
    assert simulation.recorder.requests().replica.tolist() == [0, 1]


def test_a_placement_sees_prompts_that_arrived_and_outputs_that_ended() -> None:
    """The second runs over the end of the first period: its output counts in the next."""
    rows = (Row(0.0, 0, 7, 3, 9), Row(0.5, 1, 5, 60, 60), Row(0.6, None, 50, 2, 2), Row(2.5, 1, 1, 1, 1))
    policy = Planned(EACH)
    table = ran(case(*rows), policy).recorder.requests()
    assert table.finish_s[0] < 1.0 < table.finish_s[1] < 2.0
    assert policy.shown == [(0.0, [0, 0]), (1.0, [10, 5]), (2.0, [10, 65]), (3.0, [10, 67])]


def test_an_adapter_of_another_host_comes_over_its_pcie_and_the_network() -> None:
    """The second time it lies in the own host's memory, and takes a load; the old host has given it up."""
    rows = (Row(1.5, 0, 3, 1, 1), Row(9.0, 0, 3, 1, 1))
    simulation = ran(case(*rows, eviction="on_demand"), Planned(EACH, SWAPPED))
    table = simulation.recorder.requests()
    assert table.cold_start_s.tolist() == pytest.approx([load_s(1) + NETWORK_S, load_s(1)])
    assert table.ttft_s[0] == pytest.approx(load_s(1) + NETWORK_S + prefill_s(3))
    assert (simulation.recorder.remote_loads, simulation.recorder.adapter_loads) == (1, 2)
    assert simulation.store is not None
    assert [sorted(hosts) for hosts in simulation.store.holders] == [[1], [1]]
    assert simulation.store.most_held == [1, 2]


def test_a_copy_for_another_host_and_the_holder_s_own_load_share_its_link() -> None:
    """The holder's is first, as its number is lower."""
    rows = (Row(1.5, 0, 3, 1, 1), Row(1.5, 1, 3, 1, 1))
    table = ran(case(*rows), Planned({0: (0,), 1: (0, 1)}, {0: (1,), 1: (0,)})).recorder.requests()
    assert table.replica.tolist() == [1, 0]
    assert table.cold_start_s.tolist() == pytest.approx([2 * load_s(1) + NETWORK_S, load_s(1)])


def test_where_every_host_holds_all_nothing_is_fetched() -> None:
    rows = (Row(1.5, 0, 3, 1, 1),)
    simulation = ran(case(*rows, adapter_pool="replicated"), Planned(EACH, SWAPPED))
    assert simulation.recorder.requests().cold_start_s.tolist() == pytest.approx([load_s(1)])
    assert simulation.recorder.remote_loads == 0
    assert simulation.recorder.journal.replanned == [Replanned(1.0, 2, 2, 0)]
    assert adapter_facts(simulation, 9.0)["host_adapters"] == [2, 2], "for Figure 18: every host holds all"


def test_what_a_plan_changes_is_written_down_host_by_host() -> None:
    """The second plan gives the first host both adapters and the second one none; the third changes nothing."""
    rows = (Row(0.5, 0, 1, 1, 1), Row(4.5, 1, 1, 1, 1))
    simulation = ran(case(*rows), Planned(EACH, {0: (0,), 1: (0,)}, {0: (0,), 1: (0,)}, SWAPPED))
    assert simulation.recorder.journal.replanned == [
        Replanned(1.0, 1, 1, 64),
        Replanned(2.0, 0, 0, 0),
        Replanned(3.0, 1, 1, 64),  # the second host still holds the other one, which has not been fetched
        Replanned(4.0, 0, 0, 0),
    ]
    assert placement_facts(simulation) == {
        "plans": 4,
        "changes": 2,
        "adapters_assigned": 2,
        "adapters_given_up": 2,
        "assigned_bytes": 128,
    }


def test_two_replicas_of_a_host_are_one_place_to_hold_an_adapter() -> None:
    rows = (Row(0.5, 0, 1, 1, 1), Row(1.5, 1, 1, 1, 1))
    simulation = ran(case(*rows, replicas_per_host=2), Planned(EACH, SWAPPED))
    assert simulation.recorder.journal.replanned == [Replanned(1.0, 0, 0, 0)]


def test_a_placement_that_does_not_plan_anew_has_nothing_to_say() -> None:
    assert placement_facts(case(Row(0.0, 0, 1, 1, 1)).simulation()) is None


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"adapter_pool": "shared"}, "cluster.adapter_pool is 'shared'; "),
        ({"loader": "cpu_assisted"}, "loader=cpu_assisted computes with adapters in host memory"),
        ({"max_cpu_loras": 4}, "cluster.adapter_pool=distributed limits a host by host.memory_bytes"),
    ],
)
def test_what_cannot_be_is_said_plainly(changes: dict[str, object], message: str) -> None:
    with pytest.raises(InputError) as error:
        Simulation(case(Row(0.0, 0, 1, 1, 1), **changes).scenario())
    assert str(error.value).startswith(message)
