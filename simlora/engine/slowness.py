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
        host = self._cluster.scenario.host_of(replica.id)
        replica.slow_down(self.of_replica.get(replica.id, 1.0))
        replica.holdings.host_link.slow_down(self.of_link.get(host, 1.0))

    def straggle(self, straggler: Straggler) -> Generator[Event, None, None]:
        """A replica is slow, until it is not."""
        id = straggler.replica
        begins, ends = self._cluster.clock.span(straggler.at_s, straggler.until_s, FAILURE, id)
        yield begins
        self._set_replica(id, straggler.factor)
        if ends is not None:
            yield ends
            self._set_replica(id, 1.0)

    def choke(self, slow: SlowLink) -> Generator[Event, None, None]:
        """A host's links are slow, until they are not."""
        begins, ends = self._cluster.clock.span(slow.at_s, slow.until_s, FAILURE, slow.host)
        yield begins
        self._set_links(slow.host, slow.factor)
        if ends is not None:
            yield ends
            self._set_links(slow.host, 1.0)

    def _set_replica(self, id: int, factor: float) -> None:
        self.of_replica[id] = factor
        self._cluster.replicas[id].slow_down(factor)

    def _set_links(self, host: int, factor: float) -> None:
        self.of_link[host] = factor
        for id in self._cluster.scenario.replicas_of(host):
            self._cluster.replicas[id].holdings.host_link.slow_down(factor)
        if self._cluster.stores is not None:
            self._cluster.stores.slow_down(host, factor)
