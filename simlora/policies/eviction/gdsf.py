"""Keep what is used often, takes long to load and is small."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable

from mypy_extensions import mypyc_attr

from simlora.core.adapter import Adapter
from simlora.policies.eviction.base import Eviction
from simlora.policies.views import IdleView


@mypyc_attr(allow_interpreted_subclasses=True)
class Gdsf(Eviction):
    """Greedy-Dual-Size-Frequency: evict the adapters of the lowest age + uses * load_s / kv_tokens.

    The age of an adapter is the highest value that had been evicted when it was last used, so that adapters which were
    used often, long ago, leave in the end. Of equal values the least recently used leaves first.
    Source: Cherkasova, Improving WWW Proxies Performance with Greedy-Dual-Size-Frequency Caching Policy, HP Labs
    technical report 98-69, 1998, section 3. The cost of a miss is the time of a load.
    Differs: uses count from the beginning of the run, where the source forgets those of what was evicted.
    """

    def __init__(self) -> None:
        self._grown_s: list[float] = [0.0]  # when the age grew, and to what
        self._ages: list[float] = [0.0]

    @property
    def sweeps(self) -> bool:
        return type(self).victims is not Gdsf.victims

    def victims(self, idle: IdleView, short_tokens: int) -> Iterable[Adapter]:
        if short_tokens <= 0:
            return ()
        values = sorted((self.value(adapter, idle), order, adapter) for order, adapter in enumerate(idle))
        found: list[Adapter] = []
        for value, _, adapter in values:
            if short_tokens <= 0:
                break
            short_tokens -= adapter.kv_tokens
            found.append(adapter)
            if value > self._ages[-1]:
                self._grown_s.append(idle.now_s)
                self._ages.append(value)
        return found

    def value(self, adapter: Adapter, idle: IdleView) -> float:
        """Return what an adapter is worth: its age, and its uses times the seconds that a slot of it saves."""
        age = self._ages[bisect_right(self._grown_s, idle.last_use_s(adapter)) - 1]
        return age + idle.uses(adapter) * idle.load_s(adapter) / max(adapter.kv_tokens, 1)
