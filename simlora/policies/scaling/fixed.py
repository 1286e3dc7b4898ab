"""As many replicas as there are, all the time."""

from __future__ import annotations

from simlora.policies.scaling.base import Autoscaler
from simlora.policies.views import FleetView


class Fixed(Autoscaler):
    """No autoscaling: cluster.replicas are there from the start."""

    def replicas(self, view: FleetView) -> int:
        return len(view.outstanding)
