"""Write the kernels of all GPUs and models that come with simlora: `python -m experiments.kernels [--check]`.

Prints besides how far the roofline is off: each measured GPU, derived from each other one.
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np

from experiments.studies.command import option, program
from experiments.studies.reading import load
from simlora.calibrate import aiconfigurator
from simlora.calibrate.kernels import kernel_times
from simlora.calibrate.roofline import LIKE, scaled
from simlora.calibrate.shapes import gpu_named, model_named
from simlora.core.errors import InputError
from simlora.core.files import whole_file
from simlora.hardware.gpu import Gpu
from simlora.hardware.model import ModelShape
from simlora.latency.parts.kernel_times import APART, TABLE, KernelTimes, written

SAID = load(Path(__file__).with_name("table.yaml"))
GPUS, MODELS, TPS, LEFT_OUT = (SAID[key] for key in ("gpus", "models", "degrees", "left_out"))
ENGINES = ("vllm", "sglang")
USABLE = 0.9
"""The share of a GPU's memory that weights and KV may take: vLLM's default."""


def _write() -> None:
    rows, absent = [], []
    for model in map(model_named, MODELS):
        for gpu in map(gpu_named, GPUS):
            for tp in fitting(model, gpu):
                for engine in engines(model, tp):
                    try:
                        found = kernel_times(gpu, model, tp, engine)
                    except InputError as error:
                        absent.append(str(error))
                        continue
                    if steady(found):
                        rows.append(found)
                    else:
                        absent.append(f"more work takes much less time: {found.key}, {found.source}")
    with whole_file(TABLE) as draft:
        draft.write_text(written(rows), encoding="utf-8")
    print(f"wrote {len(rows)} rows to {TABLE.name}")
    for line in absent:
        print(f"absent: {line}")


def steady(times: KernelTimes) -> bool:
    """Return whether more work never saves a quarter of the time: what does is taken for a fault of the measurement."""
    found = [[seconds[count] for count in sorted(seconds)] for seconds in (times.pass_s, times.step_s)]
    return all(after > 0.75 * before for each in found for before, after in pairwise(each))


def engines(model: ModelShape, tp: int) -> list[str]:
    """Return the engines whose kernels are asked for; a mixture of experts on several GPUs is cut in two ways."""
    apart = [engine + APART for engine in ENGINES] if model.experts > 1 and tp > 1 else []
    return [*ENGINES, *apart]


def fitting(model: ModelShape, gpu: Gpu) -> list[int]:
    """Return the degrees of tensor parallelism that hold the weights and divide the heads."""
    return [
        tp
        for tp in TPS
        if model.weight_bytes < USABLE * tp * gpu.memory_bytes
        and not model.heads % tp
        and tp <= 2 * model.kv_heads
    ]


def _left_out(model: ModelShape) -> str:
    names = [name for name in aiconfigurator.SYSTEMS if 1 in fitting(model, gpu_named(name))]
    known = {name: aiconfigurator.measured(name, model, 1, "vllm") for name in names}
    lines = [" " * 13 + "".join(f"{name:>15}" for name in names)]
    for source in names:
        cells = []
        for name in names:
            found = scaled(known[source], model, gpu_named(source), gpu_named(name))
            cells.append("-" if name == source else _errors(found, known[name]))
        lines.append(f"{source:13}" + "".join(f"{cell:>15}" for cell in cells))
    return "\n".join(lines)


def _errors(found: KernelTimes, known: KernelTimes) -> str:
    pairs = (
        (found.pass_s, known.pass_s),
        (found.step_s, known.step_s),
        (found.context_token_s, known.context_token_s),
    )
    medians = [np.median([abs(ours[key] / theirs[key] - 1) for key in theirs]) for ours, theirs in pairs]
    return " / ".join(f"{100 * median:.0f}" for median in medians)


assert set(GPUS) <= {*aiconfigurator.SYSTEMS, *LIKE}, "a GPU of the table has no kernels"


@program(option("--check", action="store_true", help="only print the errors of the roofline"), about=__doc__)
def main(check: bool) -> None:
    """Write the table, and print the errors."""
    if not check:
        _write()
    print("Median absolute error of the roofline, from the GPU of the row to that of the column, at tp 1:")
    print("prefill pass / decode step / token of context, in percent")
    for name in LEFT_OUT:
        print(f"\n{name}\n{_left_out(model_named(name))}")
