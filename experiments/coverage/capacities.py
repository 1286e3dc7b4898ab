"""How often the interval of a capacity holds the rate that is met for ever: M/M/1 by theory, S-LoRA by long runs."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from joblib import Parallel, delayed
from scipy.optimize import brentq

import simlora

SEEDS, REQUESTS = 5, 300
"""Seeds of a search, and requests of its first runs."""
LONG, FAR, PRECISION = 1024, 1_000_000, 0.005
"""Of the runs that stand for ever: how many times as long they are, their first seed, the precision of the search."""
STEP_S, MEAN_TOKENS = 1e-3, 1000
COMMON = ("system=slora", "workload=synthetic", "workload.duration_s=null", f"workload.requests={REQUESTS}")
MM1 = (
    f"calibration={Path(__file__).with_name('mm1.yaml')}",
    "workload.adapters=0",
    "workload/prompt_tokens=fixed",
    "workload.prompt_tokens.tokens=1",
    "workload.output_tokens._target_=simlora.workload.lengths.Geometric",
    f"+workload.output_tokens.mean={MEAN_TOKENS}",
    "~workload.output_tokens.lo",
    "~workload.output_tokens.hi",
    "replica.max_num_seqs=1",
    "replica.max_wait_tokens=0",
    "replica.kv_token_budget=1000000",
    "replica.max_num_batched_tokens=1000000",
    "replica.reserve=full",
    "workload.arrivals.rate_rps=0.5",
)


@dataclass(frozen=True)
class Case:
    """A system, an upper limit of the 95th percentile of its TTFT, and what gives the rate that meets it for ever."""

    overrides: tuple[str, ...]
    limit_s: float
    truth: Callable[[Case], float]

    def capacity(self, seed: int, *more: str, jobs: int = 1, **asked: Any) -> simlora.Capacity:
        """Return what a search finds with five seeds from this one on."""
        overrides = [*COMMON, *self.overrides, *more, f"seed={seed}"]
        limits = {"ttft_s.p95": self.limit_s}
        return simlora.capacity(overrides, limits=limits, seeds=SEEDS, jobs=jobs, **asked)


def of_theory(case: Case) -> float:
    """Return the rate at which 5 % of requests wait longer than the limit: P(W > t) = ρ exp(-μ (1 - ρ) t) of M/M/1."""
    served_rps = 1 / (STEP_S * (MEAN_TOKENS - 1))  # the first token is the prefill's, which takes no time

    def too_many(rho: float) -> float:
        return rho * math.exp(-served_rps * (1 - rho) * case.limit_s) - 0.05

    return served_rps * float(brentq(too_many, 0.05, 1.0))


def of_long_runs(case: Case) -> float:
    """Return what very long runs meet, the mean over seeds that no trial has."""
    requests = f"workload.requests={LONG * REQUESTS}"
    return case.capacity(FAR, requests, jobs=-1, longest=1, precision=PRECISION).value


CASES: Mapping[str, Case] = {
    "M/M/1, 5 s": Case(MM1, 5.0, of_theory),
    "M/M/1, 20 s": Case(MM1, 20.0, of_theory),
    "S-LoRA, 2 s": Case((), 2.0, of_long_runs),
    "S-LoRA, 10 s": Case((), 10.0, of_long_runs),
}


def trial(name: str, number: int) -> list[tuple[float, float, float, float]]:
    """Return times, value and interval of every length of one search, the configured one first."""
    found: simlora.Capacity | None = CASES[name].capacity(SEEDS * number)
    rows = []
    while found is not None:
        rows.append((found.question.times, found.value, *found.interval))
        found = found.shorter
    return rows[::-1]


def table(runs: int, jobs: int = -1) -> None:
    """Print the share of as many intervals that hold the truth, as configured and of what a search answers."""
    print(
        f"{runs} searches with {SEEDS} seeds: the mean of what they answer, and the share of intervals that"
    )
    print("hold the rate that is met for ever; as configured, and when longer runs no longer move it")
    print(
        f"{'system, limit':<15}{'truth':>8}{'configured':>12}{'hold':>8}{'answer':>9}{'hold':>8}{'times':>8}"
    )
    for name, case in CASES.items():
        true_rps = case.truth(case)
        found = Parallel(n_jobs=jobs)(delayed(trial)(name, number) for number in range(runs))
        cells = f"{name:<15}{true_rps:>8.4f}"
        for ends, width in (([one[0] for one in found], 12), ([one[-1] for one in found], 9)):
            times, values, lows, highs = np.array(ends).T
            cells += f"{values.mean():>{width}.4f}{np.mean((lows <= true_rps) & (true_rps <= highs)):>8.1%}"
        print(f"{cells}{times.mean():>8.1f}", flush=True)
