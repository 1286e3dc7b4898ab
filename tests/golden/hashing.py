"""SHA-256 digests of everything that a simulation returns, one per table, over the exact bytes of its columns.

It uses numpy, pandas and the public parts of simlora alone, so that it also hashes results of older commits.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pandas as pd

DIGITS = 32
"""Hexadecimal digits of a digest that are kept."""
LEFT_OUT = ("command", "run", "calibration", "versions", "failures")
"""Sections of a summary that name configuration keys, classes or versions; failures have a digest of their own."""
LATER = ("queue_per_output_token_s", "latency_over_output_tokens_s")
"""Figures that older commits do not have, and that follow from the table of requests."""
WALL = ("wall_s", "migration_wall_s", "requests_per_wall_s")
ENGINE_FACTS = ("adapters", "duration_s", "rate_rps")
COUNTS = {
    "adapters": (
        "loads",
        "disk_loads",
        "remote_loads",
        "storage_loads",
        "reloads",
        "switches",
        "region_refusals",
    ),
    "kv": ("hit_rate", "tokens_to_host", "tokens_from_host", "tokens_ahead", "preemptions"),
    "migration": ("plans", "moves"),
    "placement": ("changes",),
    "failures": ("failures", "restarted"),
    "scaling": ("changes",),
    "clients": ("answered", "gave_up", "attempts", "abandoned"),
    "requests": ("aborted", "rejected", "unfinished"),
}
"""Numbers of a summary that show which mechanisms occurred, by section."""


def digests(result: Any, renamed: Mapping[str, str]) -> dict[str, str]:
    """Return the digest of each table with rows, of the summary, of failures and of the Perfetto timeline.

    `renamed` maps old names of configuration keys to new ones; in texts of results the old ones count as new.
    """
    names = _short(renamed)
    found = {name: _of_table(table, names) for name, table in result.tables.items() if len(table)}
    summary = result.summary
    found["summary"] = _of_json(_without_machine(summary), names)
    if summary.get("failures"):
        found["failures"] = _of_json(summary["failures"], names)
    if result.traced is not None:
        found["perfetto"] = _of_events(result.traced)
    return found


def counts(result: Any) -> dict[str, float]:
    """Return how often each mechanism occurred, without those that did not."""
    summary = result.summary
    found = {
        f"{section}.{name}": (summary.get(section) or {}).get(name)
        for section, names in COUNTS.items()
        for name in names
    }
    requests = result.requests
    found |= {"requests": len(requests), "most_waiting": max(r["most_waiting"] for r in summary["replicas"])}
    found |= {
        name: round(float(requests[name].sum()), 3)
        for name in ("cold_start_s", "kv_cold_start_s", "blocked_s")
    }
    found["merged_share"] = summary["adapters"]["merged_share"]
    return {name: round(value, 4) for name, value in found.items() if value}


def differing(old: Mapping[str, str], new: Mapping[str, str]) -> list[str]:
    """Return the names of the tables whose digests are not the same, or that only one side has."""
    return sorted(name for name in {*old, *new} if old.get(name) != new.get(name))


def _short(renamed: Mapping[str, str]) -> dict[str, str]:
    """Return the renamed keys without their sections: `max_batch_size` -> `max_num_seqs`."""
    return {
        old.rpartition(".")[2]: new.rpartition(".")[2]
        for old, new in renamed.items()
        if old != "cluster.others"
    }


def _of_table(table: pd.DataFrame, names: Mapping[str, str]) -> str:
    columns = sorted(map(str, table.columns))
    return _hashed(part for name in columns for part in (name.encode(), _bytes(table[name], names)))


def _bytes(column: pd.Series, names: Mapping[str, str]) -> bytes:
    """Return the exact bytes of a column: eight for each number, and texts as JSON."""
    if column.dtype.kind == "f":
        values = column.to_numpy(np.float64)
        return np.where(np.isnan(values), np.nan, values).tobytes()
    if column.dtype.kind in "iub":
        return column.to_numpy(np.int64).tobytes()
    texts = [None if pd.isna(value) else str(value) for value in column]
    return _renamed(json.dumps(texts, ensure_ascii=False), names).encode()


def _without_machine(summary: Mapping[str, Any]) -> dict[str, Any]:
    """Return a summary without wall times, versions, and what names keys or classes."""
    kept = {name: value for name, value in summary.items() if name not in (*LEFT_OUT, *LATER)}
    kept["simulation"] = {k: v for k, v in summary["simulation"].items() if k not in WALL}
    kept["workload"] = {name: summary["workload"][name] for name in ENGINE_FACTS}
    return kept


def _of_json(value: Any, names: Mapping[str, str]) -> str:
    """Return the digest of a value as JSON; floats are written so that they read back as the same bits."""
    return _hashed([_renamed(json.dumps(_with_names(value, names), sort_keys=True), {}).encode()])


def _with_names(value: Any, names: Mapping[str, str]) -> Any:
    if isinstance(value, Mapping):
        return {names.get(key, key): _with_names(each, names) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_with_names(each, names) for each in value]
    return value


def _renamed(text: str, names: Mapping[str, str]) -> str:
    for old, new in names.items():
        text = text.replace(old, new)
    return text


def _of_events(traced: Any) -> str:
    """Return the digest of the events of timeline.json.gz, before it is compressed."""
    from simlora.report.perfetto import trace_events

    encode = json.JSONEncoder(separators=(",", ":")).encode
    return _hashed(encode(event).encode() for event in trace_events(traced))


def _hashed(parts: Iterable[bytes]) -> str:
    found = hashlib.sha256()
    for part in parts:
        found.update(len(part).to_bytes(8, "little"))
        found.update(part)
    return found.hexdigest()[:DIGITS]
