"""Measure how often labels and intervals are right: `python -m experiments.coverage {capacities,intervals,labels}`."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from experiments.coverage import capacities, intervals, labels
from experiments.studies.command import ended, parser_of
from simlora.core.checks import whole

TABLES = {"capacities": capacities.table, "intervals": intervals.table, "labels": labels.table}


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, and print; 0 when done, 2 for bad input, 130 when interrupted."""
    parser = parser_of("experiments.coverage", __doc__)
    parser.add_argument("what", choices=sorted(TABLES))
    parser.add_argument(
        "--runs", type=int, default=200, metavar="N", help="runs, and trials, a cell (default: 200)"
    )
    parser.add_argument("--jobs", type=int, default=-1, metavar="N", help="processes (default: one a core)")
    options = parser.parse_args(arguments)
    return ended(lambda: TABLES[options.what](whole("--runs", options.runs, least=1), jobs=options.jobs))


if __name__ == "__main__":
    sys.exit(main())
