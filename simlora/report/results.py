"""What a run left in its folder."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from simlora.core.errors import InputError
from simlora.metrics.journal import Journal
from simlora.report.curves import LEVELS

REQUEST_COLUMNS = [
    "adapter",
    "rank",
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
    """The tables and the summary of one run; tables but the first are empty and `config` "" where it kept none."""

    folder: Path
    summary: dict[str, Any]
    requests: pd.DataFrame
    timeline: pd.DataFrame
    config: str
    decisions: pd.DataFrame = field(default_factory=Journal().decisions)
    moves: pd.DataFrame = field(default_factory=Journal().moves)
    plans: pd.DataFrame = field(default_factory=Journal().plans)
    placements: pd.DataFrame = field(default_factory=Journal().placements)
    scaling: pd.DataFrame = field(default_factory=Journal().scalings)


def load_results(folder: Path) -> RunResults:
    """Read a run's folder.

    Of the requests only REQUEST_COLUMNS are read. Raises InputError, naming the file, when the
    folder is not a run's.
    """
    summary = json.loads(_present(folder / "summary.json").read_text(encoding="utf-8"))
    requests = _read(_present(folder / "requests.parquet"), REQUEST_COLUMNS)
    config, nothing = folder / "config.yaml", Journal()
    return RunResults(
        folder=folder,
        summary=summary,
        requests=requests,
        timeline=_table(folder / "timeline.parquet", pd.DataFrame(columns=TIMELINE_COLUMNS)),
        config=config.read_text(encoding="utf-8") if config.exists() else "",
        decisions=_table(folder / "decisions.parquet", nothing.decisions()),
        moves=_table(folder / "moves.parquet", nothing.moves()),
        plans=_table(folder / "plans.parquet", nothing.plans()),
        placements=_table(folder / "placements.parquet", nothing.placements()),
        scaling=_table(folder / "scaling.parquet", nothing.scalings()),
    )


def _table(path: Path, none: pd.DataFrame) -> pd.DataFrame:
    return _read(path) if path.exists() else none


def _read(path: Path, columns: list[str] | None = None) -> pd.DataFrame:
    try:
        return pd.read_parquet(path, columns=columns)
    except (OSError, ValueError) as error:  # ArrowInvalid is a ValueError
        raise InputError(f"{path} cannot be read, must be as a run wrote it: {error}") from None


def _present(path: Path) -> Path:
    if not path.exists():
        raise InputError(f"{path.parent} is not the folder of a run: it has no {path.name}")
    return path
