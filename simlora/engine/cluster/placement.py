"""Which replicas serve which adapters, as the placement says: before the run, and with every plan again."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence, Set

import numpy as np
from numpy.typing import NDArray

from simlora.core.adapter import Adapter
from simlora.core.request import Request
from simlora.engine.clock import PLACEMENT, Clock, Process
from simlora.engine.cluster.adapter_store import AdapterStore
from simlora.engine.scenario import Scenario
from simlora.metrics.journal import Replanned
from simlora.metrics.recorder import Recorder
from simlora.policies.placement.base import NOTHING, Placed, Replicas
from simlora.policies.views import ClusterView


class PlacementPlanner:
    """Asks the placement, has the hosts hold what it says, and writes down what a plan changed.

    `serves` is what it said last. If the placement `replans`, `asked` are the tokens of every adapter so far, by id:
    prompts that arrived, and what requests that ended generated.
    """

    def __init__(
        self,
        scenario: Scenario,
        adapters: Sequence[Adapter],
        outputs: Sequence[int],
        store: AdapterStore | None,
        recorder: Recorder,
    ) -> None:
        cluster = scenario.cluster
        self._placement, self._outputs = scenario.policies.placement, outputs
        self._adapters, self._store, self._recorder = adapters, store, recorder
        self._host_of, self._every_host = cluster.host_of, frozenset(range(cluster.hosts))
        self._hosts: Mapping[int, Set[int]] = {}
        self._placed = Placed()
        self.serves: Replicas = NOTHING
        self.replans = self._placement.period_s is not None
        self.asked = array("q", bytes(8 * len(adapters)))

    def begin(self, view: ClusterView) -> Replicas:
        """Place before anything runs; return the replicas in whose HBM each adapter lies from the start."""
        self._hosts = self._place(view)
        if self._store is not None:
            self._store.serve(self._hosts, at_first=True)
        return self._placed.preloads

    def run(self, clock: Clock, view: ClusterView) -> Process:
        """Plan every period until the run has ended; requests that have arrived stay where they are."""
        period_s, all_ended = self._placement.period_s, self._recorder.all_ended
        assert period_s is not None, "a placement without a period does not plan again"
        for moment in clock.every(period_s, PLACEMENT, all_ended):
            yield moment
            before, self._hosts = self._hosts, self._place(view)
            if not all_ended():
                self._recorder.journal.replanned.append(self._change(before, clock.now))
            if self._store is not None:
                self._store.serve(self._hosts)

    def among(self, replicas: NDArray[np.int64], request: Request) -> NDArray[np.int64]:
        """Return the replicas that serve the request's adapter; `replicas` if the placement does not say."""
        return replicas if request.adapter is None else self.serves.get(request.adapter.id, replicas)

    def shares(self, adapter: Adapter | None, candidates: NDArray[np.int64]) -> NDArray[np.float64] | None:
        """What share of an adapter's requests the placement gives to each candidate; None: it does not say."""
        known = None if adapter is None else self._placed.shares.get(adapter.id)
        if known is None or adapter is None:
            return None
        replicas = self.serves[adapter.id]
        if candidates is replicas:
            return known
        left = np.isin(replicas, candidates)
        return known[left] if left.any() else None

    def count_prompt(self, request: Request) -> None:
        """A request has arrived."""
        if request.adapter is not None:
            self.asked[request.adapter.id] += request.prompt_tokens

    def count_output(self, replica: int, request: Request) -> None:
        """A request has ended."""
        if request.adapter is not None and request.first_token_s >= 0.0:
            self.asked[request.adapter.id] += self._outputs[request.id]

    def _place(self, view: ClusterView) -> Mapping[int, Set[int]]:
        """Ask the placement; return by adapter the hosts whose replicas serve it."""
        self._placed = self._placement.place(self._adapters, view)
        self.serves = serves = self._placed.serves
        return {adapter.id: self._hosts_of(serves.get(adapter.id)) for adapter in self._adapters}

    def _hosts_of(self, replicas: NDArray[np.int64] | None) -> Set[int]:
        if replicas is None:
            return self._every_host
        return frozenset(map(self._host_of, replicas.tolist()))

    def _change(self, before: Mapping[int, Set[int]], now_s: float) -> Replanned:
        """Return what a plan asks of the hosts that the one before it did not."""
        assigned = given_up = size_bytes = 0
        for adapter in self._adapters:
            were, are = before[adapter.id], self._hosts[adapter.id]
            if were != are:
                come = are - were
                assigned += len(come)
                given_up += len(were - are)
                if self._store is not None:
                    size_bytes += len(come - self._store.holders[adapter.id].keys()) * adapter.size_bytes
        return Replanned(now_s, assigned, given_up, size_bytes)
