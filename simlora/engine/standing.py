"""Admitted requests that do not decode: those without whom the batch goes on."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf

from simlora.core.request import Request
from simlora.engine.landing import Landing


class Standing:
    """In four ways, each in order of admission.

    `landing`: not begun, their weights are on the way. `prefilling`: prefilled in part. `late`: prefilled with the
    CPU's help before their weights have landed. `paused`: prefilled, and left out of the batch by the scheduler.
    `lands_s` is when the next of the weights land that somebody waits for; inf: nobody does.
    """

    __slots__ = ("landing", "lands_s", "late", "paused", "prefilling")

    def __init__(self) -> None:
        self.landing = Landing()
        self.prefilling: dict[int, Request] = {}
        self.late = Landing()
        self.paused: dict[int, Request] = {}
        self.lands_s = inf

    def __iter__(self) -> Iterator[Request]:
        yield from self.growing()
        yield from self.paused.values()

    def growing(self) -> Iterator[Request]:
        """Those whose KV is charged as if they ran, but for the steps that they do not take."""
        yield from self.landing
        yield from self.prefilling.values()
        yield from self.late

    def last(self) -> Request | None:
        """Who goes first when memory runs out: who was paused last, or else admitted last of those before the rest."""
        for held in (self.paused, self.landing.requests, self.prefilling, self.late.requests):
            if held:
                return held[next(reversed(held))]
        return None

    def find_next_landing(self) -> None:
        """Somebody has come to wait for weights, or waits no longer."""
        self.lands_s = min(self.landing.next_s, self.late.next_s)
