"""The figures of a run that studies show: where summary.json has them, and how a measured row calls them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from experiments.studies.reading import load


@dataclass(frozen=True)
class Metric:
    """A figure of a run, by its dotted place in summary.json.

    `measured` are its columns in files of measured runs, those in milliseconds with names that end with _ms.
    `drawn`: what it is multiplied by on an axis, to be in the unit of the label.
    """

    label: str
    measured: Sequence[str] = ()
    drawn: float = 1.0


METRICS = {name: Metric(**entry) for name, entry in load(Path(__file__).with_name("metrics.yaml")).items()}
SHARES = ("slo.attainment", "slo.satisfaction", "clients.attainment")
"""Between 0 and 1, over all submitted requests; satisfaction is 1 - (TTFT / SLO)^2, and 0 past the SLO."""
