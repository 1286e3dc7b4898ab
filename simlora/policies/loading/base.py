"""The loader slot: what happens when an admitted request's adapter is not in HBM?"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from enum import Enum

from simlora.core.adapter import Adapter
from simlora.policies.views import ReplicaView


class Miss(Enum):
    """What a missing adapter does to the replica."""

    STALL = "the replica waits until the weights have landed"
    FREE = "nothing: the weights count as there"


class Loader(ABC):
    """One instance a replica."""

    @abstractmethod
    def on_miss(self, adapter: Adapter) -> Miss:
        """What a request that starts without its adapter in HBM does to the replica."""

    def ahead(self, view: ReplicaView) -> Iterable[Adapter]:
        """Adapters to have in HBM, of which the missing are loaded in the background; in order.

        Asked before every decode run. None of them makes room for another.
        """
        return ()
