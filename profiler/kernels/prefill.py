"""LoRA of a prefill: segments of tokens, each multiplied with one adapter's weights on tensor cores.

SGMV, or MBGMM as S-LoRA calls its own: a program takes a tile of one segment's tokens, and does what the adapter's
own rank takes. Source: Punica (MLSys'24) §4; S-LoRA (MLSys'24) §5.3.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from profiler.kernels.pages import Pages
from profiler.kernels.work import TILE_TOKENS, PrefillWork, check_rows

BLOCK_RANK = 16
"""The least that a tensor core takes; ranks below are padded with zeros that are not read."""
BLOCK_IN = 64
BLOCK_OUT = 128
WIDEN = bool(triton.knobs.runtime.interpret)
"""Triton's interpreter multiplies the bits of bfloat16 as if they were integers; interpreted kernels widen first."""


@triton.jit
def shrink(
    x,
    a,
    table,
    ranks,
    tile_adapters,
    tile_firsts,
    tile_ends,
    s,
    in_features,
    padded_rank,
    x_stride,
    table_stride,
    WIDEN: tl.constexpr,
    TILE_TOKENS: tl.constexpr,
    BLOCK_RANK: tl.constexpr,
    BLOCK_IN: tl.constexpr,
):
    """s[token, rank] = x[token] times A of the tile's adapter."""
    tile = tl.program_id(0)
    first = tl.program_id(1) * BLOCK_RANK
    adapter = tl.load(tile_adapters + tile)
    rank = tl.load(ranks + adapter)
    if first >= rank:
        return
    of_rank = first + tl.arange(0, BLOCK_RANK)
    known = of_rank < rank
    pages = tl.load(table + adapter * table_stride + of_rank, mask=known, other=0).to(tl.int64)
    tokens = (tl.load(tile_firsts + tile) + tl.arange(0, TILE_TOKENS)).to(tl.int64)
    mine = tokens < tl.load(tile_ends + tile)
    sums = tl.zeros([TILE_TOKENS, BLOCK_RANK], dtype=tl.float32)
    for start in range(0, in_features, BLOCK_IN):
        of_input = start + tl.arange(0, BLOCK_IN)
        inside = of_input < in_features
        of_x = tl.load(
            x + tokens[:, None] * x_stride + of_input[None, :],
            mask=mine[:, None] & inside[None, :],
            other=0.0,
        )
        of_a = tl.load(
            a + pages[None, :] * in_features + of_input[:, None],
            mask=inside[:, None] & known[None, :],
            other=0.0,
        )
        if WIDEN:
            sums = tl.dot(of_x.to(tl.float32), of_a.to(tl.float32), sums)
        else:
            sums = tl.dot(of_x, of_a, sums)
    place = s + tokens[:, None] * padded_rank + of_rank[None, :]
    tl.store(place, sums.to(s.dtype.element_ty), mask=mine[:, None] & known[None, :])


@triton.jit
def expand(
    s,
    b,
    table,
    ranks,
    scales,
    tile_adapters,
    tile_firsts,
    tile_ends,
    y,
    out_features,
    padded_rank,
    y_stride,
    table_stride,
    WIDEN: tl.constexpr,
    TILE_TOKENS: tl.constexpr,
    BLOCK_RANK: tl.constexpr,
    BLOCK_OUT: tl.constexpr,
):
    """y[token] += scale * s[token] times B of the tile's adapter."""
    tile = tl.program_id(0)
    of_output = tl.program_id(1) * BLOCK_OUT + tl.arange(0, BLOCK_OUT)
    inside = of_output < out_features
    adapter = tl.load(tile_adapters + tile)
    rank = tl.load(ranks + adapter)
    tokens = (tl.load(tile_firsts + tile) + tl.arange(0, TILE_TOKENS)).to(tl.int64)
    mine = tokens < tl.load(tile_ends + tile)
    sums = tl.zeros([TILE_TOKENS, BLOCK_OUT], dtype=tl.float32)
    for first in range(0, rank, BLOCK_RANK):
        of_rank = first + tl.arange(0, BLOCK_RANK)
        known = of_rank < rank
        pages = tl.load(table + adapter * table_stride + of_rank, mask=known, other=0).to(tl.int64)
        of_s = tl.load(
            s + tokens[:, None] * padded_rank + of_rank[None, :],
            mask=mine[:, None] & known[None, :],
            other=0.0,
        )
        of_b = tl.load(
            b + pages[:, None] * out_features + of_output[None, :],
            mask=known[:, None] & inside[None, :],
            other=0.0,
        )
        if WIDEN:
            sums = tl.dot(of_s.to(tl.float32), of_b.to(tl.float32), sums)
        else:
            sums = tl.dot(of_s, of_b, sums)
    where = mine[:, None] & inside[None, :]
    place = y + tokens[:, None] * y_stride + of_output[None, :]
    before = tl.load(place, mask=where, other=0.0).to(tl.float32)
    after = before + tl.load(scales + adapter) * sums
    tl.store(place, after.to(y.dtype.element_ty), mask=where)


def sgmv(y: Tensor, x: Tensor, work: PrefillWork, pages: Pages, scratch: Tensor | None = None) -> None:
    """Add each token's LoRA product to y [tokens, out_features], segment by segment.

    x [tokens, in_features]. `scratch` as `prefill_scratch` makes it. Raises InputError for shapes, types and devices
    that do not go together.
    """
    check_rows(x, y, work.tokens, pages)
    if work.tiles == 0:
        return
    s = prefill_scratch(work, pages) if scratch is None else scratch
    shrink[(work.tiles, triton.cdiv(work.padded_rank, BLOCK_RANK))](
        x,
        pages.a,
        pages.table,
        pages.rank,
        work.adapter,
        work.first,
        work.end,
        s,
        pages.in_features,
        work.padded_rank,
        x.stride(0),
        pages.table.stride(0),
        WIDEN=WIDEN,
        TILE_TOKENS=TILE_TOKENS,
        BLOCK_RANK=BLOCK_RANK,
        BLOCK_IN=BLOCK_IN,
    )
    expand[(work.tiles, triton.cdiv(pages.out_features, BLOCK_OUT))](
        s,
        pages.b,
        pages.table,
        pages.rank,
        pages.scale,
        work.adapter,
        work.first,
        work.end,
        y,
        pages.out_features,
        work.padded_rank,
        y.stride(0),
        pages.table.stride(0),
        WIDEN=WIDEN,
        TILE_TOKENS=TILE_TOKENS,
        BLOCK_RANK=BLOCK_RANK,
        BLOCK_OUT=BLOCK_OUT,
    )


def prefill_scratch(work: PrefillWork, pages: Pages) -> Tensor:
    """Return room for s [tokens, the batch's highest rank]; kernels write whatever they read of it."""
    return torch.empty(work.tokens, work.padded_rank, dtype=pages.a.dtype, device=pages.a.device)
