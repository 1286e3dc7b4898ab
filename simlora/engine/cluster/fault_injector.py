"""Hosts that fail and come back, replicas that straggle, and links that are slow for a while."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf
from operator import attrgetter

from simlora.engine.clock import FAILURE, Process
from simlora.engine.cluster.adapter_store import AdapterStore
from simlora.engine.cluster.dispatcher import Dispatcher
from simlora.engine.cluster.fleet import Fleet
from simlora.engine.handoff import Handoff
from simlora.engine.incidents import Failure, SlowLink, Straggler
from simlora.engine.parts.slowdown import Slowdown
from simlora.engine.replica.replica import Replica
from simlora.engine.scenario import ClusterConfig
from simlora.metrics.journal import Failed, Journal


class FaultInjector:
    """Lets the scenario's failures, stragglers and slow links happen; `on_fail` hears which replicas a failure hits."""

    def __init__(
        self,
        cluster: ClusterConfig,
        fleet: Fleet,
        dispatcher: Dispatcher,
        store: AdapterStore | None,
        journal: Journal,
    ) -> None:
        self._cluster, self._clock, self._fleet, self._dispatcher = cluster, fleet.clock, fleet, dispatcher
        self._store, self._journal = store, journal
        self.on_fail: tuple[Callable[[Sequence[int]], None], ...] = ()
        self._replica_slowdowns: dict[int, float] = {}
        self._link_slowdowns: dict[int, float] = {}  # by host

    def start(self) -> None:
        """Start a process for each incident, in order of kind and time."""
        cluster, process, at_s = self._cluster, self._clock.process, attrgetter("at_s")
        for failure in sorted(cluster.failures, key=at_s):
            process(self._fail(failure))
        for straggler in sorted(cluster.stragglers, key=at_s):
            process(self._slow(straggler, straggler.replica, self._set_replica))
        for slow in sorted(cluster.slow_links, key=at_s):
            process(self._slow(slow, slow.host, self._set_links))

    def afflict(self, replica: Replica) -> None:
        """Make a new replica as slow as the one that it replaces."""
        host = self._cluster.host_of(replica.id)
        self._slow_down(replica)
        replica.host_link.slow_down(self._link_slowdowns.get(host, 1.0))

    def _fail(self, failure: Failure) -> Process:
        """Fail a host, whose requests go on elsewhere with the tokens that they have; bring it back later."""
        fleet, clock, host = self._fleet, self._clock, failure.host
        ids = self._cluster.replicas_of(host)
        begins, ends = clock.span(failure.at_s, failure.until_s, FAILURE, host)
        yield begins
        fleet.set_alive(ids, False)
        fleet.returning += failure.until_s is not None
        for listener in self.on_fail:
            listener(ids)
        lost_adapters = self._store.fail(host) if self._store is not None else 0
        lost = [(handoff, id) for id in ids for handoff in fleet.replace(id)]
        for handoff, source in sorted(lost, key=lambda each: each[0].request.id):
            self._restart(handoff, source, f"host {host} failed")
        until_s = inf if failure.until_s is None else failure.until_s
        again = [handoff.lost_tokens for handoff, _ in lost if handoff.lost_tokens]
        failed = Failed(clock.now, host, until_s, len(lost), len(again), sum(again), lost_adapters)
        self._journal.failed.append(failed)
        if ends is None:
            if not fleet.is_expected:
                self._dispatcher.dispatch_pending()  # which rejects them
            return
        yield ends
        fleet.returning -= 1
        fleet.set_alive(ids, True)
        fleet.start(ids)
        self._dispatcher.dispatch_pending()

    def _restart(self, handoff: Handoff, source: int, reason: str) -> None:
        """Dispatch a request of a host that has failed to another replica."""
        request, now_s = handoff.request, self._clock.now
        self._dispatcher.withdraw(source, request)
        request.migrations += 1
        chosen = self._dispatcher.redispatch(handoff)
        target = -1 if chosen is None else chosen
        self._journal.moved.append(handoff.moved(source, target, now_s, now_s, False, reason))

    def _slow(
        self, incident: Straggler | SlowLink, id: int, set_factor: Callable[[int, float], None]
    ) -> Process:
        """Slow a replica, or a host's links, down until it recovers."""
        begins, ends = self._clock.span(incident.at_s, incident.until_s, FAILURE, id)
        yield begins
        set_factor(id, incident.factor)
        if ends is not None:
            yield ends
            set_factor(id, 1.0)

    def _set_replica(self, id: int, factor: float) -> None:
        self._replica_slowdowns[id] = factor
        self._slow_down(self._fleet.replicas[id])

    def _slow_down(self, replica: Replica) -> None:
        slowdown = replica.part(Slowdown)
        if slowdown is not None:
            slowdown.set(self._replica_slowdowns.get(replica.id, 1.0))

    def _set_links(self, host: int, factor: float) -> None:
        self._link_slowdowns[host] = factor
        for id in self._cluster.replicas_of(host):
            self._fleet.replicas[id].host_link.slow_down(factor)
        if self._store is not None:
            self._store.slow_down(host, factor)
