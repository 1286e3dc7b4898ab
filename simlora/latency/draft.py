"""The time that a draft takes to propose tokens, which the target then verifies: speculative decoding."""

from __future__ import annotations

from simlora.hardware.model import ModelShape
from simlora.latency.calibration import Calibration
from simlora.latency.iteration import IterationModel


class Draft:
    """A draft proposes `tokens` tokens of each sequence, one step after the other, without any adapter.

    Its steps take as long as the GPU's part of the steps of `calibration`, that is without `host.intercept_s` and
    `host.per_sequence_s`. A model of its own has its own calibration. A head on the target, such as EAGLE's, has the
    target's: `weights` is its share of the weights that a step reads, `layers` of the layers, and `contexts` of the
    bytes that a token of context has. The shares of EAGLE's follow from its shape (`eagle`).
    The host's work for a draft's steps is left out: no measurement of it is known. S-LoRA's calibrations have no such
    coefficients, as its host launches while the GPU computes: there a draft has its share of launches and waits, too.
    Source: Leviathan et al. (ICML'23) §3, whose cost coefficient c is the time of a draft's step over the target's.
    """

    __slots__ = ("_contexts", "_host_0", "_host_sequence", "_iteration", "_layers", "_weights", "tokens")

    def __init__(
        self,
        tokens: int,
        calibration: Calibration,
        weights: float = 1.0,
        layers: float = 1.0,
        contexts: float = 1.0,
    ) -> None:
        self.tokens = tokens
        self._iteration = IterationModel(calibration)
        self._host_0 = calibration.coefficients.get("host.intercept_s", 0.0)
        self._host_sequence = calibration.coefficients.get("host.per_sequence_s", 0.0)
        self._weights, self._layers, self._contexts = weights, layers, contexts

    def propose_s(self, sequences: int, context_tokens: float) -> float:
        """Return the seconds in which it proposes tokens for a batch whose contexts sum to `context_tokens`."""
        step_s = self._iteration.decode_s(sequences, 0) - self._host_0 - self._host_sequence * sequences
        contexts_s = self._iteration.contexts_s(sequences, context_tokens)
        return self.tokens * (self._weights * max(step_s, 0.0) + self._contexts * contexts_s)

    def prefill_s(self, tokens: int, tokens_sq: int) -> float:
        """Return the seconds in which it processes prompts, whose squared lengths sum to `tokens_sq`."""
        pass_s = self._iteration.prefill_s(tokens, tokens_sq) - self._host_0
        return self._layers * max(pass_s, 0.0)


def eagle(tokens: int, target: ModelShape, calibration: Calibration) -> Draft:
    """Return EAGLE's head on a target with this calibration, whose output head it shares."""
    output = target.vocab * target.hidden
    layers = target.parameters - output * (1 if target.tied_embeddings else 2)
    return Draft(
        tokens,
        calibration,
        weights=(target.eagle_parameters + output) / (layers + output),
        layers=target.eagle_parameters / layers,
        contexts=1 / target.layers,
    )
