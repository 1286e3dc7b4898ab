"""LoRA on CPU cores, layer by layer in step with the GPU, while an adapter is being loaded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from simlora.core.errors import InputError
from simlora.latency.calibration import Calibration


class Assisted(NamedTuple):
    """A prefill request whose x A B is computed on CPU cores until its load completes, `lands_in_s` after the start."""

    tokens: int
    rank: int
    lands_in_s: float


class CpuLora:
    """LoRA on CPU cores: a prompt is cut into slices of at most `tokens_per_core` tokens, one per core.

    A core takes intercept + per_token * tokens + per_token_rank * tokens * rank for a layer. The first and the last
    term are optional: CaraServe's own model is linear in the tokens.
    Source: CaraServe (arXiv 2401.11240) §4.2, profiling-guided parallelisation; its Figures 17 and 18 use 16 tokens
    per core.
    """

    __slots__ = ("_intercept_s", "_layers", "_per_token_rank_s", "_per_token_s", "_sync_s", "tokens_per_core")

    def __init__(self, calibration: Calibration, layers: int) -> None:
        """Read the coefficients. Raises InputError for a missing one."""
        if "cpu_lora.tokens_per_core" not in calibration.coefficients:
            raise InputError(
                f"calibration {calibration.path} has no cpu_lora.tokens_per_core: LoRA on CPU cores was measured with "
                "S-LoRA's engine only; take another loader, such as asynchronous"
            )
        self.tokens_per_core = max(int(calibration.need("cpu_lora.tokens_per_core")), 1)
        self._intercept_s = calibration.coefficients.get("cpu_lora.intercept_s", 0.0)
        self._per_token_s = calibration.need("cpu_lora.per_token_s")
        self._per_token_rank_s = calibration.coefficients.get("cpu_lora.per_token_rank_s", 0.0)
        self._sync_s = calibration.need("cpu_lora.sync_s")
        self._layers = layers

    def cores(self, tokens: int) -> int:
        """Return the number of cores for a prompt of this many tokens."""
        return -(-tokens // self.tokens_per_core)

    def layer_s(self, tokens: int, rank: int) -> float:
        """Return the seconds of one layer of a prompt on its cores, given by the largest slice."""
        slice = -(-tokens // self.cores(tokens))
        return self._intercept_s + (self._per_token_s + self._per_token_rank_s * rank) * slice

    def pass_s(self, gpu_s: float, assisted: Sequence[Assisted]) -> float:
        """Return the seconds of an assisted prefill that takes `gpu_s` on the GPU alone.

        While any assisted request has no weights on the GPU, a layer takes the longer of the GPU's and the CPU's time,
        plus their synchronisation. A layer that began with the CPU ends with it.
        Source: CaraServe §4.1, Figures 1 and 7.
        """
        pending = sorted(assisted, key=lambda each: each.lands_in_s)
        gpu_layer_s = gpu_s / self._layers
        left, seconds = self._layers, 0.0
        for index, each in enumerate(pending):
            if each.lands_in_s <= seconds:
                continue
            if not left:
                break
            slowest_s = max(self.layer_s(other.tokens, other.rank) for other in pending[index:])
            layer_s = max(gpu_layer_s, slowest_s) + self._sync_s
            layers = min(-int(-(each.lands_in_s - seconds) // layer_s), left)
            seconds += layers * layer_s
            left -= layers
        return seconds + left * gpu_layer_s
