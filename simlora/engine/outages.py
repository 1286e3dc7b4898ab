"""Hosts that fail, and come back: where their requests go on meanwhile."""

from __future__ import annotations

from collections.abc import Generator
from math import inf
from typing import TYPE_CHECKING

from simpy import Event

from simlora.engine.clock import FAILURE
from simlora.engine.departed import Departed
from simlora.engine.incidents import Failure
from simlora.metrics.journal import Failed

if TYPE_CHECKING:
    from simlora.engine.cluster import Cluster


class Outages:
    """Lets hosts fail as the scenario says, and tells `members`."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def happen(self, failure: Failure) -> Generator[Event, None, None]:
        """A host fails: its requests begin anew elsewhere, with the tokens that they have; later it is back."""
        cluster, clock, host = self._cluster, self._cluster.clock, failure.host
        members, ids = cluster.members, cluster.scenario.replicas_of(host)
        begins, ends = clock.span(failure.at_s, failure.until_s, FAILURE, host)
        yield begins
        members.set_alive(ids, False)
        members.expected += failure.until_s is not None
        cluster.scaling.fails(ids)
        lost_adapters = cluster.stores.fails(host) if cluster.stores is not None else 0
        lost = [(departed, id) for id in ids for departed in cluster.replace(id)]
        for departed, source in sorted(lost, key=lambda each: each[0].request.id):
            self._restart(departed, source, f"host {host} failed")
        until_s = inf if failure.until_s is None else failure.until_s
        anew = [departed.lost_tokens for departed, _ in lost if departed.lost_tokens]
        failed = Failed(clock.now, host, until_s, len(lost), len(anew), sum(anew), lost_adapters)
        cluster.recorder.journal.failed.append(failed)
        if ends is None:
            cluster.give_up_waiting()
            return
        yield ends
        members.expected -= 1
        members.set_alive(ids, True)
        cluster.start(ids)
        cluster.house()

    def _restart(self, departed: Departed, source: int, reason: str) -> None:
        """A request of a host that has failed goes on at whoever the router chooses."""
        cluster, moving, request = self._cluster, self._cluster.moving, departed.request
        moving.forget(request)
        cluster.take_from(source, request)
        request.migrations += 1
        chosen = cluster.send(departed)
        target = -1 if chosen is None else chosen
        moving.note(departed, source, target, cluster.clock.now, False, reason)
