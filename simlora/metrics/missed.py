"""Ends a run early once more requests have missed the SLO than are allowed."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

import numpy as np

from simlora.core.trace import Trace
from simlora.metrics.slo import TARGETS, SloTargets
from simlora.metrics.window import Window

ROUNDING = 1e-6
"""Tolerance in requests: 1 - 0.9 is less than 0.1, but a tenth of a thousand requests must be a hundred."""


@dataclass(frozen=True, slots=True)
class MissedMost:
    """The largest share of requests that may miss the targets; with a `window`, of those that arrive in it."""

    share: float
    targets: SloTargets
    window: Window | None = None


class Missed:
    """Counts requests that end outside their targets, as metrics/slo.py counts them after the run.

    `stop` is called once, when the count exceeds the allowed number. Requests rejected at arrival are not counted: a
    run that rejects all its requests has to go on to report that.
    """

    def __init__(self, trace: Trace, most: MissedMost, stop: Callable[[], None]) -> None:
        targets, window = most.targets, most.window
        arrival_s, everybody = trace.arrival_s, np.ones(len(trace), dtype=np.bool_)
        inside = everybody if window is None else window.covers(arrival_s)
        self._inside = inside.data  # a list of a whole trace would take 8 bytes a request and its objects
        self._left = math.floor(most.share * int(inside.sum()) + ROUNDING)
        self._arrival_s: memoryview[float] = cast("memoryview[float]", arrival_s.data)
        self._output_tokens = trace.output_tokens.data
        self._adapter = trace.adapter.data
        of_class = {name: one.targets for one in targets.classes for name in one.adapters}
        names = [adapter.name for adapter in trace.adapters]
        self._limits = [
            _limits(of_class.get(name, targets)) for name in (*names, "")
        ]  # the base model is the last
        self._stop = stop

    def ended(self, id: int, finished: bool, first_token_s: float, now_s: float) -> None:
        """Count a request that has ended: finished or aborted."""
        if not self._inside[id] or (finished and self._within(id, first_token_s, now_s)):
            return
        self._left -= 1
        if self._left == -1:
            self._stop()

    def _within(self, id: int, first_token_s: float, finish_s: float) -> bool:
        arrival_s, tokens = self._arrival_s[id], self._output_tokens[id]
        ttft_s, tpot_s, latency_s, per_token_s = self._limits[self._adapter[id]]
        took_s = finish_s - arrival_s
        return (
            first_token_s - arrival_s < ttft_s
            and (tokens <= 1 or (finish_s - first_token_s) / (tokens - 1) < tpot_s)
            and took_s < latency_s
            and took_s / max(tokens, 1) < per_token_s
        )


def _limits(targets: SloTargets) -> list[float]:
    return [targets.set.get(name, math.inf) for name in TARGETS]
