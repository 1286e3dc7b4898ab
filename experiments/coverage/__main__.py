"""Measure how often labels and intervals are right: `python -m experiments.coverage {capacities,intervals,labels}`."""

from __future__ import annotations

from experiments.coverage import capacities, intervals, models
from experiments.studies.command import option, program
from simlora.core.checks import whole

TABLES = {"capacities": capacities.table, "intervals": intervals.table, "labels": models.table}


@program(
    option("what", choices=sorted(TABLES)),
    option("--runs", type=int, default=200, metavar="N", help="runs, and trials, a cell (default: 200)"),
    option("--jobs", type=int, default=-1, metavar="N", help="processes (default: one a core)"),
)
def main(what: str, runs: int, jobs: int) -> None:
    """Measure, and print."""
    TABLES[what](whole("--runs", runs, least=1), jobs=jobs)
