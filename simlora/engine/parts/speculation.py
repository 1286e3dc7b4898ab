"""Speculative decoding: a draft proposes tokens, and one pass of the adapted model verifies them."""

from __future__ import annotations

from collections.abc import Iterator

from simlora.engine.replica.decode_window import DecodeWindow
from simlora.engine.replica.model_runner import ModelRunner, Pass
from simlora.engine.replica.part import Part
from simlora.engine.replica.replica import Replica
from simlora.engine.replica.running_batch import RunningBatch
from simlora.engine.scenario import Scenario
from simlora.engine.speculation import Acceptance
from simlora.latency.draft import Draft
from simlora.latency.kernels import LoraWork
from simlora.latency.models import LatencyModels


class SpeculativeRunner(ModelRunner):
    """Has a draft propose tokens before each decode step, in which the model verifies them.

    The LoRA kernels of a decode step process each proposed token and the one before it as a token of its own.
    `draft` is None where proposals take no time. `speculates`: the step that was launched last verifies proposals.
    """

    __slots__ = ("_draft", "_each", "_most_running", "speculates")

    def __init__(
        self, latency: LatencyModels, draft: Draft | None, tokens: int, most_running: int | None
    ) -> None:
        super().__init__(latency)
        self._draft, self._each = draft, 1 + tokens
        self._most_running = most_running
        self.speculates = False

    def prefill_s(self, work: Pass) -> float:
        self.speculates = work.decoding is not None and self._proposes(work.decoding)
        return self._pass_s(work)

    def priced_s(self, work: Pass) -> float:
        return self._pass_s(work)

    def decode(self, start_s: float, batch: RunningBatch, host_s: float, adapters: int) -> DecodeWindow:
        self.speculates = self._proposes(batch)
        if not self.speculates:
            return super().decode(start_s, batch, host_s, adapters)
        size, context_tokens = len(batch.members), batch.context_tokens
        step_s = self._iteration.verify_s(size, self._each, context_tokens)
        step_s += self._kernel.decode_s(self._verified(batch, adapters))
        step_s += self._propose_s(batch) + host_s
        return DecodeWindow(start_s, step_s, 0.0)

    def step_tokens(self, batch: RunningBatch) -> int:
        return len(batch.members) * (self._each if self._proposes(batch) else 1)

    def _pass_s(self, work: Pass) -> float:
        total, total_sq, lora = self._prefill_work(work.requests, work.tokens)
        decoding, draft_s = work.decoding, 0.0
        if self._draft is not None:
            draft_s = self._draft.prefill_s(total, total_sq)
        if decoding is None or not self._proposes(decoding):
            return ModelRunner.prefill_s(self, work) + draft_s
        size, context_tokens = len(decoding.members), decoding.context_tokens
        pass_s = self._iteration.mixed_verify_s(total, total_sq, size, self._each, context_tokens)
        pass_s += self._kernel.mixed_s(lora, self._verified(decoding, work.adapters))
        return pass_s + draft_s + self._propose_s(decoding) + work.host_s

    def _proposes(self, batch: RunningBatch) -> bool:
        return self._most_running is None or len(batch.members) <= self._most_running

    def _propose_s(self, batch: RunningBatch) -> float:
        return 0.0 if self._draft is None else self._draft.propose_s(len(batch.members), batch.context_tokens)

    def _verified(self, batch: RunningBatch, adapters: int) -> LoraWork:
        """Return the work of the LoRA kernels that verify."""
        each, of_one = self._each, self._decode_work(batch, adapters)
        return LoraWork(
            of_one.tokens * each,
            of_one.token_rank_sum * each,
            of_one.max_rank,
            of_one.adapters,
            of_one.segments,
        )


class Speculating(Part):
    """Counts the tokens of a proposal that are accepted, beside the one that each step gives anyway.

    A step that verifies is a window of its own, as contexts grow by different numbers. All tokens of a step come at its
    end: as one gap between tokens, which is how `vllm bench serve` and vLLM's metrics count.
    The tokens that a request does not need any more are dropped.
    """

    @staticmethod
    def requires(scenario: Scenario) -> Iterator[str]:
        if not scenario.speculation.tokens:
            return
        if scenario.policies.merges:
            yield "speculation.tokens needs a scheduler that merges no adapters"
        if scenario.cluster.engines_per_gpu > 1:
            yield "speculation.tokens needs cluster.engines_per_gpu=1"
        if scenario.replica.reserve == "padded":
            yield "speculation.tokens needs replica.reserve full, peak or paged, not padded"

    def __init__(
        self, replica: Replica, runner: SpeculativeRunner, acceptance: Acceptance, tokens: int
    ) -> None:
        self._table, self._runner, self._recorder = replica.table, runner, replica.recorder
        self._acceptance, self._tokens = acceptance, tokens

    def steps(self, most: int) -> int:
        return 1 if self._runner.speculates else most

    def before_last_step(self, window: DecodeWindow, steps: int, now_s: float) -> None:
        if not self._runner.speculates:
            return
        assert steps == 1, "a step that verifies is not a window of its own"
        batch, reservation, recorder = self._table.batch, self._table.kv.reservation, self._recorder
        draw, step = self._acceptance.draw, batch.step
        accepted = 0
        for request in batch.members.values():
            more = min(draw(request, batch.generated(request)), batch.to_come(request) - 1)
            if more > 0:
                batch.advance(request, more)
                reservation.advance(request, more, step)
                accepted += more
        recorder.draft_tokens += self._tokens * len(batch.members)
        recorder.accepted_tokens += accepted
        recorder.verified += len(batch.members)
        recorder.token_steps += accepted
        window.finish = window.stop - 1 + batch.steps_to_finish()
        window.full = 0  # KV may have grown by more than a slot a request

    def after_decode(self, now_s: float) -> None:
        if self._runner.speculates:
            self._table.end_window()
