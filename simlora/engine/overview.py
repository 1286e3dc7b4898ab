"""What policies see of the cluster: the views of `policies/views.py`, which show and change nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from simlora.core.adapter import Adapter
from simlora.core.request import Request, arrival_order
from simlora.engine.building import as_seen
from simlora.engine.loads import Loads

if TYPE_CHECKING:
    from simlora.engine.cluster import Cluster


class Overview:
    """All replicas as of now, for routers, placements, migrations and autoscalers; arrays are `[replicas]`.

    Routers are asked for every request: what they look at most is an attribute. `outstanding` is the cluster's own.
    """

    def __init__(self, cluster: Cluster, rng: np.random.Generator) -> None:
        scenario = cluster.scenario
        self._cluster, self._members, self._loads = cluster, cluster.members, cluster.loads
        self.rng = rng
        self.outstanding: NDArray[np.int64] = cluster.outstanding
        self.max_num_seqs = scenario.replica.max_num_seqs
        budgets = [scenario.config_of(id).kv_token_budget for id in range(scenario.replicas)]
        self.kv_token_budgets: NDArray[np.int64] = np.array(budgets, dtype=np.int64)
        self.kv_bytes_per_token = scenario.model.kv_bytes_per_token
        self.iteration, self.kernel = as_seen(cluster.latencies, scenario.kind_of)

    @property
    def now_s(self) -> float:
        """The time."""
        return self._cluster.clock.now

    @property
    def open(self) -> NDArray[np.bool_]:
        """Which replicas take requests: they have not failed, and are switched on."""
        return self._members.open

    # What there is to do ----------------------------------------------------------------

    @property
    def loads(self) -> Loads:
        """What every replica has to do."""
        assert self._loads is not None, "a router asks for loads that does not say it is informed"
        return self._loads

    def requests_of(self, replica: int) -> list[Request]:
        """Requests that a replica has, running or waiting, in order of arrival."""
        found = self._cluster.replicas[replica].requests()
        return sorted(found, key=arrival_order)

    def context_tokens(self, request: Request, replica: int) -> int:
        """Prompt and the tokens that one of a replica's requests has so far."""
        return self._cluster.replicas[replica].context_tokens(request)

    @property
    def used_tokens(self) -> NDArray[np.int64]:
        """Token slots of the replicas' pools that cannot be evicted."""
        return np.array([replica.used_tokens for replica in self._cluster.replicas], dtype=np.int64)

    def execution_s(self, adapter: Adapter | None = None) -> float | None:
        """Mean seconds from admission to end of the requests that had a first token and have left; None without any."""
        return self._cluster.executions.mean_s(adapter)

    # Adapters ---------------------------------------------------------------------------

    @property
    def history_rps(self) -> NDArray[np.float64] | None:
        """Mean requests per second of every adapter, as known from the days before."""
        return self._cluster.scenario.trace.history_rps

    @property
    def asked_tokens(self) -> NDArray[np.int64]:
        """Tokens of every adapter so far: prompts that arrived, and what requests that ended generated `[adapters]`."""
        placing = self._cluster.placing
        assert placing.plans, "a placement asks what was asked for that does not plan again"
        return np.array(placing.asked, dtype=np.int64)

    def shares(self, adapter: Adapter | None, candidates: NDArray[np.int64]) -> NDArray[np.float64] | None:
        """What share of an adapter's requests the placement gives to each candidate; None: it does not say."""
        return self._cluster.placing.shares(adapter, candidates)

    def resident(self, adapter: Adapter) -> NDArray[np.bool_]:
        """Which replicas have an adapter in HBM, or on its way there."""
        return np.array([pool.holds(adapter.id) for pool in self._cluster.pools], dtype=np.bool_)

    def load_s(self, adapter: Adapter) -> float:
        """Seconds that it takes to load an adapter from host memory, of replicas that differ the longest."""
        cluster = self._cluster
        return max(
            models.load.load_s(adapter.size_bytes // kind.replica.tp)
            for models, kind in zip(cluster.latencies, cluster.scenario.kinds, strict=True)
        )

    # What only autoscalers ask ----------------------------------------------------------

    @property
    def on(self) -> int:
        """Replicas that take requests, or will when they have booted."""
        return self._cluster.scaling.on

    @property
    def unassigned(self) -> int:
        """Requests that wait for a replica to take any."""
        return self._members.unassigned

    @property
    def waits_s(self) -> NDArray[np.float64]:
        """How long each of those has waited that waits for its first prefill now `[waiting]`."""
        return self._cluster.scaling.waits_s

    def first_tokens_s(self, window_s: float) -> NDArray[np.float64]:
        """TTFT of the requests that ended in the last `window_s` seconds, inf where there was none `[ended]`."""
        return self._cluster.scaling.first_tokens_s(window_s)
