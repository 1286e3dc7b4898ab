"""What is said about a file in the schema of S-LoRA's measured runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from experiments.fidelity import predict
from experiments.fidelity.campaigns import calibration_of, fitted_rows
from experiments.fidelity.compare import (
    ERRORS,
    JUDGED,
    LABELS,
    RELATIVE,
    Comparison,
    furthest,
    groups,
    medians,
)
from experiments.fidelity.keeping import hashed, kept
from experiments.fidelity.orders import pairs
from experiments.fidelity.rows import CLUSTER, Row, read
from experiments.fidelity.running import in_parallel
from experiments.fidelity.scatter import Dot, Panel, Plot
from experiments.fidelity.section import Section, errors_of, fenced
from experiments.fidelity.servers import server, unknown
from experiments.fidelity.table import table
from simlora.latency import calibration as calibrations

FIGURES = hashed(predict.__file__, predict.PLACEHOLDER)
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
        "figures": FIGURES,
    }
    return kept(question, lambda: predict.simulate(row))


def compare(rows: Sequence[Row], jobs: int = -1) -> list[Comparison]:
    """Simulate all rows that were not simulated before."""
    return [
        Comparison(row, simulated, row.key in fitted_rows(row))
        for row, simulated in zip(rows, in_parallel(figures, rows, jobs), strict=True)
    ]


def report(path: Path, jobs: int = -1) -> Section:
    """Return what is said of the file's rows. Raises InputError for bad input."""
    rows = read(path)
    systems, known = predict.known_systems(), calibrations.names()
    reasons = Counter(reason for row in rows if (reason := skipped(row, systems, known)))
    comparisons = compare([row for row in rows if not skipped(row, systems, known)], jobs)
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
            "rows": [comparison.as_dict() for comparison in comparisons],
            "medians": {name: medians(members) for name, members in _medians_of(comparisons).items()},
            "orders": {"pairs": len(ordered), "right": len(ordered) - len(wrong), "wrong": wrong},
            "skipped": dict(sorted(reasons.items())),
        },
        parts={
            "table": fenced("\n".join([*printed, *left_out])),
            "furthest": fenced("\n".join(worst)),
            "orders": fenced("\n".join(orders)),
        },
        plots=[plot(comparisons)],
        errors=[
            line
            for name in RELATIVE
            for line in errors_of(
                f"S-LoRA and its baselines: {LABELS[name]}",
                (c.error[name] for c in comparisons if not c.fitted and name in c.error),
            )
        ],
    )


def off_line(one: Comparison) -> str:
    """Return how far off a row is."""
    errors = (f"{LABELS[name]} {100 * one.error[name]:+.0f} %" for name in RELATIVE if name in one.error)
    return f"far off: {one.row.columns['system']} {one.row.place}: {', '.join(errors)}"


def plot(comparisons: Sequence[Comparison]) -> Plot:
    """Return a panel a figure; all sizes of cluster have one colour."""
    units = {"throughput": "requests/s", "attainment": "share of requests"}
    panels = [
        Panel(
            LABELS[name],
            units.get(name, "s"),
            [
                Dot(c.row.measured[column], c.simulated[column], _colour(c.row), c.fitted)
                for c in comparisons
                if column in c.row.measured and column in c.simulated
            ],
            band=0.05 if name in ("throughput", "attainment") else 0.1,
            relative=name != "attainment",
        )
        for name, column in ERRORS.items()
    ]
    return Plot("slora", "S-LoRA and its baselines, A10G and A100", panels)


def _colour(row: Row) -> str:
    system = row.columns["system"]
    return f"{CLUSTER}…" if system.startswith(CLUSTER) else system


def _medians_of(comparisons: Sequence[Comparison]) -> dict[str, list[Comparison]]:
    """Return comparisons by what the JSON calls their medians."""
    predicted = [c for c in comparisons if not c.fitted]
    found = {"predicted": predicted, "fitted": [c for c in comparisons if c.fitted]}
    for one in predicted:
        found.setdefault(f"predicted {one.row.columns['system']}", []).append(one)
    found |= {" ".join(key): members for key, members in groups(comparisons).items()}
    return {name: members for name, members in found.items() if members}
