"""Policies under watch: each fills its slot and asks the policy that it watches, and a copy of it, at every decision.

The copy is asked first and must answer the same, what is answered must be valid, and the view must be as before. A view
shows what its protocol names and nothing else. Every check raises Broken with what the policy did.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence, Set
from contextlib import contextmanager
from typing import Any, TypeVar
from unittest import mock

import numpy as np
from numpy.typing import NDArray

from simlora.checking.guard import Guard, cluster_state, replica_state
from simlora.checking.promise import promise
from simlora.core.adapter import Adapter
from simlora.core.request import Request
from simlora.latency.kernels import NO_LORA, Kernel, LoraWork
from simlora.policies.eviction.base import Eviction
from simlora.policies.loading.base import Loader, Miss
from simlora.policies.migration.base import Migration, Plan
from simlora.policies.placement.base import Placed, Placement
from simlora.policies.routing.base import Router
from simlora.policies.scaling.base import Autoscaler
from simlora.policies.scheduling.base import Abort, Pause, Resume, Scheduler, SchedulerOutput
from simlora.policies.views import ClusterView, FleetView, IdleView, ReplicaView

Policy = TypeVar("Policy")
SAME = "answers the same question in two ways"
UNCHANGED = "changes what its view shows"


@contextmanager
def twins() -> Iterator[None]:
    """Have copies of policies remember the same requests and adapters, not copies of those."""

    def itself(thing: Any, memo: object) -> Any:
        return thing

    with (
        mock.patch.object(Request, "__deepcopy__", itself, create=True),
        mock.patch.object(Adapter, "__deepcopy__", itself, create=True),
    ):
        yield


def _twin(policy: Policy) -> Policy:
    """Return a copy that knows what the policy knows; copies of a compiled class's subclass leave that out."""
    other = copy.deepcopy(policy)
    if hasattr(policy, "__dict__"):
        vars(other).update(copy.deepcopy(vars(policy)))
    return other


def _declare(watch: object, policy: object, *names: str) -> None:
    """Have a watch say of itself what its policy's class, or instance, does."""
    for name in names:
        setattr(watch, name, getattr(policy, name))


class WatchedScheduler(Scheduler):
    """A scheduler under watch."""

    def __init__(self, policy: Scheduler) -> None:
        self.policy = policy
        _declare(self, policy, "merges", "pauses", "chunks")

    def schedule(self, view: ReplicaView) -> SchedulerOutput:
        before = replica_state(view)
        twin = _twin(self.policy).schedule(Guard(view, ReplicaView))
        decision = self.policy.schedule(Guard(view, ReplicaView))
        promise(isinstance(decision, SchedulerOutput), "returns no SchedulerOutput")
        promise(decision == twin, SAME)
        promise(replica_state(view) == before, UNCHANGED)
        promise(decision.steps >= 1 and decision.on_arrival >= 0, "asks for less than one step")
        aborted = {each.request.id for each in decision.actions if isinstance(each, Abort)}
        paused = [each.request for each in decision.actions if isinstance(each, Pause)]
        resumed = [each.request for each in decision.actions if isinstance(each, Resume)]
        waiting = {request.id for request in view.waiting}
        works = bool(decision.prefill or resumed or view.running or view.loading) or aborted == waiting
        promise(works or not _all_could_begin(view), "does nothing while requests wait and none runs")
        promise(aborted <= waiting, "aborts a request that does not wait here")
        ids = [request.id for request in decision.prefill]
        promise(len(set(ids)) == len(ids), "starts a request twice")
        begun = {request.id for request in view.prefilling}
        promise(set(ids) <= (waiting - aborted) | begun, "starts a request that does not wait here")
        promise(len(decision.chunks) in (0, len(ids)), "has another number of chunks than of requests")
        for request, chunk in zip(decision.prefill, decision.chunks, strict=False):
            promise(0 < chunk <= request.prefill_tokens, "takes a chunk that the prompt does not have")
        gone = {request.id for request in paused}
        promise(gone <= {request.id for request in view.members}, "pauses a request that does not run here")
        back = {request.id for request in resumed}
        promise(back <= {request.id for request in view.paused}, "resumes a request that is not paused")
        beside = [request for request in view.members if request.id not in gone]
        trial = view.trial((*beside, *resumed) if self.policy.pauses else None)
        starts = [request for request in decision.prefill if request.id not in begun]
        promise(all(trial.admit(request) for request in starts), "admits what does not fit")
        promise(
            self.policy.merges or not (decision.merge or decision.unmerge),
            "merges, and its class says it never does",
        )
        promise(self.policy.pauses or not (gone or back), "pauses, and its class says it never does")
        return decision


def _all_could_begin(view: ReplicaView) -> bool:
    """Return whether any request could begin where none runs: not where KV on its way to other replicas holds memory.

    A scheduler may wait for the first of its order, so that one which does not fit is excuse enough.
    """
    return bool(view.paused) or all(view.trial().admit(request) for request in view.waiting)


class WatchedLoader(Loader):
    """A loader under watch."""

    def __init__(self, policy: Loader) -> None:
        self.policy = policy
        _declare(self, policy, "assists", "overlaps", "answers")
        self.forecast_s = policy.forecast_s

    def on_miss(self, adapter: Adapter) -> Miss:
        answer = self.policy.on_miss(adapter)
        promise(isinstance(answer, Miss), "answers a miss with no Miss")
        promise(answer in self.policy.answers, "answers a miss in a way that its class does not declare")
        promise(_twin(self.policy).on_miss(adapter) is answer, SAME)
        return answer

    def ahead(self, view: ReplicaView) -> Iterable[Adapter]:
        before = replica_state(view)
        twin = list(_twin(self.policy).ahead(Guard(view, ReplicaView)))
        adapters = list(self.policy.ahead(Guard(view, ReplicaView)))
        promise(adapters == twin, SAME)
        promise(replica_state(view) == before, UNCHANGED)
        promise(len({adapter.id for adapter in adapters}) == len(adapters), "prefetches an adapter twice")
        return adapters

    def asked(self, adapter: Adapter) -> None:
        self.policy.asked(adapter)

    def forecast(self, periods: int) -> Sequence[Adapter]:
        twin = list(_twin(self.policy).forecast(periods))
        adapters = list(self.policy.forecast(periods))
        promise(adapters == twin, SAME)
        promise(len({adapter.id for adapter in adapters}) == len(adapters), "forecasts an adapter twice")
        return adapters


class WatchedEviction(Eviction):
    """An eviction over adapters alone, under watch."""

    def __init__(self, policy: Eviction) -> None:
        self.policy = policy
        _declare(self, policy, "evicts_in_use")

    def reloads(
        self, in_use: Collection[int], missing: Set[int], just_left: Collection[int]
    ) -> Sequence[int]:
        twin = list(_twin(self.policy).reloads(in_use, missing, just_left))
        again = list(self.policy.reloads(in_use, missing, just_left))
        promise(again == twin, SAME)
        promise(len(set(again)) == len(again), "loads an adapter twice")
        promise(set(again) <= set(in_use) - missing, "loads again what is not in use, or was not there")
        return again

    def victims(self, idle: IdleView, short_tokens: int) -> Iterable[Adapter]:
        twin = list(_twin(self.policy).victims(idle, short_tokens))
        victims = list(self.policy.victims(idle, short_tokens))
        promise(victims == twin, SAME)
        promise(len({adapter.id for adapter in victims}) == len(victims), "evicts an adapter twice")
        promise(set(victims) <= set(idle), "evicts an adapter that is in use or absent")
        freed, most = (sum(adapter.kv_tokens for adapter in some) for some in (victims, idle))
        promise(freed >= min(short_tokens, most), "frees less than is short, and could free more")
        return victims


class WatchedRouter(Router):
    """A router under watch."""

    def __init__(self, policy: Router) -> None:
        self.policy = policy
        _declare(self, policy, "informed", "asks")

    def route(self, request: Request, candidates: NDArray[np.int64], view: ClusterView) -> int:
        before, allowed = cluster_state(view), candidates.tolist()
        same_draws = copy.deepcopy(view.rng)
        twin = _twin(self.policy).route(request, candidates.copy(), Guard(view, ClusterView, rng=same_draws))
        chosen = self.policy.route(request, candidates, Guard(view, ClusterView))
        promise(type(chosen) is int, f"returns {chosen!r}, which is no int")
        promise(candidates.tolist() == allowed, "changes the candidates")
        promise(chosen == twin, SAME)
        promise(chosen in allowed, f"routes to replica {chosen}, which may not serve the request")
        promise(cluster_state(view) == before, UNCHANGED)
        return chosen


class WatchedMigration(Migration):
    """A migration under watch, as often as it asks, or every `period_s`, and as late as `delay_s`."""

    def __init__(
        self, policy: Migration, period_s: float | None = None, delay_s: float | None = None
    ) -> None:
        self.policy = policy
        self.period_s = policy.period_s if period_s is None else policy.period_s and period_s
        self.delay_s = policy.delay_s if delay_s is None else policy.delay_s and delay_s
        self.brings = policy.brings

    def plan(self, view: ClusterView) -> Plan:
        before = cluster_state(view)
        twin = _twin(self.policy).plan(Guard(view, ClusterView))
        plan = self.policy.plan(Guard(view, ClusterView))
        promise(plan == twin, SAME)
        promise(cluster_state(view) == before, UNCHANGED)
        promise(bool(plan.reason or not plan.moves), "moves requests and gives no reason")
        promise(plan.solved or not plan.moves, "moves requests without a solution")
        promise(len({move.request.id for move in plan.moves}) == len(plan.moves), "moves a request twice")
        for request, source, target in plan.moves:
            promise(request in view.requests_of(source), "moves a request that is not there")
            promise(0 <= target < len(view.outstanding), "moves a request to a replica that does not exist")
            promise(target != source, "moves a request to where it is")
        return plan


class WatchedPlacement(Placement):
    """A placement under watch."""

    def __init__(self, policy: Placement) -> None:
        self.policy = policy
        self.period_s, self.assumes_alike = policy.period_s, policy.assumes_alike

    def place(self, adapters: Sequence[Adapter], view: ClusterView) -> Placed:
        before = cluster_state(view)
        twin = _twin(self.policy).place(adapters, Guard(view, ClusterView, rng=copy.deepcopy(view.rng)))
        placed = self.policy.place(adapters, Guard(view, ClusterView))
        check_placed(placed, twin, {adapter.id for adapter in adapters}, len(view.outstanding))
        promise(cluster_state(view) == before, UNCHANGED)
        return placed


def check_placed(placed: Placed, twin: Placed, adapters: Set[int], replicas: int) -> None:
    """Check where adapters are placed, beside what a second time gave."""
    for part, again in zip(placed, twin, strict=True):
        same = {id: at.tolist() for id, at in part.items()} == {id: at.tolist() for id, at in again.items()}
        promise(same, SAME)
        promise(set(part) <= adapters, "places an adapter that does not exist")
    for id, shares in placed.shares.items():
        promise(len(shares) == len(placed.serves[id]), "gives another number of shares than of replicas")
        promise(
            bool(shares.min() > 0 and abs(shares.sum() - 1) < 1e-6), "gives shares that do not add up to 1"
        )
    for part in (placed.serves, placed.preloads):
        for at in part.values():
            listed = at.tolist()
            promise(listed == sorted(set(listed)), "lists replicas twice, or not in ascending order")
            promise(
                bool(listed) and set(listed) <= set(range(replicas)), "places an adapter where no replica is"
            )
    for id, at in placed.preloads.items():
        may = set(placed.serves.get(id, range(replicas)))
        promise(set(at.tolist()) <= may, "preloads an adapter where it may not be served")


class WatchedAutoscaler(Autoscaler):
    """An autoscaler under watch."""

    def __init__(self, policy: Autoscaler) -> None:
        self.policy, self.period_s = policy, policy.period_s

    def replicas(self, view: FleetView) -> int:
        before = cluster_state(view)
        twin = _twin(self.policy).replicas(Guard(view, FleetView))
        wanted = self.policy.replicas(Guard(view, FleetView))
        promise(isinstance(wanted, int), f"wants {wanted!r} replicas, which is no int")
        promise(wanted == twin, SAME)
        promise(cluster_state(view) == before, UNCHANGED)
        return wanted


class WatchedKernel(Kernel):
    """A kernel under watch. Routers ask it for several replicas at once: the fields of work are arrays then."""

    def __init__(self, policy: Kernel) -> None:
        self.policy = policy
        _declare(self, policy, "counts_segments", "counts_adapters", "prefill_0", "decode_0")

    def decode_s(self, work: LoraWork) -> float:
        return self._asked(self.policy.decode_s, work)

    def prefill_s(self, work: LoraWork) -> float:
        return self._asked(self.policy.prefill_s, work)

    def mixed_s(self, prefill: LoraWork, decode: LoraWork) -> float:
        return self._asked(self.policy.mixed_s, prefill, decode)

    def _asked(self, price: Callable[..., float], *works: LoraWork) -> float:
        before = [np.array(field) for work in works for field in work]
        seconds = price(*works)
        promise(np.array_equal(price(*works), seconds), SAME)
        promise(bool(np.all(np.isfinite(seconds) & (np.asarray(seconds) >= 0.0))), f"says {seconds} s")
        promise(price(*[NO_LORA] * len(works)) == 0, "takes time where no request has an adapter")
        after = [np.array(field) for work in works for field in work]
        promise(all(map(np.array_equal, before, after)), UNCHANGED)
        return seconds
