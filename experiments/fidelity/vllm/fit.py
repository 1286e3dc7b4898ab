"""Fits vLLM's calibrations: `python -m experiments.fidelity.vllm.fit [MODEL …] [--out FOLDER]`.

The base model's step and first uses come from the table of step times (steps.py), what LoRA adds to a step from
hours in which no request waits for a slot (hours.py). The scheduler's look at its queue is fitted to whole runs with
fewer slots than adapters, named in plan.yaml: least squares (SciPy, trust region) over the logarithms
of the coefficients, with the relative errors of tokens per second and of the inter-token latency as residuals.
The front end's time is what median first tokens lack after all that, below saturation.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import date
from functools import partial
from math import log
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from joblib import Parallel
from scipy.optimize import least_squares

from experiments.fidelity.compare import Comparison, in_parallel, spread
from experiments.fidelity.fit import Floats, errors_under, evidence
from experiments.fidelity.vllm import hours, steps
from experiments.fidelity.vllm.predict import GPU, Row, read, simulate
from experiments.fidelity.vllm.report import medians
from experiments.studies.command import OUT, option, planned, program
from experiments.studies.reading import load as read_sheet
from experiments.studies.reading import measured_dir
from simlora.calibrate.calibration_file import derived, save, text_of
from simlora.core import libm
from simlora.core.errors import InputError
from simlora.latency.calibration import Calibration

PLAN = Path(__file__).with_name("plan.yaml")
ACCURACY = {"output_tokens_per_s": 0.02, "itl_mean_ms": 0.03}
"""One unit of residual."""
JUDGED = (*ACCURACY, "ttft_p50_ms")
FRONT_END = "front_end.per_request_s"
MOST = 5.0
"""No residual counts for more units: a run that saturates on one side only says no more than that it does."""
PRIOR = 1.0
"""Residual of a coefficient that grows e-fold, in the same unit: decides only what the rows leave open."""
STEP = 0.05
"""Step of the finite differences, in logarithms: runs are step functions of the coefficients."""
STEPS = 5
"""How often a round tries a point, at most."""
ENOUGH = 0.97
"""A round that leaves more of the sum of squares is the last one."""


def chosen(rows: Sequence[Row], model: str, plan: Mapping[str, Any]) -> list[Row]:
    """Return the runs to fit, in the plan's order. Raises InputError for an entry that is not one run."""
    found = []
    for where in plan["fit"][model]:
        wanted = {name: str(value) for name, value in where.items()}
        hits = [r for r in rows if r.model == model and all(r.columns.get(n) == v for n, v in wanted.items())]
        if len(hits) != 1:
            raise InputError(f"{PLAN.name}: {where} of {model} is {len(hits)} runs, must be one")
        found += hits
    return found


def residuals(one: Comparison[Row]) -> list[float]:
    """Return the errors of one run in units of accuracy, as logarithms of ratios."""
    return [
        float(np.clip(log(max(1.0 + one.error.get(name, 0.0), 1e-3)) / unit, -MOST, MOST))
        for name, unit in ACCURACY.items()
    ]


def fixed(plan: Mapping[str, Any]) -> dict[str, float]:
    """Return the coefficients that the plan takes as known."""
    return {name: entry["value"] for name, entry in plan["fixed"].items()}


def fit(
    model: str, rows: Sequence[Row], known: Mapping[str, float], plan: Mapping[str, Any], rounds: int
) -> Calibration:
    """Return the calibration that predicts `rows` best, with the coefficients that are `known` and the plan's start.

    Each of at most `rounds` takes the slope anew and then a few steps by it.
    """
    start = plan["start"]
    names = list(start)
    pool = Parallel(n_jobs=-1)

    def calibration(point: Floats) -> Calibration:
        values = {name: start[name] * float(libm.exp(x)) for name, x in zip(names, point, strict=True)}
        return Calibration("fit", GPU, model, 1, {"kind": "published"}, dict(known) | values)

    def at(points: Sequence[Floats]) -> list[Floats]:
        tried = [calibration(point) for point in points]
        errors = errors_under(pool, rows, tried, simulate, residuals)
        found = [np.append(own, PRIOR * point) for own, point in zip(errors, points, strict=True)]
        squares = [float(each @ each) for each in found]
        best = tried[int(np.argmin(squares))].coefficients
        values = ", ".join(f"{name} {best[name]:.3g}" for name in names)
        print(f"  sum of squares {min(squares):.1f} at {values}", file=sys.stderr, flush=True)
        return found

    best = np.zeros(len(names))
    for _ in range(rounds):
        origin = best
        here, *there = at([origin, *(origin + STEP * axis for axis in np.eye(len(names)))])
        slope = np.column_stack([(each - here) / STEP for each in there])
        # Taking the slope costs as many runs as eight steps, so it stays for a few of them.
        found = least_squares(
            lambda point: here if np.array_equal(point, origin) else at([point])[0],  # noqa: B023
            origin,
            jac=lambda _: slope,  # noqa: B023
            max_nfev=STEPS,
            xtol=0.01,
        )
        best = found.x
        if 2.0 * found.cost > ENOUGH * float(here @ here):
            break
    return calibration(best)


def simulated(rows: Sequence[Row], calibration: Calibration) -> list[Comparison[Row]]:
    """Return fitted rows as measured and as simulated with a calibration."""
    found = in_parallel(partial(simulate, calibration=calibration), rows)
    return [Comparison(row, each, True) for row, each in zip(rows, found, strict=True)]


def with_front_end(calibration: Calibration, comparisons: Sequence[Comparison[Row]]) -> Calibration:
    """Return the calibration with what its median first tokens lack, at the median of the rows below saturation."""
    late_ms = [one.off["ttft_p50_ms"] for one in comparisons if one.row.load == "below"]
    given = dict(calibration.coefficients)
    given[FRONT_END] = max(given[FRONT_END] - float(np.median(late_ms)) / 1000, 0.0)
    return replace(calibration, coefficients=given)


def provenance(
    calibration: Calibration,
    fitted: Sequence[Comparison[Row]],
    of_steps: Sequence[Row],
    table: pd.DataFrame,
    plan: Mapping[str, Any],
    command: str,
) -> dict[str, Any]:
    """Say where the coefficients come from and how well they fit.

    `of_steps` are the rows that hours.py reads, `table` is the one of step times.
    """
    found = {name: value for name, value in medians(fitted).items() if name in JUDGED}
    found["step_hours"] = spread(hours.errors(of_steps, calibration))
    found |= {f"step_{kind}": error for kind, error in steps.errors(table, calibration).items()}
    return {
        "kind": "published",
        "source": plan["source"],
        "command": command,
        "date": date.today().isoformat(),
        "note": plan["note"],
        "coefficients": {
            name: derived(entry["source"]) for name, entry in plan["fixed"].items() if "source" in entry
        },
        **evidence(fitted, found),
    }


@program(
    option("models", nargs="*", metavar="MODEL", help="models to fit (default: all of the plan)"),
    option("--rounds", type=int, default=1, help="rounds of the search; 0: the plan's start (default: 1)"),
    OUT,
)
def main(models: Sequence[str], rounds: int, folder: Path) -> None:
    """Fit the named models, or all of the plan."""
    plan = read_sheet(PLAN)
    chosen_models = planned(models, {model: model for model in plan["fit"]})
    table, rows = steps.read(measured_dir()), read(measured_dir() / "vllm_lora_runs.csv")
    of_steps = {model: hours.chosen(rows, model, plan) for model in plan["hours"]}
    base = {model: steps.coefficients(table, model) | fixed(plan) for model in of_steps}
    lora = hours.coefficients(of_steps, base)
    for model in chosen_models:
        mine = chosen(rows, model, plan)
        print(f"fitting {model} to {len(mine)} runs …", flush=True)
        found = fit(model, mine, base[model] | lora[model], plan, rounds)
        both = [*mine, *(row for row in of_steps[model] if row not in mine)]
        found = with_front_end(found, simulated(both, found))
        made_by = f"python -m experiments.fidelity.vllm.fit {model} --rounds {rounds}"
        said = provenance(found, simulated(both, found), of_steps[model], table, plan, made_by)
        ordered = dict(sorted(found.coefficients.items()))
        path = folder / f"{GPU}-{model}-tp1-vllm.yaml"
        save(path, text_of(replace(found, provenance=said, coefficients=ordered), 5))
        print(f"wrote {path}", flush=True)
