"""A decoder of the Llama family with random weights: what an iteration of the base model takes, not what it says."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import embedding, linear, rms_norm, silu

from profiler.model.cache import KvCache
from profiler.model.decode_attention import decode_attention, decode_attention_in_torch
from profiler.model.prefill_attention import prefill_attention, prefill_attention_in_torch, tiles
from simlora.hardware.model import ModelShape

ROTARY_BASE = 10_000.0
EPSILON = 1e-5

Lora = Callable[[int, str, Tensor, Tensor], None]
"""(layer, module, y, x): adds the adapters' products to y; module is q, k, v or o."""


def no_lora(layer: int, module: str, y: Tensor, x: Tensor) -> None:
    """Add nothing: the base model, or an adapter that is merged into it."""


@dataclass(frozen=True)
class Layer:
    """Weights [out, in] of one layer; q, k and v are one product, and so are gate and up."""

    qkv: Tensor
    o: Tensor
    gate_up: Tensor
    down: Tensor
    attention_norm: Tensor
    mlp_norm: Tensor


@dataclass(frozen=True)
class DecodeBatch:
    """One token a sequence. `positions` of the new tokens, `contexts` with them, `slots` their places in the cache."""

    tokens: Tensor
    positions: Tensor
    slots: Tensor
    contexts: Tensor
    table: Tensor
    lengths: tuple[int, ...]
    """`contexts` on the host."""


class Llama:
    """Runs prefills and decode steps on one device; greedy sampling."""

    def __init__(self, shape: ModelShape, dtype: torch.dtype, device: torch.device, seed: int = 0) -> None:
        generator = torch.Generator(device).manual_seed(seed)

        def weights(out_features: int, in_features: int) -> Tensor:
            size = (out_features, in_features)
            made = torch.empty(size, dtype=dtype, device=device)
            return made.normal_(0.0, in_features**-0.5, generator=generator)

        self.shape, self.dtype, self.device = shape, dtype, device
        self.in_triton = device.type == "cuda"  # attention; else sequence by sequence
        attention, kv = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
        ones = torch.ones(shape.hidden, dtype=dtype, device=device)
        self.layers = [
            Layer(
                qkv=weights(attention + 2 * kv, shape.hidden),
                o=weights(shape.hidden, attention),
                gate_up=weights(2 * shape.intermediate, shape.hidden),
                down=weights(shape.hidden, shape.intermediate),
                attention_norm=ones,
                mlp_norm=ones,
            )
            for _ in range(shape.layers)
        ]
        self.embeddings = weights(shape.vocab, shape.hidden)
        self.head = weights(shape.vocab, shape.hidden)
        self.norm = ones
        frequencies = ROTARY_BASE ** (-torch.arange(0, shape.head_dim, 2, device=device) / shape.head_dim)
        self._frequencies = frequencies.float()

    @torch.inference_mode()
    def prefill(
        self,
        tokens: Tensor,
        lengths: Sequence[int],
        slots: Tensor,
        cache: KvCache,
        lora: Lora = no_lora,
    ) -> Tensor:
        """Compute prompts one after the other, keep their keys and values at `slots`; return each one's next token.

        tokens, slots [sum of lengths].
        """
        positions = torch.tensor([at for length in lengths for at in range(length)]).to(self.device)
        of_prompts = tiles(lengths, self.device)

        def attention(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            if self.in_triton:
                return prefill_attention(q, k, v, of_prompts)
            return prefill_attention_in_torch(q, k, v, lengths)

        x = self._layers(tokens, positions, slots, cache, lora, attention)
        last = torch.tensor(lengths, device=self.device).cumsum(0) - 1
        return self._sample(x[last])

    @torch.inference_mode()
    def decode(self, batch: DecodeBatch, cache: KvCache, lora: Lora = no_lora) -> Tensor:
        """Take one step of every sequence; return their next tokens [sequences]."""

        def attention(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            keys, values = cache.keys[layer], cache.values[layer]
            if self.in_triton:
                return decode_attention(q, keys, values, batch.table, batch.contexts, max(batch.lengths))
            return decode_attention_in_torch(q, keys, values, batch.table, batch.lengths)

        return self._sample(self._layers(batch.tokens, batch.positions, batch.slots, cache, lora, attention))

    def _layers(
        self,
        tokens: Tensor,
        positions: Tensor,
        slots: Tensor,
        cache: KvCache,
        lora: Lora,
        attention: Callable[[int, Tensor, Tensor, Tensor], Tensor],
    ) -> Tensor:
        shape = self.shape
        width, kv_width = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
        angles = positions[:, None].float() * self._frequencies
        turn = torch.polar(torch.ones_like(angles), angles).unsqueeze(1)
        x = embedding(tokens, self.embeddings)
        for index, layer in enumerate(self.layers):
            normed = rms_norm(x, (shape.hidden,), layer.attention_norm, EPSILON)
            qkv = linear(normed, layer.qkv)
            q, k, v = qkv.split((width, kv_width, kv_width), dim=1)
            for module, y in (("q", q), ("k", k), ("v", v)):
                lora(index, module, y, normed)
            heads = (len(x), -1, shape.head_dim)
            q, k, v = _rotated(q.view(heads), turn), _rotated(k.view(heads), turn), v.view(heads)
            cache.keys[index].view(-1, shape.kv_heads, shape.head_dim).index_copy_(0, slots, k)
            cache.values[index].view(-1, shape.kv_heads, shape.head_dim).index_copy_(0, slots, v)
            attended = attention(index, q, k, v).reshape(len(x), width)
            added = linear(attended, layer.o)
            lora(index, "o", added, attended)
            x = x + added
            gate, up = linear(rms_norm(x, (shape.hidden,), layer.mlp_norm, EPSILON), layer.gate_up).chunk(
                2, 1
            )
            x = x + linear(silu(gate) * up, layer.down)
        return x

    def _sample(self, x: Tensor) -> Tensor:
        normed = rms_norm(x, (self.shape.hidden,), self.norm, EPSILON)
        return linear(normed, self.head).argmax(dim=1)


def _rotated(x: Tensor, turn: Tensor) -> Tensor:
    """Rotary embedding: halves of a head are real and imaginary parts, turned by position times frequency."""
    half = x.shape[-1] // 2
    turned = torch.complex(x[..., :half].float(), x[..., half:].float()) * turn
    return torch.cat([turned.real, turned.imag], dim=-1).to(x.dtype)
