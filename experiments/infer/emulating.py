"""Gaussian processes that stand for the simulator, and which settings the fitted claims leave by them.

There is a process for t of every number of a claim, over the unknowns. A weight is given to each of many settings drawn
over the ranges. Each claim is taken to be met with an error of its own, of a standard deviation s of t: what the
simulator leaves out. s is what the setting that fits best leaves of the claim, and LEAST at least: a claim that no
setting explains thus weighs little. The numbers of a claim count together as one, as they are of the same runs.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.linalg import cho_solve
from scipy.stats import norm
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel

from experiments.claims.claim import Claim
from experiments.infer.conditions import factor
from experiments.infer.evaluating import Evaluation
from experiments.infer.searching import design, differences
from experiments.infer.unknowns import Setting, Unknown, Unknowns
from simlora.core import libm
from simlora.core.arrays import Floats

LONGEST = 20.0
"""Length of correlation, in widths of the range, from which an unknown says nothing."""
NINETY = float(norm.ppf(0.95))
"""Standard deviations on either side of the mean within which nine of ten lie."""


def features(unknowns: Unknowns, settings: Sequence[Setting]) -> Floats:
    """Return a row a setting: shares of the ranges, 0 to 1, and for a choice a column each but its first."""
    columns = []
    for unknown in unknowns.unknowns:
        values = [setting[unknown.name] for setting in settings]
        if unknown.choices:
            columns += [[float(value == choice) for value in values] for choice in [*unknown.choices][1:]]
        else:
            columns.append([unknown.share(value) for value in values])
    return np.asarray(columns).T


@dataclass(frozen=True)
class LeftOut:
    """How well the processes of a claim predict evaluations that they are not trained on, all numbers together.

    `factor`: median error factor. `spread`: that of the mean, which knows nothing of the unknowns. `inside`: share of
    the evaluations within the 90 % interval that is predicted for them.
    """

    factor: float
    spread: float
    inside: float


Kernels = Mapping[str, Sequence[Sequence[float]]]
"""Logarithms of the parameters of each process's kernel, by claim."""


class Emulator:
    """One process a number, each trained on all evaluations that have it.

    `kernels` are those that the same evaluations chose before. Choosing them anew takes a minute.
    """

    def __init__(
        self,
        unknowns: Unknowns,
        claims: Sequence[Claim],
        evaluations: Sequence[Evaluation],
        kernels: Kernels | None = None,
    ) -> None:
        self.unknowns = unknowns
        self.processes: dict[str, list[GaussianProcessRegressor]] = {}
        for claim in claims:
            having = [one for one in evaluations if claim.id in one.numbers]
            rows = features(unknowns, [one.place.values for one in having])
            targets = np.asarray([differences(claim, one) for one in having])
            known = (kernels or {}).get(claim.id, [()] * targets.shape[1])
            self.processes[claim.id] = [
                _process(rows, column, theta) for column, theta in zip(targets.T, known, strict=True)
            ]

    @property
    def kernels(self) -> Kernels:
        """The kernels that were chosen."""
        return {
            name: [process.kernel_.theta.tolist() for process in processes]
            for name, processes in self.processes.items()
        }

    def differences(self, settings: Sequence[Setting]) -> Mapping[str, tuple[Floats, Floats]]:
        """Return by claim the mean and the standard deviation of what t is off by, each `[settings, numbers]`.

        The deviation is of one run: what the process does not know, and what another seed would change.
        """
        rows = features(self.unknowns, settings)
        found = {}
        for name, processes in self.processes.items():
            told = [process.predict(rows, return_std=True) for process in processes]
            means, deviations = (np.stack(each, axis=1) for each in zip(*told, strict=True))
            found[name] = means, deviations
        return found

    def left_out(self) -> dict[str, LeftOut]:
        """Return by claim how well each evaluation is predicted by all others, with the kernel that all chose."""
        found = {}
        for name, processes in self.processes.items():
            errors, deviations, apart = (
                np.concatenate(each) for each in zip(*map(_left_out, processes), strict=True)
            )
            found[name] = LeftOut(
                float(np.median(factor(errors))),
                float(np.median(factor(apart))),
                float(np.mean(np.abs(errors) <= NINETY * deviations)),
            )
        return found


def _left_out(process: GaussianProcessRegressor) -> tuple[Floats, Floats, Floats]:
    """Return each training point's error when left out, its predicted deviation, and its distance from the mean.

    Source: Rasmussen and Williams, Gaussian Processes for Machine Learning, equations 5.10 to 5.12.
    """
    inverse = cho_solve((process.L_, True), np.eye(len(process.L_)))
    width = process._y_train_std
    errors = process.alpha_.ravel() / np.diag(inverse)
    return errors * width, width / np.sqrt(np.diag(inverse)), process.y_train_ * width


def _process(rows: Floats, values: Floats, theta: Sequence[float] = ()) -> GaussianProcessRegressor:
    """Return the process of a number; with `theta` it has that kernel, and otherwise chooses one."""
    kernel = ConstantKernel(1.0, (1e-2, 1e2)) * Matern(np.ones(rows.shape[1]), (0.05, LONGEST), nu=2.5)
    kernel += WhiteKernel(0.05, (1e-5, 1.0))
    how = {"normalize_y": True, "random_state": 0}
    if theta:
        process = GaussianProcessRegressor(kernel.clone_with_theta(np.asarray(theta)), optimizer=None, **how)
    else:
        process = GaussianProcessRegressor(kernel, n_restarts_optimizer=1, **how)
    with warnings.catch_warnings(action="ignore", category=ConvergenceWarning):  # a length at its bound
        return process.fit(rows, values)


DRAWN, LEAST = 1 << 13, 0.05
SEED = 1
BINS = 10
TELLS_BITS = 0.2
"""Information about an unknown from which the claims are said to tell something: as if a tenth of the range went."""


@dataclass(frozen=True)
class Posterior:
    """Settings, their weights `[settings]`, which sum to 1, and the error s that each claim is taken to have."""

    settings: Sequence[Setting]
    weights: Floats
    assumed: Mapping[str, float]

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


def posterior(unknowns: Unknowns, emulator: Emulator, left: Mapping[str, float]) -> Posterior:
    """Return what the fitted claims leave of the ranges; `left` is what the best setting leaves of t, by claim."""
    settings = design(unknowns, DRAWN, SEED)[1:]
    assumed = {claim.id: max(left[claim.id], LEAST) for claim in unknowns.fitted}
    total = np.zeros(len(settings))
    for name, (mean, deviation) in emulator.differences(settings).items():
        variance = deviation**2 + assumed[name] ** 2
        total -= 0.5 * np.mean(mean**2 / variance + libm.log(variance), axis=1)
    weights = libm.exp(total - total.max())
    return Posterior(settings, weights / weights.sum(), assumed)
