"""Replicas of their own for adapters of high ranks, so that the slots of the others need not be as large."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from simlora.config.engine_flags import allowed_rank
from simlora.planning.machines import Traffic
from simlora.sweeps.outcome import Overrides

SPREAD = 2
"""So many numbers of replicas are tried, from the share of the requests that are for such adapters on."""


@dataclass(frozen=True)
class Apart:
    """So many `replicas`, with `slots` of `highest` rank, beside others whose slots hold no more than `rank`.

    `adapters` have a higher one.
    """

    replicas: int
    slots: int
    rank: int
    highest: int
    adapters: int

    @property
    def overrides(self) -> Overrides:
        """The overrides that set these replicas apart."""
        own = f"{{max_lora_rank:{self.highest},max_loras:{self.slots}}}"
        groups = f"[{{replicas:{self.replicas},replica:{own}}}]"
        return "placement=by_max_rank", f"cluster.replica_groups={groups}"

    def beside(self, replicas: int) -> Iterator[Apart]:
        """Yield what is next to it among `replicas` in all: one replica more or less, twice or half the slots."""
        for count in (self.replicas - 1, self.replicas + 1):
            if 0 < count < replicas:
                yield replace(self, replicas=count)
        for slots in (self.slots // 2, min(2 * self.slots, self.adapters)):
            if slots not in (0, self.slots):
                yield replace(self, slots=slots)


def ways(of: Traffic, replicas: int, stay_s: float) -> Iterator[Apart]:
    """Yield ways to set some of `replicas` apart, one for each rank that may be the highest of the others.

    Replicas go by the share of the requests, slots by the adapters that are in use at once if a request stays
    `stay_s`.
    """
    levels = sorted({allowed_rank(rank) for rank in of.ranks})
    for rank in levels[:-1]:
        large = [rate for rate, own in zip(of.rates_rps, of.ranks, strict=True) if own > rank]
        least = max(1, round(replicas * sum(large) / of.rate_rps))
        for count in range(least, min(least + SPREAD, replicas)):
            active = replace(of, rates_rps=large).active(stay_s, count) + 1
            slots = next((2**power for power in range(12) if 2**power >= active), len(large))
            yield Apart(count, min(slots, len(large)), rank, levels[-1], len(large))
