"""What policies see of the cluster (`policies/views.py`): its state, now or as last reported, and past latencies."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Callable, Sequence
from functools import partial
from math import inf
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simlora.core.adapter import Adapter
from simlora.core.random import stream
from simlora.core.request import Request, arrival_order
from simlora.core.trace import BASE_MODEL
from simlora.engine.clock import Clock
from simlora.engine.cluster.fleet import Fleet
from simlora.engine.cluster.load_tracker import LoadTracker
from simlora.engine.cluster.placement import PlacementPlanner
from simlora.engine.cluster.routing import Routing, is_blind
from simlora.engine.replica.ending import cached_tokens, context_tokens, used_tokens
from simlora.engine.scenario import ClusterConfig, Scenario
from simlora.latency.models import LatencyModels
from simlora.policies.routing.base import Router


class Executions:
    """Execution times of some requests, added in the order of their ends."""

    __slots__ = ("count", "seconds")

    def __init__(self) -> None:
        self.seconds, self.count = 0.0, 0

    def add(self, seconds: float) -> None:
        """A request has ended."""
        self.seconds += seconds
        self.count += 1

    @property
    def mean_s(self) -> float | None:
        """Their mean; None without any."""
        return self.seconds / self.count if self.count else None


class LatencyHistory:
    """Execution times, if a policy `asks_for_executions`, and TTFTs, of the requests that are added.

    The former are seconds from admission to end of requests that had a first token, of all and by adapter.
    """

    def __init__(self, clock: Clock, asks_for_executions: bool) -> None:
        self._clock, self.asks_for_executions = clock, asks_for_executions
        self._executions, self._by_adapter = Executions(), dict[int, Executions]()
        self._ended_s, self._ttfts_s = array("d"), array("d")

    def add_execution(self, replica: int, request: Request) -> None:
        """A request has ended."""
        if request.first_token_s < 0.0:
            return
        seconds = self._clock.now - request.admitted_s
        self._executions.add(seconds)
        if request.adapter is not None:
            known = self._by_adapter.get(request.adapter_id)
            if known is None:
                known = self._by_adapter[request.adapter_id] = Executions()
            known.add(seconds)

    def execution_s(self, adapter: Adapter | None = None) -> float | None:
        """Return the mean for an adapter or for all; None without any."""
        assert self.asks_for_executions, "only a router that is `informed` may ask for `execution_s`"
        known = self._executions if adapter is None else self._by_adapter.get(adapter.id)
        return None if known is None else known.mean_s

    def add_ttft(self, replica: int, request: Request) -> None:
        """A request has ended, maybe without a first token."""
        self._ended_s.append(self._clock.now)
        self._ttfts_s.append(
            request.first_token_s - request.arrival_s if request.first_token_s >= 0.0 else inf
        )

    def ttfts_s(self, window_s: float) -> NDArray[np.float64]:
        """Return those of the last `window_s` seconds, inf where there was no first token."""
        return np.array(self._ttfts_s[bisect_right(self._ended_s, self._clock.now - window_s) :])


class Residency:
    """Which replicas have which adapters in HBM, or in flight to it; the caches report it once it is asked for."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet, self._begun = fleet, False
        self._holders: dict[int, set[int]] = {}  # replicas by adapter id
        # The same, as far as it was asked for since it changed.
        self._arrays: dict[int, NDArray[np.bool_]] = {}

    def holders(self, adapter_id: int) -> set[int]:
        """Return the replicas that have an adapter; not to be changed."""
        if not self._begun:
            self._begun = True
            self._fleet.on_replace += (self._watch,)
            for replica in range(len(self._fleet.caches)):
                self._watch(replica)
        found = self._holders.get(adapter_id)
        if found is None:
            found = self._holders[adapter_id] = set()
        return found

    def array(self, adapter_id: int) -> NDArray[np.bool_]:
        """Return whether each replica has an adapter; not to be changed."""
        found = self._arrays.get(adapter_id)
        if found is None:
            found = self._arrays[adapter_id] = np.zeros(len(self._fleet.caches), dtype=np.bool_)
            found[list(self.holders(adapter_id))] = True
        return found

    def _watch(self, replica: int) -> None:
        """Begin with the cache of a replica, which may be new."""
        cache = self._fleet.caches[replica]
        self._arrays.clear()
        for holders in self._holders.values():
            holders.discard(replica)
        for id in cache.ready_s:
            self.holders(id).add(replica)
        cache.on_change += (partial(self._change, replica),)

    def _change(self, replica: int, adapter_id: int, resident: bool) -> None:
        self._arrays.pop(adapter_id, None)
        if resident:
            self.holders(adapter_id).add(replica)
        else:
            self.holders(adapter_id).discard(replica)


class ClusterView:
    """All replicas as of now, for routers, placements, migrations and autoscalers; arrays are `[replicas]`.

    `policies.views.FleetView` says what each member means. Routers read it for every request: what most of them read is
    an attribute. `outstanding` is the fleet's own.
    """

    def __init__(
        self,
        scenario: Scenario,
        fleet: Fleet,
        latencies: Sequence[LatencyModels],
        placement: PlacementPlanner,
        loads: LoadTracker | None,
        history: LatencyHistory,
    ) -> None:
        self._fleet, self._placement, self._loads, self._sent = fleet, placement, loads, loads
        self._used_tokens: NDArray[np.int64] | None = None  # as of the last report
        self._latencies, self._kinds = latencies, scenario.kinds
        self._residency = Residency(fleet)
        self._load_s: dict[int, float] = {}  # by bytes
        self.rng = stream(scenario.seed, "router")
        self.outstanding: NDArray[np.int64] = fleet.outstanding
        limits = [scenario.config_of(id) for id in range(scenario.cluster.replicas)]
        self.max_num_seqs: NDArray[np.int64] = np.array(
            [each.max_num_seqs for each in limits], dtype=np.int64
        )
        most = [inf if each.max_loras is None else each.max_loras for each in limits]
        self.max_loras: NDArray[np.float64] = np.array(most, dtype=np.float64)
        self.max_lora_ranks: NDArray[np.int64] = scenario.highest_ranks
        budgets = [each.kv_token_budget for each in limits]
        self.kv_token_budgets: NDArray[np.int64] = np.array(budgets, dtype=np.int64)
        self.kv_bytes_per_token = scenario.model.kv_bytes_per_token
        alike = [(each.iteration, each.kernel) for each in latencies]
        self.models = [alike[kind] for kind in scenario.kind_of.tolist()]
        self.history_rps = scenario.trace.history_rps
        self.adapters = placement.adapters
        self.shares = placement.shares
        self.execution_s, self.first_tokens_s = history.execution_s, history.ttfts_s

    @property
    def now_s(self) -> float:
        return self._fleet.clock.now

    @property
    def open(self) -> NDArray[np.bool_]:
        return self._fleet.open

    @property
    def loads(self) -> LoadTracker:
        assert self._loads is not None, "only a router that is `informed` may read `loads`"
        return self._loads

    @property
    def sent(self) -> LoadTracker:
        assert self._sent is not None, "only a router that is `informed` may read `sent`"
        return self._sent

    def requests_of(self, replica: int) -> list[Request]:
        return sorted(self._fleet.replicas[replica].table.requests(), key=arrival_order)

    def context_tokens(self, request: Request, replica: int) -> int:
        return context_tokens(self._fleet.replicas[replica], request)

    @property
    def used_tokens(self) -> NDArray[np.int64]:
        if self._used_tokens is not None:
            return self._used_tokens
        return np.array([used_tokens(replica) for replica in self._fleet.replicas], dtype=np.int64)

    @property
    def asked_tokens(self) -> NDArray[np.int64]:
        assert self._placement.replans, "only a placement that plans again may read `asked_tokens`"
        return np.array(self._placement.asked, dtype=np.int64)

    @property
    def asked_requests(self) -> NDArray[np.int64]:
        return np.array(self._placement.asked_requests, dtype=np.int64)

    def holders(self, adapter: Adapter) -> set[int]:
        return self._residency.holders(adapter.id)

    def resident(self, adapter: Adapter) -> NDArray[np.bool_]:
        return self._residency.array(adapter.id)

    @property
    def resident_adapters(self) -> NDArray[np.int64]:
        return np.array([len(cache.ready_s) for cache in self._fleet.caches], dtype=np.int64)

    def cached_tokens(self, request: Request) -> NDArray[np.int64]:
        found = [cached_tokens(replica, request) for replica in self._fleet.replicas]
        return np.array(found, dtype=np.int64)

    def load_s(self, adapter: Adapter) -> float:
        known_s = self._load_s.get(adapter.size_bytes)
        if known_s is None:
            known_s = self._load_s[adapter.size_bytes] = max(
                models.load.load_s(adapter.size_bytes // kind.replica.tp)
                for models, kind in zip(self._latencies, self._kinds, strict=True)
            )
        return known_s

    @property
    def desired(self) -> int:
        return self._fleet.desired

    @property
    def scaled(self) -> Sequence[tuple[float, int]]:
        return self._fleet.scaled

    @property
    def unassigned(self) -> int:
        return len(self._fleet.unassigned)

    @property
    def active(self) -> bool:
        fleet = self._fleet
        return fleet.arrived or bool(fleet.unassigned) or bool(fleet.outstanding.any())

    @property
    def adapters_in_use(self) -> int:
        fleet = self._fleet
        requests = [request for replica in fleet.replicas for request in replica.table.requests()]
        requests += [handoff.request for handoff in fleet.unassigned]
        return len({request.adapter_id for request in requests} - {BASE_MODEL})

    @property
    def waits_s(self) -> NDArray[np.float64]:
        queued = (request for replica in self._fleet.replicas for request in replica.table.queue)
        arrivals_s = [request.arrival_s for request in queued if request.admitted_s < 0.0]
        arrivals_s += [handoff.request.arrival_s for handoff in self._fleet.unassigned]
        return np.asarray(self.now_s - np.array(arrivals_s, dtype=np.float64))


class BlindView:
    """What a router may read that is `blind`: nothing that requests change."""

    def __init__(self, view: ClusterView) -> None:
        self.rng, self.shares = view.rng, view.shares
        self.max_num_seqs, self.kv_token_budgets = view.max_num_seqs, view.kv_token_budgets
        self.max_loras, self.max_lora_ranks = view.max_loras, view.max_lora_ranks
        self.kv_bytes_per_token, self.models = view.kv_bytes_per_token, view.models


class StatusReports:
    """Status reports that replicas send at the first arrival of every `every_s` seconds.

    `view` is that of the `cluster` for a router that relies on them: `outstanding`, `loads` and `used_tokens` are as of
    the last report, the effect of later decisions left out; all else is as of now.
    """

    def __init__(self, cluster: ClusterView, view: ClusterView, every_s: float) -> None:
        self._cluster, self._every_s, self._interval = cluster, every_s, -1
        self.view, view.rng = view, cluster.rng

    def refresh(self) -> None:
        """Before a request is routed: take the reports of this interval, if they are due."""
        cluster, view, interval = self._cluster, self.view, int(self._cluster.now_s // self._every_s)
        if interval > self._interval:
            self._interval = interval
            view.outstanding = cluster.outstanding.copy()
            view._used_tokens = cluster.used_tokens
            view._loads = None if cluster._loads is None else cluster._loads.copy()


def asks_for_executions(scenario: Scenario) -> bool:
    """Whether a policy may ask for execution times: all may that are asked again and again, of routers the informed."""
    policies = scenario.policies
    periodic = (policies.placement, policies.migration, scenario.scaling.autoscaler)
    return any(router.informed for router in scenario.routers) or any(
        policy.period_s is not None for policy in periodic
    )


def routing(
    router: Router, cluster: ClusterConfig, view: ClusterView, seen: Callable[[], ClusterView]
) -> Routing:
    """Return a router with what it may see of a cluster; `seen` makes another view, for reports."""
    every_s = router.status_every_s if cluster.status_every_s is None else cluster.status_every_s
    if is_blind(router):
        blind: Any = BlindView(view)
        return Routing(router, blind, cluster.replicas)
    if not every_s:
        return Routing(router, view, cluster.replicas)
    reports = StatusReports(view, seen(), every_s)
    return Routing(router, reports.view, cluster.replicas, reports.refresh)
