"""`python -m profiler.kernels.speed`: how much of the device's bandwidth do the LoRA kernels of a decode step use?"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Callable, Sequence
from time import perf_counter

import torch
from torch import Tensor

from profiler.device import CHOICES, Device, choose
from profiler.kernels.pages import Pages, random_pages
from profiler.kernels.work import BASE_MODEL, decode_work
from profiler.model.lora import ways
from simlora.cli.guarded import DONE, guarded
from simlora.core.checks import whole

CAPTURABLE = ("bgmv", "mbgmv")
"""Launches that are recorded and replayed on a GPU, where asking for them takes longer than running them."""
LAYERS = 8
"""Weights of so many layers are used in turn: no cache holds them all."""
COPY_BYTES = {"cuda": 1 << 30, "cpu": 1 << 27}
REPEATS = 20


def moved_bytes(adapters: Sequence[int], pages: Pages) -> int:
    """Return what a step cannot but move: A and B of each row's own rank, x, and y read and written."""
    ranks = sum(pages.ranks[adapter] for adapter in adapters if adapter != BASE_MODEL)
    rows = len(adapters)
    values = ranks * (pages.in_features + pages.out_features) + rows * (
        pages.in_features + 2 * pages.out_features
    )
    return values * pages.a.element_size()


def copy_bytes_per_s(device: Device) -> float:
    """Return the bandwidth of a large copy within the device, what is read and what is written both counted."""
    size = COPY_BYTES[device.torch.type]
    source = torch.zeros(size, dtype=torch.uint8, device=device.torch)
    target = torch.empty_like(source)
    return 2.0 * size / _median_s(device, lambda: target.copy_(source))


def kernel_s(device: Device, kernel: str, adapters: Sequence[int], layers: Sequence[Pages]) -> float:
    """Return the seconds of one product for one layer, the median over `REPEATS` rounds through all layers."""
    dtype, rows = layers[0].a.dtype, len(adapters)
    x = torch.randn(rows, layers[0].in_features, device=device.torch).to(dtype)
    y = torch.zeros(rows, layers[0].out_features, dtype=dtype, device=device.torch)
    multiply = ways(device.torch)[kernel][0]
    work = decode_work(adapters, layers[0])

    def through() -> None:
        for pages in layers:
            multiply(y, x, work, pages)

    replay = _captured(through) if device.is_gpu and kernel in CAPTURABLE else through
    return _median_s(device, replay) / len(layers)


def main(argv: Sequence[str] | None = None) -> int:
    """Print a line a kernel; 0 when done, 2 for bad input, 130 when interrupted."""
    parser = argparse.ArgumentParser(
        prog="python -m profiler.kernels.speed",
        description="Time the LoRA kernels of a decode step, and set the bytes that they have to move in a second "
        "against those of a copy within the device.",
    )
    parser.add_argument("--device", choices=CHOICES, default="auto")
    parser.add_argument(
        "--batch", type=int, default=64, help="requests, each with an adapter of its own (default: 64)"
    )
    parser.add_argument(
        "--ranks", type=int, nargs="+", default=[64], help="of the adapters, in turn (default: 64)"
    )
    parser.add_argument("--hidden", type=int, default=4096, help="width of input and output (default: 4096)")
    options = parser.parse_args(argv)
    return guarded(lambda: _measure(options), "interrupted; nothing is kept")


def _measure(options: argparse.Namespace) -> int:
    device = choose(options.device)
    whole("--batch", options.batch, "requests", least=1)
    ranks = [options.ranks[i % len(options.ranks)] for i in range(options.batch)]
    layers = [
        random_pages(ranks, options.hidden, options.hidden, device.dtype, device.torch, seed)
        for seed in range(LAYERS)
    ]
    adapters = range(options.batch)
    copied = copy_bytes_per_s(device)
    print(f"{device.name}: a copy moves {copied / 1e9:.1f} GB/s")
    print(
        f"{options.batch} requests of ranks {' '.join(map(str, options.ranks))}, {options.hidden} x {options.hidden}:"
    )
    for kernel in ways(device.torch):
        seconds = kernel_s(device, kernel, adapters, layers)
        found = moved_bytes(adapters, layers[0]) / seconds
        print(
            f"  {kernel:16}{1e6 * seconds:10.1f} µs {found / 1e9:10.1f} GB/s {found / copied:7.1%} of a copy"
        )
    return DONE


def _captured(run: Callable[[], None]) -> Callable[[], None]:
    beside = torch.cuda.Stream()
    with torch.cuda.stream(beside):
        run()
    torch.cuda.current_stream().wait_stream(beside)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()
    return graph.replay


def _median_s(device: Device, run: Callable[[], Tensor | None]) -> float:
    run()
    found = []
    for _ in range(REPEATS):
        device.synchronize()
        begin = perf_counter()
        run()
        device.synchronize()
        found.append(perf_counter() - begin)
    return statistics.median(found)


if __name__ == "__main__":
    sys.exit(main())
