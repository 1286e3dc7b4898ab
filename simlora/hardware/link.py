"""A link: how bytes get from one memory to another."""

from __future__ import annotations

from dataclasses import dataclass

from simlora.core.checks import number, shown
from simlora.core.errors import InputError, nearest


@dataclass(frozen=True, slots=True)
class Link:
    """One direction of a link: a transfer of n bytes takes latency_s + n / bytes_per_s when it is alone."""

    name: str
    latency_s: float
    bytes_per_s: float

    def __post_init__(self) -> None:
        number(f"latency_s of link {self.name}", self.latency_s, "seconds", least=0)
        number(f"bytes_per_s of link {self.name}", self.bytes_per_s, "bytes per second", above=0)

    def transfer_s(self, size_bytes: float) -> float:
        """Return the seconds that `size_bytes` take on an idle link."""
        return self.latency_s + size_bytes / self.bytes_per_s


# Bandwidths are the standards' rates after line coding, one direction; what a copy reaches is lower and is
# measured into a calibration. Latencies are one ring step of NCCL's Simple protocol (src/graph/tuning.cc, hwLat):
# 3.4 us over NVLink, 5.7 us over PCIe, 9.6 us over the network.
LINKS = {
    link.name: link
    for link in (
        Link("pcie_3_x16", 5.7e-6, 16 * 8e9 * 128 / 130 / 8),
        Link("pcie_4_x16", 5.7e-6, 16 * 16e9 * 128 / 130 / 8),
        Link("pcie_5_x16", 5.7e-6, 16 * 32e9 * 128 / 130 / 8),
        Link("nvlink_3", 3.4e-6, 300e9),  # A100: 600 GB/s, both directions together
        Link("nvlink_3_a800", 3.4e-6, 200e9),  # A800: cut to 400 GB/s
        Link("nvlink_4", 3.4e-6, 450e9),  # H100, H200: 900 GB/s
        Link("nvlink_5", 3.4e-6, 900e9),  # B200: 1,800 GB/s
        Link("infiniband_hdr", 9.6e-6, 25e9),  # 200 Gb/s
        Link("infiniband_ndr", 9.6e-6, 50e9),  # 400 Gb/s
        # Rates of the line; the latency, of TCP, is an assumption.
        Link("ethernet_25g", 5e-5, 25e9 / 8),
        Link("ethernet_100g", 5e-5, 100e9 / 8),
        # A drive on four lanes of PCIe 3.0, as data sheets have it; its latency is an assumption.
        Link("nvme_pcie_3_x4", 1e-4, 3.5e9),
    )
}


def as_link(key: str, link: Link | str) -> Link:
    """Return the link, or the one of that name. Raises InputError with the nearest names."""
    if isinstance(link, Link):
        return link
    if str(link) not in LINKS:
        raise InputError(f"{key} is {shown(link)}, which is unknown; {nearest(str(link), LINKS)}")
    return LINKS[str(link)]
