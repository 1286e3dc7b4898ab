"""The replicas, which of them take requests, and the requests that wait until one does."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from simlora.core.adapter import Adapter
from simlora.core.request import Request
from simlora.engine.clock import URGENT, Clock
from simlora.engine.handoff import Handoff
from simlora.engine.replica.ending import fail, free, inherit_counters
from simlora.engine.replica.replica import Replica
from simlora.memory.adapter_cache import AdapterCache

Ids = NDArray[np.int64]
"""Numbers of replicas, ascending."""


class Fleet:
    """`outstanding`, `alive`, `on` and `open` are `[replicas]`; `outstanding` counts the requests of each replica.

    A replica is `open`, and takes requests, if it is `alive` (its host has not failed) and `on` (neither switched off
    nor draining). `booting` are those that will be on, by the number of the boot. While no replica is open, requests
    are `unassigned` as long as one `is_expected`: `returning` failed hosts will come back, or the fleet `grows`. So are
    those that wait until a router that asks has its answers.
    `arrived`: a request has arrived since the autoscaler was last asked. `desired`: how many replicas it wants, and
    `scaled`: the times and numbers by which it has changed that, in order.
    `on_replace` is called with each replica in whose place an empty one was put. `adapters` are those of each replica,
    by id, as large as its memory lays them out, and `highest_ranks` `[replicas]` the highest rank that each holds.
    """

    def __init__(self, clock: Clock, adapters: Sequence[list[Adapter]], highest_ranks: Ids) -> None:
        self.clock, self.adapters, size = clock, adapters, len(adapters)
        self._highest_ranks, self._rank_of_all = highest_ranks, int(highest_ranks.min())
        self._sizes_differ = any(own is not adapters[0] for own in adapters)
        self.replicas: list[Replica] = []
        self.caches: list[AdapterCache] = []
        self.everywhere: Ids = np.arange(size, dtype=np.int64)
        self.outstanding: NDArray[np.int64] = np.zeros(size, dtype=np.int64)
        self.alive: NDArray[np.bool_] = np.ones(size, dtype=np.bool_)
        self.on: NDArray[np.bool_] = np.ones(size, dtype=np.bool_)
        self.open: NDArray[np.bool_] = np.ones(size, dtype=np.bool_)
        self.all_open = True
        self.booting: dict[int, int] = {}
        self.returning = 0
        self.grows = self.arrived = False
        self.desired = size
        self.scaled: list[tuple[float, int]] = []
        self.unassigned: list[Handoff] = []
        self.on_replace: tuple[Callable[[int], None], ...] = ()

    def build(self, make: Callable[[int], Replica]) -> None:
        """Make the replicas; `make` returns an empty one, and is called again for each that is replaced."""
        self._make = make
        self.replicas = [make(id) for id in self.everywhere.tolist()]
        self.caches = [replica.kv.adapters for replica in self.replicas]

    def bind(self, request: Request, replica: int) -> None:
        """A request goes to a replica, whose memory may lay its adapter out in other sizes than another's."""
        if self._sizes_differ and request.adapter is not None:
            request.adapter = self.adapters[replica][request.adapter_id]

    def adapter_of(self, request: Request, replica: int) -> Adapter | None:
        """Return a request's adapter as large as the memory of a replica lays it out."""
        return None if request.adapter is None else self.adapters[replica][request.adapter_id]

    def start(self, ids: Iterable[int]) -> None:
        """Start those of some replicas that are open."""
        for id in ids:
            if self.open[id]:
                self.clock.call(self.clock.now, URGENT, 0, self.replicas[id].start)

    def replace(self, id: int) -> list[Handoff]:
        """Put an empty replica in the place of one that fails; return the requests that it had."""
        failed = self.replicas[id]
        lost = fail(failed)
        self.replicas[id] = replica = self._make(id)
        inherit_counters(replica, failed)
        free(failed)
        self.caches[id] = replica.kv.adapters
        for replaced in self.on_replace:
            replaced(id)
        del failed
        if replica.config.prefix_caching:
            gc.collect()  # a prefix tree and its listeners refer to each other
        return lost

    def set_alive(self, ids: Sequence[int], alive: bool) -> None:
        """The host of these replicas has failed, or is back."""
        self.alive[ids] = alive
        self._reopen()

    def set_on(self, ids: Sequence[int], on: bool) -> None:
        """These replicas are switched on, or begin to drain."""
        self.on[ids] = on
        self._reopen()

    def _reopen(self) -> None:
        self.open = self.alive & self.on
        self.all_open = bool(self.open.all())

    def open_among(self, replicas: Ids, request: Request) -> Ids:
        """Return those of some replicas that are open; if none of them is, all that are."""
        if self.all_open:
            return replicas
        found = replicas[self.open[replicas]]
        return found if len(found) else self.everywhere[self.open]

    def that_hold(self, replicas: Ids, request: Request) -> Ids:
        """Return those of some replicas that hold the rank of a request's adapter; there may be none."""
        if request.rank <= self._rank_of_all:
            return replicas
        hold = self._highest_ranks[replicas] >= request.rank
        return replicas if hold.all() else replicas[hold]

    @property
    def provisioned(self) -> int:
        """Replicas that are open, or will be when they have booted."""
        return int(self.open.sum()) + len(self.booting)

    @property
    def is_expected(self) -> bool:
        """Whether a replica will be open."""
        return self.returning > 0 or (self.grows and bool(self.alive.any()))
