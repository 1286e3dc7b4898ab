"""How long planning takes on the clock on the wall, which the engine does not look at."""

from __future__ import annotations

import time

from simlora.policies.migration.base import Migration, Plan
from simlora.policies.views import ClusterView


class Timed(Migration):
    """A migration as it is; `wall_s` is what all of its plans took."""

    def __init__(self, migration: Migration) -> None:
        self._migration = migration
        self.period_s = migration.period_s
        self.delay_s = migration.delay_s
        self.brings = migration.brings
        self.assumes_alike = migration.assumes_alike
        self.wall_s = 0.0

    def plan(self, view: ClusterView) -> Plan:
        started = time.perf_counter()
        try:
            return self._migration.plan(view)
        finally:
            self.wall_s += time.perf_counter() - started
