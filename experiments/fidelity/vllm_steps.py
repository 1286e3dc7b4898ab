"""What is said of vllm_step_counts.csv: engine steps of vLLM with LoRA by batch, adapters, slots and loads.

A row is a run of ten minutes, whose step takes its duration over its steps. The engine's version and model are not
named, so that our calibration's coefficients are not expected to hold; its form is: fitted to every second row, judged
on the others.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.optimize import least_squares

from experiments.fidelity.cells import numbers, positive
from experiments.fidelity.compare import Section, errors_of, fenced, spread
from experiments.fidelity.scatter import Dot, Panel, Plot
from experiments.profiles.sums import terms_of
from experiments.studies.reading import load as read_sheet
from simlora.core.errors import InputError
from simlora.latency import calibration as calibrations
from simlora.latency.kernels import EXPAND_TOKENS, FEWER_SPLITS, MANY_TOKENS, SHRINK_TOKENS

FILE = "vllm_step_counts.csv"
CALIBRATION = "h100_64g-llama_3_1_8b-tp1-vllm"
SHEET = read_sheet(Path(__file__).with_suffix(".yaml"))
COLUMNS, TERMS = SHEET["columns"], SHEET["terms"]
MARK = COLUMNS["distinct"]
"""A column that only this file has."""
QUEUED = 100.0
"""Requests that wait, on average, from which a run tells what the scheduler takes for each."""

Floats = NDArray[np.float64]


def read(path: Path) -> pd.DataFrame:
    """Read all rows. Raises InputError, naming file, line and column, for what is not in the schema."""
    table = numbers(path, COLUMNS)
    positive(table[["slots", "batch", "duration_s", "steps"]].rename(columns=COLUMNS))
    return table


def design(rows: pd.DataFrame) -> Floats:
    """Return what the terms of a step are multiplied with [rows, terms]; the slots' as in kernels.Vllm."""
    batch, slots = rows["batch"], rows["slots"]
    many = (batch >= MANY_TOKENS).astype(float)
    shrinks = slots * np.ceil(batch / SHRINK_TOKENS) * np.where(many, FEWER_SPLITS, 1.0)
    expands = slots * np.ceil(batch / EXPAND_TOKENS)
    known = rows.assign(few=1.0 - many, many=many, shrinks=shrinks, expands=expands)
    return np.column_stack(list(terms_of(known, {name: term["of"] for name, term in TERMS.items()}).values()))


def steps_ms(rows: pd.DataFrame) -> Floats:
    """Return the measured milliseconds of a step [rows]."""
    return (1e3 * rows["duration_s"] / rows["steps"]).to_numpy()


def fit(rows: pd.DataFrame) -> Floats:
    """Return the milliseconds that a step takes at least, and those of each of TERMS [1 + terms]."""
    x, y = design(rows), steps_ms(rows)
    start_ms = [term["start_ms"] for term in (SHEET["launches"], *TERMS.values())]
    best = least_squares(
        lambda point: predicted_ms(point, x) / y - 1,
        start_ms,
        x_scale=start_ms,
        bounds=(0.0, np.inf),
        loss="soft_l1",
        f_scale=0.05,
    )
    return np.asarray(best.x)


def predicted_ms(point: Floats, x: Floats) -> Floats:
    """Return the milliseconds of steps [rows]: launches, or what the GPU does, whichever takes longer."""
    return np.maximum(point[0], x @ point[1:])


def ours() -> dict[str, float]:
    """Return our calibration's milliseconds by term, at rank 16 or below."""
    found = calibrations.load(CALIBRATION).coefficients
    return {
        name: 1e3 * sum(times * found[coefficient] for coefficient, times in term["ours"].items())
        for name, term in TERMS.items()
        if term["ours"]
    }


def report(path: Path, jobs: int = -1) -> Section:
    """Return what is said of the file; `jobs` is for others. Raises InputError for bad input."""
    rows = read(path)
    if len(rows) < 2 * (len(TERMS) + 1):
        raise InputError(f"{path} has {len(rows)} rows, must have {2 * (len(TERMS) + 1)} at least")
    judged, point = rows[1::2], fit(rows[::2])
    simulated, measured = predicted_ms(point, design(judged)), steps_ms(judged)
    errors = simulated / measured - 1
    found = spread(errors) | {"nine_in_ten": float(np.quantile(np.abs(errors), 0.9))}
    passed = {"measured": _passed_s(rows), "calibration": _ours_passed_s()}
    printed = "\n".join(_lines(point, passed, found, len(judged)))
    dots = [
        Dot(float(theirs), float(one), "launches" if one == point[0] else "kernels", False)
        for theirs, one in zip(measured, simulated, strict=True)
    ]
    sides = zip(steps_ms(rows).tolist(), predicted_ms(point, design(rows)).tolist(), strict=True)
    return Section(
        printed=printed,
        tree={
            "runs": str(path),
            "rows": [
                {**row, "fitted": index % 2 == 0, "step_ms": {"measured": theirs, "predicted": one}}
                for index, (row, (theirs, one)) in enumerate(zip(rows.to_dict("records"), sides, strict=True))
            ],
            "fitted_ms": dict(zip(("launches", *TERMS), point.tolist(), strict=True)),
            "calibration_ms": ours(),
            "passed_request_s": passed,
            "errors": {name: found[name] for name in ("median", "nine_in_ten", "worst")},
        },
        parts={"table": fenced(printed)},
        plot=Plot("vllm_steps", "Steps of vLLM with LoRA, an engine not named", [Panel("Step", "ms", dots)]),
        errors=errors_of("vLLM's steps with LoRA, an engine not named: the form", errors.tolist()),
    )


def _lines(
    point: Floats, passed_s: Mapping[str, float], found: Mapping[str, float], rows: int
) -> Iterator[str]:
    own = {term: f"{each_ms:.3g}" for term, each_ms in ours().items()}
    yield f"{'milliseconds of':<28} {'fitted here':>12} {'our calibration':>16}"
    for term, each_ms in zip(("launches, at least", *TERMS), point, strict=True):
        yield f"{term:<28} {each_ms:>12.3g} {own.get(term, ''):>16}"
    passed_ms = {name: f"{1e3 * each_s:.2g}" for name, each_s in passed_s.items()}
    yield f"{'a request passed over':<28} {passed_ms['measured']:>12} {passed_ms['calibration']:>16}"
    yield (
        f"steps of the other {rows} rows: median {100 * found['median']:.1f} %, nine in ten within "
        f"{100 * found['nine_in_ten']:.1f} %, worst {100 * found['worst']:.0f} %"
    )


def _passed_s(rows: pd.DataFrame) -> float:
    """Return the scheduler's seconds for a waiting request in a step, the median of the runs with a queue."""
    queued = rows[rows["waiting"] > QUEUED]
    return (
        float((queued["scheduling_s"] / queued["steps"] / queued["waiting"]).median()) if len(queued) else 0.0
    )


def _ours_passed_s() -> float:
    return calibrations.load(CALIBRATION).coefficients["scheduler.per_passed_request_s"]
