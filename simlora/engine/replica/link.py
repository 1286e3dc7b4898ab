"""A link that serves one transfer after the other, in order of arrival."""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Sequence

from simlora.core.adapter import Adapter
from simlora.core.total import total


class Link:
    """First come, first served; `busy_s` is the time in use so far, until `free_at_s`.

    A transfer of what is not there yet is booked for later, and others take place before it as far as they fit.

    `on_transfer` is called with the begin and the end of each transfer, and what it is of. While the link is slow,
    transfers take `slowdown` times as long.
    """

    __slots__ = ("_later", "_since_s", "busy_s", "free_at_s", "on_transfer", "slowdown")

    def __init__(self) -> None:
        self.free_at_s = 0.0
        self.busy_s = 0.0
        self.slowdown = 1.0
        self._since_s = 0.0  # the last stretch of transfers without a gap began
        self._later: list[tuple[float, float]] = []  # booked: from when to when
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
            begin_s = now_s
        if self._later:
            while self._later and self._later[0][1] <= now_s:
                del self._later[0]
            begin_s = self._gap(begin_s, duration_s)
        if begin_s > self.free_at_s:
            self._since_s = begin_s
        self.free_at_s = begin_s + duration_s
        self._took(self.free_at_s, duration_s, what)
        return self.free_at_s

    def transfer_later(
        self, there_s: float, duration_s: float, launch_s: float, what: Adapter | int | None = None
    ) -> float:
        """Book a transfer for when what it copies is there, or as soon as the link is free then; return its end."""
        duration_s = duration_s * self.slowdown + launch_s
        begin_s = self._gap(max(there_s, self.free_at_s), duration_s)
        insort(self._later, (begin_s, begin_s + duration_s))
        self._took(begin_s + duration_s, duration_s, what)
        return begin_s + duration_s

    def _gap(self, begin_s: float, duration_s: float) -> float:
        """Return when a transfer can begin beside those booked, not before `begin_s`."""
        for from_s, until_s in self._later:
            if begin_s + duration_s <= from_s:
                break
            begin_s = max(begin_s, until_s)
        return begin_s

    def _took(self, end_s: float, duration_s: float, what: Adapter | int | None) -> None:
        self.busy_s += duration_s
        for listener in self.on_transfer:
            listener(end_s - duration_s, end_s, what)

    @property
    def booked_until_s(self) -> float:
        """When all transfers so far will have ended."""
        return max(self.free_at_s, self._later[-1][1]) if self._later else self.free_at_s

    def busy_until(self, time_s: float) -> float:
        """Return what `busy_s` was then: of the last stretch without a gap only as much as had passed.

        An earlier stretch counts whole even if it was not over then, which takes a transfer that was put off.
        """
        booked_s = total(max(until_s - max(time_s, from_s), 0.0) for from_s, until_s in self._later)
        return self.busy_s - booked_s - max(self.free_at_s - max(time_s, self._since_s), 0.0)


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
