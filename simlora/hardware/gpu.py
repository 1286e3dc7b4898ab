"""A GPU as its data sheet describes it."""

from __future__ import annotations

from dataclasses import dataclass

from simlora.core.checks import number, whole
from simlora.hardware.link import Link, as_link


@dataclass(frozen=True)
class Gpu:
    """One GPU. Configurations live in conf/gpu, each with its sources.

    `memory_bytes` is what a program can address (what CUDA reports), which a data sheet rounds:
    a card sold with 80 GB of HBM reports 79.1 to 79.3 GiB. `fp16_flops` is dense, without sparsity.
    `host_link` carries adapters from host memory, `peer_link` the collectives between a replica's GPUs;
    each is a Link or the name of one of link.LINKS. `usd_per_hour` is what renting one costs, `idle_w` what it draws
    with a model in its memory and nothing to do, `busy_w` at work; None: not known. `host_speed` is the speed of a core
    of the servers that this GPU is mostly sold in, over that of the A100's servers: composed calibrations divide an
    engine's host time by it.
    """

    name: str
    memory_bytes: int
    memory_bandwidth_bytes_per_s: float
    fp16_flops: float
    host_link: Link
    peer_link: Link
    usd_per_hour: float | None = None
    idle_w: float | None = None
    busy_w: float | None = None
    host_speed: float = 1.0

    def __post_init__(self) -> None:
        memory_bytes = whole("gpu.memory_bytes", self.memory_bytes, "bytes", least=1)
        bandwidth = self.memory_bandwidth_bytes_per_s
        number("gpu.memory_bandwidth_bytes_per_s", bandwidth, "bytes per second", above=0)
        number("gpu.fp16_flops", self.fp16_flops, "operations per second", above=0)
        number("gpu.host_speed", self.host_speed, "times an A100's host", above=0)
        for name, unit in (("usd_per_hour", "USD"), ("idle_w", "W"), ("busy_w", "W")):
            if getattr(self, name) is not None:
                number(f"gpu.{name}", getattr(self, name), unit, least=0)
        object.__setattr__(self, "memory_bytes", memory_bytes)
        object.__setattr__(self, "host_link", as_link("gpu.host_link", self.host_link))
        object.__setattr__(self, "peer_link", as_link("gpu.peer_link", self.peer_link))
