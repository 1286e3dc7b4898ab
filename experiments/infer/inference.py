"""An inference from beginning to end: settings, an emulator, what is left of the ranges, and what that predicts.

A claim comes out under a setting by the mean of each number over seeds, and a standard error more, never by one lucky
run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr
from scipy.stats import rankdata

from experiments.claims.claim import Claim
from experiments.infer.conditions import HOLDS, factor, published, shares
from experiments.infer.emulating import SEED, Emulator, Kernels, LeftOut, Posterior, posterior
from experiments.infer.evaluating import Asked, Evaluation, Evaluator, Key, Simulated, fingerprint, place
from experiments.infer.searching import design, differences, optimised, with_seeds
from experiments.infer.unknowns import Setting, Unknowns
from simlora.core.arrays import Floats

CANDIDATES = 1 << 11
PROMISING = 2
"""Settings that are simulated with all seeds to see whether a claim comes out, for each claim."""


def off_by(claim: Claim, found: Iterable[Evaluation], seeds: Sequence[int] = ()) -> dict[Key, float]:
    """Return the largest difference of t of a claim's numbers, by setting: the mean over seeds and its standard error.

    `seeds` as in by_seed.
    """
    return {
        setting: float((np.abs(each.mean(0)) + standard_error(each)).max())
        for setting, each in by_seed(claim, found, seeds).items()
    }


def standard_error(differences: Floats) -> Floats:
    """Return the standard error of the mean over seeds, of differences `[seeds, numbers]`; 0 of a single seed."""
    count = len(differences)
    return differences.std(0, ddof=1) / np.sqrt(count) if count > 1 else np.zeros(differences.shape[1])


def means(claim: Claim, found: Iterable[Evaluation]) -> dict[Key, Floats]:
    """Return the differences of t of a claim's numbers, each the mean over seeds, by setting."""
    return {setting: each.mean(0) for setting, each in by_seed(claim, found).items()}


def by_seed(claim: Claim, found: Iterable[Evaluation], seeds: Sequence[int] = ()) -> dict[Key, Floats]:
    """Return the differences of t of a claim, `[seeds, numbers]`, by setting.

    With `seeds` only settings that have all of them, and these seeds alone; otherwise those that there are.
    """
    by_setting: dict[Key, dict[int, Floats]] = {}
    for one in found:
        if claim.id in one.numbers:
            by_setting.setdefault(one.place.setting, {})[one.place.seed] = differences(claim, one)
    return {
        setting: np.stack([having[seed] for seed in seeds or sorted(having)])
        for setting, having in by_setting.items()
        if having.keys() >= {*seeds}
    }


def fittest(unknowns: Unknowns, searched: Sequence[Evaluation]) -> list[Key]:
    """Return the settings that were searched for, those first that fit best by the fitted claims alone."""
    of = [means(claim, searched) for claim in unknowns.fitted]
    return sorted(of[0], key=lambda setting: np.mean([np.mean(one[setting] ** 2) for one in of]))


def best_of(ordered: Sequence[Key]) -> Sequence[Key]:
    """Return the share BEST of settings that are ordered."""
    return ordered[: int(np.ceil(BEST * len(ordered)))]


def left_by(unknowns: Unknowns, searched: Sequence[Evaluation], setting: Key) -> dict[str, float]:
    """Return what a setting leaves of t, by fitted claim: the root of the mean square over its numbers."""
    return {
        claim.id: float(np.sqrt(np.mean(means(claim, searched)[setting] ** 2))) for claim in unknowns.fitted
    }


def expected(
    unknowns: Unknowns, claims: Sequence[Claim], found: Sequence[Evaluation], turn: int
) -> list[tuple[Claim, Setting]]:
    """Return each claim that has not come out with the setting at which it most probably does, by an emulator.

    Candidates lie all over the ranges, and are others in each turn. Where none has a chance it is the nearest.
    """
    missing = [claim for claim in claims if min(off_by(claim, found).values()) > HOLDS]
    if not missing:
        return []
    candidates = design(unknowns, CANDIDATES, 2 + turn)
    told = Emulator(unknowns, missing, found).differences(candidates)
    chosen = []
    for claim in missing:
        mean, deviation = told[claim.id]
        chance = np.prod(ndtr((HOLDS - mean) / deviation) - ndtr((-HOLDS - mean) / deviation), axis=1)
        best = np.argmax(chance) if chance.max() > 0 else np.argmin(np.abs(mean).max(1))
        chosen.append((claim, candidates[int(best)]))
    return chosen


def promising(
    unknowns: Unknowns, claims: Sequence[Claim], found: Sequence[Evaluation]
) -> list[tuple[Claim, Setting]]:
    """Return each claim with the settings at which it is to be simulated with all seeds, PROMISING of them.

    They are those nearest to the defaults under which it holds with the seeds that there are; if fewer are, those at
    which it is nearest.
    """
    chosen = []
    for claim in claims:
        far = off_by(claim, found)
        order = sorted(far, key=lambda setting: (far[setting] > HOLDS, _rank(unknowns, setting, far)))
        chosen += [(claim, dict(setting)) for setting in order[:PROMISING]]
    return chosen


def conditions(unknowns: Unknowns, far: dict[Key, float]) -> Setting | None:
    """Return the setting nearest to the defaults at which a claim holds; None if at none."""
    holds = [setting for setting, most in far.items() if most <= HOLDS]
    return dict(min(holds, key=lambda setting: changes(unknowns, dict(setting)))) if holds else None


def changes(unknowns: Unknowns, setting: Setting) -> float:
    """Return how far a setting is from the defaults: shares of the ranges, added up; another reading is 1."""
    total = 0.0
    for unknown in unknowns.unknowns:
        value = setting[unknown.name]
        if unknown.choices:
            total += float(value != unknown.default)
        else:
            total += abs(unknown.share(value) - unknown.share(unknown.default))
    return total


def _rank(unknowns: Unknowns, setting: Key, far: dict[Key, float]) -> float:
    return changes(unknowns, dict(setting)) if far[setting] <= HOLDS else far[setting]


SEEDS = (1, 2, 3)
"""Of what is predicted in the end. The search has the same seeds, from 0 on, in all settings, so that these differ by
nothing else."""


@dataclass(frozen=True)
class Predicted:
    """A claim: what t is off by with the defaults and with settings that are left, `[settings and seeds, numbers]`.

    Of `looked_at` settings `judged` were simulated with all SEEDS. Of these, `nearest` comes nearest to the published
    numbers, and `worst` is its largest difference of t; `conditions` is the one nearest to the defaults under which all
    numbers hold, None if under none. They hold in `unsure` of the others with the seeds that these have.
    """

    claim: Claim
    fitted: bool
    default: Floats
    left: Floats
    nearest: Setting
    worst: float
    looked_at: int
    judged: int
    unsure: int
    conditions: Setting | None

    @property
    def numbers(self) -> list[float]:
        """The published numbers."""
        return published(self.claim)

    def interval(self) -> list[tuple[float, float, float]]:
        """Return median and 90 % interval of each number."""
        found = np.asarray(self.numbers) * shares(np.quantile(self.left, (0.5, 0.05, 0.95), axis=0))
        return [(middle, low, high) for middle, low, high in found.T.tolist()]

    def within(self) -> list[bool]:
        """Return whether each published number lies in the interval."""
        pairs = zip(self.numbers, self.interval(), strict=True)
        return [low <= number <= high for number, (_, low, high) in pairs]

    def as_they_are(self) -> list[float]:
        """Return each number with the defaults, the mean over seeds."""
        found: list[float] = (np.asarray(self.numbers) * shares(self.default.mean(0))).tolist()
        return found


DECIDED, BEST, RESAMPLED = 0.9, 0.1, 2000
"""Share of the settings drawn that decides whether they predict better or worse than the defaults; share of the
settings searched that count as those that fit best; samples of the bootstrap."""


def decided(errors: Floats, default: float) -> str:
    """Return whether settings that were drawn predict better or worse than the defaults; FEWEST settings decide."""
    better, worse = np.mean(errors < default), np.mean(errors >= default)
    if len(errors) < FEWEST or max(better, worse) < DECIDED:
        return UNDECIDED
    return "better" if better >= DECIDED else "worse"


UNDECIDED, FEWEST = "undecided", 20


@dataclass(frozen=True)
class Agreement:
    """Whether settings that fit better also predict better: median error factors of claims fitted and held back.

    Of each setting but the defaults at which all claims were simulated; each number is the mean over the setting's
    seeds. `best` has the errors of claims held back of the settings that fit best, as far as these were simulated.
    """

    fitted: Floats
    judged: Floats
    best: Floats

    @property
    def correlation(self) -> tuple[float, float, float]:
        """The rank correlation, and its 90 % interval by a bootstrap over settings."""
        rng = np.random.default_rng(SEED)
        drawn = rng.integers(len(self.fitted), size=(RESAMPLED, len(self.fitted)))
        resampled = [_correlation(self.fitted[rows], self.judged[rows]) for rows in drawn]
        low, high = np.nanquantile(resampled, (0.05, 0.95))
        return _correlation(self.fitted, self.judged), float(low), float(high)


def _correlation(one: Floats, other: Floats) -> float:
    first, second = rankdata(one), rankdata(other)
    return float(np.corrcoef(first, second)[0, 1]) if np.ptp(first) and np.ptp(second) else np.nan


def agreement(unknowns: Unknowns, found: Sequence[Evaluation], best: Sequence[Key]) -> Agreement:
    """Return the errors of the settings at which all claims were simulated, and of those that fit best."""
    fitted, judged = (
        [means(claim, found) for claim in claims] for claims in (unknowns.fitted, unknowns.judged)
    )
    every = [*fitted, *judged]
    defaults = place(unknowns.defaults, 0).setting
    settings = [each for each in every[0] if each != defaults and all(each in one for one in every)]

    def errors(claims: Sequence[dict[Key, Floats]], settings: Sequence[Key]) -> Floats:
        of = [np.median(factor(np.concatenate([one[each] for one in claims]))) for each in settings]
        return np.asarray(of)

    simulated = [each for each in best if all(each in one for one in judged)]
    return Agreement(errors(fitted, settings), errors(judged, settings), errors(judged, simulated))


@dataclass(frozen=True)
class Inference:
    """All that is printed and drawn."""

    unknowns: Unknowns
    left: Posterior
    emulated: Mapping[str, LeftOut]
    predicted: Sequence[Predicted]
    simulated: Simulated
    best: Sequence[Key]
    agreement: Agreement
    kernels: Kernels

    @property
    def settings(self) -> int:
        """How many different settings were simulated."""
        return len({one.place.setting for one in self.simulated.all})

    @property
    def runs(self) -> int:
        """How many runs that took."""
        return sum(sum(one.runs.values()) for one in self.simulated.all)

    @property
    def seconds(self) -> float:
        """How long they took, one after the other."""
        return sum(sum(one.seconds.values()) for one in self.simulated.all)

    @property
    def draws(self) -> int:
        """How many settings were drawn from what is left."""
        return len(self.simulated.left) // len(SEEDS) - 1

    def factors(self, chosen: Sequence[Predicted], default: bool) -> Floats:
        """Return the median error factor over numbers of claims, for each setting that is left, or for the defaults.

        Of each setting seeds are averaged first.
        """
        if default:
            return np.median(factor(np.concatenate([one.default.mean(0) for one in chosen])))[None]
        means = [one.left.reshape(-1, len(SEEDS), one.left.shape[1]).mean(1) for one in chosen]
        return np.asarray(np.median(factor(np.concatenate(means, axis=1)), axis=1))


def infer(evaluated: Evaluator, tell: Callable[[str], None]) -> Inference:
    """Return what the claims say of the unknowns. `tell` hears what is about to be simulated, and what it costs."""
    unknowns = evaluated.unknowns
    claims, budget = unknowns.claims, unknowns.budget
    searched_for, every = [*unknowns.fitted, *unknowns.beside], [*claims, *unknowns.beside]
    (default,) = evaluated([(place(unknowns.defaults, 0), every)], "defaults: settings")
    tell(_cost(unknowns, default))
    seeds, settings = range(budget.seeds), design(unknowns, budget.design)
    even = evaluated(
        with_seeds(settings[: budget.judged + 1], seeds, every)
        + with_seeds(settings[budget.judged + 1 :], seeds, searched_for),
        "design: settings and seeds",
    )
    searched = even + optimised(evaluated, even, budget.search, seeds)
    best = best_of(fittest(unknowns, searched))
    evaluated(
        with_seeds([dict(each) for each in best], seeds, every), "those that fit best: settings and seeds"
    )
    emulator = Emulator(unknowns, unknowns.fitted, searched)
    found = posterior(unknowns, emulator, left_by(unknowns, searched, best[0]))
    ends = with_seeds([unknowns.defaults, *found.drawn(budget.draws)], SEEDS, every)
    left = evaluated(ends, "what is left: settings and seeds")
    for turn in range(budget.rounds):
        wanted = expected(unknowns, claims, evaluated.all, turn)
        evaluated(_alone(wanted, seeds), f"claim by claim, {turn + 1} of {budget.rounds}: settings and seeds")
    likely = promising(unknowns, claims, evaluated.all)
    evaluated(_alone(likely, SEEDS), "seed by seed: settings and seeds")
    simulated = Simulated(searched, left, evaluated.all, fingerprint(unknowns))
    return _inference(unknowns, emulator, found, simulated, best)


def infer_again(unknowns: Unknowns, simulated: Simulated, kernels: Kernels | None = None) -> Inference:
    """Return what the claims say of the unknowns by what was simulated before; `kernels` as in Emulator."""
    emulator = Emulator(unknowns, unknowns.fitted, simulated.searched, kernels)
    best = best_of(fittest(unknowns, simulated.searched))
    found = posterior(unknowns, emulator, left_by(unknowns, simulated.searched, best[0]))
    return _inference(unknowns, emulator, found, simulated, best)


def drawn_alike(found: Inference) -> bool:
    """Whether the settings that were simulated as drawn are those that the posterior draws."""
    drawn = [place(setting, SEEDS[0]).setting for setting in found.left.drawn(found.draws)]
    return sorted(drawn) == sorted(
        one.place.setting for one in found.simulated.left[len(SEEDS) :: len(SEEDS)]
    )


def _inference(
    unknowns: Unknowns, emulator: Emulator, found: Posterior, simulated: Simulated, best: Sequence[Key]
) -> Inference:
    default, drawn = simulated.left[: len(SEEDS)], simulated.left[len(SEEDS) :]
    return Inference(
        unknowns,
        found,
        emulator.left_out(),
        [
            _predicted(unknowns, claim, fitted, default, drawn, simulated.all)
            for fitted, claims in ((True, unknowns.fitted), (False, unknowns.judged))
            for claim in claims
        ],
        simulated,
        best,
        agreement(unknowns, simulated.all, best),
        emulator.kernels,
    )


def _alone(chosen: Iterable[tuple[Claim, Setting]], seeds: Sequence[int]) -> list[Asked]:
    """Ask for each claim at its own setting, and for no other there."""
    return [asked for claim, setting in chosen for asked in with_seeds([setting], seeds, [claim])]


def _cost(unknowns: Unknowns, default: Evaluation) -> str:
    """Say how long it takes, by what each claim takes with the defaults."""
    budget = unknowns.budget
    alone = budget.seeds * (budget.design - min(budget.judged, budget.design) + budget.search)
    best = int(np.ceil(BEST * (1 + budget.design + budget.search)))
    every = budget.seeds * (1 + min(budget.judged, budget.design) + best) + len(SEEDS) * (1 + budget.draws)
    each = budget.seeds * budget.rounds + len(SEEDS) * PROMISING
    all_s = sum(default.seconds.values())
    fitted_s = sum(default.seconds.get(claim.id, 0.0) for claim in (*unknowns.fitted, *unknowns.beside))
    minutes = (alone * fitted_s + (every + each) * all_s) / 60
    return (
        f"{alone} settings for the claims that are fitted ({fitted_s:.0f} s of one core with the defaults), {every} "
        f"for all claims ({sum(default.runs.values())} runs, {all_s:.0f} s), and up to {each} for each claim by "
        f"itself: about {minutes:.0f} minutes of one core, less what is kept already, and more where a setting is "
        "slower than the defaults"
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
    of_any = off_by(claim, evaluated)
    nearest = min(far, key=lambda setting: far[setting])
    return Predicted(
        claim,
        fitted,
        np.stack([differences(claim, one) for one in defaults]),
        np.stack([differences(claim, one) for one in drawn]),
        dict(nearest),
        far[nearest],
        len(of_any),
        len(far),
        sum(most <= HOLDS and setting not in far for setting, most in of_any.items()),
        conditions(unknowns, far),
    )
