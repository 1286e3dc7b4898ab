"""Predict measured runs: `python -m experiments.fidelity [--runs FILE.csv] [--json OUT]`."""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from joblib import Parallel, delayed

from experiments.fidelity.campaigns import fitted_rows
from experiments.fidelity.compare import Comparison, groups, medians
from experiments.fidelity.predict import known_systems, simulate
from experiments.fidelity.rows import Row, read
from experiments.measured import measured_dir
from simlora.core.errors import InputError
from simlora.latency import calibration as calibrations

HEAD = f"{'system':<16} {'gpu':<9} {'set':<4} {'campaign':<17} {'':<9} {'rows':>4}"
FIGURES = f"{'throughput':>14} {'mean latency':>22} {'first token':>22} {'attainment':>13}"
UNITS = f"{'median worst %':>14} {'median worst %, med. s':>22} {'median worst %, med. s':>22} {'median worst':>13}"


def skipped(row: Row, systems: set[str], known: Sequence[str]) -> str:
    """Say why a row is not simulated; empty if it is."""
    if row.system not in systems:
        return f"system {row.columns['system']} does not exist yet"
    if row.calibration not in known:
        return f"there is no calibration {row.calibration}"
    if not row.columns["kv_token_budget"]:
        return f"{row.columns['system']} on {row.columns['gpu']} has no kv_token_budget in its row"
    return ""


def compare(rows: Sequence[Row]) -> list[Comparison]:
    """Simulate all rows, on all cores."""
    simulated = Parallel(n_jobs=-1)(delayed(simulate)(row) for row in rows)
    return [
        Comparison(row, figures, row.key in fitted_rows(row))
        for row, figures in zip(rows, simulated, strict=True)
    ]


def line(found: dict[str, Any]) -> str:
    """One line of figures for the table."""

    def times(name: str) -> str:
        entry = found[name]
        return f"{100 * entry['median']:7.1f} {100 * entry['worst']:6.1f} {entry['median_s']:7.2f}"

    throughput, attainment = found["throughput"], found["attainment"]
    return (
        f"{100 * throughput['median']:7.2f} {100 * throughput['worst']:6.2f} {times('mean_latency')} "
        f"{times('mean_first_token')} {attainment['median']:6.3f} {attainment['worst']:6.3f}"
    )


def table(comparisons: Sequence[Comparison]) -> str:
    """Return the printed table: a line a group, then the medians over what was predicted and fitted."""
    lines = [HEAD + FIGURES, " " * len(HEAD) + UNITS]
    for (system, gpu, setting, campaign, fitted), members in groups(comparisons).items():
        head = f"{system:<16} {gpu:<9} {setting:<4} {campaign:<17} {fitted:<9} {len(members):>4}"
        lines.append(head + line(medians(members)))
    for fitted, name in ((False, "all predicted rows"), (True, "all fitted rows")):
        for load in ("", "below", "near", "past"):
            members = [c for c in comparisons if c.fitted is fitted and load in ("", c.load)]
            if members:
                label = f"  {load} saturation" if load else name
                lines.append(f"{label:<{len(HEAD) - 4}}{len(members):>4}" + line(medians(members)))
    return "\n".join(lines)


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
            "skipped": dict(sorted(reasons.items())),
        }
        options.json.write_text(json.dumps(report, indent=1, allow_nan=False) + "\n", encoding="utf-8")
        print(f"wrote {options.json}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
