"""The eviction slot: which adapters leave HBM first?"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Set

from simlora.core.adapter import Adapter


class Eviction(ABC):
    """One instance per replica. A policy that `evicts_in_use` evicts adapters in use, and loads them again."""

    evicts_in_use = False

    @abstractmethod
    def victims(self, idle: Iterable[Adapter], short_tokens: int) -> Iterable[Adapter]:
        """Return who leaves, out of `idle` (least recently used first), to free `short_tokens` slots.

        Asked whenever requests have finished, with nothing short (0), and whenever slots are.
        """

    def reloads(
        self, in_use: Collection[int], missing: Set[int], just_left: Collection[int]
    ) -> Collection[int]:
        """Return which adapters in use an `evicts_in_use` policy loads again, by id.

        Asked when an iteration that uses `in_use` has loaded `missing` of them, some of them over
        `just_left`: adapters that the iteration before still used.
        """
        return ()
