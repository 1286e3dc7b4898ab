"""Replicas that compute more slowly for a while, and links that carry less."""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING

from simpy import Event

from simlora.engine.clock import FAILURE
from simlora.engine.incidents import SlowLink, Straggler

if TYPE_CHECKING:
    from simlora.engine.cluster import Cluster
    from simlora.engine.replica import Replica


class Slowness:
    """`of_replica` and `of_link` are by what factor things take longer now, by replica and by host."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.of_replica: dict[int, float] = {}
        self.of_link: dict[int, float] = {}

    def afflict(self, replica: Replica) -> None:
        """Let a new replica be as slow as the one whose place it takes."""
        host = replica.id // self._cluster.scenario.replicas_per_host
        replica.slow_down(self.of_replica.get(replica.id, 1.0))
        replica.holdings.slow_down(self.of_link.get(host, 1.0))

    def straggle(self, straggler: Straggler) -> Generator[Event, None, None]:
        """A replica is slow, until it is not."""
        clock, id = self._cluster.clock, straggler.replica
        yield clock.moment(straggler.at_s, FAILURE, id)
        self._set_replica(id, straggler.factor)
        if straggler.until_s is not None:
            yield clock.moment(straggler.until_s, FAILURE, id)
            self._set_replica(id, 1.0)

    def choke(self, slow: SlowLink) -> Generator[Event, None, None]:
        """A host's links are slow, until they are not."""
        clock, host = self._cluster.clock, slow.host
        yield clock.moment(slow.at_s, FAILURE, host)
        self._set_links(host, slow.factor)
        if slow.until_s is not None:
            yield clock.moment(slow.until_s, FAILURE, host)
            self._set_links(host, 1.0)

    def _set_replica(self, id: int, factor: float) -> None:
        self.of_replica[id] = factor
        self._cluster.replicas[id].slow_down(factor)

    def _set_links(self, host: int, factor: float) -> None:
        self.of_link[host] = factor
        for id in self._cluster.scenario.replicas_of(host):
            self._cluster.replicas[id].holdings.slow_down(factor)
        if self._cluster.stores is not None:
            self._cluster.stores.slow_down(host, factor)
