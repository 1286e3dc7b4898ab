"""An adapter that is merged into the base model's weights, so that its requests need no LoRA kernels."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from simlora.core.adapter import Adapter
from simlora.core.request import Request
from simlora.engine.replica.decode_window import DecodeWindow
from simlora.engine.replica.model_runner import ModelRunner, Pass
from simlora.engine.replica.part import Part
from simlora.engine.replica.replica import Replica
from simlora.engine.replica.running_batch import RunningBatch, prefill_work
from simlora.engine.scenario import Scenario
from simlora.latency.kernels import NO_LORA, LoraWork
from simlora.latency.models import LatencyModels
from simlora.latency.transfer import Merge
from simlora.policies.scheduling.base import SchedulerOutput


class MergingRunner(ModelRunner):
    """While an adapter is merged, runs its requests alone, without any LoRA work."""

    def __init__(self, latency: LatencyModels, model: Merge, tp: int) -> None:
        super().__init__(latency)
        self._model, self._tp = model, tp
        self._unmerged_work = self._prefill_work, self._decode_work
        self._merged: Adapter | None = None

    @property
    def merged(self) -> Adapter | None:
        return self._merged

    def switch_s(self, unmerge: bool, merge: Adapter | None) -> float:
        """Take the merged adapter out, and merge another one; return the seconds of both."""
        seconds = 0.0
        if unmerge and self._merged is not None:
            seconds += self._model.merge_s(self._merged.size_bytes // self._tp)
            self._merged = None
        if merge is not None:
            assert self._merged is None, f"{merge.name} is merged on top of {self._merged}"
            seconds += self._model.merge_s(merge.size_bytes // self._tp)
            self._merged = merge
        work = self._unmerged_work if self._merged is None else (_merged_prefill, _merged_decode)
        self._prefill_work, self._decode_work = work
        return seconds

    def prefill_s(self, work: Pass) -> float:
        self._check((*work.requests, *(work.decoding or ())))
        return super().prefill_s(work)

    def decode(self, start_s: float, batch: RunningBatch, host_s: float, adapters: int) -> DecodeWindow:
        self._check(batch)
        return super().decode(start_s, batch, host_s, adapters)

    def _check(self, requests: Iterable[Request]) -> None:
        merged = self._merged
        assert merged is None or all(request.adapter is merged for request in requests), (
            f"{merged} is merged and another adapter runs"
        )


def _merged_prefill(requests: Sequence[Request], tokens: Sequence[int]) -> tuple[int, int, LoraWork]:
    return (*prefill_work(requests, tokens)[:2], NO_LORA)


def _merged_decode(batch: RunningBatch, adapters: int) -> LoraWork:
    return NO_LORA


class Merging(Part):
    """Switches the merged adapter as the scheduler says, before an iteration begins."""

    @staticmethod
    def requires(scenario: Scenario) -> Iterator[str]:
        bits = scenario.model.adapter_bits
        if scenario.policies.merges and bits is not None and bits < 16:
            yield f"replica.adapter_bits is {bits}, must be 16 or null with a scheduler that merges adapters"

    def __init__(self, replica: Replica, runner: MergingRunner) -> None:
        self._replica, self._runner = replica, runner

    def prepare(self, output: SchedulerOutput, now_s: float) -> float:
        if not output.unmerge and output.merge is None:
            return 0.0
        seconds = self._runner.switch_s(output.unmerge, output.merge) * self._replica.runner.slowdown
        self._replica.recorder.switch(self._replica.id, now_s, seconds, self._runner.merged)
        self._replica.table.end_window()
        return seconds
