"""What is said about a file in the schema of vLLM's measured runs with LoRA."""

from __future__ import annotations

import hashlib
from collections import Counter
from pathlib import Path
from typing import Any

from experiments.fidelity.running import in_parallel
from experiments.fidelity.vllm import predict
from experiments.fidelity.vllm.compare import Comparison, groups, medians
from experiments.fidelity.vllm.rows import Row, read
from experiments.fidelity.vllm.table import table
from simlora.api.cache import open_cache
from simlora.latency import calibration as calibrations

MARK = "max_loras"
"""The column by which the schema is known."""
FIGURES = f"figures={hashlib.sha256(Path(predict.__file__).read_bytes()).hexdigest()[:16]}"


def fitted(row: Row) -> bool:
    """Whether the row's coefficients were fitted to it."""
    return row.key in calibrations.load(row.calibration).provenance.get("fitted_rows", ())


def kept(row: Row) -> dict[str, float]:
    """Return the row's figures, simulated again only after simlora or what we make of its runs has changed."""
    cache, key = open_cache(), [*predict.overrides(row), FIGURES]
    found = cache.get(key)
    if found is None:
        found = predict.simulate(row)
        cache.put(key, found, "{}")
    return found


def report(path: Path) -> tuple[str, dict[str, Any]]:
    """Return what to print about the file's rows, and the JSON of every one. Raises InputError for bad input."""
    rows, known = read(path), calibrations.names()
    missing = Counter(
        f"there is no calibration {row.calibration}" for row in rows if row.calibration not in known
    )
    rows = [row for row in rows if row.calibration in known]
    simulated = in_parallel(kept, rows)
    comparisons = [
        Comparison(row, figures, fitted(row)) for row, figures in zip(rows, simulated, strict=True)
    ]
    lines = [table(comparisons)] if comparisons else []
    overall = medians(comparisons).get("saturation")
    if overall:
        lines.append(f"saturation called right in {overall['right']} of {overall['rows']} rows")
    lines += [f"not simulated: {count} rows, {reason}" for reason, count in sorted(missing.items())]
    return "\n".join(lines), {
        "runs": str(path),
        "rows": [comparison.as_dict() for comparison in comparisons],
        "medians": {name: medians(members) for name, members in groups(comparisons).items()},
        "saturation": overall,
        "skipped": dict(sorted(missing.items())),
    }
