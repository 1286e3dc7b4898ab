"""How much of HBM is in use, and for what, on average over time."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray


class Cache(Protocol):
    """KV that outlives its requests.

    Its token slots in HBM, how many of them requests hold, how many have no adapter there, and those on the host.
    """

    tokens: int
    held_tokens: int
    invalid_tokens: int
    host_tokens: int


class Held(NamedTuple):
    """Token slots that replicas held, on average over time `[replicas]`.

    `used` are those of all KV and adapters in HBM, `idle` of KV there that no request holds, `invalid` of that part of
    it whose adapter is not there, `host` of cached KV on the host.
    """

    used: NDArray[np.float64]
    idle: NDArray[np.float64]
    invalid: NDArray[np.float64]
    host: NDArray[np.float64]


class Usage:
    """Sums up levels times how long they held, in plain floats: once for every boundary of every replica.

    A level holds from one boundary of a replica to the next; KV that `grows` does so by a slot a token meanwhile. What
    makes room for it while several steps are one event is counted until their end.
    """

    __slots__ = ("_cached", "_cached_area", "_growth", "_since_s", "_steps", "_used", "_used_area")

    def __init__(self, replicas: int, grows: bool = True) -> None:
        self._growth = 0.5 if grows else 0.0
        self._steps = 0
        self._since_s = [0.0] * replicas
        self._used = [0] * replicas
        self._used_area = [0.0] * replicas
        self._cached = [(0, 0, 0)] * replicas
        self._cached_area = [(0.0, 0.0, 0.0)] * replicas

    def hold(
        self, replica: int, now_s: float, token_steps: int, used_tokens: int, cache: Cache | None
    ) -> None:
        """A replica holds so much from now on; `token_steps` are those of all replicas until now."""
        lasted_s = now_s - self._since_s[replica]
        self._since_s[replica] = now_s
        # All steps since the boundary before, whose ever that was, were those of this replica.
        grown = self._growth * (token_steps - self._steps)
        self._steps = token_steps
        self._used_area[replica] += lasted_s * (self._used[replica] + grown)
        self._used[replica] = used_tokens
        if cache is not None:
            self._add_cached(replica, lasted_s)
            self._cached[replica] = cache.tokens - cache.held_tokens, cache.invalid_tokens, cache.host_tokens

    def _add_cached(self, replica: int, lasted_s: float) -> None:
        idle, invalid, host = self._cached[replica]
        a, b, c = self._cached_area[replica]
        self._cached_area[replica] = a + lasted_s * idle, b + lasted_s * invalid, c + lasted_s * host

    def until(self, end_s: float) -> Held:
        """Return the means from 0 until then, when every boundary was before; NaN for no time at all."""
        left_s = end_s - np.array(self._since_s)
        used = np.array(self._used_area) + left_s * np.array(self._used)
        cached = np.array(self._cached_area) + left_s[:, np.newaxis] * np.array(self._cached)
        with np.errstate(invalid="ignore"):
            return Held(used / end_s, *(cached.T / end_s))
