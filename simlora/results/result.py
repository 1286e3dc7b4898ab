"""One run's results in Python."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Result:
    """What a simulation found.

    `summary` is what summary.json holds, `requests` has a row a request, `timeline` samples of every replica's
    batch, queue and HBM (empty with timeline=false), `config` the resolved configuration as YAML.
    """

    summary: dict[str, Any]
    requests: pd.DataFrame
    timeline: pd.DataFrame
    config: str
    notices: tuple[str, ...] = ()

    def save(self, folder: str | Path, report: bool = True) -> Path:
        """Write the files of a run into a folder, report.html among them; return the folder."""
        from simlora.results.files import write_incomplete, write_whole

        folder = Path(folder)
        if self.summary["complete"]:
            write_whole(folder, self.summary, self.requests, self.timeline, self.config, report)
        else:
            write_incomplete(folder, self.summary, self.requests)
        return folder

    def plot_slo_attainment(self) -> Figure:
        """Return the share of requests that would meet each TTFT target."""
        from simlora.report import figures

        return figures.slo_attainment(self.requests, self.summary)

    def plot_latency_cdf(self) -> Figure:
        """Return the distributions of TTFT, TPOT and latency."""
        from simlora.report import figures

        return figures.latency_cdf(self.requests)

    def plot_timeline(self) -> Figure:
        """Return batch, queue and HBM over time."""
        from simlora.report import figures

        return figures.timeline(self.timeline)

    def plot_adapters(self) -> Figure:
        """Return how popular the adapters were."""
        from simlora.report import figures

        return figures.adapters(self.requests)

    def __repr__(self) -> str:
        requests = self.summary["requests"]
        return f"Result({requests['finished']} of {requests['submitted']} requests finished)"
