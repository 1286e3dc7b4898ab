"""Every adapter on one random replica."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from simlora.core.adapter import Adapter
from simlora.policies.placement.base import Placed, Placement
from simlora.policies.views import ClusterView


class Random(Placement):
    """One replica for each adapter, uniformly at random. Source: LoRAServe §V-D, S-LoRA Random."""

    def place(self, adapters: Sequence[Adapter], view: ClusterView) -> Placed:
        homes = view.rng.integers(len(view.outstanding), size=len(adapters))
        return Placed(
            {
                adapter.id: np.array([home], dtype=np.int64)
                for adapter, home in zip(adapters, homes, strict=True)
            }
        )
