"""Invocations of functions or apps, cut, thinned and mapped to adapters, as requests whose lengths are drawn."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from simlora.core.arrays import Floats, Ints
from simlora.core.checks import number, shown, whole
from simlora.core.errors import InputError
from simlora.core.random import stream
from simlora.core.trace import Trace
from simlora.workload.adapters import adapter_specs, check_adapters
from simlora.workload.arrivals import REQUESTS_MAX
from simlora.workload.lengths import Lengths
from simlora.workload.pairs import Pairs, check_lengths, draw_lengths

BY = ("function", "app")


@dataclass(frozen=True)
class Invocations(ABC):
    """Requests as functions were invoked; what invokes a function is for its adapter.

    `by` says what counts as one: a function, or an app with all its functions. By how often they are invoked in the
    window they are mapped to `adapters`: the first `stride` of them to adapter 0, the next to adapter 1, and so on,
    round and round; of all but the `functions` busiest nothing is kept (None: all are). `adapters` = `functions` gives
    each function one of its own.

    `start_s` and `duration_s` cut a window out of the trace; `rate_rps` then keeps so many requests per second, the
    mean over the window, chosen at random; None: all. `speedup` divides every arrival after that. Lengths are drawn:
    see Synthetic. Of a large file no more than the first `rows` are read.

    Source: Azure/AzurePublicDataset; the mapping is dLoRA's (OSDI'24 §7.1).
    """

    path: str
    prompt_tokens: Lengths
    output_tokens: Lengths
    adapters: int = 100
    ranks: Sequence[int] = (8,)
    by: str = "function"
    stride: int = 1
    functions: int | None = None
    start_s: float = 0.0
    duration_s: float | None = None
    rate_rps: float | None = None
    speedup: float = 1.0
    lengths: Pairs | None = None
    correlation: float = 0.0
    rows: int | None = None

    def __post_init__(self) -> None:
        check_adapters(self.adapters, self.ranks)
        if self.by not in BY:
            raise InputError(f"workload.by is {shown(self.by)}, must be one of {', '.join(BY)}")
        whole("workload.stride", self.stride, "functions", least=1)
        for key in ("functions", "rows"):
            if getattr(self, key) is not None:
                whole(f"workload.{key}", getattr(self, key), key, least=1)
        number("workload.start_s", self.start_s, "seconds", least=0)
        if self.duration_s is not None:
            number("workload.duration_s", self.duration_s, "seconds", above=0)
        if self.rate_rps is not None:
            number("workload.rate_rps", self.rate_rps, "requests per second", above=0)
        number("workload.speedup", self.speedup, above=0)
        check_lengths(self.prompt_tokens, self.output_tokens, self.lengths, self.correlation)

    @abstractmethod
    def _invoked(self) -> Invoked:
        """Return what lies in the window."""

    def build(self, seed: int) -> Trace:
        """Return the trace for the run's seed, which decides what is kept, when within a minute, and lengths."""
        invoked = self._invoked()
        adapter_of, kept = self._mapped(invoked)
        invoked = invoked.where(kept[invoked.function])
        rng = stream(seed, "arrivals")
        arrival_s, function = invoked.drawn(rng, self._share(invoked), self.path)
        order = np.argsort(arrival_s, kind="stable")
        prompts, outputs = draw_lengths(
            seed, len(order), self.prompt_tokens, self.output_tokens, self.lengths, self.correlation
        )
        return Trace(
            arrival_s=arrival_s[order] / self.speedup,
            adapter=adapter_of[function[order]],
            prompt_tokens=prompts,
            output_tokens=outputs,
            max_output_tokens=outputs,
            adapters=adapter_specs(self.adapters, self.ranks),
            source=f"{type(self).__name__}: {int(kept.sum()):,} {self.by}s of {self.path}",
        )

    def _mapped(self, invoked: Invoked) -> tuple[Ints, NDArray[np.bool_]]:
        """Return each function's adapter and whether it is kept [functions]; ties go to the first in the file."""
        total = np.bincount(invoked.function, invoked.count)
        place = np.empty(len(total), dtype=np.int64)
        place[np.argsort(-total, kind="stable")] = np.arange(len(total))
        kept = total > 0
        if self.functions is not None:
            kept &= place < int(self.functions)
        return place // int(self.stride) % int(self.adapters), kept

    def _share(self, invoked: Invoked) -> float:
        """Return the share of invocations that is kept. Raises InputError for more than there are, and for too many."""
        total = float(invoked.count.sum())
        if not total:
            raise InputError(
                f"{self.path} has no invocations after workload.start_s and before workload.duration_s are over; "
                f"it covers {invoked.covers_s:,.0f} seconds"
            )
        own_rps = total / invoked.window_s if invoked.window_s else float("inf")
        if self.rate_rps is not None and self.rate_rps > own_rps:
            raise InputError(
                f"workload.rate_rps is {self.rate_rps:g}, must be at most the trace's own {own_rps:.6g} requests per "
                "second; null keeps all of them, and workload.speedup makes them come faster"
            )
        share = 1.0 if self.rate_rps is None else self.rate_rps / own_rps
        if share * total > REQUESTS_MAX:
            raise InputError(
                f"{self.path} has {total:,.0f} invocations there, must be at most {REQUESTS_MAX:,}; "
                "set workload.rate_rps, or a shorter workload.duration_s"
            )
        return share

    def _end_s(self, covers_s: float) -> float:
        """Return where the window ends, in the trace's own seconds."""
        return covers_s if self.duration_s is None else min(covers_s, self.start_s + self.duration_s)


@dataclass(frozen=True)
class Invoked:
    """Invocations [entries]: so many of which function at moments from `from_s` up to `until_s` of the window.

    The window lasts `window_s` of a trace that covers `covers_s` seconds.
    """

    function: Ints
    count: Ints
    from_s: Floats
    until_s: Floats
    window_s: float
    covers_s: float

    def where(self, kept: NDArray[np.bool_]) -> Invoked:
        """Return those entries alone."""
        return Invoked(
            self.function[kept],
            self.count[kept],
            self.from_s[kept],
            self.until_s[kept],
            self.window_s,
            self.covers_s,
        )

    def drawn(self, rng: np.random.Generator, share: float, path: str) -> tuple[Floats, Ints]:
        """Return when the share that is kept comes, and of which function each is [requests]."""
        moments, chosen = rng.spawn(2)
        count = self.count if share == 1.0 else chosen.binomial(self.count, share)
        if not count.any():
            raise InputError(
                f"{path}: workload.rate_rps keeps none of {self.count.sum():,} invocations; raise it"
            )
        start_s, length_s = np.repeat(self.from_s, count), np.repeat(self.until_s - self.from_s, count)
        return start_s + length_s * moments.random(len(start_s)), np.repeat(self.function, count)
