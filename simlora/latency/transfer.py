"""The time to copy adapter weights and KV between host and device, and to merge adapters into the base weights."""

from __future__ import annotations

from math import inf

from simlora.hardware.link import Link
from simlora.latency.calibration import Calibration

PINNED_SHARE = 0.8
"""Of a host link's rate, what copies from and to pinned memory reach: 0.80 to 0.88 in the profiler's calibrations of
H100 and H200, and 0.8 as the maker of FastLibra's NPUs states it (docs/calibrations.md)."""


class AdapterLoad:
    """Host-to-device copy of one adapter, and its read from disk to host memory: a fixed cost and a bandwidth each.

    KV is copied in either direction at the same fixed cost, at `kv_bytes_per_s` if the calibration has that. Otherwise
    its bandwidth is PINNED_SHARE of the `link` between host and GPU, as engines keep it in pinned memory, or that of
    adapters where these come faster. S-LoRA's come at 3 to 4 GB/s, from pageable memory.
    """

    __slots__ = ("bytes_per_s", "disk_bytes_per_s", "disk_latency_s", "kv_bytes_per_s", "latency_s")

    def __init__(self, calibration: Calibration, link: Link | None = None) -> None:
        self.latency_s = calibration.need("adapter_load.latency_s")
        self.bytes_per_s = calibration.need("adapter_load.bytes_per_s")
        pinned_bytes_per_s = 0.0 if link is None else PINNED_SHARE * link.bytes_per_s
        found = calibration.coefficients.get("adapter_load.kv_bytes_per_s")
        self.kv_bytes_per_s = max(self.bytes_per_s, pinned_bytes_per_s) if found is None else found
        self.disk_latency_s = calibration.coefficients.get("adapter_load.disk_latency_s", 0.0)
        self.disk_bytes_per_s = calibration.coefficients.get("adapter_load.disk_bytes_per_s", inf)

    def load_s(self, size_bytes: int) -> float:
        """Return the seconds to copy `size_bytes` per GPU while nothing else uses the link."""
        return self.latency_s + self.bytes_s(size_bytes)

    def bytes_s(self, size_bytes: int) -> float:
        """Return the seconds that the bytes alone take, without the fixed cost of a copy."""
        return size_bytes / self.bytes_per_s

    def kv_bytes_s(self, size_bytes: int) -> float:
        """Return the seconds that so many bytes of KV take, without the fixed cost of a copy."""
        return size_bytes / self.kv_bytes_per_s

    def disk_s(self, size_bytes: int) -> float:
        """Return the seconds to read `size_bytes` of weights into host memory; 0 if the calibration has no disk."""
        return self.disk_latency_s + size_bytes / self.disk_bytes_per_s


class Merge:
    """Adding an adapter's product to the base weights, or subtracting it: a fixed cost and a cost per byte.

    The product is as large as the base weights at any rank, so the fixed cost is most of the time.
    """

    __slots__ = ("intercept_s", "per_byte_s")

    def __init__(self, calibration: Calibration) -> None:
        self.intercept_s = calibration.need("merge.intercept_s")
        self.per_byte_s = calibration.need("merge.per_byte_s")

    def merge_s(self, size_bytes: int) -> float:
        """Return the seconds to merge or unmerge an adapter of `size_bytes` on each GPU."""
        return self.intercept_s + self.per_byte_s * size_bytes
