"""Keep what is used often, was used lately and is large."""

from __future__ import annotations

from collections.abc import Iterable

from mypy_extensions import mypyc_attr

from simlora.core.adapter import Adapter
from simlora.core.checks import GivenFloat, number
from simlora.policies.eviction.base import Eviction
from simlora.policies.views import IdleView


@mypyc_attr(allow_interpreted_subclasses=True)
class Compound(Eviction):
    """Evict the adapter of the lowest frequency * Frequency + recency * Recency + size * Size.

    Adapters that a waiting request needs leave after all others. Of equal scores the least recently used leaves first.
    Source: Chameleon (MICRO'25, arXiv 2411.17741) §4.2; with three equal weights it is FairShare of §5.3. The paper
    gives the weights 0.45, 0.10 and 0.45, and no units of the three. Here each is relative to the idle adapters: uses
    over those of the most used one, 1 less the idle time over the longest, slots over those of the largest.
    Differs: uses count from the beginning of the run; the paper counts those of a time frame that it does not give.
    """

    def __init__(
        self, frequency: GivenFloat = 0.45, recency: GivenFloat = 0.10, size: GivenFloat = 0.45
    ) -> None:
        self.frequency = number("eviction.frequency", frequency, least=0)
        self.recency = number("eviction.recency", recency, least=0)
        self.size = number("eviction.size", size, least=0)

    @property
    def sweeps(self) -> bool:
        return type(self).victims is not Compound.victims

    def victims(self, idle: IdleView, short_tokens: int) -> Iterable[Adapter]:
        if short_tokens <= 0 or not len(idle):
            return ()
        adapters = list(idle)
        scores = self.scores(idle, adapters)
        order = sorted(range(len(adapters)), key=lambda i: (idle.waiting(adapters[i]) > 0, scores[i], i))
        found: list[Adapter] = []
        for i in order:
            if short_tokens <= 0:
                break
            short_tokens -= adapters[i].kv_tokens
            found.append(adapters[i])
        return found

    def scores(self, idle: IdleView, adapters: list[Adapter]) -> list[float]:
        """Return what each of the idle adapters is worth, in their order."""
        uses = [idle.uses(adapter) for adapter in adapters]
        now_s = idle.now_s
        idle_s = [
            min(now_s - idle.last_use_s(adapter), now_s) for adapter in adapters
        ]  # or never used at all
        most, longest_s = max(uses, default=0) or 1, max(idle_s, default=0.0) or 1.0
        largest = max((adapter.kv_tokens for adapter in adapters), default=0) or 1
        return [
            self.frequency * (uses[i] / most)
            + self.recency * (1.0 - idle_s[i] / longest_s)
            + self.size * (adapter.kv_tokens / largest)
            for i, adapter in enumerate(adapters)
        ]
