"""What policies see of the cluster: the views of `policies/views.py`, which show and change nothing."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from simlora.core.adapter import Adapter
from simlora.core.random import stream
from simlora.core.request import Request, arrival_order
from simlora.engine.building import as_seen
from simlora.engine.cluster.fleet import Fleet
from simlora.engine.cluster.latency_history import LatencyHistory
from simlora.engine.cluster.load_tracker import LoadTracker
from simlora.engine.cluster.placement import PlacementPlanner
from simlora.engine.replica.ending import context_tokens, used_tokens
from simlora.engine.scenario import Scenario
from simlora.latency.models import LatencyModels


class ClusterView:
    """All replicas as of now, for routers, placements, migrations and autoscalers; arrays are `[replicas]`.

    `policies.views.FleetView` says what each member means. Routers are asked for every request: what they look at most
    is an attribute. `outstanding` is the fleet's own.
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
        self._scenario, self._clock, self._fleet, self._latencies = scenario, fleet.clock, fleet, latencies
        self._placement, self._loads, self._history = placement, loads, history
        self.rng = stream(scenario.seed, "router")
        self.outstanding: NDArray[np.int64] = fleet.outstanding
        self.max_num_seqs = scenario.replica.max_num_seqs
        budgets = [scenario.config_of(id).kv_token_budget for id in range(scenario.cluster.replicas)]
        self.kv_token_budgets: NDArray[np.int64] = np.array(budgets, dtype=np.int64)
        self.kv_bytes_per_token = scenario.model.kv_bytes_per_token
        self.iteration, self.kernel = as_seen(latencies, scenario.kind_of)

    @property
    def now_s(self) -> float:
        return self._clock.now

    @property
    def open(self) -> NDArray[np.bool_]:
        return self._fleet.open

    @property
    def loads(self) -> LoadTracker:
        assert self._loads is not None, "only a router that is `informed` may read `loads`"
        return self._loads

    def requests_of(self, replica: int) -> list[Request]:
        return sorted(self._fleet.replicas[replica].table.requests(), key=arrival_order)

    def context_tokens(self, request: Request, replica: int) -> int:
        return context_tokens(self._fleet.replicas[replica], request)

    @property
    def used_tokens(self) -> NDArray[np.int64]:
        return np.array([used_tokens(replica) for replica in self._fleet.replicas], dtype=np.int64)

    def execution_s(self, adapter: Adapter | None = None) -> float | None:
        return self._history.execution_s(adapter)

    @property
    def history_rps(self) -> NDArray[np.float64] | None:
        return self._scenario.trace.history_rps

    @property
    def asked_tokens(self) -> NDArray[np.int64]:
        assert self._placement.replans, "only a placement that plans again may read `asked_tokens`"
        return np.array(self._placement.asked, dtype=np.int64)

    def shares(self, adapter: Adapter | None, candidates: NDArray[np.int64]) -> NDArray[np.float64] | None:
        return self._placement.shares(adapter, candidates)

    def resident(self, adapter: Adapter) -> NDArray[np.bool_]:
        return np.array([cache.holds(adapter.id) for cache in self._fleet.caches], dtype=np.bool_)

    def load_s(self, adapter: Adapter) -> float:
        return max(
            models.load.load_s(adapter.size_bytes // kind.replica.tp)
            for models, kind in zip(self._latencies, self._scenario.kinds, strict=True)
        )

    @property
    def on(self) -> int:
        return self._fleet.provisioned

    @property
    def unassigned(self) -> int:
        return len(self._fleet.unassigned)

    @property
    def waits_s(self) -> NDArray[np.float64]:
        fleet = self._fleet
        queued = [
            r.arrival_s for replica in fleet.replicas for r in replica.table.queue if r.admitted_s < 0.0
        ]
        arrivals_s = [*queued, *(handoff.request.arrival_s for handoff in fleet.unassigned)]
        return np.asarray(self._clock.now - np.array(arrivals_s, dtype=np.float64))

    def first_tokens_s(self, window_s: float) -> NDArray[np.float64]:
        return self._history.ttfts_s(window_s)


class StaleClusterView(ClusterView):
    """The cluster as of the last status report, which replicas send at the first arrival of every `every_s` seconds.

    `outstanding` and `loads` are up to that old, the latest decisions included; all else is as it is `now`.
    """

    def __init__(self, now: ClusterView, every_s: float) -> None:
        vars(self).update(vars(now))
        self._now, self._every_s = now, every_s
        self._reported = -1
        self.outstanding = now.outstanding.copy()
        self._loads = None

    def refresh(self) -> None:
        """An arrival is to be routed: replicas report again if it is time."""
        period = int(self.now_s // self._every_s)
        if period > self._reported:
            self._reported = period
            self.outstanding = self._now.outstanding.copy()
            self._loads = None if self._now._loads is None else self._now._loads.copy()
