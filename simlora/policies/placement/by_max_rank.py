"""Each adapter where slots are no larger than it needs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from simlora.core.adapter import Adapter
from simlora.policies.placement.base import Placed, Placement
from simlora.policies.views import ClusterView


class ByMaxRank(Placement):
    """Assigns each adapter to the replicas with the lowest `max_lora_rank` that holds its rank.

    A step of vLLM's kernels takes as long as the slots' rank says, whatever the ranks of the adapters in it, and a slot
    takes the memory of its rank. So an adapter of rank 8 beside slots of rank 256 pays for 256. The router balances the
    requests among the replicas of an adapter. The base model is served anywhere, and so is every adapter if all
    replicas hold the same ranks.
    A placement of ours, for `cluster.replica_groups` with other slots; no paper has it.
    """

    def place(self, adapters: Sequence[Adapter], view: ClusterView) -> Placed:
        limits = np.unique(view.max_lora_ranks)
        if len(limits) == 1:
            return Placed()
        members = [np.flatnonzero(view.max_lora_ranks == limit) for limit in limits]
        least = np.searchsorted(limits, [adapter.rank for adapter in adapters]).tolist()
        return Placed(
            {
                adapter.id: members[at]
                for adapter, at in zip(adapters, least, strict=True)
                if at < len(limits)  # or no replica holds it
            }
        )
