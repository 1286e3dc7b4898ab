"""What single replicas see, and what inference leaves: `python -m experiments.dlora.replicas`.

Figures 2(b), which share of their time requests queue on each replica, and 13, how busy replicas and their memory are.
A summary does not tell these apart, so the runs of the two studies are made anew here; that takes a minute.

Figure 15, from the runs of the study figure_15: seconds of switching over busy seconds, and `migration.delay_s` for
every plan over the run's time. Inference does not wait for a plan here; the share says what it would cost if it did, as
the authors count it. What the solver takes us is in summary.json (simulation.migration_wall_s), and printed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from experiments.claims.spots import Comparison, Curve
from experiments.dlora.measured import FOLDER, SEEDS
from experiments.studies.command import program
from experiments.studies.found import Found, of_study, runs
from experiments.studies.points import Point
from experiments.studies.running import of_run
from experiments.studies.study import Study, read
from simlora.api import simulate
from simlora.results.result import Result

SPREAD = 2.6
"""That of the other figures."""
PUBLISHED = 8.0
"""The artifact plots 87.09 % on the worst replica and 10.94 % on the best."""
RATE_RPS = 18
"""Of Figure 13: where dLoRA's time per token is nearest to the SLO, of the study's rates."""


MILLISECONDS_S = 1.0
"""What "within milliseconds" is read as: less than a second each plan of Figure 15."""


class Used(NamedTuple):
    """Shares of the time until the last arrival, or of the pool, by replica: busy, and in use on average."""

    busy: list[float]
    memory: list[float]


def queueing(point: Point) -> list[float]:
    """Return the share of queueing in the time of each replica's requests, by replica; of one without any nothing.

    It is the mean queueing delay over the mean latency, as the artifact plots it (`queueing_ratio`).
    """
    found: list[float] = of_run(point, _queueing)
    return found


def _queueing(result: Result) -> list[float]:
    by_replica = result.requests.groupby("replica")[["queue_s", "latency_s"]].mean()
    found: list[float] = (by_replica["queue_s"] / by_replica["latency_s"]).tolist()
    return found


def imbalance() -> list[float]:
    """Return the share of queueing on Figure 2(b)'s worst replica over that on the best, the mean over seeds."""
    shares = map(queueing, _runs(_study("figure_2b"), "vllm_uniform", SPREAD))
    return [fmean(max(each) / min(each) for each in shares)]


def used(point: Point) -> Used:
    """Return how busy replicas are and how full their pools until the last request has come, from the timeline."""
    found = simulate(
        [each for each in point.overrides if not each.startswith("timeline=")] + ["timeline=true"]
    )
    end_s = float(found.requests["arrival_s"].max())
    shares = [_used(samples, end_s) for _, samples in found.timeline.groupby("replica")]
    return Used([busy for busy, _ in shares], [memory for _, memory in shares])


def _used(samples: pd.DataFrame, end_s: float) -> tuple[float, float]:
    at = samples["time_s"].to_numpy().clip(max=end_s)
    lasts_s = np.diff(at, append=end_s)
    busy = (samples["running"].to_numpy() > 0) * lasts_s
    full = (samples["kv_tokens"] + samples["adapter_tokens"]).to_numpy() / samples[
        "capacity_tokens"
    ].to_numpy()
    return float(busy.sum()) / end_s, float((full * lasts_s).sum()) / end_s


def _study(name: str) -> Study:
    return read(FOLDER / f"{name}.yaml")


def _runs(study: Study, series: str, x: float) -> list[Point]:
    return runs(Curve(study, study.panels[0].name, series, study.metrics[0]).at(x).point, SEEDS)


def lines() -> Iterator[str]:
    """Say what the figures show, in numbers."""
    ratios = ", ".join(f"{ratio:.3g}" for ratio in imbalance())
    yield f"Figure 2(b), share of queueing, worst replica over best, by seed: {ratios}; {PUBLISHED:g} in the paper"
    study = _study("figure_13")
    for series in study.series:
        found = [used(each) for each in _runs(study, series.name, RATE_RPS)]
        busy, memory = ([share for one in found for share in getattr(one, name)] for name in Used._fields)
        yield (
            f"Figure 13, {series.title}, {RATE_RPS} requests/s: busy {fmean(busy):.1%} ({min(busy):.1%} to "
            f"{max(busy):.1%}), pool in use {fmean(memory):.1%} ({min(memory):.1%} to {max(memory):.1%})"
        )


class Shares(NamedTuple):
    """Shares of a run's time."""

    switching: float
    solving: float

    @property
    def inference(self) -> float:
        """What is left."""
        return 1.0 - self.switching - self.solving


def shares(summary: Mapping[str, Any], delay_s: float) -> Shares:
    """Return how a run's time is shared, if inference waited `delay_s` for every plan."""
    busy_s = sum(replica["busy_s"] for replica in summary["replicas"])
    plans = summary["migration"]["plans"]
    return Shares(summary["adapters"]["switch_s"] / busy_s, plans * delay_s / summary["makespan_s"])


def mean(one: Found) -> Shares:
    """Return the mean over a point's runs."""
    delay_s = float(one.point.settings["migration.delay_s"])
    found = [shares(outcome.summary, delay_s) for outcome in one.outcomes]
    return Shares(*(fmean(each) for each in zip(*found, strict=True)))


def least_inference() -> list[float]:
    """Return the least share of inference over Figure 15's rates, of dLoRA as described."""
    found = of_study(_study("figure_15"), SEEDS, -1)
    return [min(mean(one).inference for one in found if one.point.series == "dlora")]


def plan_s(one: Found) -> list[float]:
    """Return what a plan took us on average, by seed, where there were any."""
    pairs = [
        (outcome.summary["simulation"]["migration_wall_s"], outcome.summary["migration"]["plans"])
        for outcome in one.outcomes
    ]
    return [wall_s / plans for wall_s, plans in pairs if plans]


def solved_within_milliseconds() -> list[Comparison]:
    """Compare what a plan takes us with what the paper says, at every rate at which there are plans."""
    found = []
    for one in of_study(_study("figure_15"), SEEDS, -1):
        if taken := plan_s(one):
            says = f"{one.point.series} at {one.point.x}/s: {1e3 * fmean(taken):.0f} ms a plan"
            found.append(Comparison(says, fmean(taken) < MILLISECONDS_S))
    return found


def overheads() -> Iterator[str]:
    """Say what inference leaves to switches and to the ILP, in numbers."""
    for one in of_study(_study("figure_15"), SEEDS):
        found, taken = mean(one), plan_s(one)
        plans = fmean(outcome.summary["migration"]["plans"] for outcome in one.outcomes)
        solver = f"{plans:.1f} plans, {1e3 * fmean(taken):.0f} ms each" if taken else "no plans"
        yield (
            f"{one.point.series} at {one.point.x}/s: inference {found.inference:.2%}, switching "
            f"{found.switching:.2%}, if it waited for plans {found.solving:.2%}; {solver}"
        )


@program()
def main() -> None:
    """Print what the figures show, in numbers."""
    for line in (*lines(), *overheads()):
        print(line)
