"""How often a 95 % interval over seeds holds the truth: S-LoRA below, near and past saturation.

Of figures over seeds, and of differences between a load and one that is 5 % higher, with the same seeds.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd
from joblib import Parallel, delayed

from experiments.coverage.models import MODELS
from simlora.metrics.saturation import UNKNOWN, independent
from simlora.metrics.slo import ATTAINMENT, SloTargets, attainment, column, is_finished
from simlora.metrics.summary import TIMES, distribution
from simlora.sweeps.outcome import RAN
from simlora.sweeps.statistics import INDEPENDENT, aggregate, over_seeds, paired

OFFERED = (0.6, 0.8, 1.0, 1.3)
REQUESTS, LONG = 1_000, 20
"""Requests of a run; how many runs stand for the long run, each of as many times the requests."""
SEEDS = (5, 20)
LOAD, LOWER, HIGHER, MORE = "offered", "lower", "higher", 1.05
TARGETS = SloTargets(ttft_s=6.0)
LEAST, MOST = 0.90, 0.98
"""The share of intervals of 95 % that is to hold the truth."""


def figures(rho: float, requests: int, seed: int) -> dict[str, float]:
    """Return the figures of a run that sweeps have intervals of."""
    recorder = MODELS["S-LoRA"].recorded(rho, requests, seed)
    rows = recorder.requests()
    done = rows[is_finished(rows)]
    found = {
        f"{name}.{key}": value for name in TIMES for key, value in distribution(column(done, name)).items()
    }
    span_s = recorder.last_s - float(rows["arrival_s"].iloc[0])
    rates = {"throughput_rps": len(done) / span_s, "throughput_tps": done["output_tokens"].sum() / span_s}
    return (
        found
        | rates
        | {ATTAINMENT: attainment(rows, TARGETS), INDEPENDENT: independent(column(rows, "ttft_s"))}
    )


def coverage(runs: pd.DataFrame, truth: Mapping[str, float], seeds: int, trials: int) -> dict[str, float]:
    """Return the share of intervals that hold the truth, by figure: each of so many runs, drawn from all `runs`.

    Where the `runs` are of two loads, in a column LOAD, the truth is of their differences.
    """
    drawn = np.random.default_rng(seeds).integers(0, len(runs.index.unique()), trials * seeds)
    trial = np.arange(len(drawn)) // seeds
    if LOAD in runs:
        own = {"trial": trial, "seed": np.arange(len(drawn)) % seeds}
        groups = pd.concat([each.iloc[drawn].assign(**own) for _, each in runs.groupby(LOAD)])
    else:
        groups = runs.iloc[drawn].assign(status=RAN, load=UNKNOWN, trial=trial)
    shares = {}
    for figure, true in truth.items():
        found = (
            paired(groups, figure, LOAD, LOWER, ["trial"])
            if LOAD in runs
            else aggregate(groups, figure, ["trial"])
        )
        rounding = 1e-9 * abs(true)
        holds = (found["low"] <= true + rounding) & (true - rounding <= found["high"])
        shares[figure] = float(holds.mean())
    return shares


def table(runs: int, jobs: int = -1) -> None:
    """Print the share of as many intervals that hold the mean of all runs, and that hold what a long run has."""
    print(
        f"share of {runs} intervals of 95 % that hold what all runs of {REQUESTS:,} requests have, the difference"
    )
    print(f"from runs at {MORE} times the load with the same seeds, and of the long run")
    heads = ("difference", "long run")
    print(f"{'load':<6}{'figure':<16}{'all runs':>10}{'long run':>10}", end="")
    print("".join(f"{f'{n} seeds':>10}" + "".join(f"{head:>12}" for head in heads) for n in SEEDS))
    parallel = Parallel(n_jobs=jobs)
    judged = 0
    outside: list[str] = []
    for rho in OFFERED:
        several, higher = (
            pd.DataFrame(parallel(delayed(figures)(at, REQUESTS, seed) for seed in range(runs)))
            for at in (rho, MORE * rho)
        )
        names = [name for name in several if name != INDEPENDENT]
        both = pd.concat([several.assign(**{LOAD: LOWER}), higher.assign(**{LOAD: HIGHER})])
        truth, difference = _over_all(several[names]), _over_all((higher - several)[names])
        of_long: dict[str, float] = {}
        if rho < 1:
            rows = parallel(delayed(figures)(rho, LONG * REQUESTS, runs + seed) for seed in range(LONG))
            of_long = _over_all(pd.DataFrame(rows)[names])
        shares = [
            (
                coverage(several, truth, n, runs),
                coverage(both, difference, n, runs),
                coverage(several, of_long, n, runs),
            )
            for n in SEEDS
        ]
        print(f"{rho:<6}{(several[ATTAINMENT] == 1.0).mean():.1%} of the runs miss nothing")
        for name in names:
            cells = "".join(
                f"{own[name]:>10.1%}{apart[name]:>12.1%}{_share(of.get(name)):>12}"
                for own, apart, of in shares
            )
            long = f"{of_long[name]:.4g}" if of_long else ""
            print(f"{rho:<6}{name:<16}{truth[name]:>10.4g}{long:>10}{cells}", flush=True)
            for n, (own, apart, _) in zip(SEEDS, shares, strict=True):
                for what, share in ((name, own[name]), (f"difference of {name}", apart[name])):
                    judged += 1
                    if not LEAST <= share <= MOST:
                        outside.append(f"{what} at {rho}, {n} seeds: {share:.1%}")
    print(f"{len(outside)} of {judged} are not within {LEAST:.0%} and {MOST:.0%} of all runs of that length")
    print("\n".join(outside))


def _over_all(runs: pd.DataFrame) -> dict[str, float]:
    """Return each figure over all runs: its mean, or of a percentile its median."""
    return {name: over_seeds(name, runs[name])[0] for name in runs}


def _share(value: float | None) -> str:
    return "" if value is None else f"{value:.1%}"
