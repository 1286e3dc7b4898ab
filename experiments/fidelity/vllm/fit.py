"""Fits vLLM's calibrations: `python -m experiments.fidelity.vllm.fit [MODEL …] [--out FOLDER]`.

Step times come from the table of step times (steps.py); what it does not isolate (what LoRA costs in steps that
prefill, loads, the front end) is fitted to a few whole runs, named in plan.yaml: non-negative least squares
(SciPy, trust region) over the logarithms of the coefficients, with the relative errors of tokens per second, of the
inter-token latency and, below saturation, of the median time to first token as residuals.
"""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Mapping, Sequence
from datetime import date
from math import log
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import yaml
from joblib import Parallel, delayed
from numpy.typing import NDArray
from scipy.optimize import least_squares

from experiments.fidelity.vllm import steps
from experiments.fidelity.vllm.compare import Comparison, medians
from experiments.fidelity.vllm.predict import simulate
from experiments.fidelity.vllm.rows import GPU, MODELS, Row, read
from experiments.measured import measured_dir
from experiments.studies.command import ended, made, parser_of
from simlora.calibrate.calibration_file import CALIBRATIONS, save, written
from simlora.core import libm
from simlora.core.errors import InputError, nearest
from simlora.latency.calibration import Calibration

PLAN = Path(__file__).with_name("plan.yaml")
ACCURACY = {"output_tokens_per_s": 0.02, "itl_mean_ms": 0.03, "ttft_p50_ms": 0.1}
"""One unit of residual."""
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
SOURCE = "fitted to step times and one-hour runs that F. Agullo and others published (arXiv 2508.08343, Apache-2.0)"


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


def residuals(row: Row, figures: Mapping[str, float]) -> list[float]:
    """Return the errors of one run in units of accuracy, as logarithms of ratios."""
    comparison = Comparison(row, figures, True)
    errors = comparison.error
    return [
        float(np.clip(log(max(1.0 + errors.get(name, 0.0), 1e-3)) / unit, -MOST, MOST))
        for name, unit in ACCURACY.items()
        if name != "ttft_p50_ms" or comparison.load == "below"
    ]


def fit(
    model: str, rows: Sequence[Row], table: Mapping[str, float], plan: Mapping[str, Any], rounds: int
) -> Calibration:
    """Return the calibration that predicts `rows` best, its start given by `table` and the plan.

    Each of at most `rounds` takes the slope anew and then a few steps by it.
    """
    start = plan["start"][model]
    names = list(start)
    given = dict(table) | {name: entry["value"] for name, entry in plan["fixed"].items()}
    given["prefill.intercept_s"] = given["decode.intercept_s"]
    pool = Parallel(n_jobs=-1)

    def calibration(point: NDArray[np.float64]) -> Calibration:
        values = {name: start[name] * float(libm.exp(x)) for name, x in zip(names, point, strict=True)}
        return Calibration("fit", GPU, model, 1, {"kind": "published"}, given | values)

    def at(points: Sequence[NDArray[np.float64]]) -> list[NDArray[np.float64]]:
        made = [calibration(point) for point in points]
        figures = pool(delayed(simulate)(row, each) for each in made for row in rows)
        found = []
        for index, point in enumerate(points):
            of_point = figures[index * len(rows) : (index + 1) * len(rows)]
            units = [
                unit for row, figure in zip(rows, of_point, strict=True) for unit in residuals(row, figure)
            ]
            found.append(np.array([*units, *(PRIOR * point)]))
        best = min(range(len(points)), key=lambda index: float(found[index] @ found[index]))
        values = ", ".join(f"{name} {made[best].coefficients[name]:.3g}" for name in names)
        print(f"  sum of squares {found[best] @ found[best]:.1f} at {values}", file=sys.stderr, flush=True)
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


def as_yaml(
    calibration: Calibration, rows: Sequence[Row], table: pd.DataFrame, plan: Mapping[str, Any], command: str
) -> str:
    """Return the calibration file; `table` is the one of step times."""
    fitted = [Comparison(row, simulate(row, calibration), True) for row in rows]
    found = {name: value for name, value in medians(fitted).items() if name in ACCURACY}
    found |= {f"step_{kind}": error for kind, error in steps.errors(table, calibration).items()}
    residual = {
        name: {key: float(f"{value:.3g}") for key, value in error.items()} for name, error in found.items()
    }
    tree: dict[str, Any] = {
        "gpu": calibration.gpu,
        "model": calibration.model,
        "tp": calibration.tp,
        "provenance": {
            "kind": "published",
            "source": SOURCE,
            "command": command,
            "date": date.today().isoformat(),
            "note": (
                "vLLM 0.8.5, V1 engine, one H100 of 64 GB. prefill.intercept_s is decode.intercept_s: a step reads the "
                "weights once. prefill.per_token_s is Llama-3.1-8B's for both models."
            ),
            "coefficients": {
                name: {"kind": "derived", "source": entry["source"]} for name, entry in plan["fixed"].items()
            },
            "residuals": residual,
            "fitted_rows": [row.key for row in rows],
        },
    }
    found = sorted(calibration.coefficients.items())
    return written(tree, {name: float(f"{value:.5g}") for name, value in found})


def main(arguments: Sequence[str] | None = None) -> int:
    """Fit the named models, or all of the plan."""
    parser = parser_of("experiments.fidelity.vllm.fit", __doc__)
    parser.add_argument("models", nargs="*", metavar="MODEL", help="models to fit (default: all of the plan)")
    parser.add_argument(
        "--rounds", type=int, default=3, help="rounds of the search; 0: the plan's start (default: 3)"
    )
    parser.add_argument("--out", type=Path, default=CALIBRATIONS, help="folder to write to")
    options = parser.parse_args(arguments)
    return ended(lambda: _fit(options))


def _fit(options: Namespace) -> None:
    folder, plan = made(options.out), yaml.safe_load(PLAN.read_text(encoding="utf-8"))
    for model in options.models:
        if model not in plan["fit"]:
            raise InputError(f"there is no plan for {model!r}; {nearest(model, list(plan['fit']))}")
    table, rows = steps.read(measured_dir()), read(measured_dir() / "vllm_lora_runs.csv")
    for model in options.models or MODELS.values():
        mine = chosen(rows, model, plan)
        print(f"fitting {model} to {len(mine)} runs …", flush=True)
        found = fit(model, mine, steps.coefficients(table, model), plan, options.rounds)
        command = f"python -m experiments.fidelity.vllm.fit {model} --rounds {options.rounds}"
        path = folder / f"{GPU}-{model}-tp1-vllm.yaml"
        save(path, as_yaml(found, mine, table, plan, command))
        print(f"wrote {path}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
