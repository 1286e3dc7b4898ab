"""Adapters and KV in one order: what leaves HBM when it is full, and what comes back when it is not."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable

from mypy_extensions import mypyc_attr

from simlora.core.adapter import Adapter
from simlora.core.checks import LEAST_PERIOD_S, GivenBool, GivenFloat, number, switch
from simlora.core.errors import InputError, not_defined
from simlora.policies.eviction.base import Eviction
from simlora.policies.views import IdleView


@mypyc_attr(allow_interpreted_subclasses=True)
class Swapper(Eviction):
    """Moves adapters and KV between HBM and the host.

    HBM is checked every `every_s` seconds, at the next iteration boundary. When more than the share `busy` is in use,
    the items worth least leave until the share is `busy_to`. Below `idle`, the items worth most come in from the host
    until the share is `idle_to`, or until the link is occupied for `backlog_s` seconds, the time that a request's own
    transfer would then wait. Room that a request needs at once is made in the same order. Adapters without any use so
    far are brought in last.

    With `dependencies`, adapters and KV form one tree: an adapter stays while KV of its own is in HBM, and comes in
    before it. Without, KV may be in HBM while its adapter is not. Unless such KV is matched (`matches_invalid`), a
    request whose adapter is not in HBM finds no KV and prefills its whole prompt (§6.6: it "cannot be matched").

    Last use is when a request matched an item or, for an item that a request generated, when that request ended (§4.3:
    "generated, matched"). The paper also updates items when they are swapped; that does not count as a use here,
    because what has just left would be the first to come back. Source: FastLibra §4.2 and §5.3.
    """

    def __init__(
        self,
        every_s: GivenFloat = 0.1,
        busy: GivenFloat = 0.95,
        busy_to: GivenFloat = 0.95,
        idle: GivenFloat = 0.7,
        idle_to: GivenFloat = 0.7,
        backlog_s: GivenFloat = 0.1,
        dependencies: GivenBool = True,
        matches_invalid: GivenBool = True,
        by_block: GivenBool = False,
    ) -> None:
        self.by_block = switch("eviction.by_block", by_block)
        self.every_s = number("eviction.every_s", every_s, "seconds", least=0)
        if 0 < self.every_s < LEAST_PERIOD_S:  # an idle replica that waits for its link wakes at every check
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

    @property
    def sweeps(self) -> bool:
        return type(self).victims is not Swapper.victims

    def victims(self, idle: IdleView, short_tokens: int) -> Iterable[Adapter]:
        """Return nothing: adapters leave in the common order with KV."""
        return ()

    @abstractmethod
    def key(self, cost_s: float, visits: int, used_s: float) -> float:
        """Return the worth in HBM of an item that takes `cost_s` to bring, used `visits` times and last at `used_s`.

        The scale is such that time lowers the worth of all items used long ago by the same amount, so that their order
        can be kept.
        """
        raise not_defined(self, "key")

    @property
    def most_fade(self) -> float:
        """The most that `fade` subtracts."""
        return 0.0

    def fade(self, idle_s: float) -> float:
        """Return what to subtract from the worth of an item last used `idle_s` ago: 0 to `most_fade`."""
        return 0.0

    def reward(self, needed: float, resident: int) -> float:
        """Return what to add to an adapter's worth when `needed` adapters are expected in use and `resident` in HBM."""
        return 0.0
