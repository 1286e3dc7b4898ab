"""What is said about a file in the schema of vLLM's measured runs with LoRA."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from experiments.fidelity.keeping import hashed, kept
from experiments.fidelity.running import in_parallel
from experiments.fidelity.scatter import Dot, Panel, Plot
from experiments.fidelity.section import Section, errors_of, fenced
from experiments.fidelity.vllm import predict
from experiments.fidelity.vllm.compare import (
    ERRORS,
    FIRST_TOKEN,
    LABELS,
    Comparison,
    counted,
    groups,
    medians,
)
from experiments.fidelity.vllm.rows import Row, read
from experiments.fidelity.vllm.table import far_off, short, table
from simlora.latency import calibration as calibrations

MARK = "max_loras"
"""The column by which the schema is known."""
FIGURES = hashed(predict.__file__)


def fitted(row: Row) -> bool:
    """Whether the row's coefficients were fitted to it."""
    return row.key in calibrations.load(row.calibration).provenance.get("fitted_rows", ())


def figures(row: Row) -> dict[str, float]:
    """Return the row's figures, simulated again only after simlora or what we make of its runs has changed."""
    return kept([*predict.overrides(row), FIGURES], lambda: predict.simulate(row))


def report(path: Path, jobs: int = -1) -> Section:
    """Return what is said of the file's rows. Raises InputError for bad input."""
    rows, known = read(path), calibrations.names()
    missing = Counter(
        f"there is no calibration {row.calibration}" for row in rows if row.calibration not in known
    )
    rows = [row for row in rows if row.calibration in known]
    simulated = in_parallel(figures, rows, jobs)
    comparisons = [Comparison(row, found, fitted(row)) for row, found in zip(rows, simulated, strict=True)]
    predicted = [c for c in comparisons if not c.fitted]
    overall = medians(comparisons).get("saturation")
    lines = [table(comparisons)] if comparisons else []
    if overall:
        lines.append(f"saturation called right in {overall['right']} of {overall['rows']} rows")
    lines += [f"not simulated: {count} rows, {reason}" for reason, count in sorted(missing.items())]
    return Section(
        printed="\n".join(lines),
        tree={
            "runs": str(path),
            "rows": [comparison.as_dict() for comparison in comparisons],
            "medians": {name: medians(members) for name, members in groups(comparisons).items()},
            "saturation": overall,
            "skipped": dict(sorted(missing.items())),
        },
        parts={
            "table": short(comparisons),
            "furthest": fenced("\n".join(far_off(comparisons))),
        },
        plots=[plot(comparisons)],
        errors=[
            line
            for name in ERRORS
            for line in errors_of(
                f"vLLM with LoRA: {LABELS[name]}", (c.error[name] for c in counted(predicted, name))
            )
        ],
    )


def plot(comparisons: Sequence[Comparison]) -> Plot:
    """Return a panel a figure, those of first tokens of runs below saturation alone."""
    panels = [
        Panel(
            f"{LABELS[name]} below saturation" if name in FIRST_TOKEN else LABELS[name],
            "tokens/s" if name == "output_tokens_per_s" else "ms",
            [
                Dot(c.row.measured[name], c.simulated[name], c.row.columns["model"], c.fitted)
                for c in counted(comparisons, name)
            ],
        )
        for name in ERRORS
    ]
    return Plot("vllm", "vLLM 0.8.5 with LoRA, H100 64 GB, one-hour runs", panels)
