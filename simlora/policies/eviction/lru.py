"""Keep adapters until their slots are needed."""

from __future__ import annotations

from collections.abc import Iterable

from mypy_extensions import mypyc_attr

from simlora.core.adapter import Adapter
from simlora.policies.eviction.base import Eviction
from simlora.policies.views import IdleView


@mypyc_attr(allow_interpreted_subclasses=True)
class Lru(Eviction):
    """Evict the least recently used adapters, no more than needed."""

    @property
    def sweeps(self) -> bool:
        return type(self).victims is not Lru.victims

    def victims(self, idle: IdleView, short_tokens: int) -> Iterable[Adapter]:
        found: list[Adapter] = []
        for adapter in idle:
            if short_tokens <= 0:
                break
            short_tokens -= adapter.kv_tokens
            found.append(adapter)
        return found
