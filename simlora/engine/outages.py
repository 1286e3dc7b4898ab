"""Hosts that fail, and come back: who is up, and where the requests of those who are not go on."""

from __future__ import annotations

from collections.abc import Generator
from math import inf
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from simpy import Event

from simlora.core.request import Request
from simlora.engine.clock import FAILURE
from simlora.engine.scenario import Failure
from simlora.metrics.journal import Failed, Moved

if TYPE_CHECKING:
    from simlora.engine.cluster import Cluster


class Outages:
    """Which replicas are `alive` `[replicas]`; `none` while all are.

    Requests that come while nobody is wait for the first host that comes back, if one does.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._per_host = cluster.scenario.replicas_per_host
        self._everywhere: NDArray[np.int64] = np.arange(cluster.scenario.replicas, dtype=np.int64)
        self.alive: NDArray[np.bool_] = np.ones(cluster.scenario.replicas, dtype=np.bool_)
        self.none = True
        self._to_return = 0  # hosts that are gone and come back
        self._homeless: list[tuple[Request, float | None]] = []  # each with when it had its last token

    def up(self, replicas: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return those of some replicas that are up; if all of them have failed, whoever is."""
        found = replicas[self.alive[replicas]]
        return found if len(found) else self._everywhere[self.alive]

    def wait(self, request: Request, token_s: float | None) -> bool:
        """A request finds nobody; return whether it waits for a host to come back."""
        if self._to_return:
            self._homeless.append((request, token_s))
        return self._to_return > 0

    def happen(self, failure: Failure) -> Generator[Event, None, None]:
        """A host fails: its requests begin anew elsewhere, with the tokens that they have; later it is back."""
        cluster, clock, host = self._cluster, self._cluster.clock, failure.host
        first = host * self._per_host
        ids = list(range(first, min(first + self._per_host, len(self._everywhere))))
        yield clock.moment(failure.at_s, FAILURE, host)
        self.alive[ids] = False
        self.none = False
        self._to_return += failure.until_s is not None
        lost_adapters = cluster.stores.fails(host) if cluster.stores is not None else 0
        lost = [(*found, id) for id in ids for found in cluster.replace(id)]
        for request, token_s, tokens, source in sorted(lost, key=lambda each: each[0].id):
            self._restart(request, source, token_s, tokens, f"host {host} failed")
        until_s = inf if failure.until_s is None else failure.until_s
        anew = [tokens for _, _, tokens, _ in lost if tokens]
        failed = Failed(clock.now, host, until_s, len(lost), len(anew), sum(anew), lost_adapters)
        cluster.recorder.journal.failed.append(failed)
        if failure.until_s is None:
            return
        yield clock.moment(failure.until_s, FAILURE, host)
        self._to_return -= 1
        self.alive[ids] = True
        self.none = bool(self.alive.all())
        for id in ids:
            clock.process(cluster.replicas[id].live())
        homeless, self._homeless = self._homeless, []
        for request, last_s in homeless:
            cluster.send(request, last_s)

    def _restart(
        self, request: Request, source: int, token_s: float | None, lost_tokens: int, reason: str
    ) -> None:
        """A request of a host that has failed goes on at whoever the router chooses."""
        cluster = self._cluster
        cluster.loses(request, source)
        now_s, name = cluster.clock.now, request.adapter.name if request.adapter is not None else ""
        request.migrations += 1
        chosen = cluster.send(request, token_s)
        target = -1 if chosen is None else chosen
        moved = Moved(now_s, now_s, request.id, name, source, target, lost_tokens, False, reason)
        cluster.recorder.journal.moved.append(moved)
