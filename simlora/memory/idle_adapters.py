"""The adapters among which an eviction policy picks, and what is known of each."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping

from simlora.core.adapter import Adapter

Now = Callable[[], float]
"""Returns the time in seconds."""
LoadTime = Callable[[Adapter], float]
"""Returns the seconds in which an adapter is loaded."""


class IdleAdapters:
    """Resident adapters that no running request uses, least recently used first.

    `uses` and `last_uses_s`, by id, are of this replica since the run began, of adapters that left HBM meanwhile too.
    """

    __slots__ = ("_adapters", "_last_uses_s", "_load_s", "_now_s", "_uses")

    def __init__(
        self,
        adapters: Collection[Adapter],
        uses: Mapping[int, int],
        last_uses_s: Mapping[int, float],
        now_s: Now,
        load_s: LoadTime,
    ) -> None:
        self._adapters, self._uses, self._last_uses_s = adapters, uses, last_uses_s
        self._now_s, self._load_s = now_s, load_s

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
        return self._uses.get(adapter.id, 0)

    def last_use_s(self, adapter: Adapter) -> float:
        """Return when the last request that used an adapter ended, or gave it up."""
        return self._last_uses_s[adapter.id]

    def load_s(self, adapter: Adapter) -> float:
        """Return the seconds in which an adapter would be loaded, on a link that nothing else uses."""
        return self._load_s(adapter)
