"""An inference from beginning to end: settings, an emulator, what is left of the ranges, and what that predicts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from experiments.claims.claim import Claim
from experiments.infer.coming_out import PROMISING, conditions, expected, off_by, promising
from experiments.infer.comparing import LINEAR, TARGET, factor, published
from experiments.infer.emulating import Emulator
from experiments.infer.evaluating import Evaluation, asked, evaluate_all
from experiments.infer.posterior import Posterior, posterior
from experiments.infer.searching import design, differences, optimised, with_seeds
from experiments.infer.unknowns import Setting, Unknowns
from simlora.core.arrays import Floats

SEEDS = (1, 2, 3)
"""Of what is predicted in the end. The search has the same seeds, from 0 on, in all settings, so that these differ by
nothing else."""


@dataclass(frozen=True)
class Predicted:
    """A claim: what t is off by with the defaults and with settings that are left, `[settings and seeds, numbers]`.

    `nearest` is the setting that comes nearest to the published numbers, of `looked_at` different ones, and `worst` its
    largest difference of t; `conditions` is the setting nearest to the defaults under which all numbers hold, None if
    none was found. Both are of means over SEEDS.
    """

    claim: Claim
    fitted: bool
    default: Floats
    left: Floats
    nearest: Setting
    worst: float
    looked_at: int
    conditions: Setting | None

    @property
    def numbers(self) -> list[float]:
        """The published numbers."""
        return published(self.claim)

    def interval(self) -> list[tuple[float, float, float]]:
        """Return median and 90 % interval of each number."""
        shares = np.quantile(self.left, (0.5, 0.05, 0.95), axis=0).T
        return [
            (number * _share(middle), number * _share(low), number * _share(high))
            for number, (middle, low, high) in zip(self.numbers, shares, strict=True)
        ]

    def within(self) -> list[bool]:
        """Return whether each published number lies in the interval."""
        return [
            low <= number <= high
            for number, (_, low, high) in zip(self.numbers, self.interval(), strict=True)
        ]

    def as_they_are(self) -> list[float]:
        """Return each number with the defaults, the mean over seeds."""
        return [
            number * _share(mean) for number, mean in zip(self.numbers, self.default.mean(0), strict=True)
        ]


@dataclass(frozen=True)
class Inference:
    """All that is printed and drawn."""

    unknowns: Unknowns
    left: Posterior
    predicted: Sequence[Predicted]
    settings: int
    evaluations: int
    runs: int
    seconds: float

    def factors(self, fitted: bool, default: bool) -> Floats:
        """Return the median error factor over numbers of claims, for each setting that is left, or for the defaults.

        Of each setting seeds are averaged first.
        """
        chosen = [one for one in self.predicted if one.fitted == fitted]
        if default:
            return np.median(factor(np.concatenate([one.default.mean(0) for one in chosen])))[None]
        means = [one.left.reshape(-1, len(SEEDS), one.left.shape[1]).mean(1) for one in chosen]
        return np.asarray(np.median(factor(np.concatenate(means, axis=1)), axis=1))


def infer(unknowns: Unknowns, jobs: int, tell: Callable[[str], None]) -> Inference:
    """Return what the claims say of the unknowns. `tell` hears what is about to be simulated, and what it costs."""
    claims, budget = [*unknowns.fitted, *unknowns.judged], unknowns.budget
    first = [asked(unknowns.defaults, 0, judged) for judged in (True, False)]
    tell(_cost(unknowns, *evaluate_all(unknowns, first, jobs, "defaults: settings")))
    seeds, settings = range(budget.seeds), design(unknowns, budget.design)
    even = evaluate_all(
        unknowns,
        with_seeds(settings[: budget.judged + 1], seeds, judged=True)
        + with_seeds(settings[budget.judged + 1 :], seeds, judged=False),
        jobs,
        "design: settings and seeds",
    )
    found = even + optimised(unknowns, even, budget.search, seeds, jobs)
    left = posterior(unknowns, Emulator(unknowns, unknowns.fitted, found))
    ends = with_seeds([unknowns.defaults, *left.drawn(budget.draws)], SEEDS, judged=True)
    last = evaluate_all(unknowns, ends, jobs, "what is left: settings and seeds")
    every = {one.asked: one for one in found + last}
    for turn in range(budget.rounds):
        wanted = with_seeds(expected(unknowns, claims, [*every.values()], turn), seeds, judged=True)
        shown = f"claim by claim, {turn + 1} of {budget.rounds}: settings and seeds"
        every |= {one.asked: one for one in evaluate_all(unknowns, wanted, jobs, shown)}
    likely = with_seeds(promising(unknowns, claims, [*every.values()]), SEEDS, judged=True)
    every |= {
        one.asked: one for one in evaluate_all(unknowns, likely, jobs, "seed by seed: settings and seeds")
    }
    evaluated = [*every.values()]
    return Inference(
        unknowns,
        left,
        [
            _predicted(
                unknowns, claim, claim in unknowns.fitted, last[: len(SEEDS)], last[len(SEEDS) :], evaluated
            )
            for claim in claims
        ],
        len({one.asked.setting for one in evaluated}),
        len(evaluated),
        sum(one.runs for one in evaluated),
        sum(one.seconds for one in evaluated),
    )


def _cost(unknowns: Unknowns, default: Evaluation, fitted: Evaluation) -> str:
    """Say how long it takes at most: with settings for every claim, to see whether it can come out."""
    budget = unknowns.budget
    claims = len(unknowns.fitted) + len(unknowns.judged)
    judged = budget.seeds * (1 + min(budget.judged, budget.design) + claims * budget.rounds)
    judged += len(SEEDS) * (1 + budget.draws + claims * PROMISING)
    alone = budget.seeds * (budget.design - min(budget.judged, budget.design) + budget.search)
    minutes = (judged * default.seconds + alone * fitted.seconds) / 60
    return (
        f"up to {judged} settings of {default.runs} runs ({default.seconds:.1f} s of one core with the defaults) and "
        f"{alone} of the {fitted.runs} that are fitted ({fitted.seconds:.1f} s): about {minutes:.0f} minutes "
        "of one core, less what is kept already"
    )


def _predicted(
    unknowns: Unknowns,
    claim: Claim,
    fitted: bool,
    defaults: Sequence[Evaluation],
    drawn: Sequence[Evaluation],
    evaluated: Sequence[Evaluation],
) -> Predicted:
    far = off_by(claim, evaluated, SEEDS)
    nearest = min(far, key=lambda setting: far[setting])
    return Predicted(
        claim,
        fitted,
        np.stack([differences(claim, one) for one in defaults]),
        np.stack([differences(claim, one) for one in drawn]),
        dict(nearest),
        far[nearest],
        len(off_by(claim, evaluated)),
        conditions(unknowns, far),
    )


def _share(difference: float) -> float:
    """Return a simulated number over the published one, from the difference of t."""
    return float(np.sinh(TARGET + difference)) / LINEAR
