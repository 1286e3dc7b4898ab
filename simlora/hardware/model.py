"""A model's shape, from which its bytes follow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from simlora.core.adapter import RANK_MAX, Adapter
from simlora.core.checks import shown, whole
from simlora.core.errors import InputError, nearest

ATTENTION = ("q", "k", "v", "o")
"""The projections that S-LoRA, dLoRA and CaraServe adapt."""
MLP = ("gate", "up", "down")
"""The projections of a gated MLP; a mixture of experts has them once per expert."""
ADAPTER_BITS = (None, 16, 8, 4)
SCALED = 64
"""Weights of a quantised adapter that share a scale (the block of NF4, QLoRA, NeurIPS'23, §3)."""
ADDED_TOKENS = 256
"""Tokens that an adapter may add to the vocabulary (vLLM's lora_extra_vocab_size)."""


@dataclass(frozen=True)
class ModelShape:
    """A decoder of the Llama family: grouped-query attention, gated MLP, RMS norms.

    With `experts`, each layer has that many MLPs of width `intermediate`, of which a token uses `experts_per_token`
    (Mixtral, Qwen3's mixtures of experts); an adapter of an MLP's projection then has one A and B per expert.
    `kv_heads` equals `heads` where attention is not grouped. `qkv_bias` adds biases to q, k and v (Qwen-2.5).
    `adapter_bits`: of a weight of an adapter, 16, 8 or 4; None: as the model's weights.
    `lora_vocabulary`: vLLM keeps room for adapters of its embeddings and output head (its Llama, not its Qwen-2).
    """

    name: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    vocab: int
    dtype_bytes: int = 2
    tied_embeddings: bool = False
    qkv_bias: bool = False
    lora_vocabulary: bool = False
    experts: int = 1
    experts_per_token: int = 1
    adapter_bits: int | None = None

    def __post_init__(self) -> None:
        for key in (
            "layers",
            "hidden",
            "heads",
            "kv_heads",
            "head_dim",
            "intermediate",
            "vocab",
            "dtype_bytes",
            "experts",
            "experts_per_token",
        ):
            whole(f"model.{key}", getattr(self, key), least=1)
        if self.adapter_bits not in ADAPTER_BITS:
            raise InputError(f"replica.adapter_bits is {shown(self.adapter_bits)}, must be 16, 8, 4 or null")
        if self.experts_per_token > self.experts:
            raise InputError(
                f"model.experts_per_token is {self.experts_per_token}, must be at most model.experts, which is "
                f"{self.experts}"
            )
        if self.heads % self.kv_heads:
            raise InputError(
                f"model.kv_heads is {self.kv_heads}, must divide model.heads, which is {self.heads}"
            )

    def check_tp(self, tp: int) -> None:
        """Raise InputError unless the attention heads can be divided among `tp` GPUs."""
        if self.heads % tp:
            raise InputError(
                f"replica.tp is {tp}, must divide the {self.heads} attention heads of {self.name}"
            )

    def module_shape(self, module: str) -> tuple[int, int]:
        """Return (in, out) of one projection. Raises InputError for an unknown module."""
        attention, kv = self.heads * self.head_dim, self.kv_heads * self.head_dim
        shapes = {
            "q": (self.hidden, attention),
            "k": (self.hidden, kv),
            "v": (self.hidden, kv),
            "o": (attention, self.hidden),
            "gate": (self.hidden, self.intermediate),
            "up": (self.hidden, self.intermediate),
            "down": (self.intermediate, self.hidden),
        }
        if module not in shapes:
            raise InputError(f"target module {module!r} is unknown; {nearest(str(module), shapes)}")
        return shapes[module]

    def copies(self, module: str) -> int:
        """Return how often a layer has a projection: once, or once per expert."""
        return self.experts if module in MLP else 1

    @property
    def eagle_parameters(self) -> int:
        """Return the weights of a head that drafts tokens: a dense layer, and a projection of 2 hidden to hidden.

        It shares embeddings and output head with the model. The layer of a mixture of experts is as wide as the experts
        of one token. Source: EAGLE (ICML'24) §4.1.
        """
        shapes = [self.module_shape(module) for module in ATTENTION]
        mlp = 3 * self.hidden * self.intermediate * self.experts_per_token
        return sum(rows * columns for rows, columns in shapes) + mlp + 2 * self.hidden * self.hidden

    @property
    def parameters(self) -> int:
        """Return the number of weights: embeddings, projections, biases, norms, the experts' router, output head."""
        layer = 2 * self.hidden + (self.hidden * self.experts if self.experts > 1 else 0)
        for module in (*ATTENTION, *MLP):
            rows, columns = self.module_shape(module)
            layer += rows * columns * self.copies(module)
            layer += columns if self.qkv_bias and module in ("q", "k", "v") else 0
        embeddings = (1 if self.tied_embeddings else 2) * self.vocab * self.hidden
        return embeddings + self.layers * layer + self.hidden

    @property
    def weight_bytes(self) -> int:
        """Return the bytes of all weights, on all GPUs of a replica together."""
        return self.parameters * self.dtype_bytes

    @property
    def kv_bytes_per_token(self) -> int:
        """Return the bytes of one token's keys and values over all layers."""
        return 2 * self.layers * self.kv_heads * self.head_dim * self.dtype_bytes

    def kv_bytes_per_gpu(self, tp: int) -> int:
        """Return the bytes of one token's KV on each GPU of a replica; heads are copied once there are more GPUs."""
        return self.kv_bytes_per_token // min(tp, self.kv_heads)

    def adapter_bytes(self, rank: int, target_modules: Sequence[str] = ATTENTION) -> int:
        """Return the bytes of an adapter: A is [in, rank], B is [rank, out], for each module of each layer.

        With 8 or 4 `adapter_bits` each SCALED of its weights share a scale of 16 bits. 0 where there are no target
        modules: such an adapter has been merged into a model of its own.
        """
        if len(set(target_modules)) < len(target_modules):
            raise InputError(f"target modules are {list(target_modules)}, must each be named once")
        width = sum(self.copies(module) * sum(self.module_shape(module)) for module in target_modules)
        weights = rank * width * self.layers
        bits = self.adapter_bits
        if bits is None:
            return weights * self.dtype_bytes
        scales = -(-weights // SCALED) if bits < 16 else 0
        return -(-weights * bits // 8) + 2 * scales

    def adapter_kv_tokens(self, rank: int, target_modules: Sequence[str] = ATTENTION) -> int:
        """Return the token slots that an adapter takes in a unified pool, rounded up.

        4 * rank for q, k, v, o without grouped-query attention. Source: S-LoRA (MLSys'24) §5.1.
        """
        return -(-self.adapter_bytes(rank, target_modules) // self.kv_bytes_per_token)

    def slot_bytes(self, max_rank: int, target_modules: Sequence[str] = ATTENTION) -> int:
        """Return the bytes that vLLM sets aside for one adapter of up to `max_rank`, used or not.

        Where the model can have its vocabulary adapted (`lora_vocabulary`), that is A and B of embeddings and
        output head, over 256 added tokens too, and three copies of the embeddings of those. The KV pools that
        vLLM 0.8.5 reported over slots and ranks follow from it to 0.3 % (docs/fidelity.md).
        """
        vocabulary = 0
        if self.lora_vocabulary:
            padded = self.vocab + ADDED_TOKENS
            vocabulary = 2 * max_rank * (padded + self.hidden) + 3 * ADDED_TOKENS * self.hidden
        return self.adapter_bytes(max_rank, target_modules) + vocabulary * self.dtype_bytes

    def adapter(self, id: int, name: str, rank: int, target_modules: Sequence[str] = ATTENTION) -> Adapter:
        """Return the adapter as a replica of this model sees it. Raises InputError for a rank out of range."""
        whole(f"rank of adapter {name}", rank, least=1, most=RANK_MAX)
        size_bytes = self.adapter_bytes(rank, target_modules)
        return Adapter(id, name, rank, size_bytes, self.adapter_kv_tokens(rank, target_modules))
