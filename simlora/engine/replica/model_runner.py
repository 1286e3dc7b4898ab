"""Runs a replica's iterations: here, by asking the latency models how long they take."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from mypy_extensions import mypyc_attr

from simlora.core.adapter import Adapter
from simlora.core.request import Request
from simlora.engine.replica.decode_window import DecodeWindow
from simlora.engine.replica.running_batch import RunningBatch, prefill_work, segments
from simlora.latency.kernels import LoraWork
from simlora.latency.models import LatencyModels

PrefillWork = Callable[[Sequence[Request], Sequence[int]], tuple[int, int, LoraWork]]
"""Returns (tokens, sum of squares, LoRA work) of a prefill of so many tokens of each request."""
DecodeWork = Callable[[RunningBatch, int], LoraWork]
"""Returns the work of a decode step's LoRA kernels, with so many distinct adapters."""


class Pass:
    """Prefills `tokens[i]` tokens of `requests[i]`, and takes a decode step of the `decoding` batch, if there is one.

    They use so many distinct `adapters` together. The engine's host adds `host_s` (LatencyModels.host_s).
    """

    __slots__ = ("adapters", "decoding", "host_s", "requests", "tokens")

    def __init__(
        self,
        requests: Sequence[Request],
        tokens: Sequence[int],
        decoding: RunningBatch | None,
        host_s: float,
        adapters: int,
    ) -> None:
        self.requests, self.tokens, self.decoding = requests, tokens, decoding
        self.host_s, self.adapters = host_s, adapters


@mypyc_attr(allow_interpreted_subclasses=True)
class ModelRunner:
    """Launches prefills and decode windows, and returns how long they take.

    `stalled_until_s` is the time until which the GPU waits: for KV on its way to the host, for weights that the
    running batch needs, or for its allocator. On a straggler, everything takes `slowdown` times as long as the latency
    models say. With `adds_host`, LatencyModels.host_s() is not always 0. Merging, a slow replica, a GPU that is shared
    and a real device are runners of their own (engine/parts, profiler/replay).
    """

    __slots__ = (
        "_decode_work",
        "_iteration",
        "_kernel",
        "_prefill_work",
        "adds_host",
        "latency",
        "slowdown",
        "stalled_until_s",
    )

    def __init__(self, latency: LatencyModels) -> None:
        self.latency = latency
        segmented = latency.kernel.counts_segments
        self._prefill_work: PrefillWork = _segmented_prefill if segmented else prefill_work
        self._decode_work: DecodeWork = _segmented_decode if segmented else RunningBatch.work
        self._iteration, self._kernel = latency.iteration, latency.kernel
        self.adds_host = latency.skipped_request_s > 0.0 or latency.listing_s > 0.0
        self.slowdown = 1.0
        self.stalled_until_s = 0.0

    @property
    def merged(self) -> Adapter | None:
        """The adapter that is merged into the weights."""
        return None

    def step_tokens(self, batch: RunningBatch) -> int:
        """Return the tokens of a batch in an iteration: one a request, unless more are proposed."""
        return len(batch.members)

    def stall(self, until_s: float) -> None:
        """Launch nothing before that time."""
        self.stalled_until_s = max(self.stalled_until_s, until_s)

    def prefill_s(self, work: Pass) -> float:
        """Launch a pass; return its seconds."""
        iteration, kernel, decoding = self._iteration, self._kernel, work.decoding
        total, total_sq, lora = self._prefill_work(work.requests, work.tokens)
        if decoding is None:
            return iteration.prefill_s(total, total_sq) + kernel.prefill_s(lora) + work.host_s
        base_s = iteration.mixed_s(total, total_sq, len(decoding.members), decoding.context_tokens)
        return base_s + kernel.mixed_s(lora, self._decode_work(decoding, work.adapters)) + work.host_s

    def priced_s(self, work: Pass) -> float:
        """Return the seconds of a pass without launching it."""
        return ModelRunner.prefill_s(self, work)

    def decode(self, start_s: float, batch: RunningBatch, host_s: float, adapters: int) -> DecodeWindow:
        """Launch decode steps of a batch with so many distinct adapters, until the batch changes.

        The engine's host adds `host_s` to each.
        """
        iteration, size = self._iteration, len(batch.members)
        step_s = iteration.decode_s(size, batch.offsets + size * batch.step) + host_s
        step_s += self._kernel.decode_s(self._decode_work(batch, adapters))
        return DecodeWindow(start_s, step_s, iteration.decode_slope_s(size))


@mypyc_attr(allow_interpreted_subclasses=True)
class WrappingRunner(ModelRunner):
    """Changes how long the iterations of another `runner` take."""

    __slots__ = ("_runner",)

    def __init__(self, runner: ModelRunner) -> None:
        super().__init__(runner.latency)
        self._runner = runner

    @property
    def merged(self) -> Adapter | None:
        return self._runner.merged

    def step_tokens(self, batch: RunningBatch) -> int:
        return self._runner.step_tokens(batch)


def _segmented_prefill(requests: Sequence[Request], tokens: Sequence[int]) -> tuple[int, int, LoraWork]:
    """As `prefill_work`, for a kernel whose cost depends on the stretches of equal adapters."""
    return prefill_work(requests, tokens, segments(requests))


def _segmented_decode(batch: RunningBatch, adapters: int) -> LoraWork:
    return batch.work(adapters, segments(batch))
