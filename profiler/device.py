"""Where to measure: a CUDA GPU, or this machine's CPU."""

from __future__ import annotations

import os
import platform
import re
from dataclasses import dataclass

import torch
from torch import device as TorchDevice  # noqa: N812
from torch import dtype as DType  # noqa: N812

from simlora.core.errors import InputError

CHOICES = ("auto", "cuda", "cpu")
GPU_NAMES = {
    r"H200": "h200_141g",
    r"H100.*64": "h100_64g",
    r"H100": "h100_80g",
    r"A100.*40": "a100_40g",
    r"A100": "a100_80g",
    r"A800": "a800_80g",
    r"A10G": "a10g",
    r"A10\b": "a10",
    r"A40\b": "a40",
}
"""simlora's names of what CUDA calls a device; the first that is found in it counts."""


@dataclass(frozen=True)
class Device:
    """One GPU, or the CPU with so many threads. `gpu` is what a calibration calls it."""

    torch: TorchDevice
    gpu: str
    name: str
    dtype: DType

    @property
    def is_gpu(self) -> bool:
        """Whether it is a CUDA GPU."""
        return self.torch.type == "cuda"

    def synchronize(self) -> None:
        """Wait until the device has done all that it was told."""
        if self.is_gpu:
            torch.cuda.synchronize(self.torch)

    @property
    def memory_bytes(self) -> int:
        """Memory that can be used: the GPU's, or what is free of this machine's."""
        if self.is_gpu:
            return int(torch.cuda.mem_get_info(self.torch)[1])
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES")

    def describe(self) -> dict[str, str]:
        """Return what belongs into a provenance: device, driver and libraries."""
        found = {"device": self.name, "torch": str(torch.__version__), "python": platform.python_version()}
        if not self.is_gpu:
            return found | {"threads": str(torch.get_num_threads())}
        import triton

        return found | {"driver": _driver(), "cuda": str(torch.version.cuda), "triton": triton.__version__}


def choose(choice: str, threads: int | None = None) -> Device:
    """Return the device that was asked for; `auto` is a GPU if there is one. `threads` only count on a CPU.

    Raises InputError for an unknown choice, and for `cuda` where there is none.
    """
    if choice not in CHOICES:
        raise InputError(f"device is {choice!r}, must be one of {', '.join(CHOICES)}")
    if choice == "cuda" and not torch.cuda.is_available():
        raise InputError(
            f"device=cuda, but torch {torch.__version__} finds no CUDA GPU here; use device=cpu, or a machine with an "
            f"NVIDIA GPU, its driver and a CUDA build of torch"
        )
    if choice != "cpu" and torch.cuda.is_available():
        device = torch.device("cuda", torch.cuda.current_device())
        name = torch.cuda.get_device_name(device)
        return Device(device, _gpu(name), name, torch.float16)
    if threads is not None:
        torch.set_num_threads(threads)
    return Device(torch.device("cpu"), "cpu", _cpu_name(), torch.float32)


def _gpu(name: str) -> str:
    for pattern, gpu in GPU_NAMES.items():
        if re.search(pattern, name):
            return gpu
    return re.sub(r"\W+", "_", name.lower()).strip("_")


def _cpu_name() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            names = [line.partition(":")[2].strip() for line in file if line.startswith("model name")]
    except OSError:
        names = []
    return f"{names[0] if names else platform.processor() or platform.machine()}, {os.cpu_count()} threads"


def _driver() -> str:
    try:
        with open("/proc/driver/nvidia/version", encoding="utf-8") as file:
            found = re.search(r"\b\d+\.\d+(\.\d+)?\b", file.read())
    except OSError:
        found = None
    return found.group() if found else "unknown"
