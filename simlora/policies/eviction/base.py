"""The eviction slot: which adapters leave HBM first."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Iterable, Set
from typing import ClassVar

from mypy_extensions import mypyc_attr

from simlora.core.adapter import Adapter
from simlora.core.errors import not_defined
from simlora.policies.views import IdleView


@mypyc_attr(allow_interpreted_subclasses=True)
class Eviction:
    """Picks adapters to evict; one instance per replica. With `evicts_in_use` it evicts and reloads adapters in use."""

    evicts_in_use: ClassVar[bool] = False

    @property
    def sweeps(self) -> bool:
        """Whether adapters may leave when no slots are short; if not, `victims` is not asked then."""
        return True

    @abstractmethod
    def victims(self, idle: IdleView, short_tokens: int) -> Iterable[Adapter]:
        """Return the adapters of `idle` (least recently used first) to evict, to free `short_tokens` slots.

        `idle` also shows the time, and of each adapter its uses, its last use, what a load takes and how many requests
        wait for it. Called with 0 whenever requests have finished, and whenever slots are short.
        """
        raise not_defined(self, "victims")

    def reloads(
        self, in_use: Collection[int], missing: Set[int], just_left: Collection[int]
    ) -> Collection[int]:
        """Return the ids of the adapters in use that an `evicts_in_use` policy loads again.

        Called when an iteration that uses `in_use` has loaded `missing` of them, some into slots of `just_left`:
        adapters that the previous iteration still used.
        """
        return ()
