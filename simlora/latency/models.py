"""All latency models of one calibration, made once and shared by all replicas."""

from __future__ import annotations

from dataclasses import dataclass

from simlora.latency.cpu_lora import CpuLora
from simlora.latency.iteration import HostTime, IterationModel
from simlora.latency.kernels import Kernel
from simlora.latency.transfer import AdapterLoad, Merge


@dataclass(frozen=True, slots=True)
class LatencyModels:
    """What an iteration of the base model, its LoRA kernels and a load cost. None of them has state.

    `merge` is there for a scheduler that merges, `cpu_lora` for a loader that assists, `host` where several engines
    share a GPU. `flush_s` is what it takes an allocator to give its cached memory back and to take it anew;
    `skipped_request_s` what a step takes longer for each waiting request that the scheduler looks at and passes over.
    """

    iteration: IterationModel
    kernel: Kernel
    load: AdapterLoad
    merge: Merge | None = None
    host: HostTime | None = None
    cpu_lora: CpuLora | None = None
    flush_s: float = 0.0
    skipped_request_s: float = 0.0
