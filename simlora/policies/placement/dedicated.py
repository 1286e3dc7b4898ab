"""Every adapter has replicas of its own."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from simlora.core.adapter import Adapter
from simlora.policies.placement.base import Placement
from simlora.policies.views import ClusterView


class Dedicated(Placement):
    """Adapter i belongs to replica i, counted round the replicas.

    What serves merged models: each replica holds one full copy, with its adapter merged in (S-LoRA,
    MLSys'24, §7.1, vLLM m-packed).
    """

    def place(self, adapters: Sequence[Adapter], view: ClusterView) -> dict[int, NDArray[np.int64]]:
        replicas = len(view.outstanding)
        return {adapter.id: np.array([adapter.id % replicas], dtype=np.int64) for adapter in adapters}
