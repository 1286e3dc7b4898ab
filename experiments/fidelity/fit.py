"""Fits calibrations to measured runs: `python -m experiments.fidelity.fit [NAME …] [--out FOLDER]`.

Non-negative least squares (SciPy, trust region) over whole simulated runs: the residuals are the
relative errors of throughput, mean latency and mean first-token time and the absolute error of
attainment, each divided by the accuracy that a repeated run would show. Which rows are fitted, and
where the search starts, stands in `plan.yaml`.
"""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from joblib import Parallel, delayed
from numpy.typing import NDArray
from scipy.optimize import least_squares, minimize_scalar

from experiments.fidelity.campaigns import CAMPAIGNS, calibration_of, matches, slowed
from experiments.fidelity.compare import ERRORS, Comparison, medians
from experiments.fidelity.predict import known_systems, simulate
from experiments.fidelity.rows import Row, read
from experiments.fidelity.servers import unknown
from experiments.fidelity.table import table
from experiments.measured import measured_dir
from experiments.studies.command import ended, made, parser_of
from simlora.calibrate.calibration_file import CALIBRATIONS, save, written
from simlora.core.errors import InputError, nearest
from simlora.latency import calibration as calibrations
from simlora.latency.calibration import Calibration, load, parse

PLAN = Path(__file__).with_name("plan.yaml")
ACCURACY = {"throughput": 0.005, "mean_latency": 0.02, "mean_first_token": 0.04, "attainment": 0.02}
"""One unit of residual: repeated measurements of one run differ by about this much."""
CAMPAIGNS_HEAD = "# Made by: python -m experiments.fidelity.fit campaigns\n"
PRIOR = 0.3
"""Residual of a coefficient that doubles, in the same unit: decides only what the rows leave open."""
LEAST_BANDWIDTH = 0.1
"""No bandwidth below this share of its start: at zero nothing would ever arrive."""
SOURCE = "fitted to runs that the S-LoRA authors published (github.com/S-LoRA/S-LoRA, Apache-2.0)"
ADDED = ("merged_per_batch", "slora_bmm", "slora_no_unify_mem")
"""Systems whose coefficients are added to a calibration that is fitted without them."""
STEP = 0.04
"""Relative step of the finite differences: runs are step functions of the coefficients."""


@dataclass(frozen=True)
class Plan:
    """One calibration to be fitted, or what a further system adds to one: `<calibration>+<system>`."""

    name: str
    select: Sequence[Mapping[str, Any]]
    start: Mapping[str, float]
    fixed: Mapping[str, Mapping[str, Any]]
    note: str

    @property
    def file(self) -> str:
        """The calibration's own name."""
        return self.name.partition("+")[0]

    @property
    def addition(self) -> str:
        """The system whose coefficients are added with all others as they are; empty for a calibration."""
        return self.name.partition("+")[2]

    def selects(self, row: Row) -> bool:
        """Whether the row is to be fitted."""
        return row.calibration == self.file and matches(row, self.select)

    def calibration(self, values: Sequence[float], provenance: Mapping[str, Any]) -> Calibration:
        """Return the calibration with these values for the free coefficients."""
        return parse(as_yaml(self, values, provenance), self.file)


def plans() -> list[Plan]:
    """Read the plan of the calibrations, and then of what is added to them."""
    tree = yaml.safe_load(PLAN.read_text(encoding="utf-8"))
    return [
        Plan(
            name,
            entry.get("fit", ()),
            entry.get("start", {}),
            entry.get("fixed", {}),
            entry.get("note", ""),
        )
        for name, entry in (tree["calibrations"] | tree["additions"]).items()
    ]


def fit(plan: Plan, rows: Sequence[Row], jobs: int = 2, rounds: int = 12) -> NDArray[np.float64]:
    """Return the free coefficients that predict `rows` best."""
    if not plan.start:
        return np.array([])
    start = np.array(list(plan.start.values()))
    least = np.array([LEAST_BANDWIDTH if name.endswith("bytes_per_s") else 0.0 for name in plan.start])
    provenance = {"kind": "published"}
    pool = Parallel(n_jobs=jobs)

    def residuals(points: Sequence[NDArray[np.float64]]) -> list[NDArray[np.float64]]:
        calibrations = [plan.calibration(point * start, provenance) for point in points]
        figures = pool(
            delayed(simulate)(row, calibration_of(row, calibration))
            for calibration in calibrations
            for row in rows
        )
        found = []
        for index, point in enumerate(points):
            of_point = figures[index * len(rows) : (index + 1) * len(rows)]
            errors = [Comparison(row, f, True).error for row, f in zip(rows, of_point, strict=True)]
            scaled = [error[name] / ACCURACY[name] for error in errors for name in ERRORS]
            found.append(np.array([*scaled, *(PRIOR * (point - 1.0))]))
        return found

    def jacobian(point: NDArray[np.float64]) -> NDArray[np.float64]:
        steps = np.maximum(STEP * np.abs(point), STEP)
        ups = [point + step * axis for step, axis in zip(steps, np.eye(len(point)), strict=True)]
        downs = [
            np.maximum(point - step * axis, least)
            for step, axis in zip(steps, np.eye(len(point)), strict=True)
        ]
        found = residuals([*ups, *downs])
        columns = [
            (high - low) / np.abs(up - down).sum()
            for high, low, up, down in zip(found[: len(ups)], found[len(ups) :], ups, downs, strict=True)
        ]
        return np.array(columns).T

    best = least_squares(
        lambda point: residuals([point])[0],
        np.ones(len(start)),
        jac=jacobian,
        bounds=(least, np.inf),
        loss="soft_l1",
        f_scale=3.0,
        max_nfev=rounds,
    )
    return np.asarray(best.x * start)


def fit_campaigns(rows: Sequence[Row]) -> str:
    """Return campaigns.yaml: by which factor a campaign's kernels are slower than its GPU's calibration says."""
    tree = yaml.safe_load(PLAN.read_text(encoding="utf-8"))["campaigns"]
    found: dict[str, Any] = {}
    for campaign, entry in tree.items():
        chosen = [row for row in rows if matches(row, [entry["where"]]) and matches(row, entry["fit"])]

        def cost(factor: float, chosen: Sequence[Row] = chosen) -> float:
            pairs = [(row, slowed(load(row.calibration), factor)) for row in chosen]
            errors = [Comparison(row, simulate(row, calibration), True).error for row, calibration in pairs]
            return float(sum((error[name] / ACCURACY[name]) ** 2 for error in errors for name in ERRORS))

        best = minimize_scalar(cost, bounds=(0.5, 20.0), method="bounded", options={"xatol": 1e-2})
        found[campaign] = {
            "where": entry["where"],
            "kernel_factor": float(f"{best.x:.3g}"),
            "fitted_rows": [row.key for row in chosen],
        }
    return CAMPAIGNS_HEAD + yaml.safe_dump(found, sort_keys=False, width=200)


def as_yaml(plan: Plan, values: Sequence[float], provenance: Mapping[str, Any]) -> str:
    """Return the calibration file; what other plans have added to it stays."""
    gpu, model, tp = plan.file.split("-")[:3]
    tree: dict[str, Any] = {
        "gpu": gpu,
        "model": model,
        "tp": int(tp.removeprefix("tp")),
        "provenance": provenance,
    }
    coefficients = dict(zip(plan.start, map(float, values), strict=True))
    coefficients |= {name: float(entry["value"]) for name, entry in plan.fixed.items()}
    found = kept(plan) | coefficients | padded(coefficients)
    return written(tree, {name: float(f"{value:.5g}") for name, value in found.items()})


def kept(plan: Plan) -> dict[str, float]:
    """Return the coefficients of the calibration that this plan leaves as they are."""
    if plan.file not in calibrations.names():
        return {}
    theirs = calibrations.load(plan.file)
    if plan.addition:
        return dict(theirs.coefficients)
    added = [entry["coefficients"] for entry in theirs.provenance.get("additions", {}).values()]
    return {name: theirs.coefficients[name] for names in added for name in names}


def padded(coefficients: Mapping[str, float]) -> dict[str, float]:
    """Derive BGMV from MBGMV: every sequence costs what one of the highest rank costs there."""
    ours = "kernels.mbgmv."
    if f"{ours}decode.per_rank_sum_s" not in coefficients:
        return {}
    summed = coefficients[f"{ours}decode.per_rank_sum_s"]
    highest = coefficients.get(f"{ours}decode.per_sequence_max_rank_s", 0.0)
    each = coefficients.get(f"{ours}decode.per_sequence_s", 0.0)
    return {
        "kernels.bgmv.decode.intercept_s": coefficients[f"{ours}decode.intercept_s"],
        **({"kernels.bgmv.decode.per_sequence_s": each} if each else {}),
        "kernels.bgmv.decode.per_sequence_max_rank_s": summed + highest,
        "kernels.bgmv.prefill.intercept_s": coefficients[f"{ours}prefill.intercept_s"],
        "kernels.bgmv.prefill.per_token_max_rank_s": coefficients[f"{ours}prefill.per_token_rank_s"],
    }


def provenance(plan: Plan, fitted: Sequence[Comparison]) -> dict[str, Any]:
    """Say where the coefficients come from and how well they describe what they were fitted to."""
    theirs = dict(calibrations.load(plan.file).provenance) if plan.file in calibrations.names() else {}
    origin = {
        "kind": "published" if fitted else "derived",
        "source": SOURCE if fitted else "see coefficients",
        "command": f"python -m experiments.fidelity.fit {plan.name}",
        "date": date.today().isoformat(),
        **({"note": plan.note} if plan.note else {}),
    }
    evidence = {
        "residuals": {
            name: {key: float(f"{value:.3g}") for key, value in found.items()}
            for name, found in medians(fitted).items()
            if name != "rows"
        },
        "fitted_rows": [comparison.row.key for comparison in fitted],
    }
    derived = {name: {"kind": "derived", "source": entry["source"]} for name, entry in plan.fixed.items()}
    additions = theirs.get("additions", {})
    if plan.addition:
        names = {"coefficients": [*plan.start, *plan.fixed]}
        return theirs | {
            "coefficients": {**theirs["coefficients"], **derived},
            "additions": {**additions, plan.addition: origin | names | evidence},
        }
    added = {name for entry in additions.values() for name in entry["coefficients"]}
    notes = {name: note for name, note in theirs.get("coefficients", {}).items() if name in added}
    bgmv = {"kernels.bgmv": {"kind": "derived", "source": "mbgmv, as if every row had the highest rank"}}
    if not any(name.startswith("kernels.mbgmv") for name in plan.start):
        bgmv = {}
    return (
        origin
        | {"coefficients": bgmv | derived | notes}
        | evidence
        | ({"additions": additions} if additions else {})
    )


def without(plan: Plan, dropped: Sequence[str]) -> Plan:
    """Return the plan less some coefficients: what are they good for?"""
    start = {name: value for name, value in plan.start.items() if name not in dropped}
    fixed = {name: value for name, value in plan.fixed.items() if name not in dropped}
    return replace(plan, start=start, fixed=fixed)


def write(plan: Plan, rows: Sequence[Row], folder: Path) -> Path:
    """Fit one calibration, write its file, and print how well it does on all rows of its GPU and model."""
    chosen = [row for row in rows if plan.selects(row)]
    if plan.start and not chosen:
        raise InputError(
            f"{PLAN.name}: {plan.name} selects no row; its selector must match some of the measured runs"
        )
    values = fit(plan, chosen)
    calibration = plan.calibration(values, {"kind": "published"})
    fitted = [Comparison(row, simulate(row, calibration_of(row, calibration)), True) for row in chosen]
    path = folder / f"{plan.file}.yaml"
    save(path, as_yaml(plan, values, provenance(plan, fitted)))
    others = [row for row in rows if row not in chosen and concerns(plan, row)]
    if fitted or others:
        print(
            table(
                [
                    *fitted,
                    *(
                        Comparison(row, simulate(row, calibration_of(row, calibration)), False)
                        for row in others
                    ),
                ]
            )
        )
    return path


def concerns(plan: Plan, row: Row) -> bool:
    """Whether a row that was not fitted can be simulated with what the plan fits, and shows it."""
    if row.calibration != plan.file or row.system not in known_systems() or unknown(row):
        return False
    return row.system == plan.addition if plan.addition else row.system not in ADDED


def main(arguments: Sequence[str] | None = None) -> int:
    """Fit the named calibrations, or all of the plan."""
    parser = parser_of("experiments.fidelity.fit", __doc__)
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help="calibrations to fit, or campaigns (default: all)"
    )
    parser.add_argument("--runs", type=Path, default=measured_dir() / "slora_runs.csv", help="measured runs")
    parser.add_argument("--drop", action="append", default=[], metavar="COEFFICIENT", help="fit without it")
    parser.add_argument("--out", type=Path, default=CALIBRATIONS, help="folder to write to")
    options = parser.parse_args(arguments)
    return ended(lambda: _fit(options))


def _fit(options: Namespace) -> None:
    folder, known = made(options.out), {plan.name: plan for plan in plans()}
    for name in options.names:
        if name not in (*known, "campaigns"):
            raise InputError(f"there is no plan for {name!r}; {nearest(name, [*known, 'campaigns'])}")
    rows = read(options.runs)
    for name in options.names or (*known, "campaigns"):
        print(f"fitting {name} …", flush=True)
        if name == "campaigns":
            CAMPAIGNS.write_text(fit_campaigns(rows), encoding="utf-8")
            print(f"wrote {CAMPAIGNS}", flush=True)
        else:
            print(f"wrote {write(without(known[name], options.drop), rows, folder)}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
