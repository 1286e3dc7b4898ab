"""How often the metrics of the measured hours were read: `python -m experiments.fidelity.vllm.scrape_costs`.

On rows that the calibrations are fitted to, below saturation: the share of tokens that came in a chunk with an
earlier one (1 less the time per token over the inter-token latency), and first tokens, mean and 99th percentile.
Each interval is tried with costs that keep the API server busy for the same share of the time.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from joblib import Parallel, delayed

from experiments.fidelity.cells import number
from experiments.fidelity.vllm import hours
from experiments.fidelity.vllm.predict import Row, overrides, read
from experiments.fidelity.vllm.report import fitted
from experiments.fidelity.vllm.scrapes import INTERVAL_S, MERGED, SERIES_S, scrapes
from experiments.scenarios import scenario
from experiments.studies.command import JOBS, program
from experiments.studies.reading import measured_dir
from simlora.engine.cluster.simulation import Simulation

INTERVALS_S = (1.0, 2.0, 3.0, 4.0, 5.0)
COSTS = (0.75, 1.0, 1.25)
"""Times what scrapes.py says."""
RUNNING = (4.0, 0.9 * MERGED)
"""With fewer running requests nothing merges, and with more some steps have too many outputs."""


def chosen(rows: Sequence[Row]) -> list[Row]:
    """Return the rows that are fitted, below saturation and merge chunks."""
    return [
        row
        for row in rows
        if row.load == "below" and fitted(row) and RUNNING[0] < hours.running(row) < RUNNING[1]
    ]


def finished(row: Row) -> pd.DataFrame:
    """Return the requests of a simulated row that were answered."""
    requests = Simulation(scenario(overrides(row))).run().requests()
    return requests[requests["status"] == "finished"]


def errors(row: Row, requests: pd.DataFrame, interval_s: float, cost: float) -> tuple[float, float, float]:
    """Return by how much the share of merged tokens is off, and the relative errors of mean and late first tokens."""
    during = scrapes(requests, row.duration_s, interval_s, cost * interval_s / INTERVAL_S)
    gaps = float((requests["output_tokens"] - 1).sum())
    measured = {
        name: number(row.columns, f"{name}_ms", row.place)
        for name in ("tpot_mean", "itl_mean", "ttft_mean", "ttft_p99")
    }
    merged = during.merged_tokens(requests) / gaps - (1 - measured["tpot_mean"] / measured["itl_mean"])
    ttft_ms = 1000 * (requests["ttft_s"] + during.first_token_late_s(requests))
    late = float(ttft_ms.quantile(0.99)) / measured["ttft_p99"] - 1
    return merged, float(ttft_ms.mean()) / measured["ttft_mean"] - 1, late


@program(JOBS)
def main(jobs: int) -> None:
    """Print the median errors of each interval and cost."""
    rows = chosen(read(measured_dir() / "vllm_lora_runs.csv"))
    runs = Parallel(n_jobs=jobs)(delayed(finished)(row) for row in rows)
    print(f"{len(rows)} hours; medians of signed errors, and of their sizes")
    print(
        f"{'interval':>8} {'a series':>9} {'merged, points':>15} {'mean first token':>17} {'99th percentile':>16}"
    )
    for interval_s in INTERVALS_S:
        for cost in COSTS:
            found = 100 * np.array(
                [errors(row, run, interval_s, cost) for row, run in zip(rows, runs, strict=True)]
            )
            signed, sizes = np.median(found, axis=0), np.median(np.abs(found), axis=0)
            cells = [f"{one:+.1f} {size:.1f}" for one, size in zip(signed, sizes, strict=True)]
            series_us = 1e6 * SERIES_S * cost * interval_s / INTERVAL_S
            print(f"{interval_s:6g} s {series_us:6.1f} µs {cells[0]:>15} {cells[1]:>17} {cells[2]:>16}")
