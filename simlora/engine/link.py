"""A link that serves one transfer after the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from simlora.core.adapter import Adapter


class Link:
    """First come, first served; `busy_s` adds up the time in use, until `free_at_s`.

    `told` hears of every transfer: when it begins and ends, and what it is of. While the link is slow, transfers take
    `slowdown` times as long.
    """

    __slots__ = ("_since_s", "busy_s", "free_at_s", "slowdown", "told")

    def __init__(self) -> None:
        self.free_at_s = 0.0
        self.busy_s = 0.0
        self.slowdown = 1.0
        self._since_s = 0.0  # the last stretch of transfers without a gap began
        self.told: Callable[[float, float, Adapter | int | None], None] | None = None

    def transfer(
        self, now_s: float, duration_s: float, launch_s: float = 0.0, what: Adapter | int | None = None
    ) -> float:
        """Start a transfer as soon as the link is free; return when it is done.

        It is of an adapter, or of so many tokens' KV; None: of several adapters. To launch it takes the host
        `launch_s` besides, unless it can do so while the link is busy with others.
        """
        duration_s *= self.slowdown
        if self.free_at_s <= now_s:
            duration_s += launch_s
            if self.free_at_s < now_s:
                self._since_s = now_s
        self.free_at_s = max(now_s, self.free_at_s) + duration_s
        self.busy_s += duration_s
        if self.told is not None:
            self.told(self.free_at_s - duration_s, self.free_at_s, what)
        return self.free_at_s

    def busy_until(self, time_s: float) -> float:
        """Return what `busy_s` was then, of the last stretch without a gap only as much as there had been.

        Of a stretch before it that is not over then, which takes a transfer that was put off, all counts.
        """
        return self.busy_s - max(self.free_at_s - max(time_s, self._since_s), 0.0)


def together(links: Sequence[Link], now_s: float, duration_s: float) -> float:
    """Start a transfer as soon as all its links are free, and keep them until it is done; return when that is.

    It takes as long as on the slowest of them.
    """
    duration_s *= max(link.slowdown for link in links)
    begin_s = max(now_s, *(link.free_at_s for link in links))
    for link in links:
        link.free_at_s = begin_s + duration_s
        link.busy_s += duration_s
    return begin_s + duration_s
