"""Tensor parallelism: the collectives between a replica's GPUs, and the time that they add to an iteration.

The base model is partitioned as in Megatron-LM: every layer ends its attention and its MLP with an all-reduce of
[tokens, hidden]. S-LoRA partitions the adapters in the same way: a column-partitioned projection (q, k, v, gate, up)
costs an all-gather of [tokens, rank], a row-partitioned one (o, down) an all-reduce of [tokens, rank].

Source: S-LoRA (MLSys'24) §6; differs: the paper counts one of the two all-reduces that a base-model layer has, and
leaves out the fixed cost of a call, which is most of the time in a decode step.

All of this is linear in tokens or in tokens times rank, and so are iterations. `folded` therefore adds it to a
calibration's coefficients once, and simulating a step costs no more than without it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from simlora.core.errors import InputError
from simlora.hardware.model import ATTENTION, MLP, ModelShape
from simlora.latency.calibration import INSTEAD, Calibration

BASE_ALL_REDUCES = 2
"""All-reduces of a layer of the base model: after attention and after the MLP (Megatron-LM)."""
ROW_CUT = ("o", "down")
"""Row-partitioned projections, whose partial sums have to be added up."""
TOKENS = ("prefill.per_token_s", "decode.per_sequence_s")
TOKEN_RANKS = {
    "bgmv": ("decode.per_sequence_max_rank_s", "prefill.per_token_max_rank_s"),
    "mbgmv": ("decode.per_rank_sum_s", "prefill.per_token_rank_s"),
    "padded_bmm": ("decode.per_sequence_max_rank_s", "prefill.per_token_max_rank_s"),
}
"""Kernels that partition adapters as S-LoRA does: the coefficients that multiply tokens times rank.

A kernel that pads to the highest rank also sends the padding. A kernel that is not listed here, such as a user's own,
gets no communication added: its own coefficients, or its own use of `collectives`, have to include it.
"""


def all_reduce_elements(gpus: int, tokens: int, width: int) -> float:
    """Return the elements that each of `gpus` sends in one ring all-reduce of [tokens, width]: 2 (N - 1) B h / N.

    Source: S-LoRA (MLSys'24) §6.2, the cost of the base model with width = hidden.
    """
    return 2 * (gpus - 1) * tokens * width / gpus


def lora_elements(gpus: int, tokens: int, rank: int, target_modules: Sequence[str] = ATTENTION) -> float:
    """Return the elements that each of `gpus` sends for the adapters of one layer: 5 (N - 1) B r / N on q, k, v and o.

    These are three all-gathers of (N - 1) B r / N each and one all-reduce of twice that. Other target modules follow
    the same rule. Raises nothing; an unknown module counts as column-partitioned. Source: S-LoRA (MLSys'24) §6.2.
    """
    summed = sum(module in ROW_CUT for module in target_modules)
    return (len(target_modules) + summed) * (gpus - 1) * tokens * rank / gpus


@dataclass(frozen=True, slots=True)
class Collectives:
    """A collective of either kind takes latency_s + bytes sent by each GPU / bytes_per_s.

    An all-gather sends half the bytes of an all-reduce, but its call costs as much: at the sizes of a decode step,
    launch and synchronisation are most of the measured time, not the steps of the ring. `base_all_reduces_per_layer` is
    0 if whole iterations were measured, including communication.
    """

    gpus: int
    base_all_reduces_per_layer: float
    latency_s: float
    bytes_per_s: float

    def base_s(self, model: ModelShape, tokens: int) -> float:
        """Return the seconds that an iteration of `tokens` tokens spends in the base model's all-reduces."""
        return self._base_calls(model) * self.latency_s + tokens * self.base_token_s(model)

    def base_token_s(self, model: ModelShape) -> float:
        """Return the seconds of these all-reduces per token, without their latency."""
        elements = all_reduce_elements(self.gpus, 1, model.hidden)
        return self._base_calls(model) * elements * model.dtype_bytes / self.bytes_per_s

    def lora_s(
        self, model: ModelShape, token_rank_sum: int, target_modules: Sequence[str] = ATTENTION
    ) -> float:
        """Return the seconds that an iteration with any adapter spends in the adapters' collectives."""
        calls_s = model.layers * len(target_modules) * self.latency_s
        return calls_s + token_rank_sum * self.lora_token_rank_s(model, target_modules)

    def lora_token_rank_s(self, model: ModelShape, target_modules: Sequence[str] = ATTENTION) -> float:
        """Return the seconds of these collectives per token and rank, without their latency.

        In a mixture of experts a token passes the MLP's adapters once in each of its experts. That holds where every
        GPU has a slice of each expert; with replica.expert_parallel it is more than has to be sent.
        """
        of_mlp = [module for module in target_modules if module in MLP]
        others = [module for module in target_modules if module not in MLP]
        elements = lora_elements(self.gpus, 1, 1, others)
        elements += lora_elements(self.gpus, model.experts_per_token, 1, of_mlp)
        return model.layers * elements * model.dtype_bytes / self.bytes_per_s

    def _base_calls(self, model: ModelShape) -> float:
        return self.base_all_reduces_per_layer * model.layers


def collectives(calibration: Calibration) -> Collectives:
    """Return the collectives of a calibration. Raises InputError for a missing coefficient."""
    calls = calibration.need("collectives.base_all_reduces_per_layer")
    if calls not in (0, BASE_ALL_REDUCES):
        raise InputError(
            f"calibration {calibration.path} has collectives.base_all_reduces_per_layer = {calls:g}, must be "
            f"{BASE_ALL_REDUCES}, or 0 where its iterations were measured whole"
        )
    return Collectives(
        gpus=calibration.tp,
        base_all_reduces_per_layer=calls,
        latency_s=calibration.need("collectives.latency_s"),
        bytes_per_s=calibration.need("collectives.bytes_per_s"),
    )


def folded(
    calibration: Calibration,
    model: ModelShape,
    target_modules: Sequence[str] = ATTENTION,
    lora_communication: bool = True,
) -> Calibration:
    """Return the calibration whose iterations and kernels include their collectives.

    On one GPU that is the calibration itself. Raises InputError if a calibration of several GPUs has no `collectives`.
    `lora_communication=False` leaves out the adapters' part (S-LoRA, Figure 8).
    """
    if calibration.tp == 1:
        return calibration
    ours = collectives(calibration)
    curves = [curve for curve in INSTEAD if calibration.curve(curve) is not None]
    if ours.base_all_reduces_per_layer and curves:
        raise InputError(
            f"calibration {calibration.path} has {curves[0]} and collectives.base_all_reduces_per_layer = "
            f"{ours.base_all_reduces_per_layer:g}, must be 0, as a curve is of whole iterations"
        )
    added = dict.fromkeys(TOKENS, ours.base_token_s(model))
    added |= dict.fromkeys(("prefill.intercept_s", "decode.intercept_s"), ours.base_s(model, 0))
    if lora_communication:
        added |= _lora(ours, calibration, model, target_modules)
    coefficients = {name: value + added.pop(name, 0.0) for name, value in calibration.coefficients.items()}
    # A kernel may need a coefficient that it does not have on one GPU; the base model's must all be present.
    coefficients |= {name: seconds for name, seconds in added.items() if name.startswith("kernels.")}
    return replace(calibration, coefficients=coefficients)


def _lora(
    ours: Collectives, calibration: Calibration, model: ModelShape, target_modules: Sequence[str]
) -> dict[str, float]:
    """Return what to add to the coefficients of every calibrated kernel that communicates."""
    calls_s = ours.lora_s(model, 0, target_modules)
    token_rank_s = ours.lora_token_rank_s(model, target_modules)
    added: dict[str, float] = {}
    for kernel, leaves in TOKEN_RANKS.items():
        if f"kernels.{kernel}.decode.intercept_s" not in calibration.coefficients:
            continue
        for phase in ("prefill", "decode"):
            added[f"kernels.{kernel}.{phase}.intercept_s"] = calls_s
        for leaf in leaves:
            added[f"kernels.{kernel}.{leaf}"] = token_rank_s
    return added
