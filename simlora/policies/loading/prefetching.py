"""Load the adapters of the queue's head while the batch decodes."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

from simlora.core.adapter import Adapter
from simlora.core.checks import whole
from simlora.policies.loading.base import Loader, Miss
from simlora.policies.views import ReplicaView


class Prefetching(Loader):
    """Fetch ahead for the next `depth` requests to start, into slots that nobody will need.

    What has not landed when its request starts is waited for. Source: S-LoRA (MLSys'24) §5.2.
    """

    def __init__(self, depth: int = 8) -> None:
        self.depth = whole("loader.depth", depth, "requests", least=1)

    def on_miss(self, adapter: Adapter) -> Miss:
        return Miss.STALL

    def ahead(self, view: ReplicaView) -> Iterable[Adapter]:
        head = islice(view.upcoming(), self.depth)
        return list({r.adapter.id: r.adapter for r in head if r.adapter is not None}.values())
