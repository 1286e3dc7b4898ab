"""GPUs and the links between memories."""

from dataclasses import replace

import pytest

from simlora.core.errors import InputError
from simlora.hardware.gpu import Gpu
from simlora.hardware.link import LINKS, Link, as_link

A10G = Gpu("a10g", 24_000_000_000, 600e9, 70e12, LINKS["pcie_4_x16"], LINKS["pcie_4_x16"])


def test_a_transfer_takes_the_latency_and_the_bytes():
    assert Link("wire", 1e-3, 1e9).transfer_s(5e8) == pytest.approx(0.501)
    assert Link("wire", 1e-3, 1e9).transfer_s(0) == 1e-3


@pytest.mark.parametrize(
    "name, gb_per_s",
    [
        ("pcie_3_x16", 15.75),
        ("pcie_4_x16", 31.51),
        ("pcie_5_x16", 63.02),
        ("nvlink_3", 300),
        ("nvlink_4", 450),
        ("infiniband_hdr", 25),
        ("infiniband_ndr", 50),
    ],
)
def test_links_have_their_standard_rate_in_one_direction(name, gb_per_s):
    assert LINKS[name].bytes_per_s / 1e9 == pytest.approx(gb_per_s, abs=0.01)


def test_a_gpu_takes_a_link_by_name_or_as_it_is():
    own = Link("own", 0.0, 1e9)
    gpu = replace(A10G, host_link="pcie_5_x16", peer_link=own)
    assert gpu.host_link is LINKS["pcie_5_x16"]
    assert gpu.peer_link is own


@pytest.mark.parametrize("name", ["pcie4", {}, None])
def test_an_unknown_link_is_refused_with_the_nearest(name):
    with pytest.raises(InputError, match=r"gpu.host_link is .* which is unknown; .*pcie_4_x16"):
        as_link("gpu.host_link", name)


def test_memory_is_a_whole_number_of_bytes():
    assert type(replace(A10G, memory_bytes=24.0e9).memory_bytes) is int


@pytest.mark.parametrize(
    "key, value, message",
    [
        ("memory_bytes", 0, "gpu.memory_bytes is 0, must be a whole number of bytes, at least 1"),
        ("memory_bandwidth_bytes_per_s", -1.0, "is -1.0, must be greater than 0 bytes per second"),
        ("fp16_flops", float("nan"), "gpu.fp16_flops is nan, must be a finite number greater than 0"),
    ],
)
def test_a_gpu_out_of_range_is_refused(key, value, message):
    with pytest.raises(InputError, match=message):
        replace(A10G, **{key: value})


@pytest.mark.parametrize("latency_s, bytes_per_s", [(-1e-6, 1e9), (0.0, 0.0), (float("inf"), 1e9)])
def test_a_link_out_of_range_is_refused(latency_s, bytes_per_s):
    with pytest.raises(InputError, match="of link wire is"):
        Link("wire", latency_s, bytes_per_s)
