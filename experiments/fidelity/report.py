"""What is said about a file in the schema of S-LoRA's measured runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from experiments.fidelity import predict
from experiments.fidelity.campaigns import calibration_of, fitted_rows
from experiments.fidelity.compare import Comparison, compared, furthest, judged, medians, plot
from experiments.fidelity.keeping import hashed, kept
from experiments.fidelity.orders import pairs
from experiments.fidelity.rows import FIGURES, Row, read
from experiments.fidelity.section import Section, fenced, grouped
from experiments.fidelity.servers import server, unknown
from experiments.fidelity.table import groups, table
from simlora.latency import calibration as calibrations

HASHED = hashed(predict.__file__, predict.PLACEHOLDER)
RELATIVE = [figure for figure in FIGURES if figure.relative]
JUDGED = ("throughput", "mean_latency")
"""Figures by which rows are furthest off."""
FURTHEST = 12
"""How many rows are named as the furthest off."""


def skipped(row: Row, systems: set[str], known: Sequence[str]) -> str:
    """Say why a row is not simulated; empty if it is."""
    if row.system not in systems:
        return f"system {row.columns['system']} does not exist yet"
    if row.calibration not in known:
        return f"there is no calibration {row.calibration}"
    return unknown(row)


def figures(row: Row) -> dict[str, float]:
    """Return the row's figures, simulated again only after what they depend on has changed."""
    question = {
        "server": server(row),
        "workload": dict(row.workload),
        "ranks": list(row.ranks),
        "calibration": row.calibration,
        "coefficients": dict(calibration_of(row).coefficients),
        "figures": HASHED,
    }
    return kept(question, lambda: predict.simulate(row))


def report(path: Path, jobs: int = -1) -> Section:
    """Return what is said of the file's rows. Raises InputError for bad input."""
    rows = read(path)
    systems, known = predict.known_systems(), calibrations.names()
    reasons = Counter(reason for row in rows if (reason := skipped(row, systems, known)))
    simulable = [row for row in rows if not skipped(row, systems, known)]
    comparisons = compared(simulable, figures, jobs, lambda row: row.key in fitted_rows(row))
    ordered = pairs(comparisons)
    wrong = [str(pair) for pair in ordered if not pair.right]
    orders = [
        f"order of two systems on one workload: right in {len(ordered) - len(wrong)} of {len(ordered)} pairs",
        *(f"  wrong: {pair}" for pair in wrong),
    ]
    printed = [table(comparisons)] if comparisons else []
    left_out = [f"not simulated: {count} rows, {reason}" for reason, count in sorted(reasons.items())]
    worst = [off_line(one) for one in furthest(comparisons, JUDGED, FURTHEST)]
    return Section(
        printed="\n".join([*printed, *worst, *orders, *left_out]),
        tree={
            "runs": str(path),
            "rows": [as_dict(one) for one in comparisons],
            "medians": {name: medians(own, FIGURES) for name, own in _medians_of(comparisons).items()},
            "orders": {"pairs": len(ordered), "right": len(ordered) - len(wrong), "wrong": wrong},
            "skipped": dict(sorted(reasons.items())),
        },
        parts={
            "table": fenced("\n".join([*printed, *left_out])),
            "furthest": fenced("\n".join(worst)),
            "orders": fenced("\n".join(orders)),
        },
        plot=plot("slora", "S-LoRA and its baselines, A10G and A100", comparisons, FIGURES),
        errors=judged("S-LoRA and its baselines", comparisons, RELATIVE),
    )


def as_dict(one: Comparison[Row]) -> dict[str, Any]:
    """Return what the JSON holds for a row: its own columns, then ours."""
    ours = {
        "error_s": one.off,
        "fitted": one.fitted,
        "load": one.row.load,
        "calibration": one.row.calibration,
    }
    return {**one.row.columns, **one.sides, **ours}


def off_line(one: Comparison[Row]) -> str:
    """Return how far off a row is."""
    errors = (f"{f.label} {100 * one.error[f.name]:+.0f} %" for f in RELATIVE if f.name in one.error)
    return f"far off: {one.row.columns['system']} {one.row.place}: {', '.join(errors)}"


def _medians_of(comparisons: Sequence[Comparison[Row]]) -> dict[str, list[Comparison[Row]]]:
    """Return comparisons by what the JSON calls their medians."""
    predicted = [one for one in comparisons if not one.fitted]
    found = {"predicted": predicted, "fitted": [one for one in comparisons if one.fitted]}
    found |= grouped(predicted, lambda one: f"predicted {one.row.columns['system']}")
    found |= {" ".join(key): members for key, members in groups(comparisons).items()}
    return {name: members for name, members in found.items() if members}
