"""Attention of a decode step over a paged KV cache.

On a GPU a decode step is two launches, after Flash-Decoding (Dao and others, 2023): every program reads a part of one
sequence's keys and values once for all query heads that share them, and a second launch puts the parts together.
On a CPU it is torch's own, sequence by sequence.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from profiler.model.cache import PAGE_TOKENS

LEAST_HEADS = 16
"""Rows of a tensor core's product: query heads of a group are padded to as many."""
PART_TOKENS = 256
"""Tokens of a context that one program goes through."""
BLOCK_TOKENS = 64
WIDEN = bool(triton.knobs.runtime.interpret)
"""Triton's interpreter multiplies the bits of bfloat16 as if they were integers; interpreted kernels widen first."""


@triton.jit
def attend_part(
    q,
    keys,
    values,
    table,
    contexts,
    sums,
    highest,
    weights,
    scale,
    q_stride,
    table_stride,
    kv_heads,
    parts,
    WIDEN: tl.constexpr,
    GROUP: tl.constexpr,
    HEADS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    PAGE_TOKENS: tl.constexpr,
    PART_TOKENS: tl.constexpr,
    BLOCK_TOKENS: tl.constexpr,
):
    """One part of one sequence for one KV head: softmax's numerators times values, its highest score, its sum."""
    sequence = tl.program_id(0).to(tl.int64)
    kv_head = tl.program_id(1)
    part = tl.program_id(2)
    context = tl.load(contexts + sequence)
    begin = part * PART_TOKENS
    if begin >= context:
        return
    end = min(begin + PART_TOKENS, context)
    heads = tl.arange(0, HEADS)
    dims = tl.arange(0, HEAD_DIM)
    of_group = heads < GROUP
    of_q = tl.load(
        q + sequence * q_stride + (kv_head * GROUP + heads[:, None]) * HEAD_DIM + dims[None, :],
        mask=of_group[:, None],
        other=0.0,
    )
    if WIDEN:
        of_q = of_q.to(tl.float32)
    most = tl.full([HEADS], float("-inf"), dtype=tl.float32)
    total = tl.zeros([HEADS], dtype=tl.float32)
    found = tl.zeros([HEADS, HEAD_DIM], dtype=tl.float32)
    for start in range(begin, end, BLOCK_TOKENS):
        tokens = start + tl.arange(0, BLOCK_TOKENS)
        there = tokens < end
        pages = tl.load(table + sequence * table_stride + tokens // PAGE_TOKENS, mask=there, other=0).to(
            tl.int64
        )
        place = ((pages * PAGE_TOKENS + tokens % PAGE_TOKENS) * kv_heads + kv_head) * HEAD_DIM
        of_keys = tl.load(keys + place[None, :] + dims[:, None], mask=there[None, :], other=0.0)
        of_values = tl.load(values + place[:, None] + dims[None, :], mask=there[:, None], other=0.0)
        if WIDEN:
            of_keys = of_keys.to(tl.float32)
            of_values = of_values.to(tl.float32)
        scores = tl.where(there[None, :], tl.dot(of_q, of_keys) * scale, float("-inf"))
        higher = tl.maximum(most, tl.max(scores, axis=1))
        share = tl.exp(scores - higher[:, None])
        faded = tl.exp(most - higher)
        total = total * faded + tl.sum(share, axis=1)
        found = found * faded[:, None] + tl.dot(share.to(of_values.dtype), of_values)
        most = higher
    place = ((sequence * kv_heads + kv_head) * parts + part) * GROUP + heads
    tl.store(highest + place, most, mask=of_group)
    tl.store(weights + place, total, mask=of_group)
    tl.store(sums + place[:, None] * HEAD_DIM + dims[None, :], found, mask=of_group[:, None])


@triton.jit
def join_parts(
    sums,
    highest,
    weights,
    contexts,
    out,
    out_stride,
    kv_heads,
    parts,
    GROUP: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    PART_TOKENS: tl.constexpr,
):
    """out[sequence, head] = what all parts of its sequence say, weighted by the sums of their softmax."""
    sequence = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1)
    dims = tl.arange(0, HEAD_DIM)
    kv_head = head // GROUP
    most = float("-inf")
    total = 0.0
    found = tl.zeros([HEAD_DIM], dtype=tl.float32)
    for part in range(tl.cdiv(tl.load(contexts + sequence), PART_TOKENS)):
        place = ((sequence * kv_heads + kv_head) * parts + part) * GROUP + head % GROUP
        highest_of_part = tl.load(highest + place)
        higher = tl.maximum(most, highest_of_part)
        faded = tl.exp(most - higher)
        share = tl.exp(highest_of_part - higher)
        total = total * faded + tl.load(weights + place) * share
        found = found * faded + tl.load(sums + place * HEAD_DIM + dims) * share
        most = higher
    place = out + sequence * out_stride + head * HEAD_DIM + dims
    tl.store(place, (found / total).to(out.dtype.element_ty))


def decode_attention(
    q: Tensor, keys: Tensor, values: Tensor, table: Tensor, contexts: Tensor, most_context: int
) -> Tensor:
    """Return [sequences, heads, head_dim] for q of that shape, over one layer's cache.

    keys, values [pages, PAGE_TOKENS, kv_heads, head_dim]; `table` [sequences, pages] and `contexts` [sequences], int32,
    the last token included; none is more than `most_context`.
    """
    sequences, heads, head_dim = q.shape
    kv_heads = keys.shape[2]
    group = heads // kv_heads
    parts = triton.cdiv(most_context, PART_TOKENS)
    sums = torch.empty((sequences, kv_heads, parts, group, head_dim), dtype=torch.float32, device=q.device)
    highest, weights = (
        torch.empty((sequences, kv_heads, parts, group), dtype=torch.float32, device=q.device)
        for _ in range(2)
    )
    out = torch.empty_like(q)
    attend_part[(sequences, kv_heads, parts)](
        q,
        keys,
        values,
        table,
        contexts,
        sums,
        highest,
        weights,
        head_dim**-0.5,
        q.stride(0),
        table.stride(0),
        kv_heads,
        parts,
        WIDEN=WIDEN,
        GROUP=group,
        HEADS=max(LEAST_HEADS, triton.next_power_of_2(group)),
        HEAD_DIM=head_dim,
        PAGE_TOKENS=PAGE_TOKENS,
        PART_TOKENS=PART_TOKENS,
        BLOCK_TOKENS=BLOCK_TOKENS,
    )
    join_parts[(sequences, heads)](
        sums,
        highest,
        weights,
        contexts,
        out,
        out.stride(0),
        kv_heads,
        parts,
        GROUP=group,
        HEAD_DIM=head_dim,
        PART_TOKENS=PART_TOKENS,
    )
    return out


def decode_attention_in_torch(
    q: Tensor, keys: Tensor, values: Tensor, table: Tensor, contexts: Sequence[int]
) -> Tensor:
    """Return what `decode_attention` does, sequence by sequence; pages are copied beside each other first."""
    out = torch.empty_like(q)
    for index, context in enumerate(contexts):
        pages = table[index, : -(-context // PAGE_TOKENS)]
        of_keys, of_values = (
            cache[pages].flatten(0, 1)[:context].transpose(0, 1).unsqueeze(0) for cache in (keys, values)
        )
        of_q = q[index].unsqueeze(1).unsqueeze(0)
        out[index] = scaled_dot_product_attention(of_q, of_keys, of_values, enable_gqa=True)[0, :, 0]
    return out
