"""Capacity: the highest rate within an SLO, or the fewest replicas for a rate."""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from joblib import effective_n_jobs
from numpy.typing import NDArray

from simlora.api.cache import open_cache
from simlora.api.progress import working
from simlora.core.bisection import Bracket
from simlora.core.checks import whole
from simlora.core.errors import InputError, nearest
from simlora.metrics.summary import json_safe
from simlora.results.files import writing
from simlora.sweeps.outcome import RAN, Outcome
from simlora.sweeps.question import LEAST, RATE, REPLICAS, STEP, Question, asked
from simlora.sweeps.running import run_all
from simlora.sweeps.statistics import CONFIDENCE, interval

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FILES = ("runs.parquet", "capacity.png", "capacity.json")


@dataclass(frozen=True)
class Capacity:
    """What was found. `seeds`: a row a seed; `runs`: a row a run, in the order of seed and value.

    Looking for a rate, `seeds` has the highest `value` that met the SLO and the lowest that did not, `beyond`; looking
    for replicas the fewest that met it, and one less; NaN where one is enough. `load` says how near to saturation the
    run at `value` was.
    """

    question: Question
    seeds: pd.DataFrame
    runs: pd.DataFrame

    @property
    def value(self) -> float:
        """The answer: the mean over seeds of a rate; as many replicas as are enough for every seed."""
        values = self._ends("value")
        return float(values.max() if self.question.find == REPLICAS else values.mean())

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % confidence interval of a rate's mean over seeds, which takes the precision in.

        Of the logarithms: from what met the SLO to what did not. NaN of a single seed, and of replicas,
        whose answer is no mean. Where seeds change nothing, as of a trace from a file, it is the precision alone.
        """
        if self.question.find == REPLICAS:
            return math.nan, math.nan
        low, high = interval(np.log(self._ends("value")))[0], interval(np.log(self._ends("beyond")))[1]
        return math.exp(low), math.exp(high)

    @property
    def _of_what(self) -> str:
        """What the interval is of."""
        told = ["value", "beyond", *self.question.figures]
        if len(self.seeds) > 1 and len(self.seeds[told].drop_duplicates()) == 1:
            return "what met it and what did not: all seeds are the same run, as of a trace from a file"
        return "95 % interval over seeds"

    @property
    def command(self) -> str:
        """The shell command that finds it again."""
        question = self.question
        words = ["simlora-capacity", *question.overrides, f"--seeds={len(question.seeds)}"]
        words += [f"--precision={question.precision}", f"--start={question.start:g}"]
        words += [f"--limit={name}={limit!r}" for name, limit in question.limits.items()]
        if question.least != LEAST:
            words.append(f"--least={question.least:g}")
        if question.step != STEP:
            words.append(f"--step={question.step:g}")
        if question.attainment is not None:
            words.append(f"--attainment={question.attainment}")
        words.append("--replicas" if question.find == REPLICAS else f"--key={question.key}")
        return shlex.join(words)

    def to_dict(self) -> dict[str, Any]:
        """Return everything but the single runs, ready for `json.dumps(..., allow_nan=False)`."""
        question = self.question
        tree: dict[str, Any] = json_safe(
            {
                "value": self.value,
                "unit": question.unit,
                "mean": float(self._ends("value").mean()),
                "interval": list(self.interval),
                "confidence": CONFIDENCE,
                "precision": question.precision,
                "key": question.key,
                "slo": {"limits": dict(question.limits), "attainment": question.attainment},
                "seeds": self.seeds.to_dict("records"),
                "runs": len(self.runs),
                "command": self.command,
            }
        )
        return tree

    def text(self) -> str:
        """Return the answer and a line a seed."""
        question, (low, high) = self.question, self.interval
        if question.find == REPLICAS:
            first = f"{self.value:.0f} replicas are enough with every seed"
        else:
            first = f"{self.value:.4g} {question.unit}"
            first += ", one seed" if math.isnan(low) else f" [{low:.4g}, {high:.4g}], {self._of_what}"
        lines = [first, f"within {question.slo}", ""]
        lines.append(
            f"{'seed':>6}{'met at':>12}{'missed at':>12}"
            + "".join(f"{name:>22}" for name in question.figures)
        )
        for row in self.seeds.to_dict("records"):
            beyond = "" if math.isnan(row["beyond"]) else f"{row['beyond']:.5g}"
            figures = "".join(f"{row[name]:>22.4g}" for name in question.figures)
            lines.append(f"{row['seed']:>6}{row['value']:>12.5g}{beyond:>12}{figures}  {row['load']}")
        return "\n".join(lines)

    def save(self, folder: Path) -> None:
        """Write runs.parquet, capacity.png and capacity.json into a folder. Raises InputError if that cannot be."""
        from matplotlib.figure import Figure

        picture = Figure(figsize=(7, 4.2), layout="constrained")
        self.plot(ax=picture.add_subplot())
        text = json.dumps(self.to_dict(), indent=1, allow_nan=False)
        with writing(folder, FILES) as draft:
            self.runs.to_parquet(draft / "runs.parquet")
            picture.savefig(draft / "capacity.png", dpi=150)
            (draft / "capacity.json").write_text(f"{text}\n", encoding="utf-8")

    def plot(self, figure: str | None = None, ax: Axes | None = None) -> Axes:
        """Draw a figure of all runs over what was varied, with its limit and the answer; default: the first limit's."""
        from simlora.report.capacity import plot_capacity

        question = self.question
        name = figure or question.figures[0]
        if name not in question.figures:
            raise InputError(f"the SLO is not about {name}; {nearest(name, question.figures)}")
        limit = question.limit(name)
        span = self.interval if question.find == RATE else (math.nan, math.nan)
        return plot_capacity(self.runs, name, limit, self.value, span, question.unit, ax)

    def _ends(self, name: str) -> NDArray[np.float64]:
        return self.seeds[name].to_numpy(dtype=np.float64)


def capacity(
    overrides: Sequence[str] = (),
    *,
    find: str = RATE,
    limits: Mapping[str, float] | None = None,
    attainment: float | None = None,
    seeds: int = 5,
    precision: float = 0.02,
    key: str | None = None,
    start: float | None = None,
    least: float | None = None,
    step: float = STEP,
    jobs: int = -1,
    progress: bool = False,
) -> Capacity:
    """Return the highest rate at which `overrides` keep an SLO, or with find="replicas" the fewest replicas that do.

    `limits` are upper limits of figures of summary.json, by their dotted place: {"ttft_s.p95": 10}. `attainment` is the
    least share of the submitted requests that meet every slo.* of the configuration; 0.95 where neither is given.

    For each of `seeds` seeds (from the configuration's on) the rate is doubled or halved from where the configuration
    has it, or from `start`, until one meets the SLO and one does not, and these are brought together until they are
    `precision` apart: 0.02 is 2 %. A run in which requests waited ever longer does not meet it, whatever its figures;
    nor does one that gave up more requests than a limit on a percentile leaves. Assumed is that what a lower rate
    misses a higher one misses too. A run of which more requests have missed the `attainment` than it leaves is ended
    there: of `runs` its figures are of what had arrived until then.

    A seed means the same random numbers for every system, so that systems are compared, not draws; the interval is over
    seeds. It means the same requests at every rate with workload=synthetic, loraserve, loraserve_production, maf and
    traces from files; slora, functions, chatbot, agent and translation draw others for another rate, as more come in
    their duration.

    `key` is what is varied: the workload's rate_rps; where it has none, `speedup`, how many times as fast its requests
    arrive; or anything else of which more is worse, such as workload.adapters. Below `least` nothing is looked at: what
    misses the SLO there meets it at no rate. Where `start` is nearly right a `step` of 1.05, say, takes fewer runs than
    doubling does: it is by what factor the first value beside it differs; those after it differ by more, up to twice.

    Runs are spread over `jobs` processes (-1: one a core), the next candidates included when there are more of these
    than seeds; the answer does not depend on how many. They are kept in SIMLORA_CACHE_DIR (default: outputs/cache), so
    a search that was interrupted goes on where it was. Raises InputError for what cannot be simulated, and where no
    value meets the SLO, or every one.
    """
    search = _Search(asked(overrides, find, key, start, limits, attainment, seeds, precision, least, step))
    if jobs != -1:
        whole("jobs", jobs, "processes", least=1)
    workers, cache = effective_n_jobs(jobs), open_cache()
    with working("searching", progress) as tell:
        while wanted := search.wanted(workers):
            tell(search.progress)
            runs = {one: search.question.overrides_for(*one) for one in wanted}
            outcomes = run_all(runs.values(), jobs, False, cache)
            search.learn({one: outcomes[overrides] for one, overrides in runs.items()})
    return search.answer()


class NeverMet(InputError):
    """No value that was looked at keeps the SLO."""


class _Search:
    """A bracket a seed, and the runs that narrow it, by seed and value."""

    def __init__(self, question: Question) -> None:
        self.question = question
        self.brackets = {seed: question.bracket() for seed in question.seeds}
        self.outcomes: dict[tuple[int, float], Outcome] = {}
        self.rows: list[dict[str, Any]] = []

    @property
    def progress(self) -> str:
        """How far the search is, in words."""
        settled = sum(bracket.ask is None for bracket in self.brackets.values())
        return f"{settled} of {len(self.brackets)} seeds settled, {len(self.rows)} runs"

    def wanted(self, workers: int) -> list[tuple[int, float]]:
        """Return what to simulate next: what every open seed asks for, and as there is room what may follow."""
        still = {seed: bracket for seed, bracket in self.brackets.items() if bracket.ask is not None}
        each = max(1, workers // max(len(still), 1))
        wanted = [(seed, value) for seed, bracket in still.items() for value in bracket.ahead(each)]
        return [one for one in wanted if one not in self.outcomes]

    def learn(self, outcomes: Mapping[tuple[int, float], Outcome]) -> None:
        """Take what came out, and narrow every bracket as far as that goes. Raises InputError for what is refused."""
        self.outcomes |= outcomes
        for seed, bracket in self.brackets.items():
            while (value := bracket.ask) is not None and (outcome := self.outcomes.get((seed, value))):
                bracket = bracket.told(value, self._passes(seed, value, outcome, bracket))
            self.brackets[seed] = bracket

    def _passes(self, seed: int, value: float, outcome: Outcome, bracket: Bracket) -> bool:
        """Whether to look higher: the SLO is met, or of replicas it is not."""
        question, of_rate = self.question, self.question.find == RATE
        if outcome.status != RAN:
            # A rate so low that nothing arrives; fewer replicas than a host that fails needs.
            if bracket.high is None or value > bracket.high:
                raise InputError(outcome.reason)
            if of_rate:
                raise self._never(bracket.high)
            return True
        met = question.met(outcome)
        self.rows.append({"seed": seed, "value": value, "met": met, **self._facts(outcome)})
        if not of_rate and not met and value >= outcome.summary["requests"]["submitted"]:
            raise self._never(value)
        return met is of_rate

    def _never(self, value: float) -> NeverMet:
        question = self.question
        return NeverMet(
            f"the SLO ({question.slo}) is not met even at {question.key}={value:g}; set one that can be met"
        )

    def answer(self) -> Capacity:
        """Return what was found. Raises InputError if no value keeps the SLO, or none breaks it."""
        question, found = self.question, []
        for seed, bracket in self.brackets.items():
            ends = (bracket.low, bracket.high)
            value, beyond = ends if question.find == RATE else ends[::-1]
            if value is None:
                raise self._never(beyond or 0.0)
            if beyond is None and question.find == RATE:
                raise InputError(
                    f"the SLO ({question.slo}) is met even at {question.key}={value:g}; set a stricter one"
                )
            found.append(
                {"seed": seed, "value": value, "beyond": beyond, **self._facts(self.outcomes[seed, value])}
            )
        runs = pd.DataFrame(self.rows).sort_values(["seed", "value"], ignore_index=True)
        return Capacity(question, pd.DataFrame(found).astype({"value": float, "beyond": float}), runs)

    def _facts(self, outcome: Outcome) -> dict[str, Any]:
        figures = {name: outcome.figure(name) for name in self.question.figures}
        return {**figures, "load": outcome.summary["load"]["label"]}
