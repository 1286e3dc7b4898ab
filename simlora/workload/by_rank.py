"""Popularity by rank: which share of the requests each rank has, and how that changes over a run."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from simlora.core import libm
from simlora.core.arrays import Floats, Ints
from simlora.core.checks import number
from simlora.core.errors import InputError
from simlora.workload.adapters import check_ranks
from simlora.workload.popularity import Popularity, power_law


@dataclass(frozen=True)
class ByRank(Popularity):
    """Ranks have shares, and the adapters of one rank are alike. Yours needs `ends`.

    `ranks` are those of the workload, whose adapter i has ranks[i mod len]. Source: LoRAServe §V-E and §V-H.
    """

    ranks: Sequence[int]

    @abstractmethod
    def ends(self, ranks: int) -> Floats:
        """Return the shares [2, ranks] at the start and at the end of the run, the smallest rank's first.

        Between these they change linearly in time.
        """

    def check(self, key: str, adapters: int) -> None:
        if len(check_ranks(self.ranks, f"{key}.ranks")) > adapters:
            raise InputError(
                f"workload.adapters is {adapters:,}, must be at least {len(self.ranks)}, one for each of {key}.ranks"
            )

    def shares(self, moments: Floats) -> Floats:
        """Return the share of each rank at moments [n] of the run, 0 to 1: [n, ranks], the smallest rank's first."""
        start, end = self.ends(len(set(self.ranks)))
        shares: Floats = start + np.multiply.outer(moments, end - start)
        return shares

    def rates(self, adapters: int) -> Floats:
        """Return the mean over the run [adapters]."""
        rank = self._rank(adapters)
        rates: Floats = (self.shares(np.array([0.5]))[0] / np.bincount(rank))[rank]
        return rates

    def draw(self, rng: np.random.Generator, adapters: int, n: int) -> Ints:
        """Return the adapters of `n` requests that are spread evenly over the run."""
        return self.draw_at(rng, adapters, (np.arange(n) + 0.5) / max(n, 1))

    def draw_at(self, rng: np.random.Generator, adapters: int, moments: Floats) -> Ints:
        of_rank, of_adapter = rng.random((len(moments), 2)).T
        edges = np.cumsum(self.shares(moments), axis=1)[:, :-1]
        drawn = (of_rank[:, None] >= edges).sum(axis=1)
        rank = self._rank(adapters)
        counts = np.bincount(rank)
        place = np.minimum((of_adapter * counts[drawn]).astype(np.int64), counts[drawn] - 1)
        by_rank = np.argsort(rank, kind="stable")
        index: Ints = by_rank[(np.cumsum(counts) - counts)[drawn] + place]
        return index

    def _rank(self, adapters: int) -> Ints:
        """Return each adapter's place among the ranks [adapters], 0 the smallest."""
        return np.unique(np.resize(list(self.ranks), adapters), return_inverse=True)[1]


@dataclass(frozen=True)
class ShiftingSkew(ByRank):
    """At the start the highest rank has `share` of the requests, at the end the lowest; the others are alike.

    Source: LoRAServe §V-E, Figure 16.
    """

    share: float = 0.5

    def check(self, key: str, adapters: int) -> None:
        super().check(key, adapters)
        number(f"{key}.share", self.share, "of the requests", least=0, most=1)

    def ends(self, ranks: int) -> Floats:
        if ranks == 1:
            return np.ones((2, 1))
        ends = np.full((2, ranks), (1 - self.share) / (ranks - 1))
        ends[0, -1] = ends[1, 0] = self.share
        return ends


@dataclass(frozen=True)
class Exponential(ByRank):
    """The i-th smallest rank has a share proportional to exp(-rate * i); a rate of 0 is uniform.

    Source: LoRAServe §V-E, which does not tell its rate.
    """

    rate: float = 1.0

    def check(self, key: str, adapters: int) -> None:
        super().check(key, adapters)
        number(f"{key}.rate", self.rate, least=0)

    def ends(self, ranks: int) -> Floats:
        return _both(libm.exp(-float(self.rate) * np.arange(ranks)))


@dataclass(frozen=True)
class PowerLaw(ByRank):
    """The i-th smallest rank has a share proportional to i^-alpha; an alpha of 0 is uniform.

    Source: LoRAServe §V-H, alpha 1/3 to 3. Of its five ranks the highest then has 16 % to 0.7 %; that it is 16 %, as
    they say, says that x in their x^-alpha counts ranks: with the ranks themselves it would be 12 %.
    """

    alpha: float = 1.0

    def check(self, key: str, adapters: int) -> None:
        super().check(key, adapters)
        number(f"{key}.alpha", self.alpha, least=0)

    def ends(self, ranks: int) -> Floats:
        return _both(power_law(ranks, self.alpha))


def _both(weights: Floats) -> Floats:
    """Return the shares [2, ranks] of weights that stay as they are."""
    return np.tile(weights / weights.sum(), (2, 1))
