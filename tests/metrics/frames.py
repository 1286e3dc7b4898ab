"""Hand-made requests tables."""

from typing import Any

import numpy as np
import pandas as pd

NEVER = float("nan")

COLUMNS: dict[str, Any] = {
    "request_id": 0,
    "adapter": "a",
    "rank": 8,
    "prompt_tokens": 10,
    "output_tokens": 11,
    "cached_tokens": 0,
    "replica": 0,
    "arrival_s": 0.0,
    "admitted_s": NEVER,
    "first_token_s": NEVER,
    "finish_s": NEVER,
    "status": "finished",
    "reason": "",
    "ttft_s": NEVER,
    "tpot_s": NEVER,
    "latency_s": NEVER,
    "queue_s": NEVER,
    "cold_start_s": NEVER,
    "kv_cold_start_s": NEVER,
    "blocked_s": NEVER,
    "preemptions": 0,
    "migrations": 0,
}


def finished(
    arrival_s: float = 0.0,
    queue_s: float = 0.5,
    ttft_s: float = 1.0,
    latency_s: float = 3.0,
    output_tokens: int = 11,
    **more: Any,
) -> dict[str, Any]:
    """One row whose derived columns agree with each other."""
    tpot_s = (latency_s - ttft_s) / (output_tokens - 1) if output_tokens > 1 else NEVER
    return {
        "arrival_s": arrival_s,
        "admitted_s": arrival_s + queue_s,
        "first_token_s": arrival_s + ttft_s,
        "finish_s": arrival_s + latency_s,
        "output_tokens": output_tokens,
        "ttft_s": ttft_s,
        "tpot_s": tpot_s,
        "latency_s": latency_s,
        "queue_s": queue_s,
        "cold_start_s": 0.0,
        "kv_cold_start_s": 0.0,
        "blocked_s": 0.0,
        **more,
    }


def lost(status: str, arrival_s: float = 0.0, **more: Any) -> dict[str, Any]:
    """One row of a request that never ran."""
    return {"arrival_s": arrival_s, "status": status, "replica": -1, "reason": "why", **more}


def table(*rows: dict[str, Any]) -> pd.DataFrame:
    frame = pd.DataFrame([{**COLUMNS, **row} for row in rows], columns=list(COLUMNS))
    frame["request_id"] = np.arange(len(frame))
    times = [name for name in frame.columns if name.endswith("_s")]
    frame[times] = frame[times].astype("float64")
    return frame
