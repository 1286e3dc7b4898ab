"""Attention of a prefill over the prompts that it has just computed: each token sees its own prompt up to itself.

On a GPU it is one launch for all prompts, after FlashAttention-2 (Dao, 2023) for sequences of different lengths: every
program takes a tile of one prompt's tokens for one query head. With a launch a prompt, each further prompt took 1.2 ms
of launches on an H100. On a CPU it is torch's own, prompt by prompt.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from profiler.model.decode_attention import WIDEN

TILE_TOKENS = 64
"""Query tokens of one program."""
BLOCK_TOKENS = 64
"""Keys and values that it reads at a time."""


@dataclass(frozen=True)
class Tiles:
    """Tiles of prompts that lie one after the other. `begins` [tiles]: first token of the prompt that a tile is of.

    `firsts`, `ends` [tiles]: the tile's own first token, and the token after its last one.
    """

    begins: Tensor
    firsts: Tensor
    ends: Tensor


def tiles(lengths: Sequence[int], device: torch.device) -> Tiles:
    """Return the tiles of prompts of these lengths; the last ones, which see most, come first."""
    rows: list[tuple[int, int, int]] = []
    begin = 0
    for length in lengths:
        end = begin + length
        rows += [(begin, first, min(first + TILE_TOKENS, end)) for first in range(begin, end, TILE_TOKENS)]
        begin = end
    rows.sort(key=lambda row: row[0] - row[1])
    columns = torch.tensor(rows, dtype=torch.int32).to(device).unbind(1)
    return Tiles(*(column.contiguous() for column in columns))


@triton.jit
def attend_tile(
    q,
    k,
    v,
    out,
    begins,
    firsts,
    ends,
    scale,
    q_stride,
    k_stride,
    v_stride,
    out_stride,
    WIDEN: tl.constexpr,
    GROUP: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    TILE_TOKENS: tl.constexpr,
    BLOCK_TOKENS: tl.constexpr,
):
    """out[token, head] of one tile: softmax of its scores against the prompt's keys up to the token, times values."""
    tile = tl.program_id(0)
    head = tl.program_id(1)
    kv_head = head // GROUP
    begin = tl.load(begins + tile)
    first = tl.load(firsts + tile)
    end = tl.load(ends + tile)
    dims = tl.arange(0, HEAD_DIM)
    mine = first + tl.arange(0, TILE_TOKENS)
    rows = mine.to(tl.int64)
    of_q = tl.load(
        q + rows[:, None] * q_stride + head * HEAD_DIM + dims[None, :], mask=(mine < end)[:, None], other=0.0
    )
    if WIDEN:
        of_q = of_q.to(tl.float32)
    most = tl.full([TILE_TOKENS], float("-inf"), dtype=tl.float32)
    total = tl.zeros([TILE_TOKENS], dtype=tl.float32)
    found = tl.zeros([TILE_TOKENS, HEAD_DIM], dtype=tl.float32)
    for start in range(begin, end, BLOCK_TOKENS):
        seen = start + tl.arange(0, BLOCK_TOKENS)
        there = seen < end
        places = seen.to(tl.int64)
        of_k = tl.load(
            k + places[None, :] * k_stride + kv_head * HEAD_DIM + dims[:, None],
            mask=there[None, :],
            other=0.0,
        )
        of_v = tl.load(
            v + places[:, None] * v_stride + kv_head * HEAD_DIM + dims[None, :],
            mask=there[:, None],
            other=0.0,
        )
        if WIDEN:
            of_k = of_k.to(tl.float32)
            of_v = of_v.to(tl.float32)
        # The prompt's first token is before all of a tile's, so that no row has only scores of minus infinity.
        scores = tl.where(seen[None, :] <= mine[:, None], tl.dot(of_q, of_k) * scale, float("-inf"))
        higher = tl.maximum(most, tl.max(scores, axis=1))
        share = tl.exp(scores - higher[:, None])
        faded = tl.exp(most - higher)
        total = total * faded + tl.sum(share, axis=1)
        found = found * faded[:, None] + tl.dot(share.to(of_v.dtype), of_v)
        most = higher
    place = out + rows[:, None] * out_stride + head * HEAD_DIM + dims[None, :]
    tl.store(place, (found / total[:, None]).to(out.dtype.element_ty), mask=(mine < end)[:, None])


def prefill_attention(q: Tensor, k: Tensor, v: Tensor, tiles: Tiles) -> Tensor:
    """Return [tokens, heads, head_dim] for q of that shape; k, v [tokens, kv_heads, head_dim].

    The heads of a token lie in a row, one after the other.
    """
    heads, head_dim = q.shape[1:]
    out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    attend_tile[(len(tiles.firsts), heads)](
        q,
        k,
        v,
        out,
        tiles.begins,
        tiles.firsts,
        tiles.ends,
        head_dim**-0.5,
        q.stride(0),
        k.stride(0),
        v.stride(0),
        out.stride(0),
        WIDEN=WIDEN,
        GROUP=heads // k.shape[1],
        HEAD_DIM=head_dim,
        TILE_TOKENS=TILE_TOKENS,
        BLOCK_TOKENS=BLOCK_TOKENS,
    )
    return out


def prefill_attention_in_torch(q: Tensor, k: Tensor, v: Tensor, lengths: Sequence[int]) -> Tensor:
    """Return what `prefill_attention` does, prompt by prompt."""
    out = torch.empty_like(q)
    begin = 0
    for length in lengths:
        mine = slice(begin, begin + length)
        of_q, of_k, of_v = (part[mine].transpose(0, 1).unsqueeze(0) for part in (q, k, v))
        found = scaled_dot_product_attention(of_q, of_k, of_v, is_causal=True, enable_gqa=True)
        out[mine] = found[0].transpose(0, 1)
        begin += length
    return out
