"""What happened when inside the replicas, kept whole to be looked at closely: the timeline that Perfetto opens."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from simlora.core.adapter import Adapter

MOST = 500_000
"""Things that are kept, of some 75,000 requests: 75 MB, and while they are written 500 MB."""
TO_GPU, TO_HOST = "host to GPU", "GPU to host"
"""The links of a replica."""


class Ran(NamedTuple):
    """A replica was busy from `since_s` until `until_s`; until `begin_s` it waited for weights or KV, or switched.

    It prefilled so many `requests` with so many `tokens` of their prompts, or took so many `steps` with a `batch`, or
    both in one pass.
    """

    replica: int
    since_s: float
    begin_s: float
    until_s: float
    requests: int
    tokens: int
    batch: int
    steps: int


class Copied(NamedTuple):
    """A link was busy with an adapter, or the KV of so many tokens, or with adapters that come again (None)."""

    replica: int
    link: str
    begin_s: float
    until_s: float
    what: Adapter | int | None


class Came(NamedTuple):
    """An adapter has taken its slots in HBM, and is ready to be used from then on."""

    replica: int
    time_s: float
    adapter: Adapter
    ready_s: float


class Left(NamedTuple):
    """An adapter has left HBM."""

    replica: int
    time_s: float
    adapter_id: int


class Switched(NamedTuple):
    """What is merged into the weights was changed before the next iteration, which took so many seconds of it."""

    replica: int
    time_s: float
    seconds: float
    merged: Adapter | None


class Level(NamedTuple):
    """What a replica has from then on: requests, and token slots; the last two of cached KV, here and on the host."""

    replica: int
    time_s: float
    running: int
    waiting: int
    kv_tokens: int
    adapter_tokens: int
    idle_kv_tokens: int
    host_kv_tokens: int


class ReplicaFailed(NamedTuple):
    """A replica has failed with all it had, within iterations that began at `since_s` (not before: it had none)."""

    replica: int
    time_s: float
    since_s: float


Happening = Ran | Copied | Came | Left | Switched | Level | ReplicaFailed


class Traced(NamedTuple):
    """What happened until then, in the order in which it was told; there was more if it is `cut` short."""

    happened: list[Happening]
    until_s: float
    cut: bool


class Tracing:
    """Keeps the first `most` things that happen; `now` is the time."""

    __slots__ = ("_cut_s", "_happened", "_most", "now")

    def __init__(self, now: Callable[[], float], most: int = MOST) -> None:
        self.now = now
        self._most = most
        self._happened: list[Happening] = []
        self._cut_s: float | None = None

    def add(self, happening: Happening) -> None:
        """Keep one, if there is room."""
        if len(self._happened) < self._most:
            self._happened.append(happening)
        elif self._cut_s is None:
            self._cut_s = self.now()

    def until(self, end_s: float) -> Traced:
        """Return what was kept of a run that ended then."""
        return Traced(self._happened, end_s if self._cut_s is None else self._cut_s, self._cut_s is not None)
