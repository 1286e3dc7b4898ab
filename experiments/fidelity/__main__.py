"""Predict measured runs: `python -m experiments.fidelity [--runs FILE.csv] [--json OUT]`."""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from joblib import Parallel, delayed

from experiments.fidelity.campaigns import fitted_rows
from experiments.fidelity.compare import Comparison, groups, medians
from experiments.fidelity.orders import pairs
from experiments.fidelity.predict import known_systems, simulate
from experiments.fidelity.rows import Row, read
from experiments.fidelity.servers import unknown
from experiments.fidelity.table import table
from experiments.measured import measured_dir
from simlora.core.errors import InputError
from simlora.latency import calibration as calibrations


def skipped(row: Row, systems: set[str], known: Sequence[str]) -> str:
    """Say why a row is not simulated; empty if it is."""
    if row.system not in systems:
        return f"system {row.columns['system']} does not exist yet"
    if row.calibration not in known:
        return f"there is no calibration {row.calibration}"
    return unknown(row)


def compare(rows: Sequence[Row]) -> list[Comparison]:
    """Simulate all rows, on all cores."""
    simulated = Parallel(n_jobs=-1)(delayed(simulate)(row) for row in rows)
    return [
        Comparison(row, figures, row.key in fitted_rows(row))
        for row, figures in zip(rows, simulated, strict=True)
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the comparison; 0 when done, 2 for bad input."""
    parser = argparse.ArgumentParser(
        prog="python -m experiments.fidelity",
        description="Simulate runs that others measured, and print how far off we are.",
    )
    parser.add_argument(
        "--runs", type=Path, help="a file in the schema of slora_runs.csv (default: the measured one)"
    )
    parser.add_argument(
        "--json", type=Path, metavar="OUT", help="write every row, measured and simulated, as JSON"
    )
    options = parser.parse_args(arguments)
    path = options.runs or measured_dir() / "slora_runs.csv"
    if options.runs is None and not path.exists():
        print(f"skipped: there is no {path}; set SIMLORA_MEASURED_DIR to the folder with slora_runs.csv")
        return 0
    try:
        rows = read(path)
        systems, known = known_systems(), calibrations.names()
        reasons = Counter(reason for row in rows if (reason := skipped(row, systems, known)))
        comparisons = compare([row for row in rows if not skipped(row, systems, known)])
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    if comparisons:
        print(table(comparisons))
    ordered = pairs(comparisons)
    wrong = [str(pair) for pair in ordered if not pair.right]
    print(
        f"order of two systems on one workload: right in {len(ordered) - len(wrong)} of {len(ordered)} pairs"
    )
    for pair in wrong:
        print(f"  wrong: {pair}")
    for reason, count in sorted(reasons.items()):
        print(f"not simulated: {count} rows, {reason}")
    if options.json:
        report = {
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
        options.json.write_text(json.dumps(report, indent=1, allow_nan=False) + "\n", encoding="utf-8")
        print(f"wrote {options.json}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
