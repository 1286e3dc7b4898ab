"""Scale to keep queues short."""

from __future__ import annotations

from collections import deque
from math import ceil

from simlora.core.checks import number, period
from simlora.policies.scaling.base import Autoscaler
from simlora.policies.views import FleetView


class ByQueue(Autoscaler):
    """Target tracking: as many replicas as give each `target_requests`, counting running, waiting and unassigned ones.

    Every `period_s` seconds this is ceil(on x (requests per replica / target)), unless that ratio is within
    `tolerance` of 1. The number goes up at once. It goes down only to the highest result of the last `down_after_s`
    seconds, so that a short lull costs no boot.
    Source: the algorithm, its tolerance of 0.1 and its 300 s before scaling down are those of Kubernetes' Horizontal
    Pod Autoscaler, which runs every 15 s.
    """

    def __init__(
        self,
        target_requests: float = 16.0,
        period_s: float = 15.0,
        tolerance: float = 0.1,
        down_after_s: float = 300.0,
    ) -> None:
        self.target_requests = number("autoscaler.target_requests", target_requests, "requests", above=0)
        self.period_s = period("autoscaler.period_s", period_s)
        self.tolerance = number("autoscaler.tolerance", tolerance, least=0)
        self.down_after_s = number("autoscaler.down_after_s", down_after_s, "seconds", least=0)
        self._said: deque[tuple[float, int]] = deque()

    def replicas(self, view: FleetView) -> int:
        requests = float(view.outstanding.sum()) + view.unassigned
        ratio = requests / (max(view.on, 1) * self.target_requests)
        wanted = view.on if abs(ratio - 1.0) <= self.tolerance else ceil(requests / self.target_requests)
        said = self._said
        while said and said[0][0] <= view.now_s - self.down_after_s:
            said.popleft()
        said.append((view.now_s, wanted))
        return wanted if wanted >= view.on else min(view.on, max(count for _, count in said))
