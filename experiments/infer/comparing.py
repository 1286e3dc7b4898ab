"""How far simulated numbers are from published ones, in one measure for all claims.

A number is compared by t(v) = asinh(10 v / published). For two numbers of one sign that are not small beside the
published one, the difference of their t is the logarithm of their ratio. Below a tenth of the published number t
becomes linear, so that increases and reductions of 0 and below have a place: 0 counts as a factor of 20.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from experiments.claims.claim import Claim
from experiments.claims.evaluate import Outcomes, judge
from experiments.claims.verdicts import HOLDS_WITHIN, NOT_SIMULATED
from simlora.core import libm
from simlora.core.arrays import Floats
from simlora.core.errors import InputError

LINEAR = 10.0
TARGET = math.asinh(LINEAR)
"""t of the published number."""
HOLDS = math.asinh(LINEAR * (1 + HOLDS_WITHIN)) - TARGET
"""Difference of t up to which a number holds."""


def t(simulated: Sequence[float], published: Sequence[float]) -> Floats:
    """Return t of simulated numbers `[numbers]`."""
    of_published = np.asarray(simulated, dtype=float) / np.asarray(published, dtype=float)
    return np.arcsinh(LINEAR * of_published)


def shares(differences: Floats) -> Floats:
    """Return simulated numbers over published ones, of differences of t from TARGET."""
    return np.sinh(TARGET + differences) / LINEAR


def factor(differences: Floats) -> Floats:
    """Return error factors, each 1 or more, of differences of t from TARGET."""
    return libm.exp(np.abs(differences))


def published(claim: Claim) -> list[float]:
    """Return the numbers that a claim publishes. Raises InputError for a claim without any that could be compared."""
    try:
        numbers = [float(value) for value in claim.published]
    except ValueError:
        numbers = []
    if not numbers or 0.0 in numbers or claim.kind not in ("value", "ratio", "increase"):
        raise InputError(
            f"claim {claim.id} has no number that could be compared, and cannot be fitted or judged"
        )
    return numbers


def simulated(claim: Claim, outcomes: Outcomes) -> list[float] | None:
    """Return what is simulated for each of the numbers that a claim publishes; None where a run does not fit.

    Of a ratio at several points that is published once it is the mean ratio; of one "up to" the largest. Raises
    InputError where a run cannot be simulated for another reason, such as a key that its configuration does not have.
    """
    found = judge(claim, outcomes)
    if found.verdict == NOT_SIMULATED:
        raise InputError(f"claim {claim.id} cannot be simulated: {found.why}")
    if found.errors is None:
        return None
    numbers = published(claim)
    per = len(found.errors) // len(numbers)
    groups = [found.errors[index * per : (index + 1) * per] for index in range(len(numbers))]
    return [number * (1 + math.fsum(errors) / per) for number, errors in zip(numbers, groups, strict=True)]
