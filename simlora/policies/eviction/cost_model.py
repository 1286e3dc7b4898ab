"""FastLibra's cost model: the cost of bringing something back, times how likely it is to be needed."""

from __future__ import annotations

from math import exp, inf, log, log1p
from typing import Final

from mypy_extensions import mypyc_attr

from simlora.core.checks import GivenBool, GivenFloat, GivenStr, choice, number, switch
from simlora.policies.eviction.swapper import Swapper

CONSTANTS: dict[str, dict[str, float]] = {
    "paper": {"every_s": 0.1, "busy": 0.95, "busy_to": 0.95, "idle": 0.7, "idle_to": 0.7, "recency_s": 1.0},
    "released": {"every_s": 0.0, "busy": 0.8, "busy_to": 0.7, "idle": 0.6, "idle_to": 0.7, "recency_s": inf},
}
"""By source: the paper, or its authors' released code. recency_s inf: worth does not decay with time."""

NO_MORE: Final = 2.0**-54
"""Up to which log1p of a number is the number itself."""


@mypyc_attr(allow_interpreted_subclasses=True)
class CostModel(Swapper):
    """Eval = max(1, Low / Now) * cost * prob * (1 - sigmoid(t)), the first factor for adapters only.

    cost is the bytes of an item over the bandwidth of PCIe, an adapter's or a whole segment's of KV; with `by_block`
    that of one block, whatever the segment has: the paper speaks of nodes of a size, and of blocks (§4.3). prob is the
    share of all requests that used the item; t the time since its last use in units of `recency_s`. The paper does not
    give that unit: with one second, the later of two items last used ten seconds apart counts 22,000 times as much, and
    the model is almost LRU. None takes the unit of `constants`; "never" is infinitely long. Low is the number of
    adapters a batch is expected to need, Now the number in HBM. As printed (equation 6) the first factor is of KV too:
    it is the same for all items then, and changes no order, as without `adapter_reward` (FastLibra-WOL).
    Worth is kept as a logarithm, so that the sigmoid of minutes stays within range. Use counts never decay.
    Source: FastLibra, equations 3 to 6.
    """

    def __init__(
        self,
        constants: GivenStr = "paper",
        every_s: GivenFloat | None = None,
        busy: GivenFloat | None = None,
        busy_to: GivenFloat | None = None,
        idle: GivenFloat | None = None,
        idle_to: GivenFloat | None = None,
        recency_s: GivenFloat | GivenStr | None = None,
        backlog_s: GivenFloat = 0.1,
        dependencies: GivenBool = True,
        matches_invalid: GivenBool = True,
        by_block: GivenBool = False,
        adapter_reward: GivenBool = True,
    ) -> None:
        known = CONSTANTS[choice("eviction.constants", constants, CONSTANTS)]

        def given(name: str, value: GivenFloat) -> GivenFloat:
            return known[name] if value is None else value

        super().__init__(
            every_s=given("every_s", every_s),
            busy=given("busy", busy),
            busy_to=given("busy_to", busy_to),
            idle=given("idle", idle),
            idle_to=given("idle_to", idle_to),
            backlog_s=backlog_s,
            dependencies=dependencies,
            matches_invalid=matches_invalid,
            by_block=by_block,
        )
        self._reward = switch("eviction.adapter_reward", adapter_reward)
        if recency_s is None:
            self.recency_s = known["recency_s"]
        else:
            never = recency_s == "never"
            self.recency_s = inf if never else number("eviction.recency_s", recency_s, "seconds", above=0)
        # With an infinite unit the decay is the same for all items, so that no item has to be looked at twice.
        self._most_fade = 0.0 if self.recency_s == inf else log(2.0)

    @property
    def most_fade(self) -> float:
        return self._most_fade

    def key(self, cost_s: float, visits: int, used_s: float) -> float:
        worth = cost_s * visits
        return (log(worth) if worth > 0.0 else -inf) + used_s / self.recency_s

    def fade(self, idle_s: float) -> float:
        if not self._most_fade:
            return 0.0
        # log(1 - sigmoid(x)) = -x - log(1 + exp(-x)); the key has -x, up to a term that is the same for all items.
        rest = exp(-idle_s / self.recency_s)
        return log1p(rest) if rest > NO_MORE else rest

    def reward(self, needed: float, resident: int) -> float:
        if not self._reward or needed <= resident:
            return 0.0
        return log(needed / resident) if resident else inf
