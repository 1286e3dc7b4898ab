"""Keep only the adapter that was used last."""

from __future__ import annotations

from collections.abc import Iterable

from mypy_extensions import mypyc_attr

from simlora.core.adapter import Adapter
from simlora.policies.eviction.base import Eviction
from simlora.policies.views import IdleView


@mypyc_attr(allow_interpreted_subclasses=True)
class Latest(Eviction):
    """Keep one idle adapter, as a model that holds a single adapter does between two batches."""

    def victims(self, idle: IdleView, short_tokens: int) -> Iterable[Adapter]:
        least_recent_first = tuple(idle)
        return least_recent_first if short_tokens > 0 else least_recent_first[:-1]
