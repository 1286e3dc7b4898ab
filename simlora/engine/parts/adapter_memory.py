"""Adapters in memory of their own that they have to be laid out in, and batches padded to one shape."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from simlora.core.adapter import Adapter
from simlora.core.request import Request
from simlora.engine.replica.part import Part
from simlora.engine.replica.replica import Replica
from simlora.engine.scenario import Scenario
from simlora.memory.adapter_region import AdapterRegion
from simlora.policies.eviction.on_demand import OnDemand


class OwnRegion(Part):
    """Lays adapters out in their `region`; the GPU waits for the flushes of its allocator, `flush_s` each."""

    @staticmethod
    def requires(scenario: Scenario) -> Iterator[str]:
        if not scenario.replica.own_region:
            return
        memory = f"replica.adapter_memory={scenario.replica.adapter_memory}"
        if not isinstance(scenario.policies.eviction(), OnDemand):
            yield f"{memory} needs eviction=on_demand"
        loader = scenario.policies.loader()
        if loader.prefetches or loader.on_arrival:
            yield f"{memory} needs a loader that does not prefetch"
        if scenario.scaling.autoscaler.period_s is not None:
            yield "an autoscaler needs replica.adapter_memory=unified, partition or slots"

    def __init__(self, replica: Replica, region: AdapterRegion, flush_s: float) -> None:
        self.region, self._runner, self._flush_s = region, replica.runner, flush_s
        self._flushes = 0
        replica.loader.on_missing += (self.lay_out,)

    def lay_out(self, missing: Sequence[Adapter], now_s: float) -> None:
        """Lay out the missing adapters of a prefill."""
        if missing:
            self.region.load(dict.fromkeys(missing))
            self._flush(now_s)

    def on_sweep(self, now_s: float) -> None:
        self._flush(now_s)

    def sample(self) -> tuple[int, ...]:
        return self.region.used_tokens, self.region.largest_free_tokens

    def _flush(self, now_s: float) -> None:
        """Pay for the flushes since the last time."""
        flushes = self.region.flushes - self._flushes
        if flushes:
            self._flushes += flushes
            self._runner.stall(max(self._runner.stalled_until_s, now_s) + flushes * self._flush_s)

    def inherit_counters(self, failed: Part) -> None:
        assert isinstance(failed, OwnRegion), "replicas of one number have the same parts"
        self.region.inherit_counters(failed.region)
        self._flushes = self.region.flushes


class Padding(Part):
    """Pads the prompts of a batch to the longest (replica.reserve=padded)."""

    def before_admit(self, requests: Sequence[Request]) -> Sequence[Request]:
        longest = max((request.prompt_tokens for request in requests), default=0)
        for request in requests:
            request.padding_tokens = longest - request.prompt_tokens
        return requests
