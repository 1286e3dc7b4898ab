"""Scale to give adapters room, besides keeping queues short."""

from __future__ import annotations

from collections.abc import Sequence

from simlora.core.checks import number
from simlora.policies.scaling.by_queue import ByQueue
from simlora.policies.views import FleetView


class ByAdapters(ByQueue):
    """As `ByQueue`, with a second metric: as many replicas as give each `target_adapters` of those that are asked for.

    Asked for are adapters of which a request runs, waits or is unassigned; each counts once, wherever its requests are.
    The metric that asks for more replicas decides, as in Kubernetes' Horizontal Pod Autoscaler. A replica with few
    adapter slots is full of adapters long before it is full of requests: `target_adapters` is then a share of
    replica.max_loras. It needs a router that keeps an adapter's requests together, as with another one every replica
    serves every adapter, however many there are.
    A rule of ours, of what vLLM's lora_requests_info says (running and waiting adapters, max_lora).
    """

    def __init__(
        self,
        target_adapters: float = 6.0,
        target_requests: float = 16.0,
        period_s: float = 15.0,
        tolerance: float = 0.1,
        down_after_s: float = 300.0,
        up_replicas: int = 4,
        up_share: float = 1.0,
        lag_s: float = 0.0,
    ) -> None:
        super().__init__(target_requests, period_s, tolerance, down_after_s, up_replicas, up_share, lag_s)
        self.target_adapters = number("autoscaler.target_adapters", target_adapters, "adapters", above=0)

    def metrics(self, view: FleetView) -> Sequence[float]:
        return (*super().metrics(view), view.adapters_in_use / self.target_adapters)
