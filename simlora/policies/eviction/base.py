"""The eviction slot: which adapters leave HBM first?"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable

from simlora.core.adapter import Adapter


class Eviction(ABC):
    """One instance a replica."""

    @abstractmethod
    def victims(self, idle: Iterable[Adapter], short_tokens: int) -> Iterable[Adapter]:
        """Return who leaves, out of `idle` (least recently used first), to free `short_tokens` slots.

        Asked whenever requests have finished, with nothing short (0), and whenever slots are.
        """
