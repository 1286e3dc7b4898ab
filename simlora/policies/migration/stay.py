"""Nothing moves."""

from __future__ import annotations

from simlora.policies.migration.base import Migration, Plan
from simlora.policies.views import ClusterView


class Stay(Migration):
    """A request ends where the router sent it."""

    def plan(self, view: ClusterView) -> Plan:
        return Plan()
