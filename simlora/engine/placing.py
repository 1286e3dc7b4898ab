"""Which replicas serve which adapters, as the placement says: before the run, and with every plan anew."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Generator, Mapping, Sequence, Set

import numpy as np
from numpy.typing import NDArray
from simpy import Event

from simlora.core.adapter import Adapter
from simlora.engine.clock import PLACEMENT, Clock
from simlora.engine.scenario import Scenario
from simlora.engine.stores import Stores
from simlora.metrics.journal import Journal, Replanned
from simlora.policies.placement.base import NOTHING, Placed, Replicas
from simlora.policies.views import ClusterView


class Placing:
    """Asks the placement, has the hosts hold what it says, and writes down what a plan changed.

    `serves` is what it said last. `asked` are the tokens of every adapter so far, by id: prompts that arrived, and what
    requests that ended generated. They are counted if the placement `plans` anew.
    """

    def __init__(
        self, scenario: Scenario, adapters: Sequence[Adapter], stores: Stores | None, journal: Journal
    ) -> None:
        self._placement = scenario.policies.placement
        self._adapters, self._stores, self._journal = adapters, stores, journal
        self._host_of, self._every_host = scenario.host_of, frozenset(range(scenario.hosts))
        self._hosts: Mapping[int, Set[int]] = {}
        self._placed = Placed()
        self.serves: Replicas = NOTHING
        self.plans = self._placement.period_s is not None
        self.asked = array("q", bytes(8 * len(adapters)))

    def begin(self, view: ClusterView) -> Replicas:
        """Place before anything runs; return in whose HBM adapters lie from the start."""
        self._hosts = self._place(view)
        if self._stores is not None:
            self._stores.serve(self._hosts, at_first=True)
        return self._placed.preloads

    def plan_again(
        self, clock: Clock, view: ClusterView, has_ended: Callable[[], bool]
    ) -> Generator[Event, None, None]:
        """Plan anew every period until the run has ended; who has arrived stays where he is."""
        period_s = self._placement.period_s
        assert period_s is not None, "a placement plans anew that does not say so"
        for moment in clock.every(period_s, PLACEMENT, has_ended):
            yield moment
            before, self._hosts = self._hosts, self._place(view)
            if not has_ended():  # meanwhile, or else it is a plan for nobody
                self._journal.replanned.append(self._change(before, clock.now))
            if self._stores is not None:
                self._stores.serve(self._hosts)

    def shares(self, adapter: Adapter | None, candidates: NDArray[np.int64]) -> NDArray[np.float64] | None:
        """What share of an adapter's requests the placement gives to each candidate; None: it does not say."""
        known = None if adapter is None else self._placed.shares.get(adapter.id)
        if known is None or adapter is None:
            return None
        homes = self.serves[adapter.id]
        if candidates is homes:
            return known
        left = np.isin(homes, candidates)
        return known[left] if left.any() else None

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
                if self._stores is not None:
                    size_bytes += len(come - self._stores.holders[adapter.id].keys()) * adapter.size_bytes
        return Replanned(now_s, assigned, given_up, size_bytes)
