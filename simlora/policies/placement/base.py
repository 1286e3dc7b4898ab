"""The placement slot: which adapters belong to which replicas?"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from simlora.core.adapter import Adapter
from simlora.policies.views import ClusterView

Replicas = Mapping[int, NDArray[np.int64]]
"""Replicas by adapter id; each once, ascending, and at least one."""

NOTHING: Replicas = MappingProxyType({})


class Placed(NamedTuple):
    """Who may serve an adapter, and in whose HBM it lies before the first request comes, as far as it fits there.

    An adapter that `serves` leaves out, and the base model, may go to any replica; one that `preloads` leaves out
    is loaded when it is needed.
    """

    serves: Replicas = NOTHING
    preloads: Replicas = NOTHING


class Placement(ABC):
    """One instance a cluster, asked once, before anything runs."""

    @abstractmethod
    def place(self, adapters: Sequence[Adapter], view: ClusterView) -> Placed:
        """Return what belongs where."""
