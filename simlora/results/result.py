"""One run's results in Python."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from simlora.metrics.journal import Journal
from simlora.metrics.slo import SloTargets
from simlora.metrics.tracing import Traced
from simlora.metrics.window import Window

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True)
class Result:
    """What a simulation found.

    `summary` is what summary.json holds, `requests` has a row a request, `timeline` samples of every replica's
    batch, queue and HBM (empty with timeline=false), `config` the resolved configuration as YAML. `decisions` has a
    row whenever an adapter is merged or taken out, or a scheduler's threshold or an adapter's credit changes (empty
    with timeline=false), `moves` a row a request that went to another replica, `plans` one for each time that a
    migration had cause to plan, `placements` one for each time that a placement planned anew, `scaling` one
    for each time that the number of replicas changed. `traced` is what timeline.json.gz shows, None without
    perfetto=true.
    """

    summary: dict[str, Any]
    requests: pd.DataFrame
    timeline: pd.DataFrame
    config: str
    notices: tuple[str, ...] = ()
    decisions: pd.DataFrame = field(default_factory=Journal().decisions)
    moves: pd.DataFrame = field(default_factory=Journal().moves)
    plans: pd.DataFrame = field(default_factory=Journal().plans)
    placements: pd.DataFrame = field(default_factory=Journal().placements)
    scaling: pd.DataFrame = field(default_factory=Journal().scalings)
    traced: Traced | None = None

    def save(self, folder: str | Path, report: bool = True) -> Path:
        """Write the files of a run into a folder, report.html among them; return the folder."""
        from simlora.results.files import write_incomplete, write_whole

        folder = Path(folder)
        if self.summary["complete"]:
            write_whole(folder, self.summary, self.tables, self.config, report, self.traced)
        else:
            write_incomplete(folder, self.summary, self.requests)
        return folder

    @property
    def counted(self) -> pd.DataFrame:
        """The requests that the figures of the summary are of: all, or those that arrive in its window."""
        window = self.summary.get("window")
        return self.requests if window is None else Window(**window).of(self.requests)

    @property
    def tables(self) -> dict[str, pd.DataFrame]:
        """The tables, by the names of their files."""
        return {
            "requests": self.requests,
            "timeline": self.timeline,
            "decisions": self.decisions,
            "moves": self.moves,
            "plans": self.plans,
            "placements": self.placements,
            "scaling": self.scaling,
        }

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
