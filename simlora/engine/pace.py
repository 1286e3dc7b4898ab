"""How long a replica's iterations take: latency models, the merged adapter, neighbours on its GPU."""

from __future__ import annotations

from collections.abc import Sequence

from simlora.core.adapter import Adapter
from simlora.core.request import Request
from simlora.engine.batch import Batch, prefill_work
from simlora.engine.run import DecodeRun
from simlora.engine.sharing import SharedGpu
from simlora.latency.kernels import NO_LORA
from simlora.latency.models import LatencyModels


class Pace:
    """`merged` is the adapter in the weights, for whose requests there is no LoRA work.

    All takes `slowdown` times as long as the latency models say.
    """

    __slots__ = ("_id", "_latency", "_tp", "gpu", "merged", "slowdown")

    def __init__(self, id: int, latency: LatencyModels, tp: int) -> None:
        self._id = id
        self.merged: Adapter | None = None
        self.slowdown = 1.0
        self.gpu: SharedGpu | None = None
        self._latency = latency
        self._tp = tp

    def prefill_s(
        self,
        requests: Sequence[Request],
        chunks: Sequence[int],
        decoding: Batch | None,
        skipped: int,
        adapters: int,
    ) -> float:
        """Seconds to prefill requests, of each only that many tokens if there are `chunks`.

        With a batch that decodes in the same pass, seconds of both, with so many `adapters` together. Either way the
        scheduler has looked at requests and `skipped` so many.
        """
        iteration, kernel = self._latency.iteration, self._latency.kernel
        tokens, tokens_sq, work = prefill_work(requests, chunks, kernel.counts_segments)
        if self.merged:
            work = NO_LORA
        scheduling_s = self._latency.skipped_request_s * skipped
        if decoding is None:
            own_s = iteration.prefill_s(tokens, tokens_sq) + kernel.prefill_s(work) + scheduling_s
            own_s *= self.slowdown
            return own_s if self.gpu is None else self._beside_others(own_s, 0.0, len(requests), True)[0]
        base_s = iteration.mixed_s(tokens, tokens_sq, len(decoding), decoding.context_tokens)
        theirs = NO_LORA if self.merged else decoding.work(adapters, kernel.counts_segments)
        own_s = (base_s + kernel.mixed_s(work, theirs) + scheduling_s) * self.slowdown
        return self._beside_others(own_s, 0.0, len(requests) + len(decoding), True)[0]

    def decode_run(self, start_s: float, batch: Batch, skipped: int, adapters: int) -> DecodeRun:
        """Return the coming decode steps of a batch of so many adapters, as long as it stays as it is."""
        iteration, kernel, size = self._latency.iteration, self._latency.kernel, len(batch.members)
        step_s = iteration.decode_s(size, batch.context_tokens)
        if skipped:
            step_s += self._latency.skipped_request_s * skipped
        if self.merged is None:
            step_s += kernel.decode_s(batch.work(adapters, kernel.counts_segments))
        step_s *= self.slowdown
        slope_s = iteration.decode_slope_s(size) * self.slowdown
        if self.gpu is None:
            return DecodeRun(start_s, step_s, slope_s)
        return DecodeRun(start_s, *self._beside_others(step_s, slope_s, size, False))

    def switch_s(self, unmerge: bool, merge: Adapter | None) -> float:
        """Take the merged adapter out, put another one in; return the seconds of both."""
        model, seconds = self._latency.merge, 0.0
        assert model is not None, "a scheduler merges that does not say so"
        if unmerge and self.merged is not None:
            seconds += model.merge_s(self.merged.size_bytes // self._tp)
            self.merged = None
        if merge is not None:
            assert self.merged is None, f"{merge.name} is merged on top of {self.merged}"
            seconds += model.merge_s(merge.size_bytes // self._tp)
            self.merged = merge
        return seconds * self.slowdown

    def _beside_others(
        self, own_s: float, slope_s: float, sequences: int, prefilling: bool
    ) -> tuple[float, float]:
        if self.gpu is None or self._latency.host is None:
            return own_s, slope_s
        return self.gpu.beside_others(
            self._id, own_s, slope_s, self._latency.host.host_s(sequences), prefilling
        )
