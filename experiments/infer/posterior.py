"""Which settings the fitted claims leave, by the emulator: a weight for each of many settings drawn over the ranges.

Each claim is taken to be met with an error of its own, of a standard deviation s of t that is unknown too: what the
simulator leaves out. s has the same prior weight in every factor from LEAST to MOST, and is averaged over, claim by
claim: a claim that no setting explains thus weighs little, and does not make the others say less. The numbers of a
claim count together as one, as they are of the same runs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from experiments.infer.emulating import Emulator
from experiments.infer.searching import design
from experiments.infer.unknowns import Setting, Unknown, Unknowns
from simlora.core import libm
from simlora.core.arrays import Floats

DRAWN, LEAST, MOST, STEPS = 1 << 13, 0.05, 2.0, 12
SPREADS = np.geomspace(LEAST, MOST, STEPS)
SEED = 1
BINS = 10
TELLS_BITS = 0.2
"""Information about an unknown from which the claims are said to tell something: as if a tenth of the range went."""


@dataclass(frozen=True)
class Posterior:
    """Settings, their weights `[settings]`, which sum to 1, and the mean of s by claim."""

    settings: Sequence[Setting]
    weights: Floats
    spreads: Mapping[str, float]

    def interval(self, unknown: Unknown) -> tuple[float, float]:
        """Return the 90 % interval of an unknown with a range."""
        values = np.asarray([float(setting[unknown.name]) for setting in self.settings])
        low, high = np.quantile(values, (0.05, 0.95), weights=self.weights, method="inverted_cdf")
        return float(low), float(high)

    def shares(self, unknown: Unknown) -> dict[str, float]:
        """Return the probability of each choice."""
        return {
            choice: float(
                sum(w for s, w in zip(self.settings, self.weights, strict=True) if s[unknown.name] == choice)
            )
            for choice in unknown.choices
        }

    def histogram(self, unknown: Unknown) -> Floats:
        """Return the probability of each of BINS equal parts of the range, or of each choice."""
        if unknown.choices:
            return np.asarray(list(self.shares(unknown).values()))
        at = [unknown.share(setting[unknown.name]) for setting in self.settings]
        counts, _ = np.histogram(at, BINS, (0.0, 1.0), weights=self.weights)
        return np.asarray(counts, dtype=float)

    def bits(self, unknown: Unknown) -> float:
        """Return how much the claims tell about an unknown: Kullback and Leibler's divergence from an even prior."""
        parts = self.histogram(unknown)
        held = parts[parts > 0]
        return float(np.sum(held * np.log2(held * len(parts))))

    def drawn(self, count: int) -> list[Setting]:
        """Return `count` settings drawn by their weights."""
        rng = np.random.default_rng(SEED)
        return [self.settings[int(index)] for index in rng.choice(len(self.settings), count, p=self.weights)]


def posterior(unknowns: Unknowns, emulator: Emulator) -> Posterior:
    """Return what the fitted claims leave of the ranges."""
    settings = design(unknowns, DRAWN, SEED)[1:]
    found = emulator.differences(settings)
    likelihoods = {claim.id: _likelihoods(*found[claim.id]) for claim in unknowns.fitted}
    total = np.sum([libm.log(each.mean(0)) for each in likelihoods.values()], axis=0)
    weights = libm.exp(total - total.max())
    weights /= weights.sum()
    spreads = {name: float(SPREADS @ (each / each.sum(0) @ weights)) for name, each in likelihoods.items()}
    return Posterior(settings, weights, spreads)


def _likelihoods(mean: Floats, deviation: Floats) -> Floats:
    """Return the likelihood of one claim for each s, up to a factor, `[STEPS, settings]`."""
    variance = deviation**2 + SPREADS[:, None, None] ** 2
    return libm.exp(-0.5 * np.mean(mean**2 / variance + libm.log(variance), axis=2))
