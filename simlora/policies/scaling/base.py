"""The autoscaler slot: how many replicas there should be."""

from __future__ import annotations

from abc import ABC, abstractmethod

from simlora.policies.views import FleetView


class Autoscaler(ABC):
    """Sets the number of replicas; one instance per cluster. Called before the run and then every `period_s` seconds.

    With `period_s` None it is never called, and all replicas are on. The engine clips the number to the range from
    cluster.least_replicas to cluster.replicas. With none on, a request that arrives has the first one boot, without the
    autoscaler being asked (as Knative's activator does), and one is the least while requests wait for it. An added
    replica boots and loads adapters before it accepts requests. A removed one accepts no more, and is switched off once
    its requests have ended.
    """

    period_s: float | None = None

    @abstractmethod
    def replicas(self, view: FleetView) -> int:
        """Return how many replicas there should be from now on."""
