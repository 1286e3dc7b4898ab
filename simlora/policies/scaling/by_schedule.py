"""Scale by the time of day."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Any

from simlora.core.checks import listed, number, period, shown, whole
from simlora.core.errors import InputError
from simlora.policies.scaling.base import Autoscaler
from simlora.policies.views import FleetView

EXAMPLE = "[{at_s: 0, replicas: 2}, {at_s: 32400, replicas: 8}, {at_s: 72000, replicas: 2}]"


class BySchedule(Autoscaler):
    """From each `at_s` on, the given number of `replicas`; with `every_s` the schedule repeats after that time.

    Times count from the start of the workload. The schedule is read every `period_s` seconds, so a step takes effect
    up to that late. Before the first step the number is that of the last step.
    """

    def __init__(self, steps: Sequence[Any], every_s: float | None = None, period_s: float = 15.0) -> None:
        self.period_s = period("autoscaler.period_s", period_s)
        self.every_s = None if every_s is None else number("autoscaler.every_s", every_s, "seconds", above=0)
        self._at_s: list[float] = []
        self._replicas: list[int] = []
        for step in listed("autoscaler.steps", steps, EXAMPLE):
            if not isinstance(step, dict) or step.keys() != {"at_s", "replicas"}:
                raise InputError(
                    f"autoscaler.steps has {shown(step)}, must have at_s and replicas, such as {EXAMPLE}"
                )
            at_s = number("at_s of autoscaler.steps", step["at_s"], "seconds", least=0)
            if self._at_s and at_s <= self._at_s[-1]:
                raise InputError(
                    f"autoscaler.steps has {at_s:g} s after {self._at_s[-1]:g}, must be in order of time"
                )
            if self.every_s is not None and at_s >= self.every_s:
                raise InputError(
                    f"autoscaler.steps has {at_s:g} s, must be below autoscaler.every_s, {self.every_s:g}"
                )
            self._at_s.append(at_s)
            self._replicas.append(
                whole("replicas of autoscaler.steps", step["replicas"], "replicas", least=0)
            )

    def replicas(self, view: FleetView) -> int:
        time_s = view.now_s if self.every_s is None else view.now_s % self.every_s
        return self._replicas[bisect_right(self._at_s, time_s) - 1]
