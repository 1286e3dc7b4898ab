"""Adapters of similar rank together, equally many on each replica."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from simlora.core.adapter import Adapter
from simlora.policies.placement.base import Placed, Placement
from simlora.policies.views import ClusterView


class Contiguous(Placement):
    """Splits the adapters, in order of rank and then id, into one equal part per replica.

    If the parts are not equal, earlier replicas have one more. Source: LoRAServe §V-D, S-LoRA Contiguous.
    """

    def place(self, adapters: Sequence[Adapter], view: ClusterView) -> Placed:
        ordered = sorted(adapters, key=lambda adapter: (adapter.rank, adapter.id))
        parts = np.array_split(np.arange(len(ordered)), len(view.outstanding))
        return Placed(
            {
                ordered[place].id: np.array([replica], dtype=np.int64)
                for replica, part in enumerate(parts)
                for place in part.tolist()
            }
        )
