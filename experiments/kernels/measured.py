"""Whether the kernel times of composed calibrations hold on real GPUs: `python -m experiments.kernels.measured`.

Whole iterations that simlora-profile timed on an H100 and an H200 (`profiler/measured`), beside sums of kernels of
NVIDIA's tables for the same GPU, model and contexts. What is left over is the host's part, and the difference between
the engines: the profiler's is plain PyTorch in float16, with decode steps recorded as CUDA graphs and prefills that are
not.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd

import profiler
from experiments.studies.command import program
from simlora.calibrate.host import kernels_s
from simlora.latency.curve import Curve
from simlora.latency.parts.kernel_times import KernelTimes, shipped

FOLDER = Path(profiler.__file__).with_name("measured")
ENGINE = "vllm"
PREFILLS = (64, 256, 512, 1024, 2048, 4096)
STEPS = ((1, 128), (8, 128), (32, 128), (128, 128), (1, 1024), (8, 1024), (32, 1024), (8, 4096))
"""Batches, and the context of each sequence."""


def profiles() -> list[tuple[str, str]]:
    """Return GPU and model of each folder of measurements."""
    found = sorted(each.name for each in FOLDER.iterdir())
    return [(gpu, model) for gpu, _, model in (name.partition("-") for name in found)]


def rows(gpu: str, model: str) -> Iterator[tuple[str, int, int, float, float]]:
    """Return kind, requests, tokens of each, and the seconds measured and by kernels, of what was measured."""
    table = pd.read_parquet(FOLDER / f"{gpu}-{model}" / "measurements.parquet")
    table = table[table["kernel"] == ""]
    medians = table.groupby(["section", "requests", "tokens"])["seconds"].median()
    times = shipped()[gpu, model, 1, ENGINE]
    points = [("prefill", 1, tokens) for tokens in PREFILLS] + [("decode", *step) for step in STEPS]
    for kind, requests, tokens in points:
        if (kind, requests, tokens) in medians:
            measured_s = float(medians[kind, requests, tokens])
            yield kind, requests, tokens, measured_s, _kernels_s(times, kind, requests, tokens)


def _kernels_s(times: KernelTimes, kind: str, requests: int, tokens: int) -> float:
    if kind == "prefill":
        return Curve(dict(times.pass_s)).at(tokens)
    return float(kernels_s(times, np.array([requests]), np.array([requests * tokens]))[0])


@program()
def main() -> None:
    """Print a row an iteration."""
    heads = ("measured", "kernels", "left over")
    print(
        f"{'GPU':10}{'model':14}{'iteration':10}{'requests':>9}{'tokens':>8}{''.join(f'{h:>12}' for h in heads)}"
    )
    for gpu, model in profiles():
        for kind, requests, tokens, measured_s, by_kernels_s in rows(gpu, model):
            cells = (f"{1e3 * s:9.2f} ms" for s in (measured_s, by_kernels_s, measured_s - by_kernels_s))
            print(f"{gpu:10}{model:14}{kind:10}{requests:9}{tokens:8}{''.join(cells)}")
