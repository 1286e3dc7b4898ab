"""An inference from beginning to end: settings, an emulator, what is left of the ranges, and what that predicts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from experiments.claims.claim import Claim
from experiments.infer.comparing import HOLDS, LINEAR, TARGET, factor, published
from experiments.infer.emulating import Emulator
from experiments.infer.evaluating import Evaluation, asked, evaluate_all
from experiments.infer.posterior import Posterior, posterior
from experiments.infer.searching import design, differences, optimised
from experiments.infer.unknowns import Setting, Unknowns
from simlora.core.arrays import Floats

SEEDS = (1, 2, 3)
"""Of what is predicted in the end; the search has seed 0 throughout, so that settings differ by nothing else."""
NEAR_DRAWN = 1 << 11
PROMISING = 2
"""Settings that are simulated with all seeds to see whether a claim comes out, for each claim."""


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
    even = evaluate_all(
        unknowns,
        [asked(each, 0, at <= budget.judged) for at, each in enumerate(design(unknowns, budget.design))],
        jobs,
        "design: settings",
    )
    found = even + optimised(unknowns, even, budget.search, 0, jobs)
    fitting = Emulator(unknowns, unknowns.fitted, found)
    left = posterior(unknowns, fitting)
    drawn = [asked(setting, seed, judged=True) for setting in left.drawn(budget.draws) for seed in SEEDS]
    defaults = [asked(unknowns.defaults, seed, judged=True) for seed in SEEDS]
    last = evaluate_all(unknowns, [*defaults, *drawn], jobs, "what is left: settings")
    every = found + last
    for at in range(budget.rounds):
        missing = [claim for claim in claims if _far(claim, every).min() > HOLDS]
        wanted = [asked(setting, 0, judged=True) for setting in _nearest(unknowns, missing, every, at)]
        every += evaluate_all(
            unknowns, wanted, jobs, f"claim by claim, {at + 1} of {budget.rounds}: settings"
        )
    sure = [asked(each, seed, judged=True) for each in _promising(unknowns, claims, every) for seed in SEEDS]
    every += evaluate_all(unknowns, sure, jobs, "seed by seed: settings")
    return Inference(
        unknowns,
        left,
        [
            _predicted(
                unknowns, claim, claim in unknowns.fitted, last[: len(SEEDS)], last[len(SEEDS) :], every
            )
            for claim in claims
        ],
        len({one.asked.setting for one in every}),
        len(every),
        sum(one.runs for one in every),
        sum(one.seconds for one in every),
    )


def _cost(unknowns: Unknowns, default: Evaluation, fitted: Evaluation) -> str:
    """Say how long it takes at most: with settings for every claim, to see whether it can come out."""
    budget = unknowns.budget
    judged = 1 + min(budget.judged, budget.design) + len(SEEDS) * (1 + budget.draws)
    judged += (len(unknowns.fitted) + len(unknowns.judged)) * (budget.rounds + len(SEEDS) * PROMISING)
    alone = budget.design - min(budget.judged, budget.design) + budget.search
    minutes = (judged * default.seconds + alone * fitted.seconds) / 60
    return (
        f"up to {judged} settings of {default.runs} runs ({default.seconds:.1f} s of one core with the defaults) and "
        f"{alone} of the {fitted.runs} that are fitted ({fitted.seconds:.1f} s): about {minutes:.0f} minutes "
        "of one core, less what is kept already"
    )


def _nearest(
    unknowns: Unknowns, claims: Sequence[Claim], found: Sequence[Evaluation], at: int
) -> list[Setting]:
    """Return for each claim the setting at which it may come out best, by an emulator, of settings over all ranges."""
    candidates = design(unknowns, NEAR_DRAWN, 2 + at)
    told = Emulator(unknowns, claims, found).differences(candidates)
    chosen = {}
    for claim in claims:
        mean, deviation = told[claim.id]
        setting = candidates[int(np.argmin((np.abs(mean) - deviation).max(1)))]
        chosen[tuple(setting.items())] = setting
    return list(chosen.values())


def _promising(unknowns: Unknowns, claims: Sequence[Claim], found: Sequence[Evaluation]) -> list[Setting]:
    """Return the settings to be simulated with all SEEDS: a few for each claim, of those that have it simulated.

    They are those nearest to the defaults under which it holds with the seeds that there are; if fewer are, those at
    which it is nearest.
    """
    chosen: dict[tuple[tuple[str, float | str], ...], None] = {}
    for claim in claims:
        settings = [one.asked for one in found if claim.id in one.numbers]
        far = _far(claim, found)
        holds = [at for at in np.argsort(far, kind="stable") if far[at] <= HOLDS]
        holds.sort(key=lambda at: _change(unknowns, settings[at].values))
        order = [*holds, *np.argsort(far, kind="stable")]
        distinct = dict.fromkeys(settings[at].setting for at in order)
        chosen |= dict.fromkeys([*distinct][:PROMISING])
    return [dict(setting) for setting in chosen]


def _far(claim: Claim, found: Sequence[Evaluation]) -> Floats:
    """Return the largest difference of t of a claim's numbers for each evaluation that has them."""
    return np.asarray([np.abs(differences(claim, one)).max() for one in found if claim.id in one.numbers])


def _predicted(
    unknowns: Unknowns,
    claim: Claim,
    fitted: bool,
    defaults: Sequence[Evaluation],
    drawn: Sequence[Evaluation],
    every: Sequence[Evaluation],
) -> Predicted:
    seeds: dict[tuple[tuple[str, float | str], ...], dict[int, Floats]] = {}
    for one in every:
        if claim.id in one.numbers:
            seeds.setdefault(one.asked.setting, {})[one.asked.seed] = differences(claim, one)
    worst = {
        setting: float(np.abs(np.mean([by_seed[seed] for seed in SEEDS], axis=0)).max())
        for setting, by_seed in seeds.items()
        if by_seed.keys() >= set(SEEDS)
    }
    nearest = min(worst, key=lambda setting: worst[setting])
    return Predicted(
        claim,
        fitted,
        np.stack([differences(claim, one) for one in defaults]),
        np.stack([differences(claim, one) for one in drawn]),
        dict(nearest),
        worst[nearest],
        len(seeds),
        min(
            (dict(setting) for setting, most in worst.items() if most <= HOLDS),
            key=lambda each: _change(unknowns, each),
            default=None,
        ),
    )


def _change(unknowns: Unknowns, setting: Setting) -> float:
    """Return how far a setting is from the defaults: shares of the ranges, added up; another reading is 1."""
    total = 0.0
    for unknown in unknowns.unknowns:
        value = setting[unknown.name]
        if unknown.choices:
            total += float(value != unknown.default)
        else:
            total += abs(unknown.share(value) - unknown.share(unknown.default))
    return total


def _share(difference: float) -> float:
    """Return a simulated number over the published one, from the difference of t."""
    return float(np.sinh(TARGET + difference)) / LINEAR
