"""Nothing moves."""

from __future__ import annotations

from collections.abc import Sequence

from simlora.policies.migration.base import Migration, Move
from simlora.policies.views import ClusterView


class Stay(Migration):
    """A request ends where the router sent it."""

    def moves(self, view: ClusterView) -> Sequence[Move]:
        return ()
