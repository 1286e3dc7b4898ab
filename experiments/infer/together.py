"""How near settings come to several claims at once, by the table beside a page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from experiments.claims.claim import Claim
from experiments.infer.conditions import factor
from experiments.infer.evaluating import Evaluation
from experiments.infer.inference import means
from experiments.infer.saying import changed
from experiments.infer.unknowns import Unknowns
from simlora.core.errors import InputError

FACTORS = (1.1, 1.25, 1.5, 2.0)


def together(unknowns: Unknowns, claims: Sequence[Claim], found: Sequence[Evaluation]) -> Iterator[str]:
    """Yield a line for each claim, and one for all: how many settings come within a factor, and which comes nearest.

    Of the settings at which all of the claims were simulated, the defaults among them. Each number is the mean over the
    setting's seeds, and a claim is as far off as the farthest of its numbers. Raises InputError if there is no such
    setting.
    """
    of = [means(claim, found) for claim in claims]
    settings = [setting for setting in of[0] if all(setting in each for each in of)]
    if not settings:
        raise InputError(f"no setting has all of {', '.join(claim.id for claim in claims)}")
    off = np.array([[factor(each[setting]).max() for each in of] for setting in settings])
    names = [claim.id for claim in claims]
    columns = {**dict(zip(names, off.T, strict=True)), "all of them": off.max(1)}
    for name, values in columns.items() if len(claims) > 1 else [(names[0], off[:, 0])]:
        within = ", ".join(f"{np.count_nonzero(values <= most)} within {most:g}" for most in FACTORS)
        nearest = int(np.argmin(values))
        at = changed(unknowns, dict(settings[nearest])) or "the defaults"
        yield (
            f"{name}: of {len(settings)} settings {within}; the nearest, at {at}, is off by a factor of "
            f"{values[nearest]:.2f}"
        )
