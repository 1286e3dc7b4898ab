"""The use of HBM, by purpose, averaged over time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from librt.vecs import vec
from mypy_extensions import i64
from numpy.typing import NDArray


class Held(NamedTuple):
    """Token slots held by each replica, averaged over time `[replicas]`.

    `used`: all KV and adapters in HBM. `idle`: KV in HBM that no request holds. `invalid`: KV in HBM whose adapter is
    not there. `host`: cached KV on the host.
    """

    used: NDArray[np.float64]
    idle: NDArray[np.float64]
    invalid: NDArray[np.float64]
    host: NDArray[np.float64]


class Usage:
    """Integrates levels over time, in plain floats, at every boundary of every replica.

    A level holds from one boundary of a replica to the next. If KV `grows`, it does so by one slot per token meanwhile.
    What is evicted for it during several steps that are one event counts until their end.
    """

    __slots__ = ("_cached", "_cached_area", "_growth", "_since_s", "_steps", "_used", "_used_area")

    def __init__(self, replicas: int, grows: bool = True) -> None:
        self._growth = 0.5 if grows else 0.0
        self._steps = 0
        self._since_s: vec[float] = vec[float]([0.0] * replicas)
        self._used: vec[float] = vec[float]([0.0] * replicas)
        self._used_area: vec[float] = vec[float]([0.0] * replicas)
        self._cached = [(0, 0, 0)] * replicas
        self._cached_area = [(0.0, 0.0, 0.0)] * replicas

    def hold(self, replica: i64, now_s: float, used: float, cache: tuple[int, ...], token_steps: int) -> None:
        """Set what a replica holds from now on: so many slots, and of a prefix `cache` idle, invalid and host ones.

        `token_steps` counts the token steps of all replicas so far.
        """
        lasted_s = now_s - self._since_s[replica]
        self._since_s[replica] = now_s
        # All token steps since the previous boundary, of whichever replica, were taken by this replica.
        grown = self._growth * (token_steps - self._steps)
        self._steps = token_steps
        self._used_area[replica] += lasted_s * (self._used[replica] + grown)
        self._used[replica] = used

    def share(self, replicas: Sequence[int]) -> list[tuple[Any, ...]]:
        """Return what was integrated of some replicas, for `add_share` of another one."""
        return [
            (
                id,
                self._since_s[id],
                self._used[id],
                self._used_area[id],
                self._cached[id],
                self._cached_area[id],
            )
            for id in replicas
        ]

    def add_share(self, share: Sequence[tuple[Any, ...]]) -> None:
        """Take over what another one has integrated, of replicas of which this one has nothing."""
        for id, since_s, used, used_area, cached, cached_area in share:
            self._since_s[id], self._used[id], self._used_area[id] = since_s, used, used_area
            self._cached[id], self._cached_area[id] = cached, cached_area

    def until(self, end_s: float) -> Held:
        """Return the means from 0 to `end_s`, which no boundary may exceed; NaN if `end_s` is 0."""
        left_s = end_s - np.array(self._since_s)
        used = np.array(self._used_area) + left_s * np.array(self._used)
        cached = np.array(self._cached_area) + left_s[:, np.newaxis] * np.array(self._cached)
        with np.errstate(invalid="ignore"):
            return Held(used / end_s, *(cached.T / end_s))


class CachedUsage(Usage):
    """Integrates the levels of a prefix cache too."""

    __slots__ = ()

    def hold(self, replica: i64, now_s: float, used: float, cache: tuple[int, ...], token_steps: int) -> None:
        lasted_s = now_s - self._since_s[replica]
        super().hold(replica, now_s, used, cache, token_steps)
        idle, invalid, host = self._cached[replica]
        a, b, c = self._cached_area[replica]
        self._cached_area[replica] = a + lasted_s * idle, b + lasted_s * invalid, c + lasted_s * host
        self._cached[replica] = cache[0], cache[1], cache[2]
