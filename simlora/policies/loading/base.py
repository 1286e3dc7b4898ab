"""The loader slot: what happens when an admitted request's adapter is not in HBM?"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from enum import Enum

from simlora.core.adapter import Adapter
from simlora.policies.views import ReplicaView


class Miss(Enum):
    """What a missing adapter does to the replica.

    Where weights cannot come beside the batch, because they are to be merged or have memory of their own to be
    laid out in, WAIT and ASSIST are STALL. So is ASSIST once the host's cores run out.
    """

    STALL = "the replica waits until the weights have landed"
    FREE = "nothing: the weights count as there"
    WAIT = "the request waits until they have, and the replica goes on with others"
    ASSIST = "CPU cores compute the request's LoRA until they have, or until it is prefilled"


class Loader(ABC):
    """One instance a replica. One that assists says so, so that a calibration without `cpu_lora` stops a run early.

    With one that `overlaps`, a request waits for KV from the host by itself too, while the replica goes on with others.
    """

    assists = False
    overlaps = False

    @abstractmethod
    def on_miss(self, adapter: Adapter) -> Miss:
        """What a request does to the replica that is admitted before its adapter's weights have landed in HBM."""

    def ahead(self, view: ReplicaView) -> Iterable[Adapter]:
        """Adapters to have in HBM, of which the missing are loaded in the background; in order.

        Asked before every decode run, and at every arrival during one. None of them makes room for another.
        """
        return ()
