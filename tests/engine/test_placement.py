"""A placement that plans again and again, and adapters that come from another host: what arrives where, and when."""

from collections.abc import Sequence

import numpy as np
import pytest

from simlora.api.facts import adapter_facts, placement_facts
from simlora.core.adapter import Adapter
from simlora.engine.cluster.simulation import Simulation
from simlora.metrics.journal import Replanned
from simlora.policies.placement.base import Placed, Placement
from simlora.policies.views import ClusterView
from tests.engine.by_hand import load_s
from tests.engine.cases import Case, Row

Plan = dict[int, tuple[int, ...]]
EACH: Plan = {0: (0,), 1: (1,)}
SWAPPED: Plan = {0: (1,), 1: (0,)}
BOTH_FIRST: Plan = {0: (0,), 1: (0,)}
CASE = Case(
    ranks=(1, 1), replicas=2, kernel="merged", reserve="full", eviction="lru", adapter_pool="distributed"
)


class Planned(Placement):
    """Plan after plan, one every second; keeps what it was shown."""

    period_s = 1.0

    def __init__(self, *plans: Plan) -> None:
        self.plans = list(plans)
        self.shown: list[tuple[float, list[int]]] = []

    def place(self, adapters: Sequence[Adapter], view: ClusterView) -> Placed:
        self.shown.append((view.now_s, view.asked_tokens.tolist()))
        plan = self.plans[min(len(self.shown), len(self.plans)) - 1]
        return Placed({id: np.array(replicas) for id, replicas in plan.items()})


def ran(*rows: Row, plans: tuple[Plan, ...], **changes: object) -> tuple[Simulation, Planned]:
    placement = Planned(*plans)
    return CASE.of(*rows, **changes).simulation(placement=placement), placement


def one(arrival_s: float, adapter: int, prompt: int = 1) -> Row:
    return Row(arrival_s, adapter, prompt, 1, 1)


@pytest.mark.parametrize(
    "rows, replicas",
    [
        ((one(0.5, 0), one(0.5, 1), one(1.5, 0), one(2.5, 1)), [0, 1, 1, 1]),
        ((one(1.0, 0), one(1.0 + 2**-20, 0)), [0, 1]),
    ],
    ids=["one a second", "at the same moment arrivals are first, as always"],
)
def test_requests_go_where_the_plan_of_their_moment_says(rows, replicas):
    simulation, _ = ran(*rows, plans=(EACH, SWAPPED, EACH))
    assert simulation.recorder.requests().replica.tolist() == replicas


def test_a_placement_sees_prompts_that_arrived_and_outputs_that_ended():
    """The second runs over the end of the first period: its output counts in the next."""
    rows = (Row(0.0, 0, 7, 3, 9), Row(0.5, 1, 5, 60, 60), Row(0.6, None, 50, 2, 2), one(2.5, 1))
    simulation, policy = ran(*rows, plans=(EACH,))
    finish_s = simulation.recorder.requests().finish_s
    assert finish_s[0] < 1.0 < finish_s[1] < 2.0
    assert policy.shown == [(0.0, [0, 0]), (1.0, [10, 5]), (2.0, [10, 65]), (3.0, [10, 67])]


def test_where_every_host_holds_all_nothing_is_fetched():
    simulation, _ = ran(one(1.5, 0, 3), plans=(EACH, SWAPPED), adapter_pool="replicated")
    assert simulation.recorder.requests().cold_start_s.tolist() == pytest.approx([load_s(1)])
    assert simulation.recorder.remote_loads == 0
    assert simulation.recorder.journal.replanned == [Replanned(1.0, 2, 2, 0)]
    assert adapter_facts(simulation, 9.0)["host_adapters"] == [2, 2], "for Figure 18: every host holds all"


def test_what_a_plan_changes_is_written_down_host_by_host():
    """The second plan gives the first host both adapters and the second one none; the third changes nothing."""
    simulation, _ = ran(one(0.5, 0), one(4.5, 1), plans=(EACH, BOTH_FIRST, BOTH_FIRST, SWAPPED))
    assert simulation.recorder.journal.replanned == [
        Replanned(1.0, 1, 1, 64),
        Replanned(2.0, 0, 0, 0),
        Replanned(3.0, 1, 1, 64),  # the second host still holds the other one, which has not been fetched
        Replanned(4.0, 0, 0, 0),
    ]
    names = ("plans", "changes", "adapters_assigned", "adapters_given_up", "assigned_bytes")
    assert placement_facts(simulation) == dict(zip(names, (4, 2, 2, 2, 128), strict=True))
    assert placement_facts(Case(rows=(one(0.0, 0),)).simulation()) is None, "it does not plan anew"


def test_two_replicas_of_a_host_are_one_place_to_hold_an_adapter():
    simulation, _ = ran(one(0.5, 0), one(1.5, 1), plans=(EACH, SWAPPED), replicas_per_host=2)
    assert simulation.recorder.journal.replanned == [Replanned(1.0, 0, 0, 0)]
