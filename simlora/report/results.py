"""What a run found, as pages read it."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import pandas as pd

from simlora.metrics.journal import Journal
from simlora.metrics.stored import Requests, StoredRequests
from simlora.metrics.timeline import LEVELS
from simlora.metrics.window import counted

REQUEST_COLUMNS = [
    "adapter",
    "rank",
    "replica",
    "prompt_tokens",
    "output_tokens",
    "arrival_s",
    "status",
    "reason",
    "ttft_s",
    "tpot_s",
    "latency_s",
    "queue_s",
    "cold_start_s",
    "kv_cold_start_s",
    "blocked_s",
]
TIMELINE_COLUMNS = ["replica", "time_s", *LEVELS]


@dataclass(frozen=True)
class RunResults:
    """The tables and the summary of one run; a table is empty, and `config` "", where there is none.

    `summary` is what summary.json holds, `rows` has a row a request, `timeline` samples of every replica's
    batch, queue and HBM (empty with timeline=false), `config` the resolved configuration as YAML. `decisions` has a
    row whenever an adapter is merged or taken out, or a scheduler's threshold or an adapter's credit changes (empty
    with timeline=false), `moves` a row a request that went to another replica, `plans` one for each time that a
    migration had cause to plan, `placements` one for each time that a placement planned anew, `scaling` one
    for each time that the number of replicas changed, `calls` one a request of the workload where clients send some of
    them later, or again, `handovers` one a request that went from a replica that prefills to one that decodes.
    """

    summary: dict[str, Any]
    rows: Requests
    timeline: pd.DataFrame = field(default_factory=lambda: pd.DataFrame(columns=TIMELINE_COLUMNS))
    config: str = ""
    decisions: pd.DataFrame = field(default_factory=Journal().decisions)
    moves: pd.DataFrame = field(default_factory=Journal().moves)
    plans: pd.DataFrame = field(default_factory=Journal().plans)
    placements: pd.DataFrame = field(default_factory=Journal().placements)
    scaling: pd.DataFrame = field(default_factory=Journal().scalings)
    calls: pd.DataFrame = field(default_factory=pd.DataFrame)
    handovers: pd.DataFrame = field(default_factory=pd.DataFrame)

    @cached_property
    def requests(self) -> pd.DataFrame:
        """A row a request; of a run too large for memory, it is read from disk when it is first asked for."""
        return self.rows.frame() if isinstance(self.rows, StoredRequests) else self.rows

    @property
    def counted(self) -> Requests:
        """The requests that the figures of the summary are of: all, or those that arrive in its window."""
        return counted(self.summary, self.rows)
