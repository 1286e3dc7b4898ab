"""The tables of a run as Parquet: fixed columns, fixed types, the same bytes for the same rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from simlora.metrics.timeline import LEVELS

REQUESTS = pa.schema(
    [
        ("request_id", pa.int64()),
        ("adapter", pa.string()),
        ("rank", pa.int64()),
        ("prompt_tokens", pa.int64()),
        ("output_tokens", pa.int64()),
        ("cached_tokens", pa.int64()),
        ("replica", pa.int32()),
        ("arrival_s", pa.float64()),
        ("admitted_s", pa.float64()),
        ("first_token_s", pa.float64()),
        ("finish_s", pa.float64()),
        ("status", pa.string()),
        ("reason", pa.string()),
        ("ttft_s", pa.float64()),
        ("tpot_s", pa.float64()),
        ("latency_s", pa.float64()),
        ("queue_s", pa.float64()),
        ("cold_start_s", pa.float64()),
        ("kv_cold_start_s", pa.float64()),
        ("blocked_s", pa.float64()),
        ("preemptions", pa.int32()),
        ("migrations", pa.int32()),
    ]
)
TIMELINE = pa.schema(
    [("replica", pa.int32()), ("time_s", pa.float64()), *((name, pa.int64()) for name in LEVELS)]
)
DECISIONS = pa.schema(
    [
        ("time_s", pa.float64()),
        ("replica", pa.int32()),
        ("name", pa.string()),
        ("adapter", pa.string()),
        ("value", pa.float64()),
    ]
)
MOVES = pa.schema(
    [
        ("time_s", pa.float64()),
        ("decided_s", pa.float64()),
        ("request_id", pa.int64()),
        ("adapter", pa.string()),
        ("source", pa.int32()),
        ("target", pa.int32()),
        ("recomputed_tokens", pa.int64()),
        ("loaded", pa.bool_()),
        ("reason", pa.string()),
    ]
)
PLANS = pa.schema(
    [
        ("time_s", pa.float64()),
        ("moves", pa.int64()),
        ("solved", pa.bool_()),
        ("reason", pa.string()),
    ]
)
PLACEMENTS = pa.schema(
    [
        ("time_s", pa.float64()),
        ("assigned", pa.int64()),
        ("given_up", pa.int64()),
        ("size_bytes", pa.int64()),
    ]
)
SCALING = pa.schema(
    [
        ("time_s", pa.float64()),
        ("on", pa.int64()),
        ("serving", pa.int64()),
        ("booting", pa.int64()),
        ("draining", pa.int64()),
        ("reason", pa.string()),
    ]
)
CALLS = pa.schema(
    [
        ("arrival_s", pa.float64()),
        ("sent_s", pa.float64()),
        ("attempts", pa.int64()),
        ("abandoned", pa.int64()),
        ("request_id", pa.int64()),
        ("status", pa.string()),
        ("ttft_s", pa.float64()),
        ("latency_s", pa.float64()),
    ]
)
HANDOVERS = pa.schema(
    [
        ("request_id", pa.int64()),
        ("source", pa.int32()),
        ("target", pa.int32()),
        ("first_token_s", pa.float64()),
        ("admitted_s", pa.float64()),
        ("begin_s", pa.float64()),
        ("end_s", pa.float64()),
        ("kv_tokens", pa.int64()),
    ]
)
TABLES = {
    "requests": REQUESTS,
    "timeline": TIMELINE,
    "decisions": DECISIONS,
    "moves": MOVES,
    "plans": PLANS,
    "placements": PLACEMENTS,
    "scaling": SCALING,
    "calls": CALLS,
    "handovers": HANDOVERS,
}
"""Of a run that reached its end, by the names of their files; of those but the first only what has rows."""


ROW_GROUP = 1 << 20
"""Rows that are written, and read, at a time."""
FORMAT: dict[str, Any] = {"compression": "zstd", "store_schema": False}


def arrow_table(frame: pd.DataFrame, schema: pa.Schema) -> pa.Table:
    """Return the schema's columns; NaN becomes null."""
    return pa.Table.from_pandas(frame, schema=schema, preserve_index=False).replace_schema_metadata(None)


def write_table(frame: pd.DataFrame, schema: pa.Schema, path: Path) -> None:
    """Write the schema's columns."""
    pq.write_table(arrow_table(frame, schema), path, row_group_size=ROW_GROUP, **FORMAT)
