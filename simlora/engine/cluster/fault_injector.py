"""Hosts that fail and come back, replicas that straggle, and links that are slow for a while."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import inf
from operator import attrgetter

from simlora.engine.clock import FAILURE, Event
from simlora.engine.cluster.dispatcher import Dispatcher
from simlora.engine.cluster.fleet import Fleet
from simlora.engine.handoff import Handoff
from simlora.engine.incidents import Failure, Incident, SlowLink, Straggler
from simlora.engine.parts.kv_store import KvStoring
from simlora.engine.parts.slowdown import Slowdown
from simlora.engine.replica.replica import Replica
from simlora.engine.scenario import ClusterConfig
from simlora.metrics.journal import Failed, Journal


class FaultInjector:
    """Schedules the cluster's failures, stragglers and slow links.

    Set once a run: `on_fail` and `on_recover` are called with the replicas of a host that fails or is back,
    `on_slow_links` with a host and the factor by which its links are slow; `lose_adapters` empties a host's memory, and
    returns how many adapters no host has then.
    """

    def __init__(
        self, cluster: ClusterConfig, fleet: Fleet, dispatcher: Dispatcher, journal: Journal
    ) -> None:
        self._cluster, self._clock, self._fleet = cluster, fleet.clock, fleet
        self._dispatcher, self._journal = dispatcher, journal
        self.on_fail: tuple[Callable[[Sequence[int]], None], ...] = ()
        self.on_recover: tuple[Callable[[Sequence[int]], None], ...] = ()
        self.on_slow_links: tuple[Callable[[int, float], None], ...] = ()
        self.lose_adapters: Callable[[int], int] = lambda host: 0
        self._replica_slowdowns: dict[int, float] = {}
        self._link_slowdowns: dict[int, float] = {}  # by host
        # When each incident under way is over, by its kind and its host or replica; None: never.
        self._ends: dict[tuple[type[Incident], int], Event | None] = {}

    def start(self) -> None:
        """Schedule both ends of each incident, in order of kind and time.

        So of two at one host or replica the first is over before the next begins at the same moment.
        """
        cluster, at_s = self._cluster, attrgetter("at_s")
        for listed in (cluster.failures, cluster.stragglers, cluster.slow_links):
            for incident in sorted(listed, key=at_s):
                begin = partial(self._begin, incident, self._schedule_end(incident))
                self._clock.call(incident.at_s, FAILURE, incident.of, begin)

    def begin(self, incident: Incident) -> None:
        """Begin an incident now that was not listed; it is over at its `until_s`, which may be in the future.

        It takes the place of one of its kind that is under way at the same host or replica.
        """
        self._begin(incident, self._schedule_end(incident))

    def end(self, kind: type[Incident], of: int) -> bool:
        """End what is under way of a kind at a host or replica, before its time; return whether there was any."""
        under_way = (kind, of) in self._ends
        if under_way:
            self._end(kind, of)
        return under_way

    def _schedule_end(self, incident: Incident) -> Event | None:
        """Return the end of an incident; None: it has none."""
        if incident.until_s is None:
            return None
        end = partial(self._end, type(incident), incident.of)
        return self._clock.call(incident.until_s, FAILURE, incident.of, end)

    def _begin(self, incident: Incident, end: Event | None) -> None:
        key = type(incident), incident.of
        before = self._ends.get(key)
        if before is not None:
            self._clock.cancel(before)
        self._ends[key] = end
        if isinstance(incident, Failure):
            self._fleet.returning += (end is not None) - (before is not None)
            self._journal.end_failure(incident.host, self._clock.now)
            self._fail(incident)
        elif isinstance(incident, Straggler):
            self._slow_replica(incident.replica, incident.factor)
        else:
            assert isinstance(incident, SlowLink), f"{type(incident).__name__} is no incident of a cluster"
            self._slow_links(incident.host, incident.factor)

    def _end(self, kind: type[Incident], of: int) -> None:
        end = self._ends.pop((kind, of))
        if end is not None:
            self._clock.cancel(end)
        if kind is Failure:
            self._fleet.returning -= end is not None
            self._recover(of)
        elif kind is Straggler:
            self._slow_replica(of, 1.0)
        else:
            self._slow_links(of, 1.0)

    # Failures ---------------------------------------------------------------------------

    def _fail(self, failure: Failure) -> None:
        """Fail a host; its requests continue elsewhere with the tokens that they have."""
        fleet, host, now_s = self._fleet, failure.host, self._clock.now
        ids = self._cluster.replicas_of(host)
        fleet.set_alive(ids, False)
        for listener in self.on_fail:
            listener(ids)
        lost_adapters = self.lose_adapters(host)
        for id in ids:
            storing = fleet.replicas[id].part(KvStoring)
            if storing is not None:
                storing.lose()
        lost = [(handoff, id) for id in ids for handoff in fleet.replace(id)]
        for handoff, source in sorted(lost, key=lambda each: each[0].request.id):
            self._restart(handoff, source, f"host {host} failed")
        until_s = inf if failure.until_s is None else failure.until_s
        again = [handoff.lost_tokens for handoff, _ in lost if handoff.lost_tokens]
        failed = Failed(now_s, host, until_s, len(lost), len(again), sum(again), lost_adapters)
        self._journal.failed.append(failed)
        if not fleet.is_expected:
            self._dispatcher.dispatch_pending()  # which rejects them

    def _recover(self, host: int) -> None:
        """Bring a failed host back, with nothing in its memory."""
        fleet, ids = self._fleet, self._cluster.replicas_of(host)
        self._journal.end_failure(host, self._clock.now)
        fleet.set_alive(ids, True)
        for listener in self.on_recover:
            listener(ids)
        fleet.start(ids)
        self._dispatcher.dispatch_pending()

    def _restart(self, handoff: Handoff, source: int, reason: str) -> None:
        """Dispatch a request of a host that has failed to another replica."""
        request, now_s = handoff.request, self._clock.now
        self._dispatcher.withdraw(source, request)
        request.migrations += 1
        chosen = self._dispatcher.dispatch(handoff.request, handoff)
        target = -1 if chosen is None else chosen
        self._journal.moved.append(handoff.moved(source, target, now_s, now_s, False, reason))

    # Slowdowns --------------------------------------------------------------------------

    def slow_down(self, replica: Replica) -> None:
        """Make a replica as slow as the incidents under way say, such as one that replaces a failed one."""
        slowdown = replica.part(Slowdown)
        if slowdown is not None:
            slowdown.set(self._replica_slowdowns.get(replica.id, 1.0))
        factor = self._link_slowdowns.get(self._cluster.host_of(replica.id), 1.0)
        replica.host_link.slow_down(factor)
        storing = replica.part(KvStoring)
        if storing is not None:
            storing.slow_down(factor)

    def _slow_replica(self, id: int, factor: float) -> None:
        self._replica_slowdowns[id] = factor
        self.slow_down(self._fleet.replicas[id])

    def _slow_links(self, host: int, factor: float) -> None:
        self._link_slowdowns[host] = factor
        for id in self._cluster.replicas_of(host):
            self.slow_down(self._fleet.replicas[id])
        for listener in self.on_slow_links:
            listener(host, factor)
