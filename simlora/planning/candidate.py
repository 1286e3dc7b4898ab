"""A candidate: machines of one kind with their settings, whose runs say whether it keeps the SLO, or how nearly."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from simlora.core.errors import InputError
from simlora.metrics.saturation import PAST, UNKNOWN
from simlora.metrics.slo import ATTAINMENT
from simlora.planning.apart import Apart
from simlora.planning.machines import ROUTER, SLOTS, Machine
from simlora.planning.tuning import Settings, Tuning
from simlora.sweeps.grid import seeded
from simlora.sweeps.outcome import FAILED, RAN, Outcome, Overrides
from simlora.sweeps.question import LONGER, Question, figure_of
from simlora.sweeps.running import run_all

SLOWER = "cluster.stragglers"


@dataclass(frozen=True)
class Candidate:
    """So many machines with the same settings, but for those that are set `apart`.

    `more` are further overrides, such as of a counterfactual.
    """

    machine: Machine
    replicas: int
    settings: Settings
    more: Overrides = ()
    apart: Apart | None = None

    @property
    def usd_per_hour(self) -> float:
        """Rent of all of them."""
        return self.replicas * self.machine.usd_per_hour

    def overrides(self, seed: int) -> Overrides:
        """Return the overrides of its run with a seed."""
        chosen: dict[str, Any] = {**dict(self.settings), "cluster.replicas": self.replicas}
        if self.replicas == 1:
            chosen.pop(ROUTER, None)
        if self.apart is not None:
            chosen = self.apart.applied(chosen)
        kept = [one for one in self.machine.overrides if one.partition("=")[0] not in chosen]
        return seeded(
            (
                *kept,
                *self.machine.lengths(),
                *(f"{key}={_written(value)}" for key, value in chosen.items()),
                *(() if self.apart is None else self.apart.overrides),
                *self.more,
            ),
            seed,
        )

    def beside(self, of: Tuning) -> list[Candidate]:
        """Return the candidates of which one setting is another, or one thing about the replicas that are apart."""
        found = [replace(self, settings=settings) for settings in of.beside(self.settings, self.replicas)]
        if self.apart is not None:
            same = self.overrides(0)
            found = [one for one in found if one.overrides(0) != same]  # which `apart` decides
            found += [replace(self, apart=apart) for apart in self.apart.beside(self.replicas)]
        return found

    def slowed(self, factor: float) -> Candidate:
        """Return the candidate with iterations of all replicas so many times as long."""
        slow = ",".join(f"{{replica:{id},at_s:0,factor:{factor:.6g}}}" for id in range(self.replicas))
        return replace(self, more=(f"{SLOWER}=[{slow}]",))

    def faster(self, factor: float) -> Candidate:
        """Return the candidate with requests that arrive so many times as fast as the user has them, for as long."""
        speedup = f"speedup={factor * float(self.machine.setting('speedup')):.4g}"
        return replace(self, more=(speedup, *self.machine.lengths(factor)))

    def lasting(self, times: int) -> Candidate:
        """Return the candidate with runs so many times as long as configured."""
        return replace(self, machine=self.machine.lasting(times))

    def changed(self, **fields: Any) -> Candidate:
        """Return a candidate with other fields."""
        return replace(self, **fields)


@dataclass
class Trials:
    """Runs of candidates; `runs` are all that were looked at, in their order."""

    question: Question
    jobs: int
    runs: dict[tuple[Candidate, int], Outcome] = field(default_factory=dict)

    def run(self, candidates: Iterable[Candidate], seeds: Sequence[int]) -> None:
        """Run every candidate with every seed, in parallel."""
        wanted = {
            (one, seed): one.overrides(seed)
            for one in candidates
            for seed in seeds
            if (one, seed) not in self.runs
        }
        found = run_all(wanted.values(), self.jobs, shown=False)
        self.runs |= {key: found[overrides] for key, overrides in wanted.items()}

    def outcomes(self, candidate: Candidate, seeds: Sequence[int]) -> list[Outcome]:
        """Return the outcomes of a candidate, by seed. Raises InputError for a run that failed.

        Values that cannot go together, such as fewer adapters on the host than slots, are no failure.
        """
        self.run([candidate], seeds)
        found = [self.runs[candidate, seed] for seed in seeds]
        for one in found:
            if one.status == FAILED:
                raise InputError(one.reason)
        return found

    def met(self, candidate: Candidate, seeds: Sequence[int]) -> bool:
        """Whether a candidate keeps the SLO with every seed."""
        return all(one.status == RAN and self.question.met(one) for one in self.outcomes(candidate, seeds))

    def told(self, candidate: Candidate, seeds: Sequence[int]) -> bool:
        """Whether the runs of a candidate are long enough to tell whether a queue would grow."""
        return all(
            one.status == RAN and one.summary["load"]["label"] != UNKNOWN
            for one in self.outcomes(candidate, seeds)
        )

    def longer(self, candidate: Candidate) -> Candidate | None:
        """Return the candidate with longer runs; None where a workload or `longest` has none."""
        times = LONGER * candidate.machine.times
        may = bool(candidate.machine.lasts) and times <= self.question.longest
        return candidate.lasting(times) if may else None

    def score(self, candidate: Candidate, seeds: Sequence[int]) -> float:
        """Return how nearly a candidate keeps the SLO: 1 or more if it does; below 0 where it cannot run.

        The more slots it has the lower, so that a climb from there leads to where they fit.
        """
        slots = dict(candidate.settings).get(SLOTS) or 0
        return min(
            -1.0 - slots if one.status != RAN else score(self.question, one)
            for one in self.outcomes(candidate, seeds)
        )


def score(question: Question, outcome: Outcome) -> float:
    """Return how nearly a run kept an SLO: the attainment, or a limit over its figure, over what is asked; the least.

    A run past saturation has less the further it is past. The satisfaction of the requests (how far within their
    targets they are on average) parts runs that are level, by a thousandth at most.
    """
    shares = []
    for name in question.figures:
        value = figure_of(outcome, name)
        if name == ATTAINMENT:
            shares.append((value or 0.0) / question.limit(name))
        else:
            shares.append(min(question.limit(name) / value, 1.0) if value else 0.0)
    summary: Mapping[str, Any] = outcome.summary
    load = summary["load"]
    past = load["label"] == PAST
    slack = 1e-3 * float(summary["slo"].get("satisfaction") or 0.0)
    return min(shares) / (max(float(load["ratio"] or 1.0), 1.01) if past else 1.0) + slack


def _written(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
