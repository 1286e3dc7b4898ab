"""Prefetch the adapters of the first waiting requests while the batch decodes."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import ClassVar

from mypy_extensions import mypyc_attr

from simlora.core.adapter import Adapter
from simlora.core.checks import GivenInt, whole
from simlora.policies.loading.base import Loader, Miss
from simlora.policies.views import ReplicaView


@mypyc_attr(allow_interpreted_subclasses=True)
class Prefetching(Loader):
    """Prefetch for the next `depth` requests to start, into slots that admitted requests will not need.

    If a prefetch is still in flight when its request starts, the replica waits for it.
    Source: S-LoRA (MLSys'24) §5.2.
    """

    answers: ClassVar[tuple[Miss, ...]] = (Miss.STALL,)

    def __init__(self, depth: GivenInt = 8) -> None:
        self.depth = whole("loader.depth", depth, "requests", least=1)

    def on_miss(self, adapter: Adapter) -> Miss:
        return Miss.STALL

    def ahead(self, view: ReplicaView) -> Iterable[Adapter]:
        head = islice(view.upcoming(), self.depth)
        return list({r.adapter.id: r.adapter for r in head if r.adapter is not None}.values())
