"""Replicas that are added and taken away while the cluster runs."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Sequence
from math import inf
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from simpy import Event

from simlora.core.adapter import Adapter
from simlora.core.request import Request
from simlora.engine.clock import SCALING
from simlora.metrics.journal import Scaled

if TYPE_CHECKING:
    from simlora.engine.cluster import Cluster


class Scaling:
    """Asks the autoscaler, boots replicas and lets them go. `on_s` `[replicas]` is how long each has cost something.

    Those with the lowest numbers come first and go last, but who is still booting goes before who serves. A replica
    that is to go takes no more requests, and is off when it has done those it has; until then it can be had back at
    once. Who has been off comes back with nothing in its memory.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster, self._config = cluster, cluster.scenario.scaling
        replicas = cluster.scenario.replicas
        self.on_s: NDArray[np.float64] = np.zeros(replicas)
        self._since_s: NDArray[np.float64] = np.zeros(replicas)  # it costs, of those that do
        self._spans: list[tuple[int, float, float]] = []  # who cost something, from when until when
        self._booting: dict[int, int] = {}  # which boot of a replica this is
        self._draining: set[int] = set()
        self.boots = 0
        self._asked: dict[int, int] = {}  # requests so far, by adapter
        self._ended: deque[tuple[float, float]] | None = (
            None  # when requests ended, and their TTFT, if asked for
        )
        self.active = self._config.autoscaler.period_s is not None

    # What autoscalers see, besides what routers do --------------------------------------------

    @property
    def on(self) -> int:
        """Replicas that take requests, or will when they have booted."""
        return int(self._cluster.members.open.sum()) + len(self._booting)

    @property
    def waits_s(self) -> NDArray[np.float64]:
        """How long each of those has waited that waits for its first prefill now."""
        cluster = self._cluster
        waiting = [
            request.arrival_s
            for replica in cluster.replicas
            for request in replica.waiting
            if request.admitted_s < 0.0
        ]
        return np.asarray(
            cluster.clock.now - np.array([*waiting, *cluster.members.arrivals_s], dtype=np.float64)
        )

    def first_tokens_s(self, window_s: float) -> NDArray[np.float64]:
        """TTFT of the requests that ended in the last `window_s` seconds, inf of those that had no first token."""
        if self._ended is None:
            self._ended = deque()
        while self._ended and self._ended[0][0] <= self._cluster.clock.now - window_s:
            self._ended.popleft()
        return np.array([ttft_s for _, ttft_s in self._ended], dtype=np.float64)

    # What the cluster tells ------------------------------------------------------------------

    def arrives(self, request: Request) -> None:
        """A request arrives, for an adapter that may be worth having in memory."""
        if request.adapter is not None:
            self._asked[request.adapter.id] = self._asked.get(request.adapter.id, 0) + 1

    def leaves(self, replica: int, request: Request) -> None:
        """A request has ended at a replica, -1: at none, which may have been all that it had left."""
        if self._ended is not None:
            ttft_s = request.first_token_s - request.arrival_s if request.first_token_s >= 0.0 else inf
            self._ended.append((self._cluster.clock.now, ttft_s))
        if replica in self._draining and not self._cluster.outstanding[replica]:
            self._switch_off(replica)

    def fails(self, ids: Sequence[int]) -> None:
        """The host of these replicas has failed: who was booting or about to go is off."""
        for id in ids:
            if id in self._booting or id in self._draining:
                self._booting.pop(id, None)
                self._draining.discard(id)
                self._stop_cost(id)

    # Coming and going ------------------------------------------------------------------------

    def begin(self) -> None:
        """Have as many replicas as the autoscaler wants before anything runs; they need not boot."""
        if not self.active:
            return
        members, everybody = self._cluster.members, list(range(len(self.on_s)))
        members.grows = True
        members.set_on(everybody[self._config.least_replicas :], False)
        members.set_on(everybody[: self._clipped()], True)
        self._note("before anything runs")

    def run(self) -> Generator[Event, None, None]:
        """Look every period, until all requests have ended."""
        cluster, period_s = self._cluster, self._config.autoscaler.period_s
        assert period_s is not None, "an autoscaler looks that does not say when"
        for moment in cluster.clock.every(period_s, SCALING, cluster.all_ended):
            yield moment
            if not cluster.all_ended():
                self._adjust(self._clipped())

    def settle(self, now_s: float) -> None:
        """The run was over then: count what replicas have cost."""
        members = self._cluster.members
        self.on_s[:] = 0.0
        costs = members.on.copy()
        costs[[*self._booting, *self._draining]] = True
        spans = [
            *self._spans,
            *((id, float(self._since_s[id]), now_s) for id in np.flatnonzero(costs).tolist()),
        ]
        for id, since_s, until_s in spans:
            self.on_s[id] += max(min(until_s, now_s) - since_s, 0.0)

    def _clipped(self) -> int:
        wanted = self._config.autoscaler.replicas(self._cluster.overview)
        return min(max(wanted, self._config.least_replicas), len(self.on_s))

    def _adjust(self, wanted: int) -> None:
        """Add replicas, or let some go, until as many as wanted are on or booting, as far as hosts are there."""
        members = self._cluster.members
        before = self.on
        while self.on < wanted:
            back = sorted(id for id in self._draining if members.alive[id])
            off = np.flatnonzero(members.alive & ~members.on)
            fresh = [id for id in off.tolist() if id not in self._booting]
            if back:
                self._draining.discard(back[0])
                members.set_on(back[:1], True)
                self._cluster.house()
            elif fresh:
                self._boot(fresh[0])
            else:
                break
        while self.on > wanted:
            if self._booting:
                last = max(self._booting)
                del self._booting[last]
                self._stop_cost(last)
                self._empty(last)  # of what it has loaded
                continue
            last = int(np.flatnonzero(members.open)[-1])
            members.set_on([last], False)
            self._draining.add(last)
            if not self._cluster.outstanding[last]:
                self._switch_off(last)
        if self.on != before:
            self._note(f"{wanted} wanted")

    def _boot(self, id: int) -> None:
        clock = self._cluster.clock
        self.boots += 1
        self._booting[id] = self.boots
        self._since_s[id] = clock.now
        clock.process(self._come_up(id, self.boots))

    def _come_up(self, id: int, boot: int) -> Generator[Event, None, None]:
        """Boot, load the adapters that are asked for most, and take requests, unless it is called off meanwhile."""
        cluster, clock = self._cluster, self._cluster.clock
        yield clock.moment(clock.now + self._config.boot_s, SCALING, 1 + id)
        if self._booting.get(id) != boot or cluster.all_ended():
            return
        often = sorted(self._asked, key=lambda adapter: (-self._asked[adapter], adapter))
        wanted = [cluster.adapters[adapter] for adapter in often[: self._config.warm_up_adapters]]
        if wanted:
            yield clock.moment(self._warm_up(id, wanted), SCALING, 1 + id)
            if self._booting.get(id) != boot or cluster.all_ended():
                return
        del self._booting[id]
        cluster.members.set_on([id], True)
        cluster.start([id])
        self._note(f"replica {id} is there")
        cluster.house()

    def _warm_up(self, id: int, wanted: Sequence[Adapter]) -> float:
        """Let a replica load adapters, as far as they fit; return when they are there."""
        now_s, pool = self._cluster.clock.now, self._cluster.pools[id]
        self._cluster.replicas[id].incoming.prefetch(wanted, 0, now_s)
        return max((pool.ready_s(adapter) for adapter in wanted if adapter in pool), default=now_s)

    def _switch_off(self, id: int) -> None:
        """It has nothing left to do: it costs nothing from now on, and forgets what it has in memory."""
        self._draining.discard(id)
        self._stop_cost(id)
        self._note(f"replica {id} is off")
        # Its own last boundary, at which this may be, is over first.
        self._cluster.at(self._cluster.clock.now, lambda: self._empty(id))

    def _empty(self, id: int) -> None:
        lost = self._cluster.replace(id)
        assert not lost, f"replica {id} was switched off with requests"

    def _stop_cost(self, id: int) -> None:
        self._spans.append((id, float(self._since_s[id]), self._cluster.clock.now))

    def _note(self, reason: str) -> None:
        now_s, serving = self._cluster.clock.now, int(self._cluster.members.open.sum())
        scaled = Scaled(now_s, self.on, serving, len(self._booting), len(self._draining), reason)
        self._cluster.recorder.journal.scaled.append(scaled)
