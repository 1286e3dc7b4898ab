"""The adapters among which an eviction policy picks, and what is known of each."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from math import inf

from mypy_extensions import i64

from simlora.core.adapter import Adapter

Now = Callable[[], float]
"""Returns the time in seconds."""
LoadTime = Callable[[Adapter], float]
"""Returns the seconds in which an adapter is loaded."""
Waiting = Callable[[int], int]
"""Returns how many requests wait for an adapter, by its id."""


class Use:
    """What one replica has known of an `adapter` since the run began, also while it is not in HBM.

    So many `requests` have begun to use it, of which so many are `running`; it was last used at `last_s`.
    """

    __slots__ = ("adapter", "last_s", "requests", "running")

    def __init__(self, adapter: Adapter) -> None:
        self.adapter = adapter
        self.requests: i64 = 0
        self.running: i64 = 0
        self.last_s = -inf


class IdleAdapters:
    """Resident adapters that no running request uses, least recently used first; `uses` by id."""

    __slots__ = ("_adapters", "_load_s", "_now_s", "_uses", "_waiting")

    def __init__(
        self,
        adapters: Collection[Adapter],
        uses: Mapping[int, Use],
        now_s: Now,
        load_s: LoadTime,
        waiting: Waiting,
    ) -> None:
        self._adapters, self._uses = adapters, uses
        self._now_s, self._load_s, self._waiting = now_s, load_s, waiting

    def __iter__(self) -> Iterator[Adapter]:
        return iter(self._adapters)

    def __len__(self) -> int:
        return len(self._adapters)

    @property
    def now_s(self) -> float:
        """The time."""
        return self._now_s()

    def uses(self, adapter: Adapter) -> int:
        """Return how many requests have begun to use an adapter."""
        return self._uses[adapter.id].requests

    def last_use_s(self, adapter: Adapter) -> float:
        """Return when the last request that used an adapter ended, or gave it up."""
        return self._uses[adapter.id].last_s

    def load_s(self, adapter: Adapter) -> float:
        """Return the seconds in which an adapter would be loaded, on a link that nothing else uses."""
        return self._load_s(adapter)

    def waiting(self, adapter: Adapter) -> int:
        """Return how many requests wait for an adapter."""
        return self._waiting(adapter.id)
