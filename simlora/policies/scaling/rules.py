"""How fast the number of replicas may change in one direction."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil

from simlora.core.checks import choice, number, whole

SELECTS = ("max", "min", "disabled")


class ScalingRules:
    """Limits of one `direction`, "up" or "down": in `period_s` seconds by `replicas`, or by the `share` of those there.

    A limit that is None does not count; if both are, they are Kubernetes' own: up by 4 replicas or by 100 %, down by
    100 %. Of two limits `select` says which one counts: "max" the one that allows the larger change, "min" the other
    one; "disabled" allows no change. They count from the number of replicas `period_s` seconds ago: what was added
    since is taken off what may be added now, and what was removed since may be added besides.
    `window_s`: the number follows the most careful result of the last so many seconds, which is the lowest for up and
    the highest for down. `tolerance`: the share by which a metric may miss its target in this direction without a
    change.
    Source: behavior.scaleUp and behavior.scaleDown of Kubernetes' HorizontalPodAutoscaler (autoscaling/v2). Differs:
    its policies are a list, each with a period of its own; here they are at most one of each type with one period. Its
    tolerance of a direction is behind the gate HPAConfigurableTolerance.
    Raises InputError for a value that is none of these.
    """

    def __init__(
        self,
        direction: str,
        *,
        replicas: int | None = None,
        share: float | None = None,
        period_s: float = 15.0,
        select: str = "max",
        window_s: float = 0.0,
        tolerance: float = 0.1,
    ) -> None:
        key, self._up = f"autoscaler.{direction}", direction == "up"
        if replicas is share is None:
            replicas, share = (4 if self._up else None), 1.0
        most = None if self._up else 1
        self.replicas = None if replicas is None else whole(f"{key}_replicas", replicas, "replicas", least=1)
        self.share = None if share is None else number(f"{key}_share", share, above=0, most=most)
        self.period_s = number(f"{key}_period_s", period_s, "seconds", above=0)
        self.select = choice(f"{key}_select", select, SELECTS)
        self.window_s = number(f"{key}_window_s", window_s, "seconds", least=0)
        self.tolerance = number(f"{key}_tolerance", tolerance, least=0)

    @property
    def limits(self) -> tuple[int | None, float | None, float, str]:
        """What the number may change by, in how many seconds, and which of two counts."""
        return self.replicas, self.share, self.period_s, self.select

    def limit(self, desired: int, scaled: Sequence[tuple[float, int]], now_s: float) -> int:
        """Return the most replicas that the rules allow, or for down the fewest.

        `scaled`: the times and numbers by which the autoscaler has changed the `desired` number so far, in order.
        """
        if self.select == "disabled":
            return desired
        began = desired
        for at_s, change in reversed(scaled):
            if at_s <= now_s - self.period_s:
                break
            began -= change
        allowed = []
        if self.replicas is not None:
            allowed.append(began + self.replicas if self._up else began - self.replicas)
        if self.share is not None:
            allowed.append(ceil(began * (1 + self.share)) if self._up else int(began * (1 - self.share)))
        highest = self._up == (self.select == "max")
        limit = max(allowed) if highest else min(allowed)
        return max(limit, desired) if self._up else min(limit, desired)
