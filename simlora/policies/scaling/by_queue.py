"""Scale to keep queues short, and to give adapters room."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from math import ceil

from simlora.core.checks import number, period
from simlora.core.errors import InputError
from simlora.policies.scaling.base import Autoscaler
from simlora.policies.scaling.rules import ScalingRules
from simlora.policies.views import FleetView


class ByQueue(Autoscaler):
    """Target tracking: as many replicas as give each `target_requests`, counting running, waiting and unassigned ones.

    Every `period_s` seconds this is ceil(on x (requests per replica / target)), unless that ratio is within
    `up_tolerance` above 1 or `down_tolerance` below it. The number follows the lowest result of the last `up_window_s`
    seconds when it goes up, and the highest of the last `down_window_s` when it goes down, so that a short lull costs
    no boot. What it may change by within `up_period_s` and `down_period_s` are ScalingRules: by `up_replicas` or the
    share `up_share`, and `up_select` says which; the same for down, where a limit that is None allows everything that
    the other one allows. The requests are those of the last decision that is `lag_s` or more ago, as metrics reach an
    autoscaler late: Prometheus scrapes once a minute by default, and kube-prometheus-stack every 30 s. Whether there
    is a request at all is known at once.
    `target_waiting` is a metric of the requests alone that wait for their first prefill or a replica, those that run
    left out. It says nothing of how many replicas the running ones need: where no request waits, one replica is enough
    by it.
    With `target_adapters` there is another metric: as many replicas as give each so many of the adapters that are
    asked for. These are adapters of which a request runs, waits or is unassigned; each counts once, wherever its
    requests are. The metric that asks for most replicas decides. A replica with few adapter slots is full of adapters
    long before it is full of requests: the target is then a share of replica.max_loras. It needs a router that keeps an
    adapter's requests together, as with another one every replica serves every adapter, however many there are.
    Source: Kubernetes' Horizontal Pod Autoscaler, with the defaults of autoscaling/v2: 15 s, a tolerance of 0.1, at
    most 4 pods or 100 % more in 15 s, 300 s before scaling down, and then all in 15 s. The formula is that of an
    external metric with a target average, as KEDA has it, which does not ask which pods are ready; a metric of type
    Pods takes pods without a metric to be idle before it scales up, and to be at the target before it scales down.
    There the number falls to 0 only with the gate HPAScaleToZero, or by KEDA. Waiting requests are what vLLM's
    production stack gives KEDA: a threshold of 5 of `vllm:num_requests_waiting` (docs, use_cases/autoscaling-keda;
    helm/templates/scaledobject-vllm.yaml); differs: preempted requests are not counted, and those without a replica
    are. The metric of adapters is a rule of ours, of what vLLM's lora_requests_info says (running and waiting adapters,
    max_lora).
    Raises InputError without any target.
    """

    def __init__(
        self,
        target_requests: float | None = 16.0,
        period_s: float = 15.0,
        lag_s: float = 0.0,
        up_replicas: int | None = 4,
        up_share: float | None = 1.0,
        up_period_s: float = 15.0,
        up_select: str = "max",
        up_window_s: float = 0.0,
        up_tolerance: float = 0.1,
        down_replicas: int | None = None,
        down_share: float | None = 1.0,
        down_period_s: float = 15.0,
        down_select: str = "max",
        down_window_s: float = 300.0,
        down_tolerance: float = 0.1,
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
        self.lag_s = number("autoscaler.lag_s", lag_s, "seconds", least=0)
        self.up = ScalingRules(
            "up",
            replicas=up_replicas,
            share=up_share,
            period_s=up_period_s,
            select=up_select,
            window_s=up_window_s,
            tolerance=up_tolerance,
        )
        self.down = ScalingRules(
            "down",
            replicas=down_replicas,
            share=down_share,
            period_s=down_period_s,
            select=down_select,
            window_s=down_window_s,
            tolerance=down_tolerance,
        )
        self._read: deque[tuple[float, Sequence[float]]] = deque()
        self._results: deque[tuple[float, int]] = deque()

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
        now_s, on = view.now_s, view.on
        wanted = max([self._of(needed, on) for needed in self._late(view)])
        wanted = max(wanted, int(view.active))
        results = self._results
        while results and results[0][0] <= now_s - max(self.up.window_s, self.down.window_s):
            results.popleft()
        fewest = most = wanted
        for at_s, count in results:
            if at_s > now_s - self.up.window_s:
                fewest = min(fewest, count)
            if at_s > now_s - self.down.window_s:
                most = max(most, count)
        results.append((now_s, wanted))
        if fewest > on:
            return min(fewest, self.up.limit(on, view.scaled, now_s))
        if most < on:
            return max(most, self.down.limit(on, view.scaled, now_s))
        return on

    def _of(self, needed: float, on: int) -> int:
        """Return the replicas that a metric asks for, while so many are on."""
        tolerated = on and 1.0 - self.down.tolerance <= needed / on <= 1.0 + self.up.tolerance
        return on if tolerated else ceil(needed)

    def _late(self, view: FleetView) -> Sequence[float]:
        """Return the metrics of `lag_s` ago, or the first ones."""
        read = self._read
        read.append((view.now_s, self.metrics(view)))
        while len(read) > 1 and read[1][0] <= view.now_s - self.lag_s:
            read.popleft()
        return read[0][1]


def _target(key: str, target: float | None, unit: str) -> float | None:
    return None if target is None else number(f"autoscaler.{key}", target, unit, above=0)
