"""A trace: the columns of all requests that will arrive."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from operator import lt
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from simlora.core.arrays import Counts

BASE_MODEL: Final = -1
"""Adapter index of a request that uses no adapter."""
_COUNTS = ("adapter", "prompt_tokens", "output_tokens", "max_output_tokens")
_NARROW: Final = 1 << 30
"""Below it, the sum of two numbers fits into 32 bits, too."""


@dataclass(frozen=True, slots=True)
class AdapterSpec:
    """An adapter in a trace; its bytes follow once a model is chosen."""

    name: str
    rank: int


@dataclass(frozen=True)
class Trace:
    """Requests as columns of equal length `[requests]`, ordered by (arrival_s, position).

    The position of a request is its id. `adapter` holds indices into `adapters`, or BASE_MODEL. Whole numbers take 32
    bits where all of a column are below 2^30: widen them before you multiply. Equal columns are one array. Adapters are
    put in the order of their names, in which 2 comes before 10: policies break ties by an adapter's number, which hence
    does not hang on the order of rows.
    `session` and `block_hashes` are None if the source has none; a hash identifies `hash_block_tokens` tokens of the
    prompt and all before them. `source` describes where the requests come from; `notices` are sentences that the user
    should read once (rows sorted, rows dropped by a filter). `history_rps` `[adapters]` is the mean requests per second
    of each adapter on earlier days; None if unknown.
    """

    arrival_s: NDArray[np.float64]
    adapter: Counts
    prompt_tokens: Counts
    output_tokens: Counts
    max_output_tokens: Counts
    adapters: tuple[AdapterSpec, ...]
    session: Sequence[str | None] | None = None
    block_hashes: Sequence[tuple[int, ...]] | None = None
    hash_block_tokens: int = 16
    source: str = ""
    notices: tuple[str, ...] = field(default=())
    history_rps: NDArray[np.float64] | None = None

    def __post_init__(self) -> None:
        n = len(self.arrival_s)
        assert bool(np.all(self.arrival_s[1:] >= self.arrival_s[:-1])), "trace arrivals go back"
        for name in _COUNTS:
            column = getattr(self, name)
            assert len(column) == n, f"trace column {name} has another length"
            object.__setattr__(self, name, narrow(column))
        if np.array_equal(self.max_output_tokens, self.output_tokens):
            object.__setattr__(self, "max_output_tokens", self.output_tokens)
        assert bool(np.all(self.output_tokens <= self.max_output_tokens)), "output over its cap"
        if n:
            assert int(self.adapter.max()) < len(self.adapters), "adapter index out of range"
        self._order_adapters()
        if self.history_rps is not None:
            assert self.history_rps.shape == (len(self.adapters),), "trace history is not one rate an adapter"
            assert bool(np.all(np.isfinite(self.history_rps) & (self.history_rps >= 0))), (
                "trace history out of range"
            )

    def _order_adapters(self) -> None:
        names = [spec.name for spec in self.adapters]
        if _are_numbered(names):
            return
        order = sorted(range(len(names)), key=lambda at: _natural(names[at]))
        if order == list(range(len(order))):
            return
        numbers = np.empty(len(order) + 1, dtype=np.int64)
        numbers[order] = np.arange(len(order))
        numbers[BASE_MODEL] = BASE_MODEL
        object.__setattr__(self, "adapter", narrow(numbers[self.adapter]))
        object.__setattr__(self, "adapters", tuple(self.adapters[at] for at in order))
        if self.history_rps is not None:
            object.__setattr__(self, "history_rps", self.history_rps[order])

    def __len__(self) -> int:
        return len(self.arrival_s)

    def sped_up(self, factor: float) -> Trace:
        """Return the same requests, arriving `factor` times as fast."""
        if factor == 1.0:
            return self
        history_rps = None if self.history_rps is None else self.history_rps * factor
        return replace(self, arrival_s=self.arrival_s / factor, history_rps=history_rps)

    @property
    def has_hashes(self) -> bool:
        """Whether any request has hashes."""
        return any(self.block_hashes or ())

    @property
    def has_prefixes(self) -> bool:
        """Whether any request identifies its prefix: by a session or by hashes."""
        return any(session is not None for session in self.session or ()) or self.has_hashes

    @property
    def duration_s(self) -> float:
        """Seconds from 0 to the last arrival."""
        return float(self.arrival_s[-1]) if len(self) else 0.0


def _are_numbered(names: Sequence[str]) -> bool:
    """Whether names are one word and then rising numbers, such as adapter-2 and adapter-10: these are in order.

    Most workloads have such names. To look at them takes a tenth of the time of sorting them.
    """
    word = names[0].rstrip("0123456789") if names else ""
    texts = [name[len(word) :] for name in names if name.startswith(word)]
    if len(texts) < len(names) or not all(
        text.isascii() and text.isdigit() and len(text) < 19 for text in texts
    ):
        return False
    numbers = list(map(int, texts))
    return all(map(lt, numbers, numbers[1:]))


def _natural(name: str) -> list[Any]:
    """Return a sort key that puts adapter-2 before adapter-10."""
    parts = re.split(r"([0-9]+)", name)
    numbers = [(len(part.lstrip("0")), part.lstrip("0")) for part in parts[1::2]]
    return [*itertools.chain.from_iterable(zip(parts[::2], [*numbers, ()], strict=True)), name]


def narrow(column: Counts) -> Counts:
    """Return whole numbers in 32 bits where all are below 2^30."""
    fits = not len(column) or (int(column.max()) < _NARROW and int(column.min()) >= -_NARROW)
    return column.astype(np.int32, copy=False) if fits else column
