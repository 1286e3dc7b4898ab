"""Several engines on one GPU: who waits for whom."""

from __future__ import annotations

from typing import Protocol


class Engine(Protocol):
    """What shares a GPU: a replica."""

    id: int

    def neighbours_changed(self, by: int) -> None:
        """Another engine, number `by`, has begun or ceased to be busy."""


class SharedGpu:
    """One GPU whose time k busy engines share, as separate processes under NVIDIA MPS do.

    An engine alone takes its iteration's time: a part on the GPU and a part on its host, when the GPU is
    idle. Of k engines each gets at least a k-th of the GPU, and one's host part hides behind another's GPU
    part. That is the asymptotic bound of a closed queueing network with one server: an
    iteration takes the longer of its own time and k times its part on the GPU (Lazowska et al.,
    Quantitative System Performance, 1984, ch. 5).
    """

    __slots__ = ("_busy", "engines")

    def __init__(self) -> None:
        self.engines: list[Engine] = []
        self._busy: set[int] = set()

    def set_busy(self, id: int, busy: bool) -> None:
        """An engine has work, or none; the others hear of a change."""
        if (id in self._busy) == busy:
            return
        (self._busy.add if busy else self._busy.remove)(id)
        for engine in self.engines:
            if engine.id != id:
                engine.neighbours_changed(id)

    def beside_others(self, own_s: float, slope_s: float, host_s: float) -> tuple[float, float]:
        """Return what an iteration of `own_s`, of which `host_s` are on the host, takes beside the others.

        With it comes by how much each decode step after it is longer, alone `slope_s`.
        """
        crowded_s = len(self._busy) * (own_s - host_s)
        return (own_s, slope_s) if crowded_s <= own_s else (crowded_s, slope_s * len(self._busy))
