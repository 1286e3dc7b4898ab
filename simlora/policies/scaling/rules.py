"""How fast the number of replicas may change in one direction."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil

from simlora.core.checks import choice, number, whole
from simlora.core.errors import InputError

SELECTS = ("max", "min", "disabled")


class ScalingRules:
    """Limits of one `direction`, "up" or "down": in `period_s` seconds by `replicas`, or by the `share` of those on.

    Either limit may be None, but not both. Where both are set, `select` says which one counts: "max" the one that
    allows the larger change, "min" the other one; "disabled" allows no change. Both count from the number at the
    beginning of the last `period_s` seconds, so that a change uses up what the limit allows until it is that old.
    `window_s`: the number follows the most careful result of the last so many seconds, which is the lowest for up and
    the highest for down. `tolerance`: the share by which a metric may miss its target in this direction without a
    change.
    Source: behavior.scaleUp and behavior.scaleDown of Kubernetes' HorizontalPodAutoscaler (autoscaling/v2); its
    policies are a list, each with a period of its own, here they are at most one of each type with one period. Its
    tolerance of a direction is behind the gate HPAConfigurableTolerance.
    Raises InputError for a value that is none of these.
    """

    def __init__(
        self,
        direction: str,
        *,
        replicas: int | None,
        share: float | None,
        period_s: float,
        select: str,
        window_s: float,
        tolerance: float,
    ) -> None:
        key, self._up = f"autoscaler.{direction}", direction == "up"
        if replicas is share is None:
            raise InputError(f"{key}_replicas and {key}_share are null, one of them must be a number")
        most = None if self._up else 1
        self.replicas = None if replicas is None else whole(f"{key}_replicas", replicas, "replicas", least=1)
        self.share = None if share is None else number(f"{key}_share", share, above=0, most=most)
        self.period_s = number(f"{key}_period_s", period_s, "seconds", above=0)
        self.select = choice(f"{key}_select", select, SELECTS)
        self.window_s = number(f"{key}_window_s", window_s, "seconds", least=0)
        self.tolerance = number(f"{key}_tolerance", tolerance, least=0)

    def limit(self, on: int, scaled: Sequence[tuple[float, int]], now_s: float) -> int:
        """Return the most replicas that the rules allow, or for down the fewest.

        `scaled`: the times and numbers by which the autoscaler has changed the replicas so far, in order.
        """
        if self.select == "disabled":
            return on
        began = on
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
        return max(limit, on) if self._up else min(limit, on)
