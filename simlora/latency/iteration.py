"""The latency of one forward pass of the base model."""

from __future__ import annotations

from simlora.latency.calibration import Calibration


class IterationModel:
    """Prefill and decode times of the base model, linear in their coefficients.

    prefill: intercept + per_token * tokens + per_token_sq * sum of squared prompt lengths.
    decode:  intercept + per_sequence * batch + per_sequence_sq * batch squared
             + per_context_token * sum of contexts.
    A context is a request's prompt and the tokens it has generated when the step starts.

    The squares are optional. They model attention in long prompts, and batches so large that reading the weights no
    longer hides the arithmetic. On an A100 80 GB with batches of up to 350, the fit's median error of the mean latency
    is 6.4 % without the batch's square, and 0.7 % with it (`docs/fidelity.md`).
    """

    __slots__ = (
        "decode_0",
        "decode_context",
        "decode_sequence",
        "decode_sequence_sq",
        "prefill_0",
        "prefill_token",
        "prefill_token_sq",
    )

    def __init__(self, calibration: Calibration) -> None:
        self.prefill_0 = calibration.need("prefill.intercept_s")
        self.prefill_token = calibration.need("prefill.per_token_s")
        self.prefill_token_sq = calibration.coefficients.get("prefill.per_token_sq_s", 0.0)
        self.decode_0 = calibration.need("decode.intercept_s")
        self.decode_sequence = calibration.need("decode.per_sequence_s")
        self.decode_sequence_sq = calibration.coefficients.get("decode.per_sequence_sq_s", 0.0)
        self.decode_context = calibration.need("decode.per_context_token_s")

    def prefill_s(self, tokens: int, tokens_sq: int) -> float:
        """Return the seconds to prefill `tokens` prompt tokens; the squared prompt lengths sum to `tokens_sq`."""
        return self.prefill_0 + self.prefill_token * tokens + self.prefill_token_sq * tokens_sq

    def decode_s(self, sequences: int, context_tokens: float) -> float:
        """Return the seconds of one decode step of a batch whose contexts sum to `context_tokens`."""
        return (
            self.decode_0
            + (self.decode_sequence + self.decode_sequence_sq * sequences) * sequences
            + self.decode_context * context_tokens
        )

    def mixed_s(self, tokens: int, tokens_sq: int, sequences: int, context_tokens: float) -> float:
        """Return the seconds of one pass that does both; weights are read once, so the smaller fixed cost is saved."""
        both_s = self.prefill_s(tokens, tokens_sq) + self.decode_s(sequences, context_tokens)
        return both_s - min(self.prefill_0, self.decode_0)

    def decode_slope_s(self, sequences: int) -> float:
        """Return the seconds by which each decode step exceeds the one before: every context grew by one."""
        return self.decode_context * sequences


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
