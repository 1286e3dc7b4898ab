"""Predict measured runs: `python -m experiments.fidelity [--runs FILE.csv] [--json OUT]`."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from experiments.fidelity import report as slora
from experiments.fidelity.cells import columns
from experiments.fidelity.vllm import report as vllm
from experiments.measured import measured_dir
from simlora.api.cache import HELP
from simlora.core.errors import InputError

FILES = ("slora_runs.csv", "vllm_lora_runs.csv")
"""The measured files; the JSON of the first is OUT, that of the second has its name in front of OUT's suffix."""


def report(path: Path) -> tuple[str, dict[str, Any]]:
    """Return what to print about a file and what its JSON holds, by the schema that its columns show."""
    schema = vllm if vllm.MARK in columns(path) else slora
    return schema.report(path)


def asked(runs: Path | None, out: Path | None) -> list[tuple[Path, Path | None]]:
    """Return the files to report, each with where its JSON goes; says which of the measured ones are missing."""
    if runs is not None:
        return [(runs, out)]
    found = []
    for name in FILES:
        path = measured_dir() / name
        if path.exists():
            own = out if out is None or name == FILES[0] else out.with_suffix(f".{path.stem}{out.suffix}")
            found.append((path, own))
        else:
            print(f"skipped: there is no {path}; set SIMLORA_MEASURED_DIR to the folder with {name}")
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the comparison; 0 when done, 2 for bad input."""
    parser = argparse.ArgumentParser(
        prog="python -m experiments.fidelity",
        description="Simulate runs that others measured, and print how far off we are.",
        epilog=f"The hours of {FILES[1]} take an hour of two cores. {HELP}",
    )
    parser.add_argument(
        "--runs", type=Path, help=f"a file in the schema of {' or '.join(FILES)} (default: the measured ones)"
    )
    parser.add_argument(
        "--json",
        type=Path,
        metavar="OUT",
        help="write every row, measured and simulated, as JSON; without --runs, "
        f"that of {FILES[1]} as OUT with its name in front of the suffix",
    )
    options = parser.parse_args(arguments)
    for path, out in asked(options.runs, options.json):
        try:
            printed, tree = report(path)
        except InputError as error:
            print(f"error: {error}", file=sys.stderr)
            return 2
        print(printed)
        if out:
            out.write_text(json.dumps(tree, indent=1, allow_nan=False) + "\n", encoding="utf-8")
            print(f"wrote {out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
