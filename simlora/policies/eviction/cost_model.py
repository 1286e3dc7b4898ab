"""FastLibra's cost model: what it would cost to bring something back, times how likely that is."""

from __future__ import annotations

from math import exp, inf, log, log1p
from typing import Any

from simlora.core.checks import choice, number, switch
from simlora.policies.eviction.swapper import Swapper

CONSTANTS: dict[str, dict[str, float | None]] = {
    "paper": {"every_s": 0.1, "busy": 0.95, "busy_to": 0.95, "idle": 0.7, "idle_to": 0.7, "recency_s": 1.0},
    "released": {"every_s": 0.0, "busy": 0.8, "busy_to": 0.7, "idle": 0.6, "idle_to": 0.7, "recency_s": None},
}
"""By who says so: the paper, or its authors' code. None: time takes nothing."""


class CostModel(Swapper):
    """Eval = max(1, Low / Now) * cost * prob * (1 - sigmoid(t)), the first factor for adapters only.

    cost is the seconds of a transfer; prob the share of all requests that used it; t the time since the last use, in
    units of `recency_s`, which the paper does not give: with a second, of things last used ten seconds apart the later
    one counts 22,000 times as much, and the model is all but LRU. None: infinitely long. Low is how many adapters a
    batch is expected to need, Now how many are in HBM. Without `adapter_reward` the first factor is 1 (FastLibra-WOL).
    Worth is kept as a logarithm, which the sigmoid of minutes does not leave the range of. Counts never fade.
    Source: FastLibra, equations 3 to 6.
    """

    def __init__(
        self,
        constants: str = "paper",
        every_s: float | None = None,
        busy: float | None = None,
        busy_to: float | None = None,
        idle: float | None = None,
        idle_to: float | None = None,
        recency_s: float | str | None = None,
        backlog_s: float = 0.1,
        dependencies: bool = True,
        matches_invalid: bool = True,
        adapter_reward: bool = True,
    ) -> None:
        known = CONSTANTS[choice("eviction.constants", constants, CONSTANTS)]
        given = {"every_s": every_s, "busy": busy, "busy_to": busy_to, "idle": idle, "idle_to": idle_to}
        band: dict[str, Any] = {
            name: known[name] if value is None else value for name, value in given.items()
        }
        super().__init__(
            **band, backlog_s=backlog_s, dependencies=dependencies, matches_invalid=matches_invalid
        )
        self._reward = switch("eviction.adapter_reward", adapter_reward)
        unit_s = known["recency_s"] if recency_s is None else recency_s
        self.recency_s = (
            inf if unit_s in (None, "never") else number("eviction.recency_s", unit_s, "seconds", above=0)
        )
        # What time takes never is the same for all of them: nothing has to be looked at twice.
        self.most_fade = 0.0 if self.recency_s == inf else log(2.0)

    def key(self, cost_s: float, visits: int, used_s: float) -> float:
        worth = cost_s * visits
        return (log(worth) if worth > 0.0 else -inf) + used_s / self.recency_s

    def fade(self, idle_s: float) -> float:
        # log(1 - sigmoid(x)) = -x - log(1 + exp(-x)), and -x is in the key but for what is the same for all.
        return log1p(exp(-idle_s / self.recency_s)) if self.most_fade else 0.0

    def reward(self, needed: float, resident: int) -> float:
        if not self._reward or needed <= resident:
            return 0.0
        return log(needed / resident) if resident else inf
