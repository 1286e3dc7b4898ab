"""No migration."""

from __future__ import annotations

from simlora.policies.migration.base import Migration, Plan
from simlora.policies.views import ClusterView


class Stay(Migration):
    """A request ends on the replica that the router picked."""

    def plan(self, view: ClusterView) -> Plan:
        return Plan()
