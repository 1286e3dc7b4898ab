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
Shares = Mapping[int, NDArray[np.float64]]
"""By adapter id what share of its requests each of its replicas is to get: above 0, and 1 together."""

NOTHING: Replicas = MappingProxyType({})
ALIKE: Shares = MappingProxyType({})


class Placed(NamedTuple):
    """Who may serve an adapter, and in whose HBM it lies before the first request comes, as far as it fits there.

    An adapter that `serves` leaves out, and the base model, may go to any replica; one that `preloads` leaves out
    is loaded when it is needed. `shares` are for a router that asks for them: of one that they leave out all replicas
    get the same.
    """

    serves: Replicas = NOTHING
    preloads: Replicas = NOTHING
    shares: Shares = ALIKE


class Placement(ABC):
    """One instance a cluster, asked before anything runs, and then every `period_s` seconds unless that is None.

    What it preloads counts before the run only. One that `assumes_alike` cannot tell replicas on different GPUs apart.
    """

    period_s: float | None = None
    assumes_alike = False

    @abstractmethod
    def place(self, adapters: Sequence[Adapter], view: ClusterView) -> Placed:
        """Return what belongs where."""
