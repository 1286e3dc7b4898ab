"""Under which settings a claim comes out: the mean of each number over seeds, never one lucky run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from scipy.special import ndtr

from experiments.claims.claim import Claim
from experiments.infer.comparing import HOLDS
from experiments.infer.emulating import Emulator
from experiments.infer.evaluating import Evaluation, Key
from experiments.infer.searching import design, differences
from experiments.infer.unknowns import Setting, Unknowns

CANDIDATES = 1 << 11
PROMISING = 2
"""Settings that are simulated with all seeds to see whether a claim comes out, for each claim."""


def off_by(claim: Claim, found: Iterable[Evaluation], seeds: Sequence[int] = ()) -> dict[Key, float]:
    """Return the largest difference of t of a claim's numbers, each the mean over seeds, by setting.

    With `seeds` only settings that have all of them, and the mean is over these; otherwise over those that there are.
    """
    by_setting: dict[Key, dict[int, list[float]]] = {}
    for one in found:
        if claim.id in one.numbers:
            by_setting.setdefault(one.place.setting, {})[one.place.seed] = [*differences(claim, one)]
    return {
        setting: float(np.abs(np.mean([having[seed] for seed in seeds or sorted(having)], axis=0)).max())
        for setting, having in by_setting.items()
        if having.keys() >= {*seeds}
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
