"""Several engines on one GPU: who waits for whom."""

from __future__ import annotations

from typing import Protocol


class Engine(Protocol):
    """What shares a GPU: a replica."""

    id: int

    def neighbours_changed(self, by: int) -> None:
        """Another engine, number `by`, has begun or ceased to be busy, or to prefill."""


class SharedGpu:
    """One GPU whose time busy engines share, as separate processes under NVIDIA MPS do.

    An engine alone takes its iteration's time: a part on the GPU and a part on its host, when the GPU is
    idle. Beside others, one's host part hides behind another's GPU part, and while it makes one iteration
    each of the others makes one too: an iteration takes the longer of its own time and the sum of all
    their parts on the GPU. That is the asymptotic bound of a closed queueing network with one server
    (Lazowska et al., Quantitative System Performance, 1984, ch. 5), with what the others ran last.
    """

    __slots__ = ("_gpu_s", "_prefilling", "engines")

    def __init__(self) -> None:
        self.engines: list[Engine] = []
        self._gpu_s: dict[int, float] = {}  # of the busy engines: the last iteration's part on the GPU
        self._prefilling: dict[int, bool] = {}

    def set_busy(self, id: int, busy: bool) -> None:
        """An engine has work, or none; the others hear of a change."""
        if (id in self._gpu_s) == busy:
            return
        if busy:
            self._gpu_s[id] = 0.0
        else:
            del self._gpu_s[id]
        self._tell(id)

    def beside_others(
        self, id: int, own_s: float, slope_s: float, host_s: float, prefilling: bool = False
    ) -> tuple[float, float]:
        """Return what an iteration of `own_s`, of which `host_s` are on the host, takes beside the others.

        With it comes by how much each decode step after it is longer, alone `slope_s`. The others hear of
        a change from prefill to decode and back: their iterations take other times from now on.
        """
        self._gpu_s[id] = max(own_s - host_s, 0.0)
        if self._prefilling.get(id) is not prefilling:
            self._prefilling[id] = prefilling
            self._tell(id)
        crowded_s = sum(self._gpu_s.values())
        return (own_s, slope_s) if crowded_s <= own_s else (crowded_s, slope_s * len(self._gpu_s))

    def _tell(self, id: int) -> None:
        for engine in self.engines:
            if engine.id != id:
                engine.neighbours_changed(id)
