"""One run's results in Python."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from simlora.metrics.slo import SloTargets
from simlora.metrics.tracing import Traced
from simlora.report.results import RunResults
from simlora.results.tables import TABLES

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True)
class Result(RunResults):
    """What a simulation found, to be looked at, drawn and saved.

    `notices` are what its user should know. `traced` is what timeline.json.gz shows, None without perfetto=true.
    """

    notices: tuple[str, ...] = ()
    traced: Traced | None = None

    def save(self, folder: str | Path, report: bool = True) -> Path:
        """Write the files of a run into a folder, report.html among them; return the folder."""
        from simlora.results.files import write_incomplete, write_whole

        folder = Path(folder)
        if self.summary["complete"]:
            others = {name: getattr(self, name) for name in TABLES if name != "requests"}
            tables = {"requests": self.rows, **others}
            write_whole(folder, self.summary, tables, self.config, report, self.traced)
        else:
            write_incomplete(folder, self.summary, self.rows)
        return folder

    @property
    def tables(self) -> dict[str, pd.DataFrame]:
        """The tables, by the names of their files."""
        return {name: getattr(self, name) for name in TABLES}

    def plot_slo_attainment(self, metric: str = "ttft_s", ax: Axes | None = None) -> Axes:
        """Draw the share of requests that would meet the SLO, were its target of `metric` another one."""
        from simlora.report import figures

        targets = SloTargets(**self.summary["slo"]["targets"])
        return figures.plot_slo_attainment(self.counted, metric, targets, ax)

    def plot_latency_cdf(self, ax: Axes | None = None) -> Axes:
        """Draw the distributions of TTFT, TPOT and latency."""
        from simlora.report import figures

        return figures.plot_latency_cdf(self.counted, ax=ax)

    def plot_timeline(self, replica: int | None = None, ax: Axes | None = None) -> Axes:
        """Draw batch and queue over time, of one replica or of all together."""
        from simlora.report import figures

        return figures.plot_timeline(self.timeline, replica, ax)

    def plot_hbm(self, replica: int | None = None, ax: Axes | None = None) -> Axes:
        """Draw what HBM holds over time, of one replica or of all together: adapters, KV, and of that history."""
        from simlora.report import figures

        return figures.plot_hbm(self.timeline, replica, ax)

    def plot_modes(self, replica: int = 0, ax: Axes | None = None) -> Axes:
        """Draw which adapter is merged into one replica's weights over time, the thresholds, and credits below.

        Credits are drawn in a figure of our own only. Raises ValueError for a replica that there is not.
        """
        from simlora.report import figures

        if not 0 <= replica < len(self.summary["replicas"]):
            raise ValueError(f"there is no replica {replica}")
        return figures.plot_modes(self.decisions, self.summary["makespan_s"], replica, ax)

    def plot_adapters(self, most: int = 30, ax: Axes | None = None) -> Axes:
        """Draw first-token time and cold start of the most requested adapters."""
        from simlora.report import figures

        return figures.plot_adapters(self.counted, most, ax)

    def __repr__(self) -> str:
        requests = self.summary["requests"]
        return f"Result({requests['finished']} of {requests['submitted']} requests finished)"
