"""The loader slot: what happens when an admitted request's adapter is not in HBM."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from enum import Enum
from typing import ClassVar

from mypy_extensions import mypyc_attr

from simlora.core.adapter import Adapter
from simlora.core.errors import not_defined
from simlora.policies.views import ReplicaView


class Miss(Enum):
    """What a missing adapter does to the replica.

    WAIT and ASSIST act as STALL where weights cannot be loaded beside the running batch, because they are to be merged
    or have to be laid out in memory of their own. ASSIST also acts as STALL while the host has too few free cores.
    """

    STALL = "the replica waits until the weights are there"
    FREE = "nothing: the weights count as there"
    WAIT = "the request waits until its weights are there, and the replica continues with others"
    ASSIST = "CPU cores compute the request's LoRA until its weights are there, or until it is prefilled"


@mypyc_attr(allow_interpreted_subclasses=True)
class Loader:
    """Decides how one replica loads adapters. Each replica has its own instance.

    `assists` declares CPU assistance; a calibration without `cpu_lora` is then refused before the run. With `overlaps`,
    only the request itself waits for KV from the host; the replica goes on with other requests. `answers` are what
    `on_miss` may return: a loader that only stalls, or whose loads cost nothing, needs less of the engine. With
    `on_arrival`, a request's adapter is loaded when the request arrives, if there is room for it. `forecast_s` are the
    seconds between two forecasts of the adapters that requests will need; None: there are none.
    """

    on_arrival: bool = False
    forecast_s: float | None = None

    assists: ClassVar[bool] = False
    overlaps: ClassVar[bool] = False
    answers: ClassVar[tuple[Miss, ...]] = tuple(Miss)

    @abstractmethod
    def on_miss(self, adapter: Adapter) -> Miss:
        """Return what happens when a request is admitted before its adapter's weights are in HBM."""
        raise not_defined(self, "on_miss")

    @property
    def prefetches(self) -> bool:
        """Whether it names adapters `ahead` of their requests."""
        return type(self).ahead is not Loader.ahead

    def ahead(self, view: ReplicaView) -> Iterable[Adapter]:
        """Adapters to have in HBM; missing ones are loaded in the background, in this order.

        Called before every decode window and at every arrival during one. None of them is evicted for another.
        """
        return ()

    def asked(self, adapter: Adapter) -> None:
        """A request with this adapter has joined the replica's queue; called of a loader with `forecast_s` alone."""

    def forecast(self, periods: int) -> Sequence[Adapter]:
        """Adapters that requests of the next `forecast_s` seconds are likely to need, the likeliest first.

        Called at the first iteration boundary after every such period, also of a replica without requests; of `periods`
        together, where an iteration was longer than one. As many of the first ones as fit
        beside all that KV will grow into are loaded in the background, if they are missing, and are idle then: the
        eviction policy says which leaves first.
        """
        return ()
