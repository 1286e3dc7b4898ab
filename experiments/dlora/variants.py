"""Where dLoRA's paper can be read otherwise than simlora's policies do: for the study what_if_variants.

As described only. The released code has no upper bound of α; it has constant iteration times, and requests move by
their number.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Any

import numpy as np

from simlora.policies.migration.base import Plan
from simlora.policies.migration.selective_ilp import SelectiveIlp
from simlora.policies.scheduling.credit import Credit
from simlora.policies.scheduling.thresholds import Thresholds
from simlora.policies.views import ClusterView

STEP_S, SEQUENCE_S, LORA_S, LORA_SEQUENCE_S = 0.01166, 2.085e-4, 0.01163, 2.3e-5
"""A decode step of the A800's calibration and what a sequence of 472 tokens adds; LoRA's part, likewise, of 16 adapters
of rank 8. With 16 sequences: 15.0 ms merged, 27.0 unmerged."""


class Unbounded(Credit):
    """Without an upper bound of α, which Algorithm 2 does not print."""

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.thresholds.most = inf


@dataclass(kw_only=True)
class TimesByBatch(Thresholds):
    """Algorithm 2 with the time of each iteration by its batch ("can be profiled accurately"), not a constant."""

    def __post_init__(self) -> None:
        self._times_s = (0.0, 0.0)
        super().__post_init__()

    def _begin(self) -> None:
        super()._begin()
        self._times_s = (0.0, 0.0)

    def passed(self, iterations: int) -> None:
        super().passed(iterations)
        if self._batch:
            merged_s, unmerged_s = self._times_s
            merged_s += iterations * (STEP_S + SEQUENCE_S * self._batch)
            unmerged_s += iterations * (STEP_S + LORA_S + (SEQUENCE_S + LORA_SEQUENCE_S) * self._turn)
            self._times_s = (merged_s, unmerged_s)

    def throughputs(self) -> tuple[float, float]:
        merged_s, unmerged_s = self._times_s
        if self.merged:
            unmerged_s += self.switch_s
        else:
            merged_s += self.switch_s
        return self._batches / merged_s, self._turns / unmerged_s


class ByBatch(Credit):
    """With Algorithm 2 as TimesByBatch has it."""

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        of = self.thresholds
        self.thresholds = TimesByBatch(
            constants=of.constants,
            merged_s=of.merged_s,
            unmerged_s=of.unmerged_s,
            switch_s=of.switch_s,
            every=of.every,
            decrement=of.decrement,
            factor=of.factor,
            alpha=of.alpha,
            beta=of.beta,
        )


class ByDelay(SelectiveIlp):
    """Moves when a replica's waiting requests have waited for `delay_above_s` more than those of all replicas.

    §5.2: "the queuing delay of requests in a replica is beyond a computation threshold".
    """

    def __init__(self, delay_above_s: float = 0.5, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.delay_above_s = delay_above_s

    def plan(self, view: ClusterView) -> Plan:
        waits_s = np.asarray([self._wait_s(replica, view) for replica in range(len(view.outstanding))])
        longest = int(waits_s.argmax())
        if waits_s[longest] - waits_s.mean() < self.delay_above_s:
            return Plan()
        cause = f"requests of replica {longest} have waited for {waits_s[longest]:.3g} s"
        return self._among(self.chosen(waits_s), view, cause)

    def _wait_s(self, replica: int, view: ClusterView) -> float:
        waiting = [view.now_s - each.arrival_s for each in view.requests_of(replica) if each.admitted_s < 0.0]
        return sum(waiting) / len(waiting) if waiting else 0.0
