"""The autoscaler slot: how many replicas should there be?"""

from __future__ import annotations

from abc import ABC, abstractmethod

from simlora.policies.views import FleetView


class Autoscaler(ABC):
    """One instance a cluster, asked before anything runs and then every `period_s` seconds; None: never, all are there.

    The engine keeps what it says between cluster.least_replicas and cluster.replicas. A replica that is added boots,
    and loads adapters, before it takes requests; one that is no longer wanted takes none, and goes when it has done
    what it has.
    """

    period_s: float | None = None

    @abstractmethod
    def replicas(self, view: FleetView) -> int:
        """Return how many replicas there should be from now on."""
