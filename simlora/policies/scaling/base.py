"""The autoscaler slot: how many replicas there should be."""

from __future__ import annotations

from abc import ABC, abstractmethod

from simlora.policies.views import FleetView


class Autoscaler(ABC):
    """Sets the number of replicas; one instance per cluster. Called before the run and then every `period_s` seconds.

    With `period_s` None it is never called, and all replicas are on. The engine clips the number to the range from
    cluster.least_replicas to cluster.replicas. While the view is `active`, one is the least. With none on, a request
    that arrives waits and has the first one boot at once, as on serverless platforms. An added replica boots and loads
    adapters before it accepts requests. A removed one accepts no more, and is switched off once its requests have
    ended.
    """

    period_s: float | None = None

    @abstractmethod
    def replicas(self, view: FleetView) -> int:
        """Return how many replicas there should be from now on."""
