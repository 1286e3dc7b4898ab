"""Pairs of lengths: a prompt and the answer that belongs to it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from statistics import NormalDist
from typing import Any

import numpy as np

from simlora.core.arrays import Floats, Ints
from simlora.core.checks import number, part, whole
from simlora.core.errors import InputError, nearest
from simlora.core.files import expanded
from simlora.core.random import stream
from simlora.workload.columns import tokens
from simlora.workload.lengths import Lengths
from simlora.workload.table import read_table

CORRELATION_MAX = 0.99


class Pairs(ABC):
    """A distribution of pairs. Yours needs `draw`; `check` is there for plain errors."""

    @abstractmethod
    def draw(self, rng: np.random.Generator, n: int) -> tuple[Ints, Ints]:
        """Return `n` prompts and their answers [n] in tokens, each at least 1."""

    def check(self, key: str) -> None:
        """Raise InputError for an argument out of range; `key` is where it stands in the configuration."""


@dataclass(frozen=True)
class Rows(Pairs):
    """Drawn with replacement from the rows of a file (CSV, Parquet or JSONL), so that what belongs together stays so.

    Rows are left out that are longer than `prompt_tokens_max` or `output_tokens_max`, or have no prompt or no answer.
    """

    path: str
    prompt_column: str
    output_column: str
    prompt_tokens_max: int | None = None
    output_tokens_max: int | None = None

    def check(self, key: str) -> None:
        if not self.path:
            raise InputError(f"{key}.path is empty, must be a file of lengths")
        for name in ("prompt_tokens_max", "output_tokens_max"):
            if getattr(self, name) is not None:
                whole(f"{key}.{name}", getattr(self, name), "tokens", least=1)
        if not expanded(self.path).exists():
            raise InputError(
                f"{self.path} does not exist; set SIMLORA_TRACE_DIR to its folder or {key}.path to the file, or take "
                "workload/lengths=null for lengths that need none"
            )
        if not len(self.rows[0]):
            raise InputError(
                f"{self.path} has no requests left after {key}.prompt_tokens_max and {key}.output_tokens_max"
            )

    @cached_property
    def rows(self) -> tuple[Ints, Ints]:
        """Return prompts and answers of the rows that stay [rows]. Raises InputError for a file that will not do."""
        table = read_table(self.path)
        for name in (self.prompt_column, self.output_column):
            if name not in table.columns:
                raise InputError(f"{self.path} has no column {name}; {nearest(name, table.columns)}")
        prompts, outputs = (tokens(table, name, least=0) for name in (self.prompt_column, self.output_column))
        kept = (prompts > 0) & (outputs > 0)
        if self.prompt_tokens_max is not None:
            kept &= prompts <= int(self.prompt_tokens_max)
        if self.output_tokens_max is not None:
            kept &= outputs <= int(self.output_tokens_max)
        return prompts[kept], outputs[kept]

    def draw(self, rng: np.random.Generator, n: int) -> tuple[Ints, Ints]:
        prompts, outputs = self.rows
        row = rng.integers(0, len(prompts), n)
        return prompts[row], outputs[row]


def check_length(key: str, lengths: Any) -> None:
    """Raise InputError unless what a workload has as `key` is a distribution of lengths that will do."""
    part(f"workload.{key}", lengths, Lengths, "fixed")
    lengths.check(f"workload.{key}")


def check_lengths(
    prompt_tokens: Lengths, output_tokens: Lengths, together: Pairs | None, correlation: float
) -> None:
    """Raise InputError for what a workload's configuration says wrongly about its lengths."""
    number("workload.correlation", correlation, least=-CORRELATION_MAX, most=CORRELATION_MAX)
    for key, lengths in (("prompt_tokens", prompt_tokens), ("output_tokens", output_tokens)):
        check_length(key, lengths)
        if correlation:
            lengths.at(np.zeros(1))  # raises where quantiles are not known
    if together is not None:
        part("workload.lengths", together, Pairs, "azure_conv")
        together.check("workload.lengths")


def draw_lengths(
    seed: int,
    n: int,
    prompt_tokens: Lengths,
    output_tokens: Lengths,
    together: Pairs | None,
    correlation: float,
) -> tuple[Ints, Ints]:
    """Return prompts and answers [n] for the run's seed: `together`, or from a distribution each.

    `correlation` is that of the normal scores of the two; 0 draws them apart. More requests begin with the fewer.
    """
    prompts, outputs = stream(seed, "prompt_lengths"), stream(seed, "output_lengths")
    if together is not None:
        return together.draw(prompts, n)
    if not correlation:
        return prompt_tokens.draw(prompts, n), output_tokens.draw(outputs, n)
    shares = prompts.random(n)
    return prompt_tokens.at(shares), output_tokens.at(following(outputs, shares, float(correlation)))


def following(rng: np.random.Generator, shares: Floats, correlation: float) -> Floats:
    """Return shares, uniform from 0 to less than 1 [n], whose normal scores correlate with those of `shares` [n]."""
    normal = NormalDist()
    scores = np.fromiter(map(normal.inv_cdf, np.maximum(shares, 1e-300)), dtype=np.float64, count=len(shares))
    scores = correlation * scores + np.sqrt(1 - correlation**2) * rng.standard_normal(len(shares))
    below = np.fromiter(map(normal.cdf, scores), dtype=np.float64, count=len(shares))
    return np.minimum(below, np.nextafter(1.0, 0.0))
