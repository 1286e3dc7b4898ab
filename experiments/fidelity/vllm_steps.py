"""What is said of vllm_step_counts.csv: engine steps of vLLM with LoRA by batch, adapters, slots and loads.

A row is a run of ten minutes, whose step takes its duration over its steps. The engine's version and model are not
named, so that our calibration's coefficients are not expected to hold; its form is: fitted to every second row, judged
on the others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares

from experiments.fidelity.cells import Cells, number, read_cells
from experiments.fidelity.scatter import Dot, Panel, Plot
from experiments.fidelity.section import Section, errors_of, fenced
from simlora.core.errors import InputError
from simlora.latency import calibration as calibrations
from simlora.latency.kernels import EXPAND_TOKENS, FEWER_SPLITS, MANY_TOKENS, SHRINK_TOKENS

FILE = "vllm_step_counts.csv"
MARK = "mean_loras_by_batch"
"""A column that only this file has."""
CALIBRATION = "h100_64g-llama_3_1_8b-tp1-vllm"
COLUMNS = {
    "slots": "gpu_loras",
    "adapters": "cpu_loras",
    "rate_rps": "rate",
    "batch": "avg_batch_size",
    "distinct": MARK,
    "waiting": "avg_waiting_queue",
    "requests": "completed_requests",
    "loads": "max_lora_loads_from_memory",
    "scheduling_s": "total_scheduling_time",
    "duration_s": "duration",
    "steps": "steps",
}
TERMS = (
    "a step",
    "a sequence",
    "an adapter of few tokens",
    "an adapter of many tokens",
    "a slot and 32 tokens",
    "a slot and 64 tokens",
    "a load",
    "a request",
)
"""What a step's seconds are a sum of, in the order of `design`'s columns."""
START_MS = (10.0, 0.05, 0.4, 0.4, 0.01, 0.02, 6.0, 5.0)
FLOOR_MS = 25.0
QUEUED = 100.0
"""Requests that wait, on average, from which a run tells what the scheduler takes for each."""

Row = Mapping[str, float]


def read(path: Path) -> list[Row]:
    """Read all rows. Raises InputError, naming file, line and column, for what is not in the schema."""
    return [_row(cells, place) for place, cells in read_cells(path, tuple(COLUMNS.values()))]


def _row(cells: Cells, place: str) -> Row:
    found = {name: number(cells, column, place) for name, column in COLUMNS.items()}
    for name in ("slots", "batch", "duration_s", "steps"):
        if found[name] <= 0:
            raise InputError(f"{place} has {COLUMNS[name]} = {found[name]:g}, must be above 0")
    return found


def design(rows: Sequence[Row]) -> NDArray[np.float64]:
    """Return what the terms of a step are multiplied with [rows, terms]; the slots' as in kernels.Vllm."""
    found = []
    for row in rows:
        batch, slots, distinct = row["batch"], row["slots"], row["distinct"]
        many = batch >= MANY_TOKENS
        shrinks = slots * np.ceil(batch / SHRINK_TOKENS) * (FEWER_SPLITS if many else 1.0)
        each = [1.0, batch, distinct * (not many), distinct * many, shrinks]
        each += [slots * np.ceil(batch / EXPAND_TOKENS), row["loads"] / row["steps"]]
        found.append([*each, row["requests"] / row["steps"]])
    return np.array(found, dtype=np.float64)


def steps_ms(rows: Sequence[Row]) -> NDArray[np.float64]:
    """Return the measured milliseconds of a step [rows]."""
    return np.array([1e3 * row["duration_s"] / row["steps"] for row in rows])


def fit(rows: Sequence[Row]) -> NDArray[np.float64]:
    """Return the milliseconds that a step takes at least, and those of each of TERMS [1 + terms]."""
    x, y = design(rows), steps_ms(rows)
    best = least_squares(
        lambda point: predicted_ms(point, x) / y - 1,
        [FLOOR_MS, *START_MS],
        x_scale=[FLOOR_MS, *START_MS],
        bounds=(0.0, np.inf),
        loss="soft_l1",
        f_scale=0.05,
    )
    return np.asarray(best.x)


def predicted_ms(point: NDArray[np.float64], x: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the milliseconds of steps [rows]: launches, or what the GPU does, whichever takes longer."""
    return np.maximum(point[0], x @ point[1:])


def ours() -> dict[str, float]:
    """Return our calibration's milliseconds by term, at rank 16 or below."""
    found = calibrations.load(CALIBRATION).coefficients
    kernel = "kernels.vllm."
    few_s = found[f"{kernel}few_tokens.per_adapter_s"] + 16 * found[f"{kernel}few_tokens.per_adapter_rank_s"]
    seconds = (
        found["decode.intercept_s"] + found[f"{kernel}intercept_s"],
        found["decode.per_sequence_s"] + found[f"{kernel}per_token_s"],
        few_s,
        found[f"{kernel}per_adapter_s"],
        16 * found[f"{kernel}per_slot_rank_s"],
        found[f"{kernel}per_slot_s"],
        found["adapter_load.latency_s"],
    )
    return dict(zip(TERMS, [1e3 * each_s for each_s in seconds], strict=False))


def report(path: Path, jobs: int = -1) -> Section:
    """Return what is said of the file; `jobs` is for others. Raises InputError for bad input."""
    rows = read(path)
    if len(rows) < 2 * (len(TERMS) + 1):
        raise InputError(f"{path} has {len(rows)} rows, must have {2 * (len(TERMS) + 1)} at least")
    known, judged = rows[::2], rows[1::2]
    point = fit(known)
    simulated, measured = predicted_ms(point, design(judged)), steps_ms(judged)
    errors = simulated / measured - 1
    passed_s = _passed_s(rows)
    own = ours()
    lines = [
        f"{'milliseconds of':<28} {'fitted here':>12} {'our calibration':>16}",
        f"{'launches, at least':<28} {point[0]:>12.3g} {'':>16}",
        *(
            f"{term:<28} {value:>12.3g} {f'{own[term]:.3g}' if term in own else '':>16}"
            for term, value in zip(TERMS, point[1:], strict=True)
        ),
        f"{'a request passed over':<28} {1e3 * passed_s:>12.2g} {1e3 * _ours_passed_s():>16.2g}",
        f"steps of the other {len(judged)} rows: median {100 * np.median(np.abs(errors)):.1f} %, nine in ten within "
        f"{100 * np.quantile(np.abs(errors), 0.9):.1f} %, worst {100 * np.abs(errors).max():.0f} %",
    ]
    dots = [
        Dot(float(theirs), float(one), "launches" if one == point[0] else "kernels", False)
        for theirs, one in zip(measured, simulated, strict=True)
    ]
    return Section(
        printed="\n".join(lines),
        tree={
            "runs": str(path),
            "rows": [
                {**row, "fitted": index % 2 == 0, "step_ms": {"measured": theirs, "predicted": one}}
                for index, (row, theirs, one) in enumerate(
                    zip(
                        rows,
                        steps_ms(rows).tolist(),
                        predicted_ms(point, design(rows)).tolist(),
                        strict=True,
                    )
                )
            ],
            "fitted_ms": {"launches": float(point[0]), **dict(zip(TERMS, point[1:].tolist(), strict=True))},
            "calibration_ms": own,
            "passed_request_s": {"measured": passed_s, "calibration": _ours_passed_s()},
            "errors": {
                "median": float(np.median(np.abs(errors))),
                "nine_in_ten": float(np.quantile(np.abs(errors), 0.9)),
                "worst": float(np.abs(errors).max()),
            },
        },
        parts={"table": fenced("\n".join(lines))},
        plots=[
            Plot("vllm_steps", "Steps of vLLM with LoRA, an engine not named", [Panel("Step", "ms", dots)])
        ],
        errors=errors_of("vLLM's steps with LoRA, an engine not named: the form", errors.tolist()),
    )


def _passed_s(rows: Sequence[Row]) -> float:
    """Return the scheduler's seconds for a waiting request in a step, the median of the runs with a queue."""
    found: list[Any] = [
        row["scheduling_s"] / row["steps"] / row["waiting"] for row in rows if row["waiting"] > QUEUED
    ]
    return float(np.median(found)) if found else 0.0


def _ours_passed_s() -> float:
    return calibrations.load(CALIBRATION).coefficients["scheduler.per_passed_request_s"]
