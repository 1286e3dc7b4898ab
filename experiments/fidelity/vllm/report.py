"""What is said about a file in the schema of vLLM's measured runs with LoRA."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from experiments.fidelity.compare import Comparison, compared, judged, plot
from experiments.fidelity.keeping import hashed, kept
from experiments.fidelity.section import Section, fenced
from experiments.fidelity.vllm import predict
from experiments.fidelity.vllm.rows import FIGURES, Row, read
from experiments.fidelity.vllm.table import far_off, groups, medians, past, short, table
from simlora.latency import calibration as calibrations

MARK = "max_loras"
"""The column by which the schema is known."""
HASHED = hashed(predict.__file__)


def fitted(row: Row) -> bool:
    """Whether the row's coefficients were fitted to it."""
    return row.key in calibrations.load(row.calibration).provenance.get("fitted_rows", ())


def figures(row: Row) -> dict[str, float]:
    """Return the row's figures, simulated again only after simlora or what we make of its runs has changed."""
    return kept([*predict.overrides(row), HASHED], lambda: predict.simulate(row))


def report(path: Path, jobs: int = -1) -> Section:
    """Return what is said of the file's rows. Raises InputError for bad input."""
    rows, known = read(path), calibrations.names()
    missing = Counter(
        f"there is no calibration {row.calibration}" for row in rows if row.calibration not in known
    )
    comparisons = compared([row for row in rows if row.calibration in known], figures, jobs, fitted)
    overall = medians(comparisons).get("saturation")
    lines = [table(comparisons)] if comparisons else []
    if overall:
        lines.append(f"saturation called right in {overall['right']} of {overall['rows']} rows")
    lines += [f"not simulated: {count} rows, {reason}" for reason, count in sorted(missing.items())]
    return Section(
        printed="\n".join(lines),
        tree={
            "runs": str(path),
            "rows": [as_dict(one) for one in comparisons],
            "medians": {name: medians(members) for name, members in groups(comparisons).items()},
            "saturation": overall,
            "skipped": dict(sorted(missing.items())),
        },
        parts={
            "table": short(comparisons),
            "furthest": fenced("\n".join(far_off(comparisons))),
        },
        plot=plot("vllm", "vLLM 0.8.5 with LoRA, H100 64 GB, one-hour runs", comparisons, FIGURES),
        errors=judged("vLLM with LoRA", comparisons, FIGURES),
    )


def as_dict(one: Comparison[Row]) -> dict[str, Any]:
    """Return what the JSON holds for a row: its own columns, then ours."""
    row = one.row
    ours = {"error_ms": one.off, "fitted": one.fitted, "load": row.load, "saturated": past(one)}
    return {"line": row.line, **row.columns, **one.sides, **ours, "calibration": row.calibration}
