"""Read the parts of S-LoRA's engine off calibrations fitted as a whole: `python -m experiments.kernels.slora`.

The A10G's kernels take longer than its launches, the A100's launches longer than its kernels: together they tell both.
With measured runs, what these parts compose is judged on the GPUs and models that were measured as a whole. `--hosts`
prints instead by how much an H100's host is faster than an A100's.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from experiments.fidelity.compare import Comparison
from experiments.fidelity.predict import calibration_of, simulate
from experiments.fidelity.rows import FIGURES, Row, read
from experiments.studies.command import option, program
from experiments.studies.reading import measured_dir, measured_file
from simlora.calibrate.shapes import gpu_named, model_named
from simlora.latency import calibration as calibrations
from simlora.latency.calibration import Calibration
from simlora.latency.iteration import IterationModel
from simlora.latency.kernels import LoraWork, Mbgmv
from simlora.latency.parts.composed import compose, engines
from simlora.latency.parts.kernel_times import SAME_SHAPE, KernelTimes, shipped

RUNS, STEPS = "slora_runs.csv", "profiles/splitwise_sim_perf_model.csv"
MODEL = "llama_7b"
SMALL, LARGE = "a10g", "a100_40g"
"""GPUs with a calibration of small batches, from which contexts and steps can be told."""
LOADS = "a100_80g"
"""The GPU whose calibration tells loads and prefills of adapters by their rank."""
CPU_LORA, CPU_MODULES = "a10-llama_2_7b-tp1", ("q", "k", "v")
"""The calibration that tells LoRA on CPU cores, and the projections that it was measured with."""
STEPS_OF = (1, 16, 100, 300)
TOKENS = 512
"""Of the prefill from which the host's part is read."""
JUDGED = (("a10g", "llama_7b"), ("a100_40g", "llama_7b"), ("a100_80g", "llama_7b"), ("a100_80g", "llama_13b"))


def parts() -> dict[str, float]:
    """Return S-LoRA's parts of engines.yaml, by dotted name."""
    model = model_named(MODEL)
    small, large, loads = (
        calibrations.load(f"{gpu}-{MODEL}-tp1").coefficients for gpu in (SMALL, LARGE, LOADS)
    )
    wait_s = small["decode.intercept_s"] - kernels(SMALL).step_s[1]
    bandwidth = {gpu: gpu_named(gpu).memory_bandwidth_bytes_per_s for gpu in (SMALL, LARGE, LOADS)}

    def mean(name: str) -> float:
        return (small[name] + large[name]) / 2

    def reads(name: str, over_bytes: float) -> float:
        return (small[name] * bandwidth[SMALL] + large[name] * bandwidth[LARGE]) / 2 / over_bytes

    def prefill_s(gpu: str) -> float:
        own = IterationModel(calibrations.load(f"{gpu}-{MODEL}-tp1"))
        return own.prefill_s(TOKENS, 0) - kernels(gpu).pass_s[TOKENS]

    cpu = calibrations.load(CPU_LORA).coefficients
    cpu_bytes = model.adapter_bytes(1, CPU_MODULES) / model.layers
    rank_bytes, adapted_bytes = model.adapter_bytes(1), 4 * model.hidden**2 * model.layers * model.dtype_bytes
    return {
        "host.launch_s": large["decode.intercept_s"] - wait_s,
        "host.wait_s": wait_s,
        "host.sequence_s": mean("decode.per_sequence_s"),
        "host.prefill_s": (prefill_s(SMALL) + prefill_s(LOADS)) / 2,
        "context_reads": reads("decode.per_context_token_s", model.kv_bytes_per_token),
        "lora.launch_s": mean("kernels.mbgmv.decode.intercept_s"),
        "lora.own_reads": reads("kernels.mbgmv.decode.per_rank_sum_s", rank_bytes),
        "lora.highest_reads": reads("kernels.mbgmv.decode.per_sequence_max_rank_s", rank_bytes),
        "lora.prefill_s": loads["kernels.mbgmv.prefill.intercept_s"],
        "lora.prefill_reads": loads["kernels.mbgmv.prefill.per_token_rank_s"] * bandwidth[LOADS] / rank_bytes,
        "load.latency_s": loads["adapter_load.latency_s"],
        "load.bytes_per_s": loads["adapter_load.bytes_per_s"],
        "padded_bmm.segment_s": loads["kernels.padded_bmm.decode.per_segment_s"],
        "padded_bmm.segment_reads": loads["kernels.padded_bmm.decode.per_segment_max_rank_s"]
        * bandwidth[LOADS]
        / rank_bytes,
        "padded_bmm.prefill_segment_s": loads["kernels.padded_bmm.prefill.per_segment_s"],
        "padded_bmm.prefill_reads": loads["kernels.padded_bmm.prefill.per_token_max_rank_s"]
        * bandwidth[LOADS]
        / rank_bytes,
        "merge.passes": loads["merge.intercept_s"] * bandwidth[LOADS] / adapted_bytes,
        "merge.reads": loads["merge.per_byte_s"] * bandwidth[LOADS],
        "cpu_lora.tokens_per_core": cpu["cpu_lora.tokens_per_core"],
        "cpu_lora.intercept_s": cpu["cpu_lora.intercept_s"],
        "cpu_lora.token_byte_s": cpu["cpu_lora.per_token_s"] / cpu_bytes,
        "cpu_lora.token_rank_byte_s": cpu["cpu_lora.per_token_rank_s"] / cpu_bytes,
        "cpu_lora.sync_s": cpu["cpu_lora.sync_s"],
    }


def kernels(gpu: str, model: str = MODEL) -> KernelTimes:
    """Return the base model's kernels on a GPU."""
    return shipped()[(gpu, SAME_SHAPE[model], 1, engines()["slora"]["kernels"])]


def by_parts(gpu: str, model: str) -> Calibration:
    """Return the calibration that the parts compose."""
    return compose(kernels(gpu, model), gpu_named(gpu), model_named(model), "slora")


def judged(rows: Iterable[Row]) -> Iterator[tuple[str, str, list[dict[str, float]]]]:
    """Yield GPUs and models that were measured as a whole, with the errors of their runs by the parts."""
    of_slora = [row for row in rows if row.system == "slora"]
    for gpu, model in JUDGED:
        own = [row for row in of_slora if (row.columns["gpu"], row.model) == (gpu, model)]
        composed = by_parts(gpu, model)
        runs = ((row, simulate(row, calibration_of(row, composed))) for row in own)
        yield gpu, model, [Comparison(row, found, False).error for row, found in runs]


def step_ms(own: Calibration, batch: int) -> float:
    """Return the milliseconds of a decode step of contexts of 390 tokens, mean rank 30 and highest rank 64."""
    work = LoraWork(batch, 30 * batch, 64, 1)
    return 1e3 * (IterationModel(own).decode_s(batch, 390 * batch) + Mbgmv(own).decode_s(work))


def _steps() -> Iterator[str]:
    """Yield decode steps of S-LoRA on the A100 of 80 GB, by parts and as fitted."""
    for model in ("llama_7b", "llama_13b"):
        parts, whole = by_parts(LOADS, model), calibrations.load(f"{LOADS}-{model}-tp1")
        cells = (f"{step_ms(parts, batch):.1f} / {step_ms(whole, batch):.1f}" for batch in STEPS_OF)
        yield f"{LOADS} {model}, steps of {', '.join(map(str, STEPS_OF))}, ms by parts / as fitted: {', '.join(cells)}"


def host_speed() -> dict[int, float]:
    """Return how much faster launch-bound decode steps are beside an H100 than beside an A100, by TP.

    Steps of Llama-2-70B, batch 1, prompts of 512 tokens. On 4 and on 8 A100s they take the same time, so that launches
    bound them and not the GPUs. Raises InputError if the measurements are absent.
    """
    table = pd.read_csv(measured_file(STEPS))
    own = table[(table["model"] == "llama2-70b") & (table["batch_size"] == 1) & (table["prompt_size"] == 512)]
    steps = own.groupby(["tensor_parallel", "hardware"])["token_time"].median()
    return {tp: float(steps[tp, "a100-80gb"] / steps[tp, "h100-80gb"]) for tp in (4, 8)}


def _medians(found: Sequence[Mapping[str, Any]]) -> str:
    return ", ".join(
        f"{name} {100 * np.median(np.abs([error[name] for error in found])):.1f} %"
        for name in (figure.name for figure in FIGURES)
        if all(name in error for error in found)
    )


@program(option("--hosts", action="store_true", help="print the speed of hosts instead"))
def main(hosts: bool) -> None:
    """Print the parts, and how well they compose."""
    if hosts:
        found = host_speed()
        for tp, ratio in found.items():
            print(f"an H100's host over an A100's, decode steps of Llama-2-70B at TP {tp}: {ratio:.2f}")
        print(f"mean: {np.mean(list(found.values())):.2f}")
        return
    for name, value in parts().items():
        print(f"{name}: {value:.5g}")
    for line in _steps():
        print(line)
    path = measured_dir() / RUNS
    if not path.exists():
        print(f"skipped: there is no {path}; set SIMLORA_MEASURED_DIR to the folder that has {RUNS}")
        return
    for gpu, model, errors in judged(read(path)):
        if errors:
            print(f"{gpu} {model}, {len(errors)} runs: {_medians(errors)}", flush=True)
