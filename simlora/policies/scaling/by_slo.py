"""Scale to meet the first-token target."""

from __future__ import annotations

from math import ceil

import numpy as np

from simlora.core.checks import number, period
from simlora.policies.scaling.base import Autoscaler
from simlora.policies.views import FleetView


class BySlo(Autoscaler):
    """Adds replicas while too few first tokens come within `ttft_s`, and removes some while all come much sooner.

    The attainment is computed over requests that ended in the last `window_s` seconds and requests that have waited
    for longer than the target; aborted requests count as missed. Below `attainment`, the number grows by the share
    `grow`, at least by one. If no request waits, all TTFTs were within `headroom` times the target, and nothing has
    changed for `down_after_s`, it falls by one, to 0 only without requests.
    A rule of ours, of the kind that operators write; nothing is predicted.
    """

    def __init__(
        self,
        ttft_s: float = 6.0,
        attainment: float = 0.99,
        period_s: float = 15.0,
        window_s: float = 60.0,
        grow: float = 0.25,
        headroom: float = 0.25,
        down_after_s: float = 300.0,
    ) -> None:
        self.ttft_s = number("autoscaler.ttft_s", ttft_s, "seconds", above=0)
        self.attainment = number("autoscaler.attainment", attainment, above=0, most=1)
        self.period_s = period("autoscaler.period_s", period_s)
        self.window_s = number("autoscaler.window_s", window_s, "seconds", above=0)
        self.grow = number("autoscaler.grow", grow, above=0)
        self.headroom = number("autoscaler.headroom", headroom, least=0, most=1)
        self.down_after_s = number("autoscaler.down_after_s", down_after_s, "seconds", least=0)
        self._changed_s = 0.0

    def replicas(self, view: FleetView) -> int:
        desired, had_s, waits_s = view.desired, view.first_tokens_s(self.window_s), view.waits_s
        late = int((had_s >= self.ttft_s).sum()) + int((waits_s >= self.ttft_s).sum())
        counted = len(had_s) + int((waits_s >= self.ttft_s).sum())
        if counted and 1.0 - late / counted < self.attainment:
            self._changed_s = view.now_s
            return desired + max(ceil(desired * self.grow), 1)
        calm = not len(waits_s) and (np.max(had_s, initial=0.0) <= self.headroom * self.ttft_s)
        if calm and desired > view.active and view.now_s - self._changed_s >= self.down_after_s:
            self._changed_s = view.now_s
            return desired - 1
        return desired
