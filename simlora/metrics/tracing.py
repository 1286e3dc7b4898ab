"""All events inside the replicas, for the detailed timeline that Perfetto opens."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from simlora.core.adapter import Adapter

MOST: Final = 500_000
"""Events that are kept, those of some 75,000 requests: 75 MB, and 500 MB while they are written."""
TO_GPU, TO_HOST = "host to GPU", "GPU to host"
"""The links of a replica."""


class Ran(NamedTuple):
    """A replica was busy from `since_s` until `until_s`; until `begin_s` it waited for weights or KV, or switched.

    It prefilled `tokens` tokens of `requests` requests, or took `steps` decode steps with a batch of `batch` requests,
    or both in one pass.
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
    """A link copied `what`: an adapter, the KV of that many tokens, or adapters that are reloaded (None)."""

    replica: int
    link: str
    begin_s: float
    until_s: float
    what: Adapter | int | None


class Came(NamedTuple):
    """An adapter has taken its slots in HBM; it can be used from `ready_s` on."""

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
    """The merged adapter was changed at the start of the next iteration, of which the switch took `seconds`."""

    replica: int
    time_s: float
    seconds: float
    merged: Adapter | None


class Level(NamedTuple):
    """A replica's requests and token slots from `time_s` on; the last two are cached KV in HBM and on the host."""

    replica: int
    time_s: float
    running: int
    waiting: int
    kv_tokens: int
    adapter_tokens: int
    idle_kv_tokens: int
    host_kv_tokens: int


class ReplicaFailed(NamedTuple):
    """A replica failed during iterations that began at `since_s`; if that is not before `time_s`, it had none."""

    replica: int
    time_s: float
    since_s: float


Happening = Ran | Copied | Came | Left | Switched | Level | ReplicaFailed


class Traced(NamedTuple):
    """The events until `until_s`, in the order in which they were added; `cut`: later events were dropped."""

    happened: list[Happening]
    until_s: float
    cut: bool


class Tracing:
    """Keeps the first `most` events; `now()` is the time."""

    __slots__ = ("_cut_s", "_happened", "_most", "now")

    def __init__(self, now: Callable[[], float], most: int = MOST) -> None:
        self.now = now
        self._most = most
        self._happened: list[Happening] = []
        self._cut_s: float | None = None

    def add(self, happening: Happening) -> None:
        """Keep an event if there is room."""
        if len(self._happened) < self._most:
            self._happened.append(happening)
        elif self._cut_s is None:
            self._cut_s = self.now()

    def until(self, end_s: float) -> Traced:
        """Return the events kept of a run that ended at `end_s`."""
        return Traced(self._happened, end_s if self._cut_s is None else self._cut_s, self._cut_s is not None)
