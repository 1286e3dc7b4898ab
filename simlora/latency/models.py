"""All latency models of one calibration, created once and shared by its replicas."""

from __future__ import annotations

from dataclasses import dataclass

from simlora.latency.cpu_lora import CpuLora
from simlora.latency.draft import Draft
from simlora.latency.iteration import HostTime, IterationModel
from simlora.latency.kernels import Kernel
from simlora.latency.remote_lora import RemoteLora
from simlora.latency.transfer import AdapterLoad, Merge


@dataclass(frozen=True, slots=True)
class LatencyModels:
    """The stateless latency models of base-model iterations, LoRA kernels and adapter loads.

    `merge` is set for a scheduler that merges, `cpu_lora` for a loader that assists, `host` if several engines share a
    GPU, `draft` if one proposes tokens on it, `remote` if other GPUs compute LoRA. `flush_s` is the time in which an
    allocator returns its cached memory and allocates it again. The engine's host adds `skipped_request_s` to a step for
    each waiting request that the scheduler looks at and skips, and `listing_s` for each distinct adapter.
    """

    iteration: IterationModel
    kernel: Kernel
    load: AdapterLoad
    merge: Merge | None = None
    host: HostTime | None = None
    cpu_lora: CpuLora | None = None
    draft: Draft | None = None
    remote: RemoteLora | None = None
    flush_s: float = 0.0
    skipped_request_s: float = 0.0
    listing_s: float = 0.0

    def host_s(self, skipped: int, adapters: int) -> float:
        """Return the time that the engine's host adds to a step, on top of the iteration and the LoRA kernels.

        The scheduler skipped so many requests, and the step has so many distinct adapters.
        """
        return self.skipped_request_s * skipped + self.listing_s * adapters
