"""Which settings are simulated: an even design over all ranges, then an optimiser's, which fits some claims."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence

import numpy as np
import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from scipy.stats import qmc

from experiments.claims.claim import Claim
from experiments.infer.conditions import TARGET, published, t
from experiments.infer.evaluating import Asked, Evaluation, Evaluator, place
from experiments.infer.unknowns import Setting, Unknown, Unknowns
from simlora.core.arrays import Floats

AT_ONCE = 8
"""Settings that the optimiser proposes before it hears of their outcomes, so that cores have something to share."""
MISSING = 3.0
"""Difference of t that counts where a claim has no number, as where the model does not fit: a factor of 20."""
SEED = 0


def design(unknowns: Unknowns, count: int, seed: int = SEED) -> list[dict[str, float | str]]:
    """Return settings evenly spread over all ranges: the defaults, then points of a scrambled Sobol sequence."""
    with warnings.catch_warnings(
        action="ignore", category=UserWarning
    ):  # of counts that are no powers of two
        shares = qmc.Sobol(len(unknowns.unknowns), seed=np.random.default_rng(seed)).random(count)
    return [unknowns.defaults, *(unknowns.setting(row) for row in shares)]


def differences(claim: Claim, evaluation: Evaluation) -> Floats:
    """Return by how much t of each number of a claim is off, `[numbers]`."""
    numbers = published(claim)
    found = evaluation.numbers[claim.id]
    return np.full(len(numbers), MISSING) if found is None else t(found, numbers) - TARGET


def distance(claims: Sequence[Claim], seeds: Sequence[Evaluation]) -> float:
    """Return the root of the mean square of the differences of t of one setting, each the mean over its seeds.

    Each claim counts once, however many numbers it has.
    """
    means = [np.mean([differences(claim, one) for one in seeds], axis=0) for claim in claims]
    return float(np.sqrt(np.mean([np.mean(mean**2) for mean in means])))


def with_seeds(settings: Iterable[Setting], seeds: Sequence[int], claims: Sequence[Claim]) -> list[Asked]:
    """Ask for claims at each setting with each seed, those of one setting side by side."""
    return [(place(setting, seed), claims) for setting in settings for seed in seeds]


def optimised(
    evaluated: Evaluator, known: Sequence[Evaluation], count: int, seeds: Sequence[int]
) -> list[Evaluation]:
    """Return evaluations of settings that an optimiser looks for, of the fitted claims alone.

    `known` teach it. They, and what is returned, have the evaluations with all `seeds` of a setting side by side.
    """
    unknowns = evaluated.unknowns
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    space = {each.name: _distribution(each) for each in unknowns.unknowns}
    with warnings.catch_warnings(action="ignore", category=optuna.exceptions.ExperimentalWarning):
        sampler = optuna.samplers.TPESampler(
            seed=SEED, multivariate=True, constant_liar=True, n_startup_trials=1
        )
    study = optuna.create_study(sampler=sampler)
    for one in batched(known, len(seeds)):
        study.add_trial(
            optuna.trial.create_trial(
                params=one[0].place.values, distributions=space, value=distance(unknowns.fitted, one)
            )
        )
    found: list[Evaluation] = []
    for begun in range(0, count, AT_ONCE):
        trials = [study.ask(space) for _ in range(min(AT_ONCE, count - begun))]
        settings = [
            {each.name: each.rounded(trial.params[each.name]) for each in unknowns.unknowns}
            for trial in trials
        ]
        new = evaluated(
            with_seeds(settings, seeds, [*unknowns.fitted, *unknowns.beside]),
            f"optimiser, {begun} of {count}: settings and seeds",
        )
        for trial, one in zip(trials, batched(new, len(seeds)), strict=True):
            study.tell(trial, distance(unknowns.fitted, one))
        found += new
    return found


def batched(evaluations: Sequence[Evaluation], count: int) -> list[Sequence[Evaluation]]:
    """Return the evaluations of each setting, where `count` of one stand side by side."""
    return [evaluations[at : at + count] for at in range(0, len(evaluations), count)]


def _distribution(unknown: Unknown) -> BaseDistribution:
    if unknown.choices:
        return CategoricalDistribution(list(unknown.choices))
    if unknown.whole:
        return IntDistribution(int(unknown.least), int(unknown.most), log=unknown.scale == "log")
    return FloatDistribution(unknown.least, unknown.most, log=unknown.scale == "log")
