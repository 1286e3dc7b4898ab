"""What is said about a file in the schema of S-LoRA's measured runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from experiments.fidelity.campaigns import fitted_rows
from experiments.fidelity.compare import Comparison, groups, medians
from experiments.fidelity.orders import pairs
from experiments.fidelity.predict import known_systems, simulate
from experiments.fidelity.rows import Row, read
from experiments.fidelity.running import in_parallel
from experiments.fidelity.servers import unknown
from experiments.fidelity.table import table
from simlora.latency import calibration as calibrations


def skipped(row: Row, systems: set[str], known: Sequence[str]) -> str:
    """Say why a row is not simulated; empty if it is."""
    if row.system not in systems:
        return f"system {row.columns['system']} does not exist yet"
    if row.calibration not in known:
        return f"there is no calibration {row.calibration}"
    return unknown(row)


def compare(rows: Sequence[Row]) -> list[Comparison]:
    """Simulate all rows."""
    return [
        Comparison(row, figures, row.key in fitted_rows(row))
        for row, figures in zip(rows, in_parallel(simulate, rows), strict=True)
    ]


def report(path: Path) -> tuple[str, dict[str, Any]]:
    """Return what to print about the file's rows, and the JSON of every one. Raises InputError for bad input."""
    rows = read(path)
    systems, known = known_systems(), calibrations.names()
    reasons = Counter(reason for row in rows if (reason := skipped(row, systems, known)))
    comparisons = compare([row for row in rows if not skipped(row, systems, known)])
    ordered = pairs(comparisons)
    wrong = [str(pair) for pair in ordered if not pair.right]
    right = len(ordered) - len(wrong)
    lines = [
        *([table(comparisons)] if comparisons else []),
        f"order of two systems on one workload: right in {right} of {len(ordered)} pairs",
        *(f"  wrong: {pair}" for pair in wrong),
        *(f"not simulated: {count} rows, {reason}" for reason, count in sorted(reasons.items())),
    ]
    return "\n".join(lines), {
        "runs": str(path),
        "rows": [comparison.as_dict() for comparison in comparisons],
        "medians": {
            name: medians(members)
            for name, members in (
                ("predicted", [c for c in comparisons if not c.fitted]),
                ("fitted", [c for c in comparisons if c.fitted]),
                *((" ".join(key), members) for key, members in groups(comparisons).items()),
            )
            if members
        },
        "orders": {"pairs": len(ordered), "wrong": wrong},
        "skipped": dict(sorted(reasons.items())),
    }
