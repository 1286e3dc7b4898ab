"""The latency of one forward pass of the base model."""

from __future__ import annotations

from typing import Any

from simlora.latency.calibration import CONTEXT_BY_BATCH, PASS_BY_TOKENS, STEP_BY_BATCH, Calibration
from simlora.latency.curve import Curve


class IterationModel:
    """Prefill and decode times of the base model, linear in their coefficients, or by curves.

    prefill: intercept + per_token * tokens + per_token_sq * sum of squared prompt lengths.
    decode:  intercept + per_sequence * batch + per_sequence_sq * batch squared
             + per_context_token * sum of contexts.
    A context is a request's prompt and the tokens it has generated when the step starts.

    The squares are optional. They model attention in long prompts, and batches so large that reading the weights no
    longer hides the arithmetic. On an A100 80 GB with batches of up to 350, the fit's median error of the mean latency
    is 6.4 % without the batch's square, and 0.7 % with it (`docs/fidelity.md`).

    A calibration may give curves instead: the seconds of a pass by its tokens (`prefill.pass_s_by_tokens`), and of a
    decode step by its batch, with empty contexts (`decode.step_s_by_batch`) and per context token
    (`decode.per_context_token_s_by_batch`). Contexts stay linear, and a batch is constant within a decode window, so
    that its steps grow by equal times. With a curve of tokens, a pass that does both has the tokens of both, reads the
    contexts of its sequences besides, and has their host time (`host.per_sequence_s`, which the curve of steps includes
    and that of passes does not).
    """

    __slots__ = (
        "_context",
        "_host_sequence_s",
        "_pass",
        "_step",
        "decode_0",
        "decode_context",
        "decode_sequence",
        "decode_sequence_sq",
        "prefill_0",
        "prefill_token",
        "prefill_token_sq",
    )

    def __init__(self, calibration: Calibration) -> None:
        self._pass = calibration.curve(PASS_BY_TOKENS)
        self._step = calibration.curve(STEP_BY_BATCH)
        self._context = calibration.curve(CONTEXT_BY_BATCH)
        self.prefill_token = self.decode_sequence = self.decode_sequence_sq = self.decode_context = 0.0
        self.prefill_token_sq = calibration.coefficients.get("prefill.per_token_sq_s", 0.0)
        self._host_sequence_s = calibration.coefficients.get("host.per_sequence_s", 0.0)
        if self._pass is None:
            self.prefill_0 = calibration.need("prefill.intercept_s")
            self.prefill_token = calibration.need("prefill.per_token_s")
        else:
            self.prefill_0 = self._pass.least_s
        if self._step is None:
            self.decode_0 = calibration.need("decode.intercept_s")
            self.decode_sequence = calibration.need("decode.per_sequence_s")
            self.decode_sequence_sq = calibration.coefficients.get("decode.per_sequence_sq_s", 0.0)
        else:
            self.decode_0 = self._step.least_s
        if self._context is None:
            self.decode_context = calibration.need("decode.per_context_token_s")

    def prefill_s(self, tokens: int, tokens_sq: int) -> float:
        """Return the seconds to prefill `tokens` prompt tokens; the squared prompt lengths sum to `tokens_sq`."""
        if self._pass is not None:
            return _at(self._pass, tokens) + self.prefill_token_sq * tokens_sq
        return self.prefill_0 + self.prefill_token * tokens + self.prefill_token_sq * tokens_sq

    def decode_s(self, sequences: int, context_tokens: float) -> float:
        """Return the seconds of one decode step of a batch whose contexts sum to `context_tokens`."""
        if self._step is not None:
            return _at(self._step, sequences) + self._context_token_s(sequences) * context_tokens
        return (
            self.decode_0
            + (self.decode_sequence + self.decode_sequence_sq * sequences) * sequences
            + self._context_token_s(sequences) * context_tokens
        )

    def contexts_s(self, sequences: int, context_tokens: float) -> float:
        """Return the seconds in which a step reads contexts that sum to `context_tokens`."""
        return self._context_token_s(sequences) * context_tokens

    def _context_token_s(self, sequences: int) -> float:
        """Return the seconds of a token of context."""
        return self.decode_context if self._context is None else _at(self._context, sequences)

    def verify_s(self, sequences: int, each: int, context_tokens: float) -> float:
        """Return the seconds of a step that processes `each` tokens of every sequence, as speculative decoding does.

        All else takes as long as for so many sequences; contexts are read, and the host works, once a sequence. Beyond
        the last batch of a curve of steps, tokens add what they add to a pass; the logits of these are left out.
        """
        tokens, contexts_s = each * sequences, self._context_token_s(sequences) * context_tokens
        if self._step is None:
            step_s = (self.decode_sequence + self.decode_sequence_sq * tokens) * tokens
            return self.decode_0 + step_s + contexts_s
        most = tokens
        beyond_s = 0.0
        if self._pass is not None and tokens > self._step.last:
            most = int(self._step.last)
            beyond_s = max(_at(self._pass, tokens) - _at(self._pass, most), 0.0)
        host_s = self._host_sequence_s * max(most - sequences, 0)
        return max(_at(self._step, most) - host_s, self._step.least_s) + beyond_s + contexts_s

    def mixed_verify_s(
        self, tokens: int, tokens_sq: int, sequences: int, each: int, context_tokens: float
    ) -> float:
        """Return the seconds of one pass that prefills, and does the same as `verify_s`."""
        if self._pass is not None:
            beside_s = self._host_sequence_s * sequences + self._context_token_s(sequences) * context_tokens
            return self.prefill_s(tokens + each * sequences, tokens_sq) + beside_s
        both_s = self.prefill_s(tokens, tokens_sq) + self.verify_s(sequences, each, context_tokens)
        return both_s - min(self.prefill_0, self.decode_0)

    def mixed_s(self, tokens: int, tokens_sq: int, sequences: int, context_tokens: float) -> float:
        """Return the seconds of one pass that does both; weights are read once, so the smaller fixed cost is saved."""
        if self._pass is not None:
            sequences_s = self._host_sequence_s * sequences
            contexts_s = self._context_token_s(sequences) * context_tokens
            return self.prefill_s(tokens + sequences, tokens_sq) + sequences_s + contexts_s
        both_s = self.prefill_s(tokens, tokens_sq) + self.decode_s(sequences, context_tokens)
        return both_s - min(self.prefill_0, self.decode_0)

    def decode_slope_s(self, sequences: int) -> float:
        """Return the seconds by which each decode step exceeds the one before: every context grew by one."""
        return self._context_token_s(sequences) * sequences


def _at(curve: Curve, count: Any) -> float:
    """Return the seconds at a count, or, for a router that compares replicas, at counts `[replicas]`."""
    found: float = curve.at(count) if isinstance(count, int) else curve.at_all(count)
    return found


class HostTime:
    """The part of an iteration during which its GPU is idle: scheduling, sampling, launching.

    It is included in the iteration's time. Another engine on the same GPU can use it.
    """

    __slots__ = ("intercept_s", "per_sequence_s")

    def __init__(self, calibration: Calibration) -> None:
        self.intercept_s = calibration.need("host.intercept_s")
        self.per_sequence_s = calibration.need("host.per_sequence_s")

    def host_s(self, sequences: int) -> float:
        """Return the host seconds of an iteration of this many sequences."""
        return self.intercept_s + self.per_sequence_s * sequences
