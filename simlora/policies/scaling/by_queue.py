"""Scale to keep queues short, and to give adapters room."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from math import ceil, inf

from simlora.core.checks import number, period, switch
from simlora.core.errors import InputError
from simlora.policies.scaling.base import Autoscaler
from simlora.policies.scaling.rules import ScalingRules
from simlora.policies.views import FleetView


class ByQueue(Autoscaler):
    """Target tracking: as many replicas as give each `target_requests`, counting running, waiting and unassigned ones.

    Every `period_s` seconds this is ceil(requests / target), unless requests / (target x replicas) is at most
    `up_tolerance` above 1 or `down_tolerance` below it. ScalingRules say what becomes of this result, with `up_*` when
    the number goes up and `down_*` when it goes down. They keep the number at the highest result of the last
    `down_window_s`, so that a short lull costs no boot. Without `behavior` they do not hold: the number is then the
    highest result of the last `down_window_s` seconds also when it goes up, and at most doubled in one decision, or 4.
    The requests are those of the last decision that is `lag_s` or more ago, as metrics reach an autoscaler late:
    Prometheus scrapes once a minute by default, and kube-prometheus-stack every 30 s. Whether there is a request at all
    is known at once.
    `target_waiting` is a metric of the requests alone that wait for their first prefill or a replica, those that run
    left out. It says nothing of how many replicas the running ones need: where no request waits, one replica is enough
    by it.
    With `target_adapters` there is another metric: as many replicas as give each so many of the adapters that are
    asked for. These are adapters of which a request runs, waits or is unassigned; each counts once, wherever its
    requests are. The metric that asks for most replicas decides. A replica with few adapter slots is full of adapters
    long before it is full of requests: the target is then a share of replica.max_loras. It needs a router that keeps an
    adapter's requests together, as with another one every replica serves every adapter, however many there are.
    Source: Kubernetes' Horizontal Pod Autoscaler, without `behavior` and with it (autoscaling/v2, whose defaults these
    are): 15 s, a tolerance of 0.1, at most 4 pods or 100 % more in 15 s, 300 s before scaling down, and then all in
    15 s. The formula is that of an external metric with a target average, as KEDA has it, which does not ask which pods
    are ready; a metric of type Pods takes pods without a metric to be idle before it scales up, and to be at the target
    before it scales down. There the number falls to 0 only with the gate HPAScaleToZero, or by KEDA, after a cooldown
    of its own. Waiting requests are what vLLM's production stack gives KEDA, without `behavior`: a threshold of 5 of
    `vllm:num_requests_waiting` (docs, use_cases/autoscaling-keda; helm/templates/scaledobject-vllm.yaml); differs:
    preempted requests are not counted, and those without a replica are. The metric of adapters is a rule of ours, of
    what vLLM's lora_requests_info says (running and waiting adapters, max_lora).
    Raises InputError without any target, and for rules without `behavior`.
    """

    def __init__(
        self,
        target_requests: float | None = 16.0,
        period_s: float = 15.0,
        lag_s: float = 0.0,
        behavior: bool = True,
        up_replicas: int | None = None,
        up_share: float | None = None,
        up_period_s: float = 15.0,
        up_select: str = "max",
        up_window_s: float = 0.0,
        up_tolerance: float = 0.1,
        down_replicas: int | None = None,
        down_share: float | None = None,
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
        self.behavior = switch("autoscaler.behavior", behavior)
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
        without = (ScalingRules("up").limits, 0.0, ScalingRules("down").limits)
        if not self.behavior and (self.up.limits, self.up.window_s, self.down.limits) != without:
            raise InputError(
                "autoscaler.behavior is false, which leaves of up_* and down_* only up_tolerance, down_tolerance and "
                "down_window_s; the others need autoscaler.behavior=true"
            )
        self._read: deque[tuple[float, Sequence[tuple[float, float]]]] = deque()
        self._results: deque[tuple[float, int]] = deque()

    def metrics(self, view: FleetView) -> Sequence[tuple[float, float]]:
        """Return what the fleet has to do now, and of each how much a replica is to have."""
        found = []
        if self.target_requests is not None:
            found.append((float(view.outstanding.sum()) + view.unassigned, self.target_requests))
        if self.target_waiting is not None:
            found.append((float(len(view.waits_s)), self.target_waiting))
        if self.target_adapters is not None:
            found.append((float(view.adapters_in_use), self.target_adapters))
        return found

    def replicas(self, view: FleetView) -> int:
        now_s, desired = view.now_s, view.desired
        wanted = max([self._of(*metric, desired) for metric in self._late(view)])
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
        if not self.behavior:
            return min(most, max(2 * desired, 4)) if most > desired else most
        if fewest > desired:
            return min(fewest, self.up.limit(desired, view.scaled, now_s))
        if most < desired:
            return max(most, self.down.limit(desired, view.scaled, now_s))
        return desired

    def _of(self, metric: float, target: float, desired: int) -> int:
        """Return the replicas that a metric asks for, while so many are desired."""
        ratio = metric / (target * desired) if desired else inf
        tolerated = 1.0 - self.down.tolerance <= ratio <= 1.0 + self.up.tolerance
        return desired if tolerated else ceil(metric / target)

    def _late(self, view: FleetView) -> Sequence[tuple[float, float]]:
        """Return the metrics of `lag_s` ago, or the first ones."""
        read = self._read
        read.append((view.now_s, self.metrics(view)))
        while len(read) > 1 and read[1][0] <= view.now_s - self.lag_s:
            read.popleft()
        return read[0][1]


def _target(key: str, target: float | None, unit: str) -> float | None:
    return None if target is None else number(f"autoscaler.{key}", target, unit, above=0)
