"""A run's folder without a run: plausible numbers, drawn and not simulated."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from simlora.core import libm
from simlora.latency import calibration
from simlora.metrics.histogram import TokenGaps
from simlora.metrics.journal import Failed, Journal, Moved, Planned, Replanned
from simlora.metrics.slo import SloTargets
from simlora.metrics.summary import json_safe, summarise
from simlora.report.results import TIMELINE_COLUMNS
from tests.metrics.frames import finished, lost, table

CAPACITY_TOKENS = 14_500
CALIBRATION = calibration.load("a10g-llama_7b-tp1").describe()


def make_requests(requests: int, seed: int = 0, names: tuple[str, ...] = ()) -> pd.DataFrame:
    """Return requests of which about one in 25 is lost; `names` become the most popular adapters."""
    rng = np.random.default_rng(seed)
    labels = [*names, *(f"lora-{i:03d}" for i in range(len(names), 100))]
    rows = []
    for arrival_s in np.sort(rng.uniform(0, max(requests, 1) / 2.5, requests)).tolist():
        adapter = min(int(rng.zipf(1.4)), len(labels)) - 1
        about = {
            "adapter": labels[adapter],
            "rank": 64 >> adapter % 4,
            "prompt_tokens": int(rng.integers(8, 512)),
            "replica": int(rng.integers(2)),
        }
        tokens, queue_s = int(rng.integers(8, 512)), rng.exponential(1.0)
        ttft_s = queue_s + rng.gamma(4, 0.04)
        cold_start_s, blocked_s = rng.exponential((0.02, 0.05)) * (rng.random(2) < (0.3, 0.5))
        loads = {"cold_start_s": cold_start_s, "blocked_s": blocked_s}
        if rng.random() < 0.04:
            rows.append(lost("aborted", arrival_s, **about | {"reason": "waited longer than SLO - 0.5 s"}))
        else:
            latency_s = ttft_s + (tokens - 1) * rng.gamma(60, 0.0009)
            rows.append(finished(arrival_s, queue_s, ttft_s, latency_s, tokens, **about, **loads))
    return table(*rows)


def make_timeline(replicas: int, rows: int, cache: bool = False) -> pd.DataFrame:
    """Return samples of 800 s; with a `cache` a third of the KV is idle, a quarter of that invalid; the host fills."""
    rng = np.random.default_rng(0)
    parts = []
    for replica in range(replicas):
        time_s = np.sort(rng.uniform(0, 800, rows))
        wave = 0.5 + 0.4 * libm.sin(time_s / 800 * 9 + replica)
        kv_tokens = (wave * 11_000).astype(np.int64)
        levels = {
            "replica": replica,
            "time_s": time_s,
            "running": (wave * 30).astype(np.int64),
            "waiting": np.maximum(wave * 60 - 40, 0).astype(np.int64),
            "kv_tokens": kv_tokens,
            "adapter_tokens": np.minimum(rng.integers(8, 24, rows) * 128, CAPACITY_TOKENS - kv_tokens),
            "idle_kv_tokens": kv_tokens // 3 * cache,
            "invalid_kv_tokens": kv_tokens // 12 * cache,
            "host_kv_tokens": np.linspace(0, 40_000, rows).astype(np.int64) * cache,
            "capacity_tokens": CAPACITY_TOKENS,
        }
        parts.append(pd.DataFrame(dict.fromkeys(TIMELINE_COLUMNS, 0) | levels))
    return pd.concat(parts, ignore_index=True)


def make_journal(replicas: int = 2, names: tuple[str, ...] = ()) -> Journal:
    """Return what a scheduler with thresholds and credits decided, and a migration whose last plan had no solution."""
    rng = np.random.default_rng(0)
    labels = [*names, *(f"lora-{i:03d}" for i in range(len(names), 12))]
    found = Journal()
    for time_s in np.sort(rng.uniform(0, 800, 40 * replicas)).tolist():
        replica = int(rng.integers(replicas))
        merged = int(rng.integers(-1, 3))
        found.switch(time_s, replica, labels[merged] if merged >= 0 else "", merged)
        found.note(time_s, replica, "alpha", round(float(rng.uniform(0.6, 1.0)), 2))
        found.note(time_s, replica, "beta", round(float(rng.uniform(0.2, 0.6)), 2))
        for name in labels:
            found.note(time_s, replica, f"credit:{name}", float(rng.integers(-2_000, 2_000)))
    for id in range(6 if replicas > 1 else 0):
        decided_s = 20.0 if id < 4 else 30.0
        reason = f"replica 0 has {8 - id // 4} requests more than the mean"
        found.moved.append(
            Moved(decided_s + 0.2, decided_s, id, labels[id // 2], 0, 1, 100 + id, id % 2 == 0, reason)
        )
    if replicas > 1:
        found.planned += [
            Planned(20.0, 4, True, "replica 0 has 8 requests more than the mean"),
            Planned(30.0, 3, True, "replica 0 has 7 requests more than the mean"),
            Planned(40.0, 0, True, "no move shortens the longest work"),
            Planned(50.0, 0, False, "the solver found nothing within 10 nodes"),
        ]
    return found


HOSTS = {
    "count": 100,
    "loads": 812,
    "load_bytes": 5.1e10,
    "hit_rate": 0.71,
    "host_adapters": [61, 40],
    "host_bytes": [2.6e9, 3.1e9],
    "host_refused": 0,
    "host_adapters_at_end": [50, 0],
    "host_bytes_at_end": [2.0e9, 0],
    "host_remote_loads": [30, 12],
    "host_storage_loads": [4, 3],
}
"""What a run with a distributed pool says of adapters; the second of its hosts fails."""


def make_outages(failures: int = 2) -> dict[str, Any]:
    """Return what a summary of 800 s says of hosts that failed; the last one stays away."""
    journal = Journal()
    for i in range(failures):
        last = i == failures - 1
        journal.failed.append(
            Failed(60.0 * (i + 1), 1, float("inf") if last else 60.0 * i + 90.0, 10, 7, 4_321, 3)
        )
    found: dict[str, Any] = json_safe(journal.failure_facts(800.0))
    return found | {"storage_loads": 7}


def make_plans(plans: int = 4, every_s: float = 60.0) -> Journal:
    """Return plans of which each moves more than the one before, from nothing on."""
    journal = Journal()
    journal.replanned += [Replanned(every_s * (i + 1), 2 * i, i, i * 10**9) for i in range(plans)]
    return journal


def make_summary(requests: pd.DataFrame, replicas: int = 2, **more: Any) -> dict[str, Any]:
    gaps = TokenGaps()
    if len(requests):
        gaps.add_run(0.028, 2e-5, 1_500, 24)
    last_s = requests[["arrival_s", "finish_s"]].max().max() if len(requests) else 0.0
    return summarise(
        requests,
        gaps,
        SloTargets(ttft_s=6.0),
        makespan_s=float(last_s),
        adapters={"loads": 812, "load_bytes": 5.1e10, "hit_rate": 0.71},
        kv={"hit_rate": 0.0, "invalid_share": 0.031, "preemptions": 0},
        replicas=[
            {"replica": i, "finished": 950 + i, "busy_share": 0.91, "iterations": 21_000}
            for i in range(replicas)
        ],
        calibration=CALIBRATION,
        simulation={"wall_s": 0.11, "events": 9_300, "iterations": 42_000, "requests_per_wall_s": 17_900.0},
        versions={"simlora": "0.1.0", "python": "3.11.7", "numpy": "2.4.6"},
        seed=0,
        workload={
            "description": "Azure LLM conversation trace, 10 minutes",
            "adapters": 100,
            "rate_rps": 2.5,
        },
        **{
            "run": {"system": "slora", "model": "llama_7b", "gpu": "a10g", "tp": 1, "replicas": replicas},
            "command": "simlora system=slora gpu=a10g model=llama_7b cluster.replicas=2 seed=0",
            **more,
        },
    )


def write_results(
    folder: Path,
    requests: pd.DataFrame,
    timeline: pd.DataFrame | None = None,
    summary: dict[str, Any] | None = None,
    config: str = "system:\n  name: slora\nseed: 0\n",
    journal: Journal | None = None,
) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    requests.to_parquet(folder / "requests.parquet", index=False)
    if timeline is not None:
        timeline.to_parquet(folder / "timeline.parquet", index=False)
    if journal is not None:
        journal.decisions().to_parquet(folder / "decisions.parquet", index=False)
        journal.moves().to_parquet(folder / "moves.parquet", index=False)
        journal.plans().to_parquet(folder / "plans.parquet", index=False)
        journal.placements().to_parquet(folder / "placements.parquet", index=False)
    (folder / "summary.json").write_text(json.dumps(summary or make_summary(requests), allow_nan=False))
    (folder / "config.yaml").write_text(config)
    return folder
