"""Fits calibrations to measured runs: `python -m experiments.fidelity.fit [NAME …] [--out FOLDER]`.

Non-negative least squares (SciPy, trust region) over whole simulated runs: the residuals are the
relative errors of throughput, mean latency and mean first-token time and the absolute error of
attainment, each divided by the accuracy that a repeated run would show. Which rows are fitted, and
where the search starts, stands in `plan.yaml`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from joblib import Parallel, delayed
from numpy.typing import NDArray
from scipy.optimize import least_squares, minimize_scalar

from experiments.fidelity.compare import AnyRow, Comparison, medians
from experiments.fidelity.predict import (
    CAMPAIGNS,
    calibration_of,
    known_systems,
    matches,
    simulate,
    slowed,
    unknown,
)
from experiments.fidelity.report import table
from experiments.fidelity.rows import FIGURES, Row, read
from experiments.studies.command import OUT, option, planned, program
from experiments.studies.reading import load as read_sheet
from experiments.studies.reading import measured_dir
from simlora.calibrate.calibration_file import derived, save, text_of
from simlora.core.errors import InputError
from simlora.latency import calibration as calibrations
from simlora.latency.calibration import Calibration, load, parse

Floats = NDArray[np.float64]


def errors_under(
    pool: Parallel,
    rows: Sequence[AnyRow],
    calibrations: Sequence[Calibration],
    simulate: Callable[[AnyRow, Calibration], dict[str, float]],
    errors: Callable[[Comparison[AnyRow]], Sequence[float]],
) -> list[Floats]:
    """Return the errors of all rows under each of the calibrations, which are simulated side by side."""
    figures = iter(pool(delayed(simulate)(row, each) for each in calibrations for row in rows))
    return [
        np.array([error for row in rows for error in errors(Comparison(row, next(figures), True))])
        for _ in calibrations
    ]


def evidence(fitted: Sequence[Comparison[Any]], found: Mapping[str, Mapping[str, float]]) -> dict[str, Any]:
    """Return what a calibration says of its fit: residuals to three digits, and the rows."""
    return {
        "residuals": {
            name: {key: float(f"{value:.3g}") for key, value in error.items()}
            for name, error in found.items()
        },
        "fitted_rows": [one.row.key for one in fitted],
    }


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
    fit: Sequence[Mapping[str, Any]] = ()
    start: Mapping[str, float] = field(default_factory=dict)
    fixed: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    note: str = ""

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
        return row.calibration == self.file and matches(row, self.fit)

    def calibration(self, values: Sequence[float], provenance: Mapping[str, Any]) -> Calibration:
        """Return the calibration with these values for the free coefficients."""
        return parse(as_yaml(self, values, provenance), self.file)


def plans() -> list[Plan]:
    """Read the plan of the calibrations, and then of what is added to them."""
    tree = read_sheet(PLAN)
    return [Plan(name, **entry) for name, entry in (tree["calibrations"] | tree["additions"]).items()]


def fit(plan: Plan, rows: Sequence[Row], jobs: int = 2, rounds: int = 12) -> Floats:
    """Return the free coefficients that predict `rows` best."""
    if not plan.start:
        return np.array([])
    start = np.array(list(plan.start.values()))
    least = np.array([LEAST_BANDWIDTH if name.endswith("bytes_per_s") else 0.0 for name in plan.start])
    pool = Parallel(n_jobs=jobs)

    def at(points: Sequence[Floats]) -> list[Floats]:
        tried = [plan.calibration(point * start, {"kind": "published"}) for point in points]
        errors = errors_under(pool, rows, tried, _simulated, _units)
        return [np.append(own, PRIOR * (point - 1.0)) for own, point in zip(errors, points, strict=True)]

    def jacobian(point: Floats) -> Floats:
        steps = np.diag(np.maximum(STEP * np.abs(point), STEP))
        ups, downs = point + steps, np.maximum(point - steps, least)
        high, low = np.split(np.array(at([*ups, *downs])), 2)
        return np.asarray(((high - low) / np.abs(ups - downs).sum(axis=1, keepdims=True)).T)

    best = least_squares(
        lambda point: at([point])[0],
        np.ones(len(start)),
        jac=jacobian,
        bounds=(least, np.inf),
        loss="soft_l1",
        f_scale=3.0,
        max_nfev=rounds,
    )
    return np.asarray(best.x * start)


def _simulated(row: Row, calibration: Calibration) -> dict[str, float]:
    """Return the row's figures under a calibration, whose kernels are slowed as the row's campaign has them."""
    return simulate(row, calibration_of(row, calibration))


def _units(one: Comparison[Row]) -> list[float]:
    """Return the errors of one run in units of accuracy."""
    return [one.error[name] / unit for name, unit in ACCURACY.items()]


def fit_campaigns(rows: Sequence[Row]) -> str:
    """Return campaigns.yaml: by which factor a campaign's kernels are slower than its GPU's calibration says."""
    tree = read_sheet(PLAN)["campaigns"]
    found: dict[str, Any] = {}
    for campaign, entry in tree.items():
        chosen = [row for row in rows if matches(row, [entry["where"]]) and matches(row, entry["fit"])]
        best = minimize_scalar(
            _cost, args=(chosen,), bounds=(0.5, 20.0), method="bounded", options={"xatol": 1e-2}
        )
        found[campaign] = {
            "where": entry["where"],
            "kernel_factor": float(f"{best.x:.3g}"),
            "fitted_rows": [row.key for row in chosen],
        }
    return CAMPAIGNS_HEAD + yaml.safe_dump(found, sort_keys=False, width=200)


def _cost(factor: float, rows: Sequence[Row]) -> float:
    """Return the sum of squares of rows whose kernels are slower by a factor."""
    figures = (simulate(row, slowed(load(row.calibration), factor)) for row in rows)
    pairs = zip(rows, figures, strict=True)
    return float(sum(unit**2 for pair in pairs for unit in _units(Comparison(*pair))))


def as_yaml(plan: Plan, values: Sequence[float], provenance: Mapping[str, Any]) -> str:
    """Return the calibration file; what other plans have added to it stays."""
    gpu, model, tp = plan.file.split("-")[:3]
    coefficients = dict(zip(plan.start, map(float, values), strict=True))
    coefficients |= {name: float(entry["value"]) for name, entry in plan.fixed.items()}
    found = kept(plan) | coefficients | padded(coefficients)
    return text_of(Calibration(plan.file, gpu, model, int(tp.removeprefix("tp")), provenance, found), 5)


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


def provenance(plan: Plan, fitted: Sequence[Comparison[Row]]) -> dict[str, Any]:
    """Say where the coefficients come from and how well they describe what they were fitted to."""
    theirs = dict(calibrations.load(plan.file).provenance) if plan.file in calibrations.names() else {}
    origin = {
        "kind": "published" if fitted else "derived",
        "source": SOURCE if fitted else "see coefficients",
        "command": f"python -m experiments.fidelity.fit {plan.name}",
        "date": date.today().isoformat(),
        **({"note": plan.note} if plan.note else {}),
    }
    found = medians(fitted, FIGURES)
    del found["rows"]
    shown = evidence(fitted, found)
    sources = {name: derived(entry["source"]) for name, entry in plan.fixed.items()}
    additions = theirs.get("additions", {})
    if plan.addition:
        own = origin | {"coefficients": [*plan.start, *plan.fixed]} | shown
        return theirs | {
            "coefficients": theirs["coefficients"] | sources,
            "additions": additions | {plan.addition: own},
        }
    added = {name for entry in additions.values() for name in entry["coefficients"]}
    notes = {name: note for name, note in theirs.get("coefficients", {}).items() if name in added}
    if any(name.startswith("kernels.mbgmv") for name in plan.start):
        sources = {"kernels.bgmv": derived("mbgmv, as if every row had the highest rank")} | sources
    coefficients = {"coefficients": sources | notes}
    return origin | coefficients | shown | ({"additions": additions} if additions else {})


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

    def compared(rows: Sequence[Row], fitted: bool) -> list[Comparison[Row]]:
        return [Comparison(row, _simulated(row, calibration), fitted) for row in rows]

    fitted = compared(chosen, True)
    path = folder / f"{plan.file}.yaml"
    save(path, as_yaml(plan, values, provenance(plan, fitted)))
    others = compared([row for row in rows if row not in chosen and concerns(plan, row)], False)
    if fitted or others:
        print(table([*fitted, *others]))
    return path


def concerns(plan: Plan, row: Row) -> bool:
    """Whether a row that was not fitted can be simulated with what the plan fits, and shows it."""
    if row.calibration != plan.file or row.system not in known_systems() or unknown(row):
        return False
    return row.system == plan.addition if plan.addition else row.system not in ADDED


@program(
    option("names", nargs="*", metavar="NAME", help="calibrations to fit, or campaigns (default: all)"),
    option("--runs", type=Path, help="measured runs"),
    option("--drop", action="append", default=[], metavar="COEFFICIENT", help="fit without it"),
    OUT,
)
def main(names: Sequence[str], runs: Path | None, drop: Sequence[str], folder: Path) -> None:
    """Fit the named calibrations, or all of the plan."""
    chosen = planned(names, {plan.name: plan for plan in plans()} | {"campaigns": None})
    rows = read(runs or measured_dir() / "slora_runs.csv")
    for plan in chosen:
        print(f"fitting {plan.name if plan else 'campaigns'} …", flush=True)
        if plan is None:
            CAMPAIGNS.write_text(fit_campaigns(rows), encoding="utf-8")
        path = write(without(plan, drop), rows, folder) if plan else CAMPAIGNS
        print(f"wrote {path}", flush=True)
