"""The placement slot: which adapters belong to which replicas?"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from simlora.core.adapter import Adapter
from simlora.policies.views import ClusterView


class Placement(ABC):
    """One instance a cluster."""

    @abstractmethod
    def place(self, adapters: Sequence[Adapter], view: ClusterView) -> dict[int, NDArray[np.int64]]:
        """Return the replicas that may serve each adapter, by adapter id, ascending.

        An adapter that is left out, and the base model, may go to any replica.
        """
