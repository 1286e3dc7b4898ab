"""What every policy promises, checked at every decision of real runs.

Policies are found by walking simlora.policies: a new one is under test as soon as its file is there.
Each runs in its slot in an otherwise ordinary system. At every call it gets a view that shows what the
protocol names and nothing else; a copy of it is asked first and must answer the same; what it answers
must be valid; and the view must be as before.
"""

import inspect
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import event, given, reject
from hypothesis import strategies as st

from simlora.checking.guard import Guard, cluster_state
from simlora.checking.watched import (
    WatchedAutoscaler,
    WatchedEviction,
    WatchedLoader,
    WatchedMigration,
    WatchedRouter,
    WatchedScheduler,
    check_placed,
    twins,
)
from simlora.core.adapter import Adapter
from simlora.core.errors import InputError
from simlora.core.request import Request
from simlora.engine.clients import Clients
from simlora.engine.cluster.client_simulation import ANSWERED, GAVE_UP, ClientSimulation
from simlora.engine.cluster.simulation import Simulation
from simlora.engine.requirements import check
from simlora.engine.scenario import ScalingConfig, Scenario
from simlora.latency.calibration import Calibration
from simlora.latency.kernels import Kernel, LoraWork, priced
from simlora.policies.eviction.swapper import Swapper
from simlora.policies.placement.base import Placed, Placement
from simlora.policies.placement.burst_tolerance import BurstTolerance
from simlora.policies.placement.dedicated import Dedicated
from simlora.policies.views import ClusterView
from tests.builds import ARRAYS
from tests.engine.cases import (
    LOADERS,
    PLAIN,
    Case,
    apart,
    cases,
    divided,
    family,
    served,
    shared_prefixes,
    speculative,
    swapped,
    tiered,
)
from tests.examples import share
from tests.policies import hand as by_hand
from tests.policies.catalogue import SLOTS, make, policies

ANY = cases(loaders=tuple(LOADERS), preemptions=("recompute", "swap"))
SCHEDULERS, LOADING, EVICTIONS, ROUTERS, PLACEMENTS, MIGRATIONS, KERNELS, AUTOSCALERS = map(policies, SLOTS)
SWAPPERS = [policy for policy in EVICTIONS if issubclass(policy, Swapper)]
ALONE = [policy for policy in EVICTIONS if policy not in SWAPPERS]
"""Those that decide over adapters alone."""
few = share(1 / 8)


@pytest.fixture(autouse=True, scope="module")
def twins_know_the_same_requests():
    """A copy of a policy remembers the same requests and adapters, not copies of those."""
    with twins():
        yield


def where_it_goes(policy: type, case: Case) -> Case:
    """Return the case with the memory that an eviction policy requires."""
    if policy in SWAPPERS:
        return case.but(prefix_caching=True, host_kv_tokens=1000, reserve="paged")
    if policy in ALONE and policy.evicts_in_use and case.adapter_memory != "slots":
        slots = case.max_loras or 3
        region_tokens = 4 * max(case.ranks) * slots
        alike = case.but(others=0, own={})  # other replicas may have no slots
        return alike.but(adapter_memory="slots", max_loras=slots, adapter_region_tokens=region_tokens)
    return case


@pytest.mark.parametrize("policy", EVICTIONS)
@pytest.mark.parametrize("short_tokens", [0, 5])
def test_of_no_adapters_none_is_evicted(policy, short_tokens):
    assert list(make(policy).victims((), short_tokens)) == []


@pytest.mark.parametrize("policy", SWAPPERS)
@given(
    cost_s=st.floats(0, 1e3),
    visits=st.integers(0, 10**9),
    used_s=st.floats(0, 1e6),
    later_s=st.floats(0, 1e6),
    needed=st.floats(0, 1e4),
    resident=st.integers(0, 10**4),
)
def test_a_swapper_keeps_its_promises(policy, cost_s, visits, used_s, later_s, needed, resident):
    swapper = make(policy)
    key = swapper.key(cost_s, visits, used_s)
    assert not math.isnan(key)
    assert swapper.key(cost_s, visits + 1, used_s + later_s) >= key, (
        "worth less the more and the later it is used"
    )
    assert swapper.key(2 * cost_s, visits, used_s) >= key, "worth less the more it costs"
    assert 0 <= swapper.fade(later_s) <= swapper.most_fade
    assert swapper.fade(later_s) <= swapper.fade(0.0), "fades more the longer it is idle"
    assert swapper.reward(needed, resident) >= 0
    assert swapper.reward(needed, resident) == 0 or needed > resident, "rewards more adapters than are needed"


@pytest.mark.parametrize("policy", SWAPPERS)
@given(case=swapped(loaders=tuple(LOADERS)))
@few
def test_a_swapper_serves_all_requests(policy, case):
    assert case.run(eviction=lambda: make(policy)).ended == len(case.rows)


class OddOnes(Placement):
    """Each adapter on some of the replicas only, so that candidates have holes."""

    def place(self, adapters: Sequence[Adapter], view: ClusterView) -> Placed:
        everywhere = np.arange(len(view.outstanding))
        return Placed(
            {a.id: everywhere[(everywhere + a.id) % 2 == 0] for a in adapters if len(everywhere) > 1}
        )


PLACED = st.builds(Dedicated) | st.builds(BurstTolerance, request_tokens=st.just(5)) | st.builds(OddOnes)


WATCHES: dict[str, tuple[list[type], Callable[[type], Any]]] = {
    "scheduler": (SCHEDULERS, lambda policy: lambda: WatchedScheduler(make(policy))),
    "loader": (LOADING, lambda policy: lambda: WatchedLoader(make(policy))),
    "eviction": (ALONE, lambda policy: lambda: WatchedEviction(make(policy))),
    "router": (ROUTERS, lambda policy: WatchedRouter(make(policy))),
    "decode_router": (ROUTERS, lambda policy: WatchedRouter(make(policy))),
    "migration": (MIGRATIONS, lambda policy: WatchedMigration(make(policy), period_s=2**-3, delay_s=2**-6)),
    "autoscaler": (AUTOSCALERS, lambda policy: WatchedAutoscaler(make(policy))),
}
"""By slot, its policies, and what fills the slot to watch one."""


def watched(slot: str, policy: type, case: Case) -> Scenario:
    """A case in which a policy fills a slot and is watched."""
    scenario = (where_it_goes(policy, case) if slot == "eviction" else case).scenario()
    watching = WATCHES[slot][1](policy)
    if slot == "autoscaler":
        return replace(scenario, scaling=ScalingConfig(autoscaler=watching, boot_s=2**-3))
    return replace(scenario, policies=replace(scenario.policies, **{slot: watching}))


@pytest.mark.parametrize(
    "slot, policy",
    [(slot, policy) for slot, (found, _) in WATCHES.items() if slot != "decode_router" for policy in found],
)
@given(data=st.data())
@few
def test_a_policy_keeps_its_promises(slot, policy, data):
    slots = divided(adapter_memories=("slots",), evictions=("lru",))
    case = data.draw(ANY | slots if slot == "eviction" else ANY)
    scenario = watched(slot, policy, case)
    if slot == "router":
        chosen = replace(scenario.policies, placement=data.draw(PLACED))
        scenario = replace(scenario, policies=chosen)
    assert Simulation(scenario).run().ended == len(case.rows)


@pytest.mark.parametrize("policy", ROUTERS)
def test_with_one_candidate_there_is_no_choice(policy):
    router, view = make(policy), Guard(by_hand.Cluster((0,) * 5), ClusterView)
    for only in (3, 0, 4):
        assert router.route(Request(0, None, 0.0, 1, 1), np.array([only]), view) == only


@pytest.mark.parametrize("policy", PLACEMENTS)
@pytest.mark.parametrize("count", [0, 1, 20])
@pytest.mark.parametrize("history", [None, range(20)], ids=["no history", "history"])
def test_a_placement_keeps_its_promises(policy, count, history):
    adapters = tuple(Adapter(i, f"a{i}", 8, 512, 32) for i in range(count))
    cluster = by_hand.Cluster((0,) * 5, history_rps=history and history[:count], asked_tokens=(0,) * count)
    before = cluster_state(cluster)
    placed, twin = (
        make(policy).place(adapters, Guard(cluster, ClusterView, rng=np.random.default_rng(1)))
        for _ in range(2)
    )
    check_placed(placed, twin, set(range(count)), 5)
    assert cluster_state(cluster) == before


# Beside mechanisms that the systems of the papers do not have --------------------------------

ORDINARY: dict[str, Any] = {
    "loaders": tuple(LOADERS),
    "reserves": ("full", "paged"),
    "schedulers": PLAIN,
    "evictions": ("lru", "on_demand"),
    "adapter_memories": ("unified",),
}
APART = "prefill and decode are apart"
BESIDE = {
    "KV is kept below the host": tiered(shared_prefixes, **ORDINARY),
    "a draft proposes tokens": speculative(family, **ORDINARY),
    APART: apart(**ORDINARY),
    "a LoRA server has the adapters": served(),
    "clients come back": cases(**ORDINARY),
}
CLIENTS = {
    "clients come back": st.just(Clients(patience_s=0.5, retries=2, backoff_s=0.125)),
    APART: st.sampled_from((None, Clients(outstanding=3, think_s=0.25))),
}


@pytest.mark.parametrize("mechanism", BESIDE)
@given(data=st.data())
@share(1 / 4)
def test_policies_keep_their_promises_where(mechanism, data):
    slots = [slot for slot in WATCHES if slot != "decode_router" or mechanism == APART]
    slot = data.draw(st.sampled_from(slots))
    policy, case = data.draw(st.sampled_from(WATCHES[slot][0])), data.draw(BESIDE[mechanism])
    clients = data.draw(CLIENTS.get(mechanism, st.none()))
    try:  # tests/engine/test_refusals.py has what is refused
        scenario = watched(slot, policy, case)
        if clients is not None:
            scenario = replace(scenario, clients=clients)
        check(scenario)
    except InputError:
        reject()
    event(f"{slot}={policy.__name__}")
    if clients is not None:
        simulation = ClientSimulation(scenario)
        simulation.run()
        calls = simulation.calls()
        assert {call.status for call in calls} <= {ANSWERED, GAVE_UP}
        assert sum(call.attempts for call in calls) == len(simulation.requests())
        finished = (simulation.requests().status == "finished").sum()
        assert finished == sum(call.status == ANSWERED for call in calls)
    else:
        recorder = Simulation(scenario).run()
        assert recorder.ended == len(case.rows) or case.until_s is not None


class EveryCoefficient(Mapping[str, float]):
    """A calibration that has whatever is asked for."""

    def __getitem__(self, name: str) -> float:
        return 1e-6 * (1 + len(name))

    def __iter__(self):
        return iter(())

    def __len__(self) -> int:
        return 0


def kernel_of(policy: type[Kernel]) -> Kernel:
    slots = {"slots": 9, "max_lora_rank": 64} if "slots" in inspect.signature(policy).parameters else {}
    return policy(Calibration("test", "gpu", "model", 1, {}, EveryCoefficient()), **slots)


@pytest.mark.parametrize("policy", KERNELS)
def test_a_kernel_keeps_its_promises(policy):
    kernel, twin = kernel_of(policy), kernel_of(policy)
    less, more = LoraWork(3, 3 * 8, 8, 1), LoraWork(30, 30 * 64, 64, 9)
    for cost_s, again_s in ((kernel.decode_s, twin.decode_s), (kernel.prefill_s, twin.prefill_s)):
        assert cost_s(LoraWork(0, 0, 0, 0)) == 0.0, "no adapter costs nothing"
        assert 0.0 <= cost_s(less) <= cost_s(more)
        assert again_s(more) == cost_s(more)


@ARRAYS
@pytest.mark.parametrize("policy", KERNELS)
def test_a_kernel_prices_replicas_at_once(policy):
    kernel = kernel_of(policy)
    rows = [LoraWork(0, 0, 0, 0), LoraWork(3, 3 * 8, 8, 1), LoraWork(200, 200 * 16, 32, 4, 7)]
    columns = LoraWork(*(np.array(column) for column in zip(*rows, strict=True)))
    for cost_s in (kernel.decode_s, kernel.prefill_s):
        assert priced(cost_s, columns).tolist() == [cost_s(row) for row in rows]


@ARRAYS
def test_a_kernel_that_branches_is_asked_replica_by_replica():
    def branching(work: LoraWork) -> float:
        return 2.0 * work.max_rank if work.tokens else 0.0

    columns = LoraWork(np.array([0, 3]), np.array([0, 9]), np.array([4, 5]), np.array([0, 1]))
    assert priced(branching, columns).tolist() == [0.0, 10.0]


# No oracle: tests/invariants has runs whose outputs differ


@pytest.mark.parametrize("policy", [*SCHEDULERS, *LOADING, *EVICTIONS, *ROUTERS, *PLACEMENTS, *MIGRATIONS])
def test_only_an_oracle_may_name_the_true_output(policy):
    source = Path(*policy.__module__.split(".")).with_suffix(".py").read_text(encoding="utf-8")
    assert policy.__name__.startswith("Oracle") or not re.search(r"(?<!max_)\boutput_tokens", source)
