"""What is said about a file in the schema of S-LoRA's measured runs: a table, rows far off, and orders of systems."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from operator import itemgetter
from pathlib import Path
from typing import Any

from experiments.fidelity import predict
from experiments.fidelity.cells import hashed, kept
from experiments.fidelity.compare import (
    Comparison,
    Section,
    cells,
    compared,
    fenced,
    furthest,
    grouped,
    judged,
    medians,
    plot,
)
from experiments.fidelity.predict import calibration_of, fitted_rows, server, unknown
from experiments.fidelity.rows import CLUSTER, FIGURES, WORKLOAD, Row, read
from simlora.latency import calibration as calibrations

TIE = 0.02
"""Systems whose measured throughput differs by less are as fast as each other: runs repeat to about 1 %."""


@dataclass(frozen=True)
class Pair:
    """Two systems on one GPU, setting and workload; the first is the faster one as measured."""

    faster: Comparison[Row]
    slower: Comparison[Row]

    @property
    def right(self) -> bool:
        """Whether the simulation puts them in the same order."""
        figures = [side.simulated.get("throughput_rps", 0.0) for side in (self.faster, self.slower)]
        return figures[0] > figures[1]

    def __str__(self) -> str:
        sides = " over ".join(
            f"{side.row.columns['system']} {side.row.measured['throughput_rps']:.3g} "
            f"({side.simulated.get('throughput_rps', 0.0):.3g} simulated)"
            for side in (self.faster, self.slower)
        )
        return f"{self.faster.row.place}: {sides}"


def pairs(comparisons: Sequence[Comparison[Row]]) -> list[Pair]:
    """Return all pairs of different systems that served one workload in one campaign, ties left out.

    hf_peft ran in a campaign of its own, after the others' workloads.
    """
    found = []
    for members in grouped(comparisons, _workload).values():
        for one, other in combinations(members, 2):
            a, b = (side.row.measured.get("throughput_rps", 0.0) for side in (one, other))
            if one.row.columns["system"] != other.row.columns["system"] and abs(a - b) > TIE * max(a, b):
                found.append(Pair(*((one, other) if a > b else (other, one))))
    return found


def _workload(one: Comparison[Row]) -> tuple[str, ...]:
    columns, workload = one.row.columns, one.row.workload
    campaign = "synthetic" if columns["campaign"] == "peft" else columns["campaign"]
    file = one.row.file if columns["system"].startswith(CLUSTER) else ""
    return (columns["gpu"], columns["setting"], campaign, file, *(f"{workload[n]:g}" for n in WORKLOAD))


HEAD = f"{'system':<18} {'gpu':<9} {'set':<4} {'campaign':<17} {'':<9} {'rows':>4}"
NAMES = f"{'throughput':>14} {'mean latency':>22} {'first token':>22} {'attainment':>13}"
UNITS = f"{'median worst %':>14} {'median worst %, med. s':>22} {'median worst %, med. s':>22} {'median worst':>13}"


def groups(comparisons: Sequence[Comparison[Row]]) -> dict[tuple[str, ...], list[Comparison[Row]]]:
    """Return comparisons by system, GPU, setting, campaign and whether they were fitted, in order."""
    place = itemgetter("system", "gpu", "setting", "campaign")
    found = grouped(
        comparisons, lambda one: (*place(one.row.columns), "fitted" if one.fitted else "predicted")
    )
    return dict(sorted(found.items()))


def table(comparisons: Sequence[Comparison[Row]]) -> str:
    """Return the printed table: a line a group, then the medians by system and over all."""
    lines = [HEAD + NAMES, " " * len(HEAD) + UNITS]
    for (system, gpu, setting, campaign, fitted), members in groups(comparisons).items():
        lines.append(_line(f"{system:<18} {gpu:<9} {setting:<4} {campaign:<17} {fitted}", members))
    predicted = [one for one in comparisons if not one.fitted]
    for system, own in sorted(grouped(predicted, lambda one: one.row.columns["system"]).items()):
        lines.append(_line(f"all predicted rows of {system}", own))
    for whole, name in ((predicted, "predicted"), ([one for one in comparisons if one.fitted], "fitted")):
        for load in ("", "below", "near", "past"):
            members = [one for one in whole if load in ("", one.row.load)]
            if members:
                lines.append(_line(f"  {load} saturation" if load else f"all {name} rows", members))
    return "\n".join(lines)


def _line(label: str, members: Sequence[Comparison[Row]]) -> str:
    return f"{label:<{len(HEAD) - 4}}{len(members):>4}" + cells(medians(members, FIGURES), FIGURES)


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
