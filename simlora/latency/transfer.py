"""How long weights take from host to device, and into the base model's."""

from __future__ import annotations

from math import inf

from simlora.latency.calibration import Calibration


class AdapterLoad:
    """Host-to-device copy of one adapter: a fixed cost and a bandwidth; and before it from disk to host memory."""

    __slots__ = ("bytes_per_s", "disk_bytes_per_s", "disk_latency_s", "latency_s")

    def __init__(self, calibration: Calibration) -> None:
        self.latency_s = calibration.need("adapter_load.latency_s")
        self.bytes_per_s = calibration.need("adapter_load.bytes_per_s")
        self.disk_latency_s = calibration.coefficients.get("adapter_load.disk_latency_s", 0.0)
        self.disk_bytes_per_s = calibration.coefficients.get("adapter_load.disk_bytes_per_s", inf)

    def load_s(self, size_bytes: int) -> float:
        """Seconds to copy `size_bytes` per GPU while nothing else uses the link."""
        return self.latency_s + size_bytes / self.bytes_per_s

    def disk_s(self, size_bytes: int) -> float:
        """Seconds to read `size_bytes` of weights into host memory; 0 where the calibration says nothing."""
        return self.disk_latency_s + size_bytes / self.disk_bytes_per_s


class Merge:
    """Adding an adapter's product to the base model's weights, or taking it out: a fixed cost and one a byte.

    The product is as large as the weights whatever the rank, so the fixed cost is most of it.
    """

    __slots__ = ("intercept_s", "per_byte_s")

    def __init__(self, calibration: Calibration) -> None:
        self.intercept_s = calibration.need("merge.intercept_s")
        self.per_byte_s = calibration.need("merge.per_byte_s")

    def merge_s(self, size_bytes: int) -> float:
        """Seconds to merge or unmerge an adapter of `size_bytes` on each GPU."""
        return self.intercept_s + self.per_byte_s * size_bytes
