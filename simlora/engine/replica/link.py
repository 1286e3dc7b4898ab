"""A link that serves one transfer after the other, in order of arrival."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from simlora.core.adapter import Adapter


class Link:
    """First come, first served; `busy_s` is the time in use so far, until `free_at_s`.

    `on_transfer` is called with the begin and the end of each transfer, and what it is of. While the link is slow,
    transfers take `slowdown` times as long.
    """

    __slots__ = ("_since_s", "busy_s", "free_at_s", "on_transfer", "slowdown")

    def __init__(self) -> None:
        self.free_at_s = 0.0
        self.busy_s = 0.0
        self.slowdown = 1.0
        self._since_s = 0.0  # the last stretch of transfers without a gap began
        self.on_transfer: tuple[Callable[[float, float, Adapter | int | None], None], ...] = ()

    def transfer(
        self, now_s: float, duration_s: float, launch_s: float = 0.0, what: Adapter | int | None = None
    ) -> float:
        """Start a transfer as soon as the link is free; return when it ends.

        It is of an adapter, or of so many tokens' KV; None: of several adapters. Its launch takes the host `launch_s`
        besides, unless the link is busy with other transfers meanwhile.
        """
        duration_s *= self.slowdown
        begin_s = self.free_at_s
        if begin_s <= now_s:
            duration_s += launch_s
            if begin_s < now_s:
                begin_s = self._since_s = now_s
        self.free_at_s = begin_s + duration_s
        self.busy_s += duration_s
        for listener in self.on_transfer:
            listener(self.free_at_s - duration_s, self.free_at_s, what)
        return self.free_at_s

    def busy_until(self, time_s: float) -> float:
        """Return what `busy_s` was then: of the last stretch without a gap only as much as had passed.

        An earlier stretch counts whole even if it was not over then, which takes a transfer that was put off.
        """
        return self.busy_s - max(self.free_at_s - max(time_s, self._since_s), 0.0)


def together(links: Sequence[Link], now_s: float, duration_s: float) -> float:
    """Start a transfer as soon as all its links are free, and keep them until it ends; return when it ends.

    It takes as long as on the slowest of the links.
    """
    duration_s *= max(link.slowdown for link in links)
    begin_s = max(now_s, *(link.free_at_s for link in links))
    for link in links:
        link.free_at_s = begin_s + duration_s
        link.busy_s += duration_s
    return begin_s + duration_s
