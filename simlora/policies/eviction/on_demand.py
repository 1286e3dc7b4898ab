"""Keep only the adapters that running requests use."""

from __future__ import annotations

from collections.abc import Iterable

from mypy_extensions import mypyc_attr

from simlora.core.adapter import Adapter
from simlora.policies.eviction.base import Eviction
from simlora.policies.views import IdleView


@mypyc_attr(allow_interpreted_subclasses=True)
class OnDemand(Eviction):
    """Evict an adapter as soon as no running request uses it. Source: S-LoRA's released router."""

    def victims(self, idle: IdleView, short_tokens: int) -> Iterable[Adapter]:
        return idle
