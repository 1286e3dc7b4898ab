"""Everything that one simulation needs, as plain objects."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from simlora.core.checks import number, whole
from simlora.core.errors import InputError, nearest
from simlora.core.trace import Trace
from simlora.hardware.model import ModelShape
from simlora.latency.calibration import Calibration
from simlora.latency.kernels import Kernel
from simlora.policies.eviction.base import Eviction
from simlora.policies.loading.base import Loader
from simlora.policies.placement.base import Placement
from simlora.policies.routing.base import Router
from simlora.policies.scheduling.base import Scheduler

RESERVES = ("full", "peak", "paged")
PREEMPTIONS = ("recompute", "swap")


@dataclass(frozen=True, kw_only=True)
class ReplicaConfig:
    """Limits of one replica; raises InputError for a value out of its range.

    `kv_token_budget`: token slots of the pool, adapters included. `max_batch_size`: running
    requests. `max_prefill_tokens`: uncached prompt tokens of one iteration. `admit_every`: decode
    steps after a prefill during which the queue is left alone. `reserve`: full, peak or paged.
    `block_tokens`, `watermark`, `preemption`: for paged. `target_modules`: what LoRA adapts.
    """

    kv_token_budget: int
    max_batch_size: int = 1000
    max_prefill_tokens: int = 3072
    admit_every: int = 10
    reserve: str = "peak"
    block_tokens: int = 16
    watermark: float = 0.01
    preemption: str = "recompute"
    target_modules: tuple[str, ...] = ("q", "k", "v", "o")
    tp: int = 1

    def __post_init__(self) -> None:
        for name, unit, least in (
            ("kv_token_budget", "token slots", 1),
            ("max_batch_size", "requests", 1),
            ("max_prefill_tokens", "tokens", 1),
            ("admit_every", "decode steps", 0),
            ("block_tokens", "tokens", 1),
            ("tp", "GPUs", 1),
        ):
            whole(f"replica.{name}", getattr(self, name), unit, least=least)
        number("replica.watermark", self.watermark, "of the pool", least=0, most=0.99)
        if self.reserve not in RESERVES:
            raise InputError(f"replica.reserve is {self.reserve!r}; {nearest(str(self.reserve), RESERVES)}")
        if self.preemption not in PREEMPTIONS:
            raise InputError(
                f"replica.preemption is {self.preemption!r}; {nearest(str(self.preemption), PREEMPTIONS)}"
            )


@dataclass(frozen=True, kw_only=True)
class Policies:
    """One choice a slot. Those of a replica are factories: every replica gets its own instance."""

    scheduler: Callable[[], Scheduler]
    loader: Callable[[], Loader]
    eviction: Callable[[], Eviction]
    kernel: Callable[[Calibration], Kernel]
    router: Router
    placement: Placement


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """A trace, the cluster that serves it, and the policies that decide."""

    trace: Trace
    model: ModelShape
    calibration: Calibration
    replicas: int
    replica: ReplicaConfig
    policies: Policies
    seed: int = 0
    fast_forward: bool = True
    timeline: bool = True

    def __post_init__(self) -> None:
        whole("cluster.replicas", self.replicas, "replicas", least=1)
