"""A constant number of replicas."""

from __future__ import annotations

from simlora.policies.scaling.base import Autoscaler
from simlora.policies.views import FleetView


class Fixed(Autoscaler):
    """No autoscaling: all cluster.replicas are on from the start."""

    def replicas(self, view: FleetView) -> int:
        return len(view.outstanding)
