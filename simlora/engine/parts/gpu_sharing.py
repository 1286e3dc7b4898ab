"""Several engines on one GPU, whose time they share."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from mypy_extensions import mypyc_attr

from simlora.core.total import total
from simlora.engine.parts.slowdown import PaceChange
from simlora.engine.replica.decode_window import DecodeWindow
from simlora.engine.replica.model_runner import ModelRunner, Pass, WrappingRunner
from simlora.engine.replica.replica import Replica
from simlora.engine.replica.running_batch import RunningBatch
from simlora.engine.scenario import Scenario
from simlora.latency.iteration import HostTime


@mypyc_attr(allow_interpreted_subclasses=True)
class SharedGpu:
    """One GPU whose time busy engines share, as separate processes under NVIDIA MPS do.

    An engine alone takes its iteration's time: a part on the GPU, and a part on its host, during which the GPU is idle.
    Beside others, the host part of one hides behind the GPU part of another. While an engine makes one iteration, each
    of the others makes one too: an iteration takes the longer of its own time and the sum of all their parts on the
    GPU. That is the asymptotic bound of a closed queueing network with one server (Lazowska et al., Quantitative
    System Performance, 1984, ch. 5), with what the others ran last.
    """

    def __init__(self) -> None:
        self.listeners: list[tuple[int, Callable[[int], None]]] = []  # engines, and their callbacks
        self._gpu_s: dict[int, float] = {}  # of the busy engines: the last iteration's part on the GPU
        self._prefilling: dict[int, bool] = {}

    def set_busy(self, id: int, busy: bool) -> None:
        """An engine has work, or none; the others are notified of a change."""
        if (id in self._gpu_s) == busy:
            return
        if busy:
            self._gpu_s[id] = 0.0
        else:
            del self._gpu_s[id]
        self._notify(id)

    def launch(
        self, id: int, own_s: float, slope_s: float, host_s: float, prefilling: bool = False
    ) -> tuple[float, float]:
        """Return what an iteration of `own_s`, of which `host_s` are on the host, takes beside the others.

        With it comes by how much each decode step after it is longer, alone `slope_s`. The others are
        notified of a change from prefill to decode and back: their iterations take other times from now on.
        """
        self._gpu_s[id] = max(own_s - host_s, 0.0)
        if self._prefilling.get(id) is not prefilling:
            self._prefilling[id] = prefilling
            self._notify(id)
        crowded_s = total(self._gpu_s.values())
        return (own_s, slope_s) if crowded_s <= own_s else (crowded_s, slope_s * len(self._gpu_s))

    def priced_s(self, id: int, own_s: float, host_s: float) -> float:
        """Return what such an iteration would take, without launching it."""
        others_s = total(seconds for other, seconds in self._gpu_s.items() if other != id)
        return max(own_s, max(own_s - host_s, 0.0) + others_s)

    def _notify(self, id: int) -> None:
        for other, listener in self.listeners:
            if other != id:
                listener(id)


class SharedRunner(WrappingRunner):
    """Runs the iterations of `runner` beside those of the other engines on the GPU."""

    def __init__(self, id: int, runner: ModelRunner, gpu: SharedGpu, host: HostTime) -> None:
        super().__init__(runner)
        self._id, self._gpu, self._host = id, gpu, host

    def prefill_s(self, work: Pass) -> float:
        own_s = self._runner.prefill_s(work)
        return self._gpu.launch(self._id, own_s, 0.0, self._host_s(work), True)[0]

    def priced_s(self, work: Pass) -> float:
        own_s = self._runner.priced_s(work)
        return self._gpu.priced_s(self._id, own_s, self._host_s(work))

    def _host_s(self, work: Pass) -> float:
        decoding = 0 if work.decoding is None else len(work.decoding)
        return self._host.host_s(len(work.requests) + decoding) + work.host_s

    def decode(self, start_s: float, batch: RunningBatch, host_s: float, adapters: int) -> DecodeWindow:
        window = self._runner.decode(start_s, batch, host_s, adapters)
        idle_s = self._host.host_s(len(batch)) + host_s
        base_s, slope_s = self._gpu.launch(self._id, window.base_s, window.slope_s, idle_s)
        return DecodeWindow(start_s, base_s, slope_s)


class GpuSharing(PaceChange):
    """Notifies the other engines on its GPU whether the replica has work, and is notified by them."""

    @staticmethod
    def requires(scenario: Scenario) -> Iterator[str]:
        if scenario.cluster.engines_per_gpu == 1:
            return
        for key in ("failures", "stragglers", "slow_links", "replica_groups"):
            if getattr(scenario.cluster, key):
                yield f"cluster.{key} needs cluster.engines_per_gpu=1"
        if scenario.scaling.autoscaler.period_s is not None:
            yield "an autoscaler needs cluster.engines_per_gpu=1"
        if scenario.replica.tp > 1:
            yield (
                f"cluster.engines_per_gpu is {scenario.cluster.engines_per_gpu}, must be 1 with replica.tp "
                f"{scenario.replica.tp}"
            )

    def __init__(self, replica: Replica, gpu: SharedGpu) -> None:
        super().__init__(replica)
        self._gpu = gpu
        gpu.listeners.append((replica.id, self.change))

    def on_turn(self, now_s: float) -> None:
        table = self._replica.table
        self._gpu.set_busy(self._replica.id, bool(table.batch.members or table.prefill))
