"""The time that LoRA kernels add to an iteration of the base model."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator
from typing import ClassVar, Final

import numpy as np
from mypy_extensions import mypyc_attr

from simlora.core.arrays import Floats
from simlora.core.checks import GivenInt, whole
from simlora.core.errors import not_defined
from simlora.latency.calibration import Calibration


class LoraWork:
    """The work of the LoRA kernels in one iteration.

    `tokens` counts tokens of requests that use an adapter (decode: one per request). `token_rank_sum` is the sum over
    these tokens of their adapter's rank; in decode this is a sum over requests, never over distinct adapters.
    `segments` counts runs of equal adapters in the batch's order, for kernels that declare `counts_segments`; routers
    need not count distinct `adapters` for kernels that do not declare `counts_adapters`.
    For a router that compares replicas the fields are arrays `[replicas]`; `priced` accepts either.
    """

    __slots__ = ("adapters", "max_rank", "segments", "token_rank_sum", "tokens")

    def __init__(
        self, tokens: int, token_rank_sum: int, max_rank: int, adapters: int, segments: int = 0
    ) -> None:
        self.tokens, self.token_rank_sum, self.max_rank = tokens, token_rank_sum, max_rank
        self.adapters, self.segments = adapters, segments

    def __iter__(self) -> Iterator[int]:
        return iter((self.tokens, self.token_rank_sum, self.max_rank, self.adapters, self.segments))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LoraWork) and tuple(self) == tuple(other)

    def __repr__(self) -> str:
        return f"LoraWork{tuple(self)}"


NO_LORA = LoraWork(0, 0, 0, 0)


def priced(price: Callable[[LoraWork], float], work: LoraWork) -> Floats:
    """Return the seconds of work whose fields are arrays of one shape, by a kernel's `decode_s` or `prefill_s`.

    Kernels of plain arithmetic, such as ours, compute all at once. One that tests `if work.tokens` is called per item.
    """
    try:
        return np.asarray(price(work))
    except (TypeError, ValueError):  # an array has no truth value and cannot be rounded
        fields = [np.ravel(field) for field in np.broadcast_arrays(*work)]
        rows = zip(*(field.tolist() for field in fields), strict=True)
        found = np.array([price(LoraWork(*row)) for row in rows], dtype=np.float64)
        return found.reshape(np.shape(work.tokens))


@mypyc_attr(allow_interpreted_subclasses=True)
class Kernel:
    """A LoRA kernel's latency model; both methods return seconds, and 0 without any adapter."""

    counts_segments: ClassVar[bool] = False
    counts_adapters: ClassVar[bool] = False
    prefill_0 = 0.0
    decode_0 = 0.0

    def __init__(self, calibration: Calibration) -> None:
        """Read this kernel's coefficients. Raises InputError for a missing one."""

    @abstractmethod
    def decode_s(self, work: LoraWork) -> float:
        """Return the seconds added to a decode step."""
        raise not_defined(self, "decode_s")

    @abstractmethod
    def prefill_s(self, work: LoraWork) -> float:
        """Return the seconds added to a prefill."""
        raise not_defined(self, "prefill_s")

    def mixed_s(self, prefill: LoraWork, decode: LoraWork) -> float:
        """Return the seconds added to a pass that does both.

        Such a pass has one set of launches and collectives, so the smaller fixed cost is saved. A fixed cost is what a
        kernel charges beyond its work; our kernels name it `prefill_0` and `decode_0`.
        """
        both_s = self.prefill_s(prefill) + self.decode_s(decode)
        if not prefill.tokens or not decode.tokens:
            return both_s
        # By name: compiled code does not see the class attribute of an interpreted subclass otherwise.
        fixed_s: float = min(getattr(self, "prefill_0"), getattr(self, "decode_0"))  # noqa: B009
        return both_s - fixed_s


@mypyc_attr(allow_interpreted_subclasses=True)
class Bgmv(Kernel):
    """Batched gather matrix-vector: every token costs the batch's highest rank.

    Source: Punica (MLSys'24) §4; CaraServe §5 models its decode time by batch * max rank. Optional are
    `decode.per_sequence_s` and `prefill.per_token_s`, the cost of a sequence or token at any rank.
    """

    def __init__(self, calibration: Calibration) -> None:
        self.decode_0 = calibration.need("kernels.bgmv.decode.intercept_s")
        self.decode_rank = calibration.need("kernels.bgmv.decode.per_sequence_max_rank_s")
        self.decode_sequence = calibration.coefficients.get("kernels.bgmv.decode.per_sequence_s", 0.0)
        self.prefill_0 = calibration.need("kernels.bgmv.prefill.intercept_s")
        self.prefill_rank = calibration.need("kernels.bgmv.prefill.per_token_max_rank_s")
        self.prefill_token = calibration.coefficients.get("kernels.bgmv.prefill.per_token_s", 0.0)

    def decode_s(self, work: LoraWork) -> float:
        each_s = self.decode_sequence + self.decode_rank * work.max_rank
        return self.decode_0 * (work.tokens > 0) + each_s * work.tokens

    def prefill_s(self, work: LoraWork) -> float:
        ranks_s = self.prefill_rank * work.tokens * work.max_rank
        return self.prefill_0 * (work.tokens > 0) + ranks_s + self.prefill_token * work.tokens


@mypyc_attr(allow_interpreted_subclasses=True)
class Mbgmv(Kernel):
    """Multi-size BGMV: every token costs its own rank, and in part the batch's highest.

    Source: S-LoRA (MLSys'24) §5.3; CaraServe §5 models its decode time by the sum of ranks,
    LoRAServe §3 by the highest. S-LoRA's own runs show both: coefficients fitted to a mix of ranks
    8 to 64 miss the mean latency at rank 8 by 20 % with the sum alone, and by 2 % with both
    (`docs/fidelity.md`). Two coefficients are optional: `per_sequence_max_rank_s`, absent in CaraServe's reading, and
    `per_sequence_s`, the cost of a sequence at any rank: reading and writing its activations.
    """

    def __init__(self, calibration: Calibration) -> None:
        self.decode_0 = calibration.need("kernels.mbgmv.decode.intercept_s")
        self.decode_rank = calibration.need("kernels.mbgmv.decode.per_rank_sum_s")
        self.decode_max_rank = calibration.coefficients.get(
            "kernels.mbgmv.decode.per_sequence_max_rank_s", 0.0
        )
        self.decode_sequence = calibration.coefficients.get("kernels.mbgmv.decode.per_sequence_s", 0.0)
        self.prefill_0 = calibration.need("kernels.mbgmv.prefill.intercept_s")
        self.prefill_rank = calibration.need("kernels.mbgmv.prefill.per_token_rank_s")

    def decode_s(self, work: LoraWork) -> float:
        each_s = self.decode_sequence + self.decode_max_rank * work.max_rank
        own_s = self.decode_rank * work.token_rank_sum
        return self.decode_0 * (work.tokens > 0) + own_s + each_s * work.tokens

    def prefill_s(self, work: LoraWork) -> float:
        return self.prefill_0 * (work.tokens > 0) + self.prefill_rank * work.token_rank_sum


@mypyc_attr(allow_interpreted_subclasses=True)
class MbgmvMax(Mbgmv):
    """MBGMV as LoRAServe (§3) reads it: every token costs the batch's highest rank, whatever its own.

    The coefficients are those of `mbgmv`, so that the two readings agree if all ranks are equal.
    """

    def decode_s(self, work: LoraWork) -> float:
        each_s = self.decode_sequence + self.decode_max_rank * work.max_rank
        own_s = self.decode_rank * (work.tokens * work.max_rank)
        return self.decode_0 * (work.tokens > 0) + own_s + each_s * work.tokens

    def prefill_s(self, work: LoraWork) -> float:
        return self.prefill_0 * (work.tokens > 0) + self.prefill_rank * (work.tokens * work.max_rank)


TILE: Final = 16
"""The least width of a matrix product in Triton."""
SHRINK_TOKENS: Final = 32
EXPAND_TOKENS: Final = 64
MANY_TOKENS: Final = 128
"""Tokens of a pass from which on vLLM's shrink splits its sums less."""
FEWER_SPLITS: Final = 8 / 64


@mypyc_attr(allow_interpreted_subclasses=True)
class Vllm(Kernel):
    """The Triton kernels of vLLM's V1 engine, whose programs check every slot for work, used or not.

    A launch has programs for every slot, even an empty one: x A ("shrink") per 16 of the rank and per 32 tokens or part
    of them, and then B ("expand") per 64 tokens. From 128 tokens on, shrink splits every sum into 8 parts instead of
    64: fewer programs for the slots, and a different cost for each adapter in the pass. Weights are padded to
    `max_lora_rank`, and tiles to 16, so lower ranks neither save nor cost anything. A pass that prefills and decodes is
    one launch over both.
    Source: grids and tiles of vLLM 0.8.5 (lora_shrink, lora_expand), whose step times against slots, distinct adapters
    and ranks (arXiv 2508.08343, its published data) follow them. Differs: tokens without an adapter are not counted,
    nor the padding of a captured graph beyond its pass.
    """

    counts_adapters: ClassVar[bool] = True

    def __init__(self, calibration: Calibration, slots: GivenInt, max_lora_rank: GivenInt) -> None:
        count = whole("kernel.slots (replica.max_loras)", slots, "adapters", least=1)
        rank: int = -(-whole("kernel.max_lora_rank", max_lora_rank, least=1) // TILE) * TILE
        need = calibration.need
        self.pass_0 = need("kernels.vllm.intercept_s")
        self.token = need("kernels.vllm.per_token_s")
        self.shrink = need("kernels.vllm.per_slot_rank_s") * rank * count
        self.expand = need("kernels.vllm.per_slot_s") * count
        self.adapter_of_many = need("kernels.vllm.per_adapter_s")
        self.adapter_of_few = (
            need("kernels.vllm.few_tokens.per_adapter_s")
            + need("kernels.vllm.few_tokens.per_adapter_rank_s") * rank
        )

    def decode_s(self, work: LoraWork) -> float:
        tokens = work.tokens
        many = tokens >= MANY_TOKENS
        few = 1 - many
        slots_s = self.shrink * -(-tokens // SHRINK_TOKENS) * (few + FEWER_SPLITS * many)
        slots_s += self.expand * -(-tokens // EXPAND_TOKENS)
        adapter_s = self.adapter_of_few * few + self.adapter_of_many * many
        return self.pass_0 * (tokens > 0) + slots_s + adapter_s * work.adapters + self.token * tokens

    def prefill_s(self, work: LoraWork) -> float:
        return self.decode_s(work)

    def mixed_s(self, prefill: LoraWork, decode: LoraWork) -> float:
        if not decode.tokens:
            return self.decode_s(prefill)
        # The running batch's adapters include those of partly prefilled requests.
        tokens = prefill.tokens + decode.tokens
        return self.decode_s(LoraWork(tokens, decode.token_rank_sum, decode.max_rank, decode.adapters))


@mypyc_attr(allow_interpreted_subclasses=True)
class PaddedBmm(Kernel):
    """Batched matrix products over copies of the weights, padded to the batch's highest rank.

    Every iteration copies the A and B of each segment of equal adapters into one tensor of zeros, layer by layer, and
    gathers and scatters its activations: hundreds of small launches per segment, however many its tokens. Prefill
    copies too, and then multiplies segment by segment.
    Source: S-LoRA-bmm, S-LoRA (MLSys'24) §7.1, as its authors published it.
    """

    counts_segments: ClassVar[bool] = True

    def __init__(self, calibration: Calibration) -> None:
        self.decode_0 = calibration.need("kernels.padded_bmm.decode.intercept_s")
        self.decode_segment = calibration.need("kernels.padded_bmm.decode.per_segment_s")
        self.decode_rank = calibration.need("kernels.padded_bmm.decode.per_segment_max_rank_s")
        # Communication between several GPUs; absent on one.
        self.decode_sequence_rank = calibration.coefficients.get(
            "kernels.padded_bmm.decode.per_sequence_max_rank_s", 0.0
        )
        self.prefill_0 = calibration.need("kernels.padded_bmm.prefill.intercept_s")
        self.prefill_segment = calibration.need("kernels.padded_bmm.prefill.per_segment_s")
        self.prefill_rank = calibration.need("kernels.padded_bmm.prefill.per_token_max_rank_s")

    def decode_s(self, work: LoraWork) -> float:
        copied_s = (self.decode_segment + self.decode_rank * work.max_rank) * work.segments
        sent_s = self.decode_sequence_rank * work.max_rank * work.tokens
        return self.decode_0 * (work.tokens > 0) + copied_s + sent_s

    def prefill_s(self, work: LoraWork) -> float:
        padded_s = self.prefill_rank * work.tokens * work.max_rank
        return self.prefill_0 * (work.tokens > 0) + self.prefill_segment * work.segments + padded_s


@mypyc_attr(allow_interpreted_subclasses=True)
class OneHotEinsum(Kernel):
    """Every token is multiplied with every adapter of the pass, and a one-hot mask selects its own.

    The work is therefore tokens times distinct adapters times the highest rank, to which all are padded; decode and
    prefill are the same products. torch.einsum makes several launches per projection regardless of the work: that is
    the intercept. A pass that prefills and decodes is one such product over the tokens and adapters of both.
    Source: dLoRA (OSDI'24) §6. Differs: their artifact multiplies with all adapters in HBM, used or not.
    """

    counts_adapters: ClassVar[bool] = True

    def __init__(self, calibration: Calibration) -> None:
        self.decode_0 = calibration.need("kernels.one_hot_einsum.decode.intercept_s")
        self.decode_rank = calibration.need("kernels.one_hot_einsum.decode.per_sequence_adapter_max_rank_s")
        self.prefill_0 = calibration.need("kernels.one_hot_einsum.prefill.intercept_s")
        self.prefill_rank = calibration.need("kernels.one_hot_einsum.prefill.per_token_adapter_max_rank_s")

    def decode_s(self, work: LoraWork) -> float:
        each_s = self.decode_rank * work.adapters * work.max_rank
        return self.decode_0 * (work.tokens > 0) + each_s * work.tokens

    def prefill_s(self, work: LoraWork) -> float:
        each_s = self.prefill_rank * work.adapters * work.max_rank
        return self.prefill_0 * (work.tokens > 0) + each_s * work.tokens

    def mixed_s(self, prefill: LoraWork, decode: LoraWork) -> float:
        if prefill.tokens and decode.tokens:
            # The running batch's adapters include those of the prefill.
            adapters, max_rank = decode.adapters, max(prefill.max_rank, decode.max_rank)
            prefill = LoraWork(prefill.tokens, prefill.token_rank_sum, max_rank, adapters)
            decode = LoraWork(decode.tokens, decode.token_rank_sum, max_rank, adapters)
        return super().mixed_s(prefill, decode)


@mypyc_attr(allow_interpreted_subclasses=True)
class Merged(Kernel):
    """The adapter is merged into the base weights and adds no time (LoRA, ICLR'22)."""

    def decode_s(self, work: LoraWork) -> float:
        return 0.0 * work.tokens

    def prefill_s(self, work: LoraWork) -> float:
        return 0.0 * work.tokens
