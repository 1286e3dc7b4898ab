"""Every adapter belongs to every replica."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from simlora.core.adapter import Adapter
from simlora.policies.placement.base import Placement
from simlora.policies.views import ClusterView


class ReplicateAll(Placement):
    """Host memory of every replica holds all adapters. Source: S-LoRA, CaraServe."""

    def place(self, adapters: Sequence[Adapter], view: ClusterView) -> dict[int, NDArray[np.int64]]:
        return {}
