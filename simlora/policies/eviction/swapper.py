"""Adapters and KV in one order: who leaves HBM when it is full, and who comes back when it is not."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable

from simlora.core.adapter import Adapter
from simlora.core.checks import LEAST_PERIOD_S, number, switch
from simlora.core.errors import InputError
from simlora.policies.eviction.base import Eviction


class Swapper(Eviction):
    """Looks at HBM every `every_s` seconds, at the first iteration boundary from then on.

    Where more than the share `busy` of it is in use, what is worth least leaves until it is `busy_to`; below `idle`,
    what is worth most comes in from the host until it is `idle_to`, or until the link is taken for `backlog_s`
    seconds, as whoever comes meanwhile has to wait that long. What a request needs at once is made room for in the same
    order. Adapters that nobody has used yet come too, last.

    With `dependencies`, adapters and KV are one tree: an adapter stays while KV of its own is in HBM, and comes before
    it. Without, KV may lie there whose adapter does not; unless such KV is matched (`matches_invalid`), a request
    whose adapter is not in HBM finds none at all and prefills its whole prompt (§6.6: it "cannot be matched").

    Last use: when a request found it; for what a request brought, when that request ended (§4.3: "generated, matched";
    that data are updated when they are swapped too, as it also says, is not taken for a use: what has just left would
    be the first to come back). Source: FastLibra §4.2 and §5.3.
    """

    def __init__(
        self,
        every_s: float = 0.1,
        busy: float = 0.95,
        busy_to: float = 0.95,
        idle: float = 0.7,
        idle_to: float = 0.7,
        backlog_s: float = 0.1,
        dependencies: bool = True,
        matches_invalid: bool = True,
    ) -> None:
        self.every_s = number("eviction.every_s", every_s, "seconds", least=0)
        if 0 < self.every_s < LEAST_PERIOD_S:  # an idle replica that waits for its link wakes at every look
            raise InputError(
                f"eviction.every_s is {every_s:g}, must be at least {LEAST_PERIOD_S:g} seconds, or 0: every iteration"
            )
        self.busy = number("eviction.busy", busy, "of HBM", least=0, most=1)
        self.busy_to = number("eviction.busy_to", busy_to, "of HBM", least=0, most=1)
        self.idle = number("eviction.idle", idle, "of HBM", least=0, most=1)
        self.idle_to = number("eviction.idle_to", idle_to, "of HBM", least=0, most=1)
        self.backlog_s = number("eviction.backlog_s", backlog_s, "seconds", above=0)
        self.dependencies = switch("eviction.dependencies", dependencies)
        self.matches_invalid = switch("eviction.matches_invalid", matches_invalid)
        if self.dependencies and not self.matches_invalid:
            raise InputError("eviction.matches_invalid is false, which needs eviction.dependencies=false")
        if not self.idle <= self.idle_to <= self.busy_to <= self.busy:
            raise InputError(
                f"eviction.idle, idle_to, busy_to and busy are {idle:g}, {idle_to:g}, {busy_to:g} and {busy:g}, must "
                "not go down in that order"
            )

    def victims(self, idle: Iterable[Adapter], short_tokens: int) -> Iterable[Adapter]:
        """Nobody: adapters leave in the order that they have with KV."""
        return ()

    @abstractmethod
    def key(self, cost_s: float, visits: int, used_s: float) -> float:
        """Return what something is worth in HBM that takes `cost_s` to bring, used `visits` times and last at `used_s`.

        On a scale on which time takes the same from all that was used long ago, so that it can be kept in order.
        """

    most_fade = 0.0

    def fade(self, idle_s: float) -> float:
        """Return what is to be taken off, because of time, for what was used that long ago: 0 to `most_fade`."""
        return 0.0

    def reward(self, needed: float, resident: int) -> float:
        """Return what is to be added for an adapter, when so many are expected to be needed and so many are in HBM."""
        return 0.0
