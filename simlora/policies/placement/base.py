"""The placement slot: which replicas serve which adapters."""

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
"""Replica ids by adapter id: unique, ascending, at least one."""
Shares = Mapping[int, NDArray[np.float64]]
"""By adapter id, the share of its requests that each of its replicas gets: positive, summing to 1."""

NOTHING: Replicas = MappingProxyType({})
ALIKE: Shares = MappingProxyType({})


class Placed(NamedTuple):
    """A placement: the replicas that may serve each adapter, and those that preload it before the first request.

    An adapter that is not in `serves`, and the base model, may be served by any replica. One that is not in `preloads`
    is loaded when it is needed; preloads that do not fit are left out. `shares` are for routers that use them: the
    replicas of an adapter that is not in `shares` have equal shares. Replicas that do not hold an adapter's rank
    (`view.max_lora_ranks`) are left out of all three; if none is left, all that hold it serve it.
    """

    serves: Replicas = NOTHING
    preloads: Replicas = NOTHING
    shares: Shares = ALIKE


class Placement(ABC):
    """Assigns adapters to replicas. One instance per cluster.

    Called before the run, and then every `period_s` seconds unless that is None. Preloads apply only before the run.
    With `assumes_alike` it treats all replicas alike, even on different GPUs.
    """

    period_s: float | None = None
    assumes_alike = False

    @abstractmethod
    def place(self, adapters: Sequence[Adapter], view: ClusterView) -> Placed:
        """Return the placement of these adapters."""
