"""Lengths: how many tokens a prompt or an answer has."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import NormalDist

import numpy as np

from simlora.core import libm
from simlora.core.arrays import Floats, Ints
from simlora.core.checks import listed, number, whole
from simlora.core.errors import InputError, nearest
from simlora.workload.columns import TOKENS_MAX, tokens
from simlora.workload.table import read_table

EDGES_MOST = 10_000
"""Lengths whose edges are kept: less than 2 ms to find, once."""


class Lengths(ABC):
    """A distribution. Yours needs `draw`; `at` too where lengths correlate; `check` is there for plain errors."""

    @abstractmethod
    def draw(self, rng: np.random.Generator, n: int) -> Ints:
        """Return `n` lengths [n] in tokens, each at least 1."""

    def at(self, shares: Floats) -> Ints:
        """Return the quantiles at `shares` [n], each from 0 to less than 1.

        Raises InputError where they are not set.
        """
        raise InputError(
            f"{type(self).__name__} draws lengths and does not say what their quantiles are, which lengths that "
            "correlate need; set workload.correlation=0, or give it a method at(shares)"
        )

    def check(self, key: str) -> None:
        """Raise InputError for an argument out of range; `key` is where it stands in the configuration."""


@dataclass(frozen=True)
class Fixed(Lengths):
    """Always the same."""

    tokens: int

    def check(self, key: str) -> None:
        whole(f"{key}.tokens", self.tokens, "tokens", least=1, most=TOKENS_MAX)

    def draw(self, rng: np.random.Generator, n: int) -> Ints:
        return np.full(n, int(self.tokens), dtype=np.int64)

    def at(self, shares: Floats) -> Ints:
        return np.full(len(shares), int(self.tokens), dtype=np.int64)


@dataclass(frozen=True)
class Uniform(Lengths):
    """From `lo` up to, not including, `hi`, as in S-LoRA's generator."""

    lo: int
    hi: int

    def check(self, key: str) -> None:
        check_range(f"{key}.lo", self.lo, f"{key}.hi", self.hi)

    def draw(self, rng: np.random.Generator, n: int) -> Ints:
        return rng.integers(int(self.lo), int(self.hi), n)

    def at(self, shares: Floats) -> Ints:
        return int(self.lo) + (shares * (int(self.hi) - int(self.lo))).astype(np.int64)


@dataclass(frozen=True)
class Geometric(Lengths):
    """1, 2, 3, ..., each (mean - 1) / mean as likely as the one before: after every one it goes on or ends alike."""

    mean: float

    def check(self, key: str) -> None:
        number(f"{key}.mean", self.mean, least=1, most=TOKENS_MAX)

    def draw(self, rng: np.random.Generator, n: int) -> Ints:
        return rng.geometric(1 / self.mean, n)

    def at(self, shares: Floats) -> Ints:
        if self.mean == 1:
            return np.ones(len(shares), dtype=np.int64)
        lengths = np.ceil(libm.log1p(-shares) / math.log1p(-1 / self.mean))
        return np.maximum(lengths, 1).astype(np.int64)


@dataclass(frozen=True)
class LogNormal(Lengths):
    """exp(Normal(mean_log, sigma_log)) cut to `lo` up to and including `hi` (drawn from what lies between,
    not piled up at the ends), then rounded."""

    mean_log: float
    sigma_log: float
    lo: int
    hi: int

    def check(self, key: str) -> None:
        number(f"{key}.mean_log", self.mean_log)
        number(f"{key}.sigma_log", self.sigma_log, above=0)
        check_range(f"{key}.lo", self.lo, f"{key}.hi", self.hi)
        low, high = self._cut
        if low == high:
            raise InputError(
                f"{key}.lo and {key}.hi are {self.lo} and {self.hi}, between which a log-normal of mean_log "
                f"{self.mean_log:g} and sigma_log {self.sigma_log:g} has no probability; widen them"
            )

    @property
    def _cut(self) -> tuple[float, float]:
        """Return the probabilities below `lo` and below `hi`."""
        normal = NormalDist(self.mean_log, self.sigma_log)
        return normal.cdf(math.log(self.lo)), normal.cdf(math.log(self.hi))

    def draw(self, rng: np.random.Generator, n: int) -> Ints:
        return self.at(rng.random(n))

    def at(self, shares: Floats) -> Ints:
        low, high = self._cut
        inside = low + shares * (high - low)
        if self.hi - self.lo <= EDGES_MOST:
            found: Ints = self.lo + np.searchsorted(self._edges, inside, side="right")
            return found
        inverse = NormalDist(self.mean_log, self.sigma_log).inv_cdf
        logs = np.fromiter(map(inverse, np.clip(inside, 1e-300, 1 - 1e-16)), np.float64, len(shares))
        return np.clip(np.rint(libm.exp(logs)), self.lo, self.hi).astype(np.int64)

    @cached_property
    def _edges(self) -> Floats:
        """The probabilities of less than is rounded to the next length, of each but the last [hi - lo].

        To look lengths up there takes a fifth of the time that inverses take: 0.04 µs instead of 0.19.
        """
        below = NormalDist(self.mean_log, self.sigma_log).cdf
        return np.array(
            [below(math.log(tokens + 0.5)) for tokens in range(self.lo, self.hi)], dtype=np.float64
        )


@dataclass(frozen=True)
class Quantiles(Lengths):
    """By its quantiles, as papers give them: shares[i] of all lengths are at most tokens[i].

    Between two quantiles every length is as likely as the next; then all are multiplied by `scale`, for
    another tokenizer, and rounded.
    """

    shares: Sequence[float]
    tokens: Sequence[float]
    scale: float = 1.0

    def check(self, key: str) -> None:
        shares = listed(f"{key}.shares", self.shares, "[0,0.5,1]")
        lengths = listed(f"{key}.tokens", self.tokens, "[4,100,1024]")
        if len(shares) != len(lengths):
            raise InputError(
                f"{key}.tokens has {len(lengths)} entries, must have one for each of the {len(shares)} "
                f"of {key}.shares"
            )
        for i, (share, length) in enumerate(zip(shares, lengths, strict=True)):
            number(f"{key}.shares[{i}]", share, least=0, most=1)
            number(f"{key}.tokens[{i}]", length, "tokens", least=1, most=TOKENS_MAX)
        number(f"{key}.scale", self.scale, above=0)
        if (shares[0], shares[-1]) != (0, 1) or list(shares) != sorted(set(shares)):
            raise InputError(f"{key}.shares is {list(shares)}, must go up from 0 to 1")
        if list(lengths) != sorted(lengths):
            raise InputError(f"{key}.tokens is {list(lengths)}, must not go down")

    def draw(self, rng: np.random.Generator, n: int) -> Ints:
        return self.at(rng.random(n))

    def at(self, shares: Floats) -> Ints:
        lengths = self.scale * np.interp(shares, list(self.shares), list(self.tokens))
        return np.maximum(np.rint(lengths), 1).astype(np.int64)


@dataclass(frozen=True)
class Empirical(Lengths):
    """Drawn with replacement from one column of a file (CSV, Parquet or JSONL).

    Prompts and outputs are drawn apart, so what correlation the file had between them is lost.
    """

    path: str
    column: str

    def check(self, key: str) -> None:
        if not self.path:
            raise InputError(f"{key}.path is empty, must be a file of lengths")
        _ = self.lengths

    @cached_property
    def lengths(self) -> Ints:
        """Return the file's lengths [rows]. Raises InputError for a file or column that will not do."""
        table = read_table(self.path)
        if self.column not in table.columns:
            raise InputError(
                f"{self.path} has no column {self.column}; {nearest(self.column, table.columns)}"
            )
        return tokens(table, self.column)

    def draw(self, rng: np.random.Generator, n: int) -> Ints:
        return self.lengths[rng.integers(0, len(self.lengths), n)]

    def at(self, shares: Floats) -> Ints:
        return np.sort(self.lengths)[(shares * len(self.lengths)).astype(np.int64)]


def check_range(lo_key: str, lo: int, hi_key: str, hi: int) -> None:
    """Raise InputError unless 1 <= lo < hi, both whole."""
    whole(lo_key, lo, "tokens", least=1, most=TOKENS_MAX)
    whole(hi_key, hi, "tokens", least=int(lo) + 1, most=TOKENS_MAX)
