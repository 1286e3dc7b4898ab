"""The migration slot: what moves when replicas drift apart?"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import NamedTuple

from simlora.core.request import Request
from simlora.policies.views import ClusterView


class Move(NamedTuple):
    """A request of one replica goes on at another."""

    request: Request
    source: int
    target: int


class Migration(ABC):
    """One instance a cluster, asked every `period_s` seconds; None: never.

    A request leaves at the end of the iteration that its replica is in, keeps the tokens it has, and has its KV
    computed anew where it goes, together with its prompt.
    """

    period_s: float | None = None

    @abstractmethod
    def moves(self, view: ClusterView) -> Sequence[Move]:
        """Return what moves now, each request once."""
