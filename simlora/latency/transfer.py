"""How long weights take from host to device."""

from __future__ import annotations

from simlora.latency.calibration import Calibration


class AdapterLoad:
    """Host-to-device copy of one adapter: a fixed cost and a bandwidth."""

    __slots__ = ("bytes_per_s", "latency_s")

    def __init__(self, calibration: Calibration) -> None:
        self.latency_s = calibration.need("adapter_load.latency_s")
        self.bytes_per_s = calibration.need("adapter_load.bytes_per_s")

    def load_s(self, size_bytes: int) -> float:
        """Seconds to copy `size_bytes` per GPU while nothing else uses the link."""
        return self.latency_s + size_bytes / self.bytes_per_s
