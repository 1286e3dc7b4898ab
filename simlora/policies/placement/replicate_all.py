"""Every replica serves every adapter."""

from __future__ import annotations

from collections.abc import Sequence

from simlora.core.adapter import Adapter
from simlora.policies.placement.base import Placed, Placement
from simlora.policies.views import ClusterView


class ReplicateAll(Placement):
    """All adapters are in the host memory of every replica. Source: S-LoRA, CaraServe."""

    def place(self, adapters: Sequence[Adapter], view: ClusterView) -> Placed:
        return Placed()
