"""What the CPU does for LoRA: products of its own while weights travel, and agreeing with another process.

Source: CaraServe (arXiv 2401.11240) §4: x A B on CPU cores, and shared memory between the processes.
"""

from __future__ import annotations

import os
from multiprocessing import get_context
from time import perf_counter

import torch

from profiler.answering import answer
from simlora.hardware.model import ATTENTION, ModelShape

ROUND_TRIPS = 200
"""Per sample: one alone is shorter than the clock's noise."""
PATIENCE_S = 20.0
"""After which it is asked whether the other process still lives; starting it takes a few seconds."""


def cores() -> int:
    """Return how many this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def lora_samples_s(shape: ModelShape, tokens: int, rank: int, on_cores: int, repeats: int) -> list[float]:
    """Return the seconds of x A B for q, k, v and o of one layer, in float32 on so many cores."""
    generator = torch.Generator().manual_seed(0)
    products = []
    for module in ATTENTION:
        rows, columns = shape.module_shape(module)
        products.append(
            [
                torch.randn(size, generator=generator)
                for size in ((tokens, rows), (rows, rank), (rank, columns))
            ]
        )
    before = torch.get_num_threads()
    torch.set_num_threads(on_cores)
    try:
        found = []
        for _ in range(repeats + 1):
            begin = perf_counter()
            for x, a, b in products:
                x @ a @ b
            found.append(perf_counter() - begin)
        return found[1:]
    finally:
        torch.set_num_threads(before)


def sync_samples_s(repeats: int) -> list[float]:
    """Return the seconds that it takes to hand work to another process and to see that it is done.

    Both sides watch flags in shared memory. Raises RuntimeError if the other one ends before.
    """
    context = get_context("spawn")
    flags = context.RawArray("b", 2)
    other = context.Process(target=answer, args=(flags, (repeats + 1) * ROUND_TRIPS), daemon=True)
    other.start()
    found = []
    for _ in range(repeats + 1):
        begin = perf_counter()
        for _ in range(ROUND_TRIPS):
            flags[0] = 1
            while not flags[1]:
                # To ask takes as long as a round trip, so it is done only when something must be wrong.
                if perf_counter() - begin > PATIENCE_S and not other.is_alive():
                    raise RuntimeError("the process that should have answered has ended")
            flags[1] = 0
        found.append((perf_counter() - begin) / ROUND_TRIPS)
    other.join()
    return found[1:]
