"""Which replicas serve which adapters, as the placement says: before the run, and with every plan again."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence, Set

import numpy as np
from numpy.typing import NDArray

from simlora.core.adapter import Adapter
from simlora.core.request import Request
from simlora.engine.clock import PLACEMENT, Clock, Process
from simlora.engine.cluster.adapter_store import Hosts
from simlora.engine.scenario import Scenario
from simlora.metrics.journal import Replanned
from simlora.metrics.recorder import Recorder
from simlora.policies.placement.base import NOTHING, Placed, Replicas
from simlora.policies.views import ClusterView


class PlacementPlanner:
    """Asks the placement which replicas serve which adapters, and records what a new plan changes.

    `serves` is its last answer, and `hosts` the hosts of these replicas. If the placement `replans`, `asked` are the
    tokens of every adapter so far, by id: prompts that arrived, and what requests that ended generated.
    `asked_requests` are the requests that arrived, for migrations. `on_plan` is called with the hosts of a new plan,
    and returns the bytes of adapters that they are to serve now and do not hold.
    """

    def __init__(
        self,
        scenario: Scenario,
        adapters: Sequence[Adapter],
        outputs: Sequence[int],
        recorder: Recorder,
    ) -> None:
        cluster = scenario.cluster
        self._placement, self._outputs = scenario.policies.placement, outputs
        self.adapters, self._recorder = adapters, recorder
        self._host_of, self._every_host = cluster.host_of, frozenset(range(cluster.hosts))
        self._placed = Placed()
        self._ranks = scenario.highest_ranks
        self.serves: Replicas = NOTHING
        self.hosts: Hosts = {}
        self.on_plan: Callable[[Hosts], int] = lambda hosts: 0
        self.replans = self._placement.period_s is not None
        self.asked = array("q", bytes(8 * len(adapters)))
        self.asked_requests = array("q", bytes(8 * len(adapters)))

    def begin(self, view: ClusterView) -> Replicas:
        """Place before anything runs; return the replicas in whose HBM each adapter lies from the start."""
        self._place(view)
        return self._placed.preloads

    def run(self, clock: Clock, view: ClusterView) -> Process:
        """Plan every period until the run has ended; requests that have arrived stay where they are."""
        period_s, all_ended = self._placement.period_s, self._recorder.all_ended
        assert period_s is not None, "a placement without a period does not plan again"
        for moment in clock.every(period_s, PLACEMENT, all_ended):
            yield moment
            before = self.hosts
            self._place(view)
            size_bytes = self.on_plan(self.hosts)
            if not all_ended():
                pairs = [(before[adapter.id], self.hosts[adapter.id]) for adapter in self.adapters]
                assigned = sum(len(are - were) for were, are in pairs)
                given_up = sum(len(were - are) for were, are in pairs)
                change = Replanned(clock.now, assigned, given_up, size_bytes)
                self._recorder.journal.replanned.append(change)

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

    def count_request(self, request: Request) -> None:
        """A request has arrived."""
        if request.adapter is not None:
            self.asked_requests[request.adapter.id] += 1

    def count_prompt(self, request: Request) -> None:
        """A request has arrived."""
        if request.adapter is not None:
            self.asked[request.adapter.id] += request.prompt_tokens

    def count_output(self, replica: int, request: Request) -> None:
        """A request has ended."""
        if request.adapter is not None and request.first_token_s >= 0.0:
            self.asked[request.adapter.id] += self._outputs[request.id]

    def _place(self, view: ClusterView) -> None:
        self._placed = self._where_held(self._placement.place(self.adapters, view))
        self.serves = serves = self._placed.serves
        self.hosts = {adapter.id: self._hosts_of(serves.get(adapter.id)) for adapter in self.adapters}

    def _where_held(self, placed: Placed) -> Placed:
        """Return a placement without the replicas that do not hold an adapter's rank.

        An adapter that has none left is served by all that hold it. One whose rank no replica holds stays where it is:
        its requests are rejected.
        """
        least, most = int(self._ranks.min()), int(self._ranks.max())
        high = [each for each in self.adapters if least < each.rank <= most]
        if not high:
            return placed
        serves, preloads, shares = dict(placed.serves), dict(placed.preloads), dict(placed.shares)
        everywhere = np.arange(len(self._ranks), dtype=np.int64)
        for adapter in high:
            id, hold = adapter.id, self._ranks >= adapter.rank
            known = serves.get(id, everywhere)
            left = known[hold[known]]
            serves[id] = left if len(left) else everywhere[hold]
            if id in preloads:
                preloads[id] = preloads[id][hold[preloads[id]]]
            if id in shares:
                parts = shares.pop(id)[hold[known]]
                if len(parts):
                    shares[id] = parts / parts.sum()
        return Placed(serves, preloads, shares)

    def _hosts_of(self, replicas: NDArray[np.int64] | None) -> Set[int]:
        if replicas is None:
            return self._every_host
        return frozenset(map(self._host_of, replicas.tolist()))
