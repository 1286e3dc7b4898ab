"""Capacity: the highest rate within an SLO, or the fewest replicas for a rate."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from joblib import effective_n_jobs

from simlora.api.cache import open_cache
from simlora.api.progress import working
from simlora.config.own_folder import with_folder
from simlora.core.bisection import Bracket
from simlora.core.checks import whole
from simlora.core.errors import InputError
from simlora.report.sides import Side
from simlora.sweeps.answer import Capacity
from simlora.sweeps.naming import system_named
from simlora.sweeps.outcome import NOT_KEPT, RAN, Outcome
from simlora.sweeps.question import LONGER, LONGEST, RATE, STEP, Question, asked
from simlora.sweeps.running import run_all
from simlora.sweeps.sides import kind_of, sides


def capacity(
    overrides: Sequence[str] = (),
    *,
    config_dir: str | Path | None = None,
    find: str = RATE,
    limits: Mapping[str, float] | None = None,
    attainment: float | None = None,
    seeds: int = 5,
    precision: float = 0.02,
    key: str | None = None,
    start: float | None = None,
    least: float | None = None,
    step: float = STEP,
    longest: int = LONGEST,
    jobs: int = -1,
    progress: bool = False,
) -> Capacity:
    """Return the highest rate at which `overrides` keep an SLO, or with find="replicas" the fewest replicas that do.

    `limits` are upper limits of figures of summary.json, by their dotted place: {"ttft_s.p95": 10}. `attainment` is the
    least share of the submitted requests that meet every slo.* of the configuration; 0.95 where neither is given.

    For each of `seeds` seeds (from the configuration's on) the rate is doubled or halved from where the configuration
    has it, or from `start`, until one meets the SLO and one does not, and these are brought together until they are
    `precision` apart: 0.02 is 2 %. A run past saturation (`load.label`) does not meet it, whatever its figures; nor
    does one that gave up more requests than a limit on a percentile leaves. Assumed is that what a lower rate misses a
    higher one misses too. A run of which more requests have missed the `attainment` than it leaves is ended
    there: of `runs` its figures are of what had arrived until then.

    A short run begins with an empty cluster and ends before a queue is long, and so meets an SLO at a rate at which a
    long one does not. So the search is repeated around its answer with runs four times as long, and again, until the
    answer, the mean over seeds, moves by no more than `precision` and every run says on which side of saturation it
    was; or until runs are `longest` times as long as configured: 1 searches as configured and no further. Requests
    of a longer run come from workload.duration_s or requests (a workload says so itself, by `lasts`); a trace is as
    long as it is.

    A seed means the same random numbers for every system, so that systems are compared, not draws; the interval is over
    seeds. It means the same requests at every rate with workload=synthetic, loraserve, loraserve_production, maf and
    traces from files; slora, functions, chatbot, agent and translation draw others for another rate, as more come in
    their duration.

    `key` is what is varied: the workload's rate_rps; where it has none, `speedup`, how many times as fast its requests
    arrive; or anything else of which more is worse, such as workload.adapters. Below `least` nothing is looked at: what
    misses the SLO there meets it at no rate. Where `start` is nearly right a `step` of 1.05, say, takes fewer runs than
    doubling does: it is by what factor the first value beside it differs; those after it differ by more, up to twice.

    `config_dir` is a folder of your own configurations.

    Runs are spread over `jobs` processes (-1: one a core), the next candidates included when there are more of these
    than seeds; the answer does not depend on how many. They are kept in SIMLORA_CACHE_DIR (default: outputs/cache), so
    a search that was interrupted goes on where it was. Raises InputError for what cannot be simulated, and where no
    value meets the SLO, or every one.
    """
    overrides = with_folder(overrides, config_dir)
    question = asked(overrides, find, key, start, limits, attainment, seeds, precision, least, step, longest)
    if jobs != -1:
        whole("jobs", jobs, "processes", least=1)
    found: Capacity | None = None
    with working("searching", progress) as tell:
        while found is None or _goes_on(found):
            now = question if found is None else found.question.longer(found.value)
            found = _searched(now, jobs, tell).answer(found)
    return found


def _goes_on(found: Capacity) -> bool:
    """Whether longer runs are to be searched."""
    question = found.question
    return bool(question.lasts) and LONGER * question.times <= question.longest and not found.settled


def _searched(question: Question, jobs: int, tell: Callable[[str], None]) -> _Search:
    """Return the whole search of one length."""
    search, workers, cache = _Search(question), effective_n_jobs(jobs), open_cache()
    while wanted := search.wanted(workers):
        tell(search.progress)
        runs = {one: question.overrides_for(*one) for one in wanted}
        outcomes = run_all(runs.values(), jobs, False, cache)
        search.learn({one: outcomes[overrides] for one, overrides in runs.items()})
    return search


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
        length = f", {self.question.times} times as long" if self.question.times > 1 else ""
        return f"{settled} of {len(self.brackets)} seeds settled, {len(self.rows)} runs{length}"

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
        self.rows.append(
            {"times": question.times, "seed": seed, "value": value, "met": met, **self._facts(outcome)}
        )
        if not of_rate and not met and value >= outcome.summary["requests"]["submitted"]:
            raise self._never(value)
        return met is of_rate

    def _never(self, value: float) -> NeverMet:
        question = self.question
        return NeverMet(
            f"the SLO ({question.slo}) is not met even at {question.key}={value:g}; set one that can be met"
        )

    def answer(self, shorter: Capacity | None) -> Capacity:
        """Return what was found. Raises InputError if no value keeps the SLO, or all do."""
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
        if shorter is not None:
            runs = pd.concat([shorter.runs, runs], ignore_index=True)
        seeds = pd.DataFrame(found).astype({"value": float, "beyond": float})
        doubts = [one.reason for one in self.outcomes.values() if one.reason.startswith(NOT_KEPT)]
        warnings = next((one.warnings for one in self.outcomes.values() if one.warnings), ())
        return Capacity(question, seeds, runs, self._side(), shorter, doubts[0] if doubts else "", warnings)

    def _side(self) -> Side:
        """Return what the configuration runs on and is judged by."""
        facts = self.question.facts
        kinds = (kind_of(one.summary) for one in self.outcomes.values() if one.status == RAN)
        name = system_named(facts["system"], facts["changed"])
        return sides([{**facts, "kind": next(kinds, ""), "name": name}])[0]

    def _facts(self, outcome: Outcome) -> dict[str, Any]:
        figures = {name: outcome.figure(name) for name in self.question.figures}
        load = outcome.summary["load"]
        return {**figures, "load": load["label"], "arrivals_s": load["arrivals_s"]}
