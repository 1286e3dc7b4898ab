"""The KV of requests that go from one replica to another, and the links over which it goes."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from math import inf, nan
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from simlora.core.request import Request
from simlora.engine.clock import STORE, Clock


class Handovers(NamedTuple):
    """What was handed over `[requests]`, by which replica; when it was admitted, and its KV copied.

    NaN: not yet, or never. `tokens` of it go over the links; 0: not known yet.
    """

    request: NDArray[np.int64]
    source: NDArray[np.int64]
    asked_s: NDArray[np.float64]
    begin_s: NDArray[np.float64]
    end_s: NDArray[np.float64]
    tokens: NDArray[np.int64]


class Source(Protocol):
    """A part that keeps KV."""

    replica_id: int

    @property
    def stands_still(self) -> bool:
        """Whether nothing runs at the replica, and nothing will before KV is fetched that it keeps."""

    def let_go(self, request: Request, by: int = -1) -> None:
        """The KV of a request is of no use here any more, maybe since a boundary of replica `by`."""


class Target(Protocol):
    """A part that waits for KV."""

    replica_id: int

    def arrive(self, request: Request) -> None:
        """The KV of a request is there."""

    def compute_anew(self, request: Request) -> None:
        """The KV of a request that waits for memory here will not come."""


class Transfer:
    """The KV of a request: it is kept by a part, and maybe on the way to another replica.

    The request waits for memory where `receiver` is, None: nowhere yet.
    `tokens` of it go there, those that are not cached there; 0: not known yet. `place` is that in the log; `wanted` is
    whether it is still of use where it goes; `there` whether it has come there. A copy begins and ends at `begin_s` and
    `end_s`, which are infinite before. One that `streams` goes in `layers`, and is not there before `least_s`, as the
    last layer is computed late.
    """

    __slots__ = (
        "begin_s",
        "end_s",
        "layers",
        "least_s",
        "place",
        "receiver",
        "request",
        "source",
        "streams",
        "target",
        "target_id",
        "there",
        "tokens",
        "wanted",
    )

    def __init__(self, request: Request, source: Source, place: int) -> None:
        self.request, self.source, self.tokens, self.place = request, source, 0, place
        self.receiver: Target | None = None
        self.target: Target | None = None  # that has admitted the request
        self.target_id = -1
        self.wanted = self.there = self.streams = False
        self.layers = 1
        self.begin_s, self.end_s, self.least_s = inf, -inf, -inf


class KvTransfers:
    """The KV that prefill replicas keep, and the links over which decode replicas get it: each has one each way.

    Copies begin in the order in which they were asked for, but each as soon as both of its links are free. `bytes_s` is
    how long so many bytes take a link, `kv_bytes` `[replicas]` what the KV of a token takes on each GPU of a replica;
    each of these GPUs has a link. `hand_over` takes a request whose KV is kept, and the replica that keeps it; `choose`
    returns the decode replica of a request whose prompt is being computed, and how many of its tokens are cached there;
    `stays` whether a request whose prompt is complete goes on where it was computed. `tokens` have been copied.
    """

    def __init__(
        self,
        clock: Clock,
        bytes_s: Callable[[float], float],
        kv_bytes: Sequence[int],
        hand_over: Callable[[Request, int], None],
        choose: Callable[[Request, int], tuple[int, int]],
        stays: Callable[[Request, int], bool],
    ) -> None:
        self._clock, self._bytes_s, self._kv_bytes = clock, bytes_s, kv_bytes
        self.hand_over, self.stays, self._choose = hand_over, stays, choose
        self._streams: dict[int, Transfer] = {}  # by request, whose prompt is being computed
        self._kept: dict[int, Transfer] = {}  # by request
        self._asked: list[Transfer] = []  # in order, of which no copy has begun
        self._out: dict[int, Transfer] = {}  # the copy under way, by the replica that it comes from
        self._into: dict[int, Transfer] = {}  # and by the one that it goes to
        self._slowdowns = [1.0 for _ in kv_bytes]
        # Of copies that have ended, out of each replica and into it.
        self._out_s, self._into_s = [0.0 for _ in kv_bytes], [0.0 for _ in kv_bytes]
        self._ids, self._sources = array("q"), array("q")
        self._asked_s, self._begin_s, self._end_s = array("d"), array("d"), array("d")
        self._sizes = array("q")  # in tokens
        self.tokens = 0

    def stream(
        self, requests: Sequence[Request], source: Source, start_s: float, pass_s: float, layers: int
    ) -> None:
        """Send KV to decode replicas layer by layer, in the pass that begins then and completes these prompts.

        A layer goes when it is computed and the one before it has gone; the last one goes after the pass. On free links
        all have come when they would have come in one stretch that begins so late that no layer waits in it: here the
        copies are such a stretch, one prompt after the other.
        """
        end_s, layer_s = start_s + pass_s, 0.0
        together: list[Transfer] = []
        for request in requests:
            target, cached_tokens = self._choose(request, source.replica_id)
            if target == source.replica_id:
                continue
            kept = self._streams[request.id] = self._new(request, source)
            kept.target_id = target
            self._size(kept, cached_tokens)
            kept.wanted = kept.streams = True
            kept.layers = layers
            layer_s += self._layer_s(kept)
            kept.least_s = end_s + layer_s
            together.append(kept)
        if not together:
            return
        begin_s = max(start_s + pass_s / layers, end_s - (layers - 1) * layer_s, self._clock.now)
        self._clock.call(begin_s, STORE, together[0].request.id, partial(self._ask, together))

    def keep(self, request: Request, source: Source) -> None:
        """A prefill replica has all KV of a request's prompt."""
        streams = request.id in self._streams
        self._kept[request.id] = self._streams.pop(request.id) if streams else self._new(request, source)

    def _new(self, request: Request, source: Source) -> Transfer:
        kept = Transfer(request, source, len(self._ids))
        self._ids.append(request.id)
        self._sources.append(source.replica_id)
        for column in (self._asked_s, self._begin_s, self._end_s):
            column.append(nan)
        self._sizes.append(0)
        return kept

    def _size(self, kept: Transfer, cached_tokens: int) -> None:
        """So many tokens of a prompt are cached where it goes; the rest is copied."""
        kept.tokens = self._sizes[kept.place] = kept.request.prompt_tokens - cached_tokens

    def keeps(self, request: Request) -> bool:
        """Return whether a prefill replica keeps a request's KV for a replica that has not sent for it."""
        return request.id in self._kept

    def waits(self, request: Request, receiver: Target) -> None:
        """A request waits for memory there; its KV may be kept elsewhere."""
        if request.id in self._kept:
            self._kept[request.id].receiver = receiver

    def unfetched(self) -> Iterable[Transfer]:
        """Return the KV that is kept for replicas which have not sent for it."""
        return self._kept.values()

    def claim(self, request: Request) -> Transfer:
        """Return the KV of a request, which the caller fetches."""
        return self._kept.pop(request.id)

    def drop(self, request: Request, by: int) -> None:
        """At a boundary of replica `by`, the KV of a request that was handed over is of no use any more."""
        kept = self._kept.pop(request.id)
        kept.wanted = False
        if kept in self._asked:
            self._asked.remove(kept)
        if not kept.there:
            kept.source.let_go(request, by)

    def fetch(self, kept: Transfer, target: Target) -> None:
        """Copy the KV of a request to a replica as soon as the links are free; `target` is told when it is there.

        Its `cached_tokens` are there already. KV that was sent layer by layer comes anyway.
        """
        kept.target = target
        self._asked_s[kept.place] = self._clock.now
        if kept.there:
            self._clock.call(self._clock.now, STORE, kept.request.id, partial(self._arrive, kept))
        elif not kept.streams:
            kept.target_id, kept.wanted = target.replica_id, True
            self._size(kept, kept.request.cached_tokens)
            self._ask([kept])

    def _ask(self, together: Sequence[Transfer]) -> None:
        self._asked += (kept for kept in together if kept.wanted)
        self._begin()

    def give_back(self, kept: Transfer) -> float:
        """A replica no longer waits for KV that is not there: it stays where it was computed, to be fetched again.

        What is sent layer by layer goes on. Return until when a copy that has begun writes slots; 0: none does.
        """
        kept.target, until_s = None, 0.0
        if not kept.streams:
            until_s = max(kept.end_s, 0.0)
            kept.wanted = False
            if kept in self._asked:
                self._asked.remove(kept)
            kept = Transfer(kept.request, kept.source, kept.place)
        self._kept[kept.request.id] = kept
        return until_s

    def _layer_s(self, kept: Transfer) -> float:
        """Return how long a layer takes the links, or all of what goes in one."""
        source, target = kept.source.replica_id, kept.target_id
        size_bytes = kept.tokens * max(self._kv_bytes[source], self._kv_bytes[target])
        slowdown = max(self._slowdowns[source], self._slowdowns[target])
        return slowdown * self._bytes_s(size_bytes / kept.layers)

    def _begin(self) -> None:
        """Begin the copies whose links are free, the first that was asked for first."""
        waiting: list[Transfer] = []
        for kept in self._asked:
            source, target = kept.source.replica_id, kept.target_id
            if source in self._out or target in self._into:
                waiting.append(kept)
                continue
            self._out[source] = self._into[target] = kept
            now_s = kept.begin_s = self._begin_s[kept.place] = self._clock.now
            end_s = kept.end_s = now_s + kept.layers * self._layer_s(kept)
            self._clock.call(end_s, STORE, kept.request.id, partial(self._end, kept))
        self._asked = waiting

    def _end(self, kept: Transfer) -> None:
        """A copy has ended: its links are free."""
        source, target = kept.source.replica_id, kept.target_id
        del self._out[source], self._into[target]
        self._out_s[source] += self._clock.now - kept.begin_s
        self._into_s[target] += self._clock.now - kept.begin_s
        if kept.least_s > self._clock.now:
            self._clock.call(kept.least_s, STORE, kept.request.id, partial(self._come, kept))
        else:
            self._come(kept)
        self._begin()

    def _come(self, kept: Transfer) -> None:
        """KV is there: its slots are free where it was computed, if it was still wanted."""
        if kept.wanted:
            self.tokens += kept.tokens
            self._end_s[kept.place] = self._clock.now
            kept.there = True
            kept.source.let_go(kept.request)
            self._arrive(kept)

    def _arrive(self, kept: Transfer) -> None:
        """Tell the replica that waits for the KV, if one does."""
        target, kept.target = kept.target, None
        if target is not None:
            target.arrive(kept.request)

    def slow_down(self, replicas: Iterable[int], factor: float) -> None:
        """Copies out of and into these replicas that begin from now on take `factor` times as long."""
        for id in replicas:
            self._slowdowns[id] = factor

    def log(self) -> Handovers:
        """Return what has been handed over, in order of time."""
        columns = self._ids, self._sources, self._asked_s, self._begin_s, self._end_s, self._sizes
        return Handovers(*(np.array(each) for each in columns))

    def busy_s(self, until_s: float) -> list[float]:
        """Return how long the busier link of each replica, out or in, has been busy; `until_s`: the clock's time."""
        found: list[float] = []
        for id in range(len(self._out_s)):
            out, into = self._out.get(id), self._into.get(id)
            out_s = self._out_s[id] + (0.0 if out is None else until_s - out.begin_s)
            into_s = self._into_s[id] + (0.0 if into is None else until_s - into.begin_s)
            found.append(max(out_s, into_s))
        return found
