"""Replicas of two kinds: some for adapters of high ranks, or some that only prefill, beside the others."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol

from simlora.config.engine_flags import allowed_rank, engine
from simlora.planning.machines import RANK, ROUTER, SLOTS, Machine, Traffic, key_of
from simlora.sweeps.outcome import Overrides

DECODE_ROUTER = "router@decode_router"
TRIED = 7
"""Numbers of replicas that prefill, evenly over all, from which a climb goes on by one."""
SPREAD = 2
"""So many numbers of replicas are tried, from the share of the requests that are for high ranks on."""


class Kind(NamedTuple):
    """Replicas that are started alike: their number, for what, with which settings and further words of the command."""

    number: int
    what: str
    settings: Mapping[str, Any]
    words: Sequence[str] = ()


class Apart(Protocol):
    """How the replicas of a plan are divided into two kinds."""

    @property
    def overrides(self) -> Overrides:
        """The overrides that divide them."""

    def applied(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Return the settings of all replicas, but for those that their own kind has, from those of a plan."""

    def beside(self, replicas: int) -> Iterator[Apart]:
        """Yield what is next to it among `replicas` in all."""

    def kinds(self, replicas: int, engine_name: str) -> list[Kind]:
        """Return both kinds of `replicas` in all, as an engine has them."""

    def said(self, replicas: int) -> str:
        """Return how `replicas` in all are divided, in words."""


@dataclass(frozen=True)
class HighRanks:
    """So many `replicas`, with `slots` of `highest` rank, beside others whose slots hold no more than `rank`.

    `adapters` have a higher one. The slots of the others need not be as large.
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

    def applied(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Return settings with the rank of the others' slots."""
        return {**settings, RANK: self.rank}

    def beside(self, replicas: int) -> Iterator[HighRanks]:
        """Yield what is next to it among `replicas` in all: one replica more or less, twice or half the slots."""
        for count in (self.replicas - 1, self.replicas + 1):
            if 0 < count < replicas:
                yield replace(self, replicas=count)
        for slots in (self.slots // 2, min(2 * self.slots, self.adapters)):
            if slots not in (0, self.slots):
                yield replace(self, slots=slots)

    def kinds(self, replicas: int, engine_name: str) -> list[Kind]:
        """Return the replicas for low ranks, and those for high ones."""
        large = {RANK: self.highest, SLOTS: self.slots}
        return [
            Kind(replicas - self.replicas, f"for ranks up to {self.rank}", {RANK: self.rank}),
            Kind(self.replicas, f"for ranks above {self.rank}", large),
        ]

    def said(self, replicas: int) -> str:
        """Return how `replicas` in all are divided."""
        low = f"{replicas - self.replicas} for ranks up to {self.rank}"
        return f"{low} and {self.replicas} of {self.slots} slots for ranks above"


@dataclass(frozen=True)
class Prefilling:
    """So many `replicas` only prefill, and the others decode what these hand over."""

    replicas: int

    @property
    def overrides(self) -> Overrides:
        """The override that sets them apart."""
        return (f"cluster.prefill_replicas={self.replicas}",)

    def applied(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Return settings with one router for both pools."""
        routers = {DECODE_ROUTER: settings[ROUTER]} if ROUTER in settings else {}
        return {**settings, **routers}

    def beside(self, replicas: int) -> Iterator[Prefilling]:
        """Yield one replica more or less that prefills, of `replicas` in all."""
        for count in (self.replicas - 1, self.replicas + 1):
            if 0 < count < replicas:
                yield Prefilling(count)

    def kinds(self, replicas: int, engine_name: str) -> list[Kind]:
        """Return the replicas that prefill, and those that decode."""
        prefill, decode = engine(engine_name).pools
        return [
            Kind(self.replicas, "that prefill", {}, prefill),
            Kind(replicas - self.replicas, "that decode", {}, decode),
        ]

    def said(self, replicas: int) -> str:
        """Return how `replicas` in all are divided."""
        return f"{self.replicas} that prefill and {replicas - self.replicas} that decode"


def ways(on: Machine, of: Traffic, replicas: int, stay_s: float, pools: bool) -> Iterator[Apart]:
    """Yield ways to divide `replicas` of a machine: by rank, and with `pools` by what they do.

    A user who says where adapters are served has said that none are set apart by rank.
    """
    given = {key_of(one).partition(".")[0] for one in on.overrides}
    if "placement" not in given:
        yield from by_rank(of, replicas, stay_s)
    if pools:
        step = -(-(replicas - 1) // TRIED)
        yield from map(Prefilling, range(max(step // 2, 1), replicas, step or 1))


def by_rank(of: Traffic, replicas: int, stay_s: float) -> Iterator[HighRanks]:
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
            yield HighRanks(count, min(slots, len(large)), rank, levels[-1], len(large))
