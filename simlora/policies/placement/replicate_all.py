"""Every adapter belongs to every replica."""

from __future__ import annotations

from collections.abc import Sequence

from simlora.core.adapter import Adapter
from simlora.policies.placement.base import Placed, Placement
from simlora.policies.views import ClusterView


class ReplicateAll(Placement):
    """Host memory of every replica holds all adapters. Source: S-LoRA, CaraServe."""

    def place(self, adapters: Sequence[Adapter], view: ClusterView) -> Placed:
        return Placed()
