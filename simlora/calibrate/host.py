"""Fits an engine's host time to measured decode steps: what the base model's kernels do not explain of them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import nnls

from simlora.core.arrays import Floats
from simlora.core.errors import InputError
from simlora.hardware.gpu import Gpu
from simlora.hardware.model import ModelShape
from simlora.latency.calibration import Calibration
from simlora.latency.curve import Curve
from simlora.latency.kernels import LoraWork, Vllm
from simlora.latency.parts.composed import compose, engines
from simlora.latency.parts.kernel_times import KernelTimes
from simlora.workload.columns import seconds, whole_numbers
from simlora.workload.table import check_names, read_table

REQUIRED = ("batch", "context_tokens", "step_s")
OPTIONAL = ("adapters", "slots", "max_lora_rank")
LEAST = 5
"""Steps of different batches from which two coefficients are fitted, and one step in five judges."""
JUDGED = 5
MOST = 10**9


@dataclass(frozen=True)
class Steps:
    """Measured decode steps [rows]: sequences, the sum of their contexts, seconds, and what LoRA kernels had to do.

    Without LoRA, `adapters` (distinct ones in the batch), `slots` and `max_lora_rank` are 0.
    """

    batch: Floats
    context_tokens: Floats
    seconds: Floats
    adapters: Floats
    slots: Floats
    max_lora_rank: Floats

    def some(self, rows: Any) -> Steps:
        """Return these rows."""
        return Steps(
            self.batch[rows],
            self.context_tokens[rows],
            self.seconds[rows],
            self.adapters[rows],
            self.slots[rows],
            self.max_lora_rank[rows],
        )


@dataclass(frozen=True)
class HostFit:
    """The host's seconds of a step and of each sequence, and absolute relative errors of the steps that judge [rows].

    `before` are those of the engine's parts, on the same steps, whose host's seconds `came`. `fitted`: steps.
    """

    step_s: float
    sequence_s: float
    errors: Floats
    before: Floats
    came: tuple[float, float]
    fitted: int


def read_steps(path: str) -> Steps:
    """Read a table of steps, as CSV, Parquet or JSONL. Raises InputError for the first thing wrong."""
    table = read_table(path)
    check_names(table, REQUIRED, OPTIONAL)
    count = "a whole number, at least"
    found = {"seconds": seconds(table, "step_s")}
    for name, least in {"batch": 1, "context_tokens": 0, **dict.fromkeys(OPTIONAL, 0)}.items():
        if name in table.columns:
            found[name] = whole_numbers(table, name, f"{count} {least}", least, MOST).astype(np.float64)
        else:
            found[name] = np.zeros(len(table))
    steps = Steps(**found)
    if (steps.seconds == 0).any():
        raise InputError(
            f"{table.where(int(np.argmin(steps.seconds)))} has step_s 0, must be above 0 seconds"
        )
    if len(np.unique(steps.batch)) < LEAST:
        raise InputError(
            f"{path} has steps of {len(np.unique(steps.batch))} batches, must have {LEAST} at least"
        )
    lacks = (steps.adapters > 0) & ((steps.slots == 0) | (steps.max_lora_rank == 0))
    if lacks.any():
        place = table.where(int(np.argmax(lacks)))
        raise InputError(
            f"{place} has adapters, must have slots and max_lora_rank too (--max-loras, --max-lora-rank)"
        )
    return steps


def kernels_s(times: KernelTimes, batch: Floats, context_tokens: Floats) -> Floats:
    """Return the seconds of the base model's kernels of decode steps [rows]."""
    found: Floats = Curve(times.step_s).at_all(batch)
    return np.asarray(found + Curve(times.context_token_s).at_all(batch) * context_tokens)


def lora_s(calibration: Calibration, steps: Steps) -> Floats:
    """Return the seconds of vLLM's LoRA kernels in these steps, and of its LoRA manager's lists [rows].

    The manager is taken to know as many adapters as there are slots, which is vLLM's default (max_cpu_loras).
    """
    found = np.zeros(len(steps.batch))
    listed_s = calibration.coefficients.get("lora_manager.per_listed_adapter_s", 0.0)
    for row, (batch, adapters, slots, rank) in enumerate(
        zip(steps.batch, steps.adapters, steps.slots, steps.max_lora_rank, strict=True)
    ):
        if adapters:
            work = LoraWork(int(batch), int(batch * rank), int(rank), int(adapters))
            found[row] = Vllm(calibration, int(slots), int(rank)).decode_s(work) + listed_s * adapters * slots
    return found


def solved(known_s: Floats, batch: Floats, measured_s: Floats) -> tuple[float, float]:
    """Return the seconds of a step and of a sequence that explain best what `known_s` does not [rows].

    Non-negative least squares of relative errors.
    """
    design = np.stack([np.ones_like(batch), batch], axis=1)
    step_s, sequence_s = nnls(design / measured_s[:, None], (measured_s - known_s) / measured_s)[0]
    return float(step_s), float(sequence_s)


def fit(times: KernelTimes, steps: Steps, came: tuple[float, float], lora: Floats) -> HostFit:
    """Return the host's time fitted to four steps of five by batch, and judged on the fifth.

    `came` is the host's time that the engine's parts have, `lora` the seconds of LoRA kernels [rows].
    """
    order = np.argsort(steps.batch, kind="stable")
    judging = np.zeros(len(order), dtype=bool)
    judging[order[JUDGED // 2 :: JUDGED]] = True
    known_s = kernels_s(times, steps.batch, steps.context_tokens) + lora
    point = solved(known_s[~judging], steps.batch[~judging], steps.seconds[~judging])

    def errors(host: tuple[float, float]) -> Floats:
        found = known_s + host[0] + host[1] * steps.batch
        return np.asarray(np.abs(found / steps.seconds - 1)[judging])

    return HostFit(*point, errors(point), errors(came), came, int((~judging).sum()))


def fitted(
    times: KernelTimes, steps: Steps, gpu: Gpu, model: ModelShape, source: str
) -> tuple[Calibration, HostFit]:
    """Return vLLM's calibration with the host's time fitted to steps of `source`, and how well it describes them."""
    parts = engines()["vllm"]
    found = compose(times, gpu, model, "vllm")
    came = found.need("host.intercept_s"), found.need("host.per_sequence_s")
    one = fit(times, steps, came, lora_s(found, steps))
    host = parts["host"] | {"step_s": one.step_s, "sequence_s": one.sequence_s}
    said = f"{one.fitted} measured decode steps of {Path(source).name}"
    error = {"figure": "a decode step", "left_out": f"{len(one.errors)} other steps of {Path(source).name}"}
    own = parts | {
        "host": host,
        "host_speed": gpu.host_speed,  # measured on this host
        "error": error | {"median": float(np.median(one.errors))},
        "from": parts["from"] | {"host": said},
    }
    return compose(times, gpu, model, "vllm", own), one
