"""Every adapter has replicas of its own."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from simlora.core.adapter import Adapter
from simlora.core.checks import switch
from simlora.policies.placement.base import Placed, Placement
from simlora.policies.views import ClusterView


class Dedicated(Placement):
    """Deals adapters out to replicas, or replicas to adapters if there are more replicas, as evenly as possible.

    By default round robin: adapter i goes to replica i modulo the replicas. With `consecutive`, neighbouring adapters
    go together. For merged models, where each replica holds full copies (S-LoRA, MLSys'24, §7.1, vLLM m-packed; dLoRA,
    OSDI'24, §7.1, vLLM with uniform allocation, whose artifact deals them out consecutively).
    """

    def __init__(self, consecutive: bool = False) -> None:
        self.consecutive = switch("placement.consecutive", consecutive)

    def place(self, adapters: Sequence[Adapter], view: ClusterView) -> Placed:
        replicas = np.arange(len(view.outstanding), dtype=np.int64)
        first = adapters[0].id if adapters else 0
        dealt, count = np.arange(max(len(replicas), len(adapters))), min(len(replicas), len(adapters))
        hand = dealt * count // len(dealt) if self.consecutive else dealt % max(count, 1)
        if len(adapters) >= len(replicas):
            return Placed({adapter.id: replicas[[hand[adapter.id - first]]] for adapter in adapters})
        return Placed({adapter.id: replicas[hand == adapter.id - first] for adapter in adapters})
