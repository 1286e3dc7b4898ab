"""Scale to keep queues short, and to give adapters room."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from math import ceil

from simlora.core.checks import number, period, whole
from simlora.core.errors import InputError
from simlora.policies.scaling.base import Autoscaler
from simlora.policies.views import FleetView


class ByQueue(Autoscaler):
    """Target tracking: as many replicas as give each `target_requests`, counting running, waiting and unassigned ones.

    Every `period_s` seconds this is ceil(on x (requests per replica / target)), unless that ratio is within `tolerance`
    of 1. The number goes up at once, but in one period by no more than `up_replicas`, or by the share `up_share` of
    those that are on if that is more. It goes down only to the highest result of the last `down_after_s` seconds, so
    that a short lull costs no boot. The requests are those of the last decision that is `lag_s` or more ago, as metrics
    reach an autoscaler late: Prometheus scrapes once a minute by default. Whether there is a request at all is known at
    once.
    `target_waiting` is a metric of the requests alone that wait for their first prefill or a replica, those that run
    left out. It says nothing of how many replicas the running ones need: where no request waits, one replica is enough
    by it.
    With `target_adapters` there is another metric: as many replicas as give each so many of the adapters that are
    asked for. These are adapters of which a request runs, waits or is unassigned; each counts once, wherever its
    requests are. The metric that asks for most replicas decides. A replica with few adapter slots is full of adapters
    long before it is full of requests: the target is then a share of replica.max_loras. It needs a router that keeps an
    adapter's requests together, as with another one every replica serves every adapter, however many there are.
    Source: Kubernetes' Horizontal Pod Autoscaler, with the defaults of autoscaling/v2: 15 s, a tolerance of 0.1, at
    most 4 pods or 100 % more in 15 s, 300 s before scaling down. The formula is that of an external metric with a
    target average, which does not ask which pods are ready. There the number falls to 0 only with the gate
    HPAScaleToZero, or by KEDA. Waiting requests are what vLLM's production stack gives KEDA: a threshold of 5 of
    `vllm:num_requests_waiting` (docs, use_cases/autoscaling-keda); differs: preempted requests are not counted, and
    those without a replica are. The metric of adapters is a rule of ours, of what vLLM's lora_requests_info says
    (running and waiting adapters, max_lora).
    Raises InputError without any target.
    """

    def __init__(
        self,
        target_requests: float | None = 16.0,
        period_s: float = 15.0,
        tolerance: float = 0.1,
        down_after_s: float = 300.0,
        up_replicas: int = 4,
        up_share: float = 1.0,
        lag_s: float = 0.0,
        target_adapters: float | None = None,
        target_waiting: float | None = None,
    ) -> None:
        if target_requests is target_adapters is target_waiting is None:
            raise InputError(
                "autoscaler has no target: give target_requests, target_waiting or target_adapters"
            )
        self.target_requests = _target("target_requests", target_requests, "requests")
        self.target_waiting = _target("target_waiting", target_waiting, "requests")
        self.target_adapters = _target("target_adapters", target_adapters, "adapters")
        self.period_s = period("autoscaler.period_s", period_s)
        self.tolerance = number("autoscaler.tolerance", tolerance, least=0)
        self.down_after_s = number("autoscaler.down_after_s", down_after_s, "seconds", least=0)
        self.up_replicas = whole("autoscaler.up_replicas", up_replicas, "replicas", least=1)
        self.up_share = number("autoscaler.up_share", up_share, least=0)
        self.lag_s = number("autoscaler.lag_s", lag_s, "seconds", least=0)
        self._read: deque[tuple[float, Sequence[float]]] = deque()
        self._said: deque[tuple[float, int]] = deque()

    def metrics(self, view: FleetView) -> Sequence[float]:
        """Return what the fleet has to do now, each as the replicas that it needs."""
        found = []
        if self.target_requests is not None:
            found.append((float(view.outstanding.sum()) + view.unassigned) / self.target_requests)
        if self.target_waiting is not None:
            found.append(len(view.waits_s) / self.target_waiting)
        if self.target_adapters is not None:
            found.append(view.adapters_in_use / self.target_adapters)
        return found

    def replicas(self, view: FleetView) -> int:
        wanted = max([self._of(needed, view.on) for needed in self._late(view)])
        wanted = max(wanted, int(view.active))
        said = self._said
        while said and said[0][0] <= view.now_s - self.down_after_s:
            said.popleft()
        said.append((view.now_s, wanted))
        if wanted >= view.on:
            return min(wanted, view.on + max(self.up_replicas, ceil(view.on * self.up_share)))
        return min(view.on, max(count for _, count in said))

    def _of(self, needed: float, on: int) -> int:
        """Return the replicas that a metric asks for, while so many are on."""
        return on if on and abs(needed / on - 1.0) <= self.tolerance else ceil(needed)

    def _late(self, view: FleetView) -> Sequence[float]:
        """Return the metrics of `lag_s` ago, or the first ones."""
        read = self._read
        read.append((view.now_s, self.metrics(view)))
        while len(read) > 1 and read[1][0] <= view.now_s - self.lag_s:
            read.popleft()
        return read[0][1]


def _target(key: str, target: float | None, unit: str) -> float | None:
    return None if target is None else number(f"autoscaler.{key}", target, unit, above=0)
