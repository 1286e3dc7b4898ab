"""LoRA of a decode step: one token a request, each multiplied with its own adapter's weights.

BGMV pads every request to the batch's highest rank, MBGMV does for each what its own rank takes. Both are two
launches: `shrink` makes s = x A^T, in parts of the input that are not yet added up, `expand` adds scale * s B to y.
Source: Punica (MLSys'24) §4 for BGMV; S-LoRA (MLSys'24) §5.3 for MBGMV. They differ from both in
that no program ever adds to what another one writes, so that sums come out the same every time.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from profiler.kernels.pages import Pages
from profiler.kernels.work import DecodeWork, check_rows

BLOCK_RANK = 16
BLOCK_IN = 256
BLOCK_OUT = 256
PARTS = 4
"""Into how many the input is cut, so that a batch of few requests fills the GPU."""


@triton.jit
def shrink(
    x,
    a,
    table,
    ranks,
    adapters,
    s,
    rows,
    in_features,
    padded_rank,
    x_stride,
    table_stride,
    PADDED: tl.constexpr,
    PARTS: tl.constexpr,
    BLOCK_RANK: tl.constexpr,
    BLOCK_IN: tl.constexpr,
):
    """s[part, row, rank] = the part's share of x[row] times A of the row's adapter."""
    row = tl.program_id(0).to(tl.int64)
    first = tl.program_id(1) * BLOCK_RANK
    part = tl.program_id(2)
    adapter = tl.load(adapters + row)
    if adapter < 0:
        return
    rank = tl.load(ranks + adapter)
    if PADDED:
        rank = padded_rank
    if first >= rank:
        return
    of_rank = first + tl.arange(0, BLOCK_RANK)
    known = of_rank < rank
    pages = tl.load(table + adapter * table_stride + of_rank, mask=known, other=0).to(tl.int64)
    share = tl.cdiv(tl.cdiv(in_features, PARTS), BLOCK_IN) * BLOCK_IN
    begin = part * share
    sums = tl.zeros([BLOCK_RANK, BLOCK_IN], dtype=tl.float32)
    for start in range(begin, min(begin + share, in_features), BLOCK_IN):
        of_input = start + tl.arange(0, BLOCK_IN)
        inside = of_input < in_features
        of_x = tl.load(x + row * x_stride + of_input, mask=inside, other=0.0).to(tl.float32)
        where = known[:, None] & inside[None, :]
        of_a = tl.load(a + pages[:, None] * in_features + of_input[None, :], mask=where, other=0.0)
        sums += of_a.to(tl.float32) * of_x[None, :]
    place = (part * rows + row) * padded_rank + of_rank
    tl.store(s + place, tl.sum(sums, axis=1), mask=known)


@triton.jit
def expand(
    s,
    b,
    table,
    ranks,
    scales,
    adapters,
    y,
    rows,
    out_features,
    padded_rank,
    y_stride,
    table_stride,
    PADDED: tl.constexpr,
    PARTS: tl.constexpr,
    BLOCK_RANK: tl.constexpr,
    BLOCK_OUT: tl.constexpr,
):
    """y[row] += scale * s[row] times B of the row's adapter."""
    row = tl.program_id(0).to(tl.int64)
    of_output = tl.program_id(1) * BLOCK_OUT + tl.arange(0, BLOCK_OUT)
    adapter = tl.load(adapters + row)
    if adapter < 0:
        return
    rank = tl.load(ranks + adapter)
    if PADDED:
        rank = padded_rank
    inside = of_output < out_features
    sums = tl.zeros([BLOCK_OUT], dtype=tl.float32)
    for first in range(0, rank, BLOCK_RANK):
        of_rank = first + tl.arange(0, BLOCK_RANK)
        known = of_rank < rank
        of_s = tl.zeros([BLOCK_RANK], dtype=tl.float32)
        for part in tl.static_range(PARTS):
            of_s += tl.load(s + (part * rows + row) * padded_rank + of_rank, mask=known, other=0.0)
        pages = tl.load(table + adapter * table_stride + of_rank, mask=known, other=0).to(tl.int64)
        where = known[:, None] & inside[None, :]
        of_b = tl.load(b + pages[:, None] * out_features + of_output[None, :], mask=where, other=0.0)
        sums += tl.sum(of_b.to(tl.float32) * of_s[:, None], axis=0)
    place = y + row * y_stride + of_output
    before = tl.load(place, mask=inside, other=0.0).to(tl.float32)
    after = before + tl.load(scales + adapter) * sums
    tl.store(place, after.to(y.dtype.element_ty), mask=inside)


def bgmv(y: Tensor, x: Tensor, work: DecodeWork, pages: Pages, scratch: Tensor | None = None) -> None:
    """Add each row's LoRA product to y [rows, out_features], every row padded to the batch's highest rank.

    x [rows, in_features]. `scratch` as `decode_scratch` makes it. Raises InputError for shapes, types and devices
    that do not go together.
    """
    _run(y, x, work, pages, scratch, padded=True)


def mbgmv(y: Tensor, x: Tensor, work: DecodeWork, pages: Pages, scratch: Tensor | None = None) -> None:
    """Add each row's LoRA product to y, every row with its own rank; otherwise as `bgmv`."""
    _run(y, x, work, pages, scratch, padded=False)


def decode_scratch(work: DecodeWork, pages: Pages) -> Tensor:
    """Return room for s [parts, rows, the batch's highest rank]; kernels write whatever they read of it."""
    return torch.empty(PARTS, work.rows, work.padded_rank, dtype=torch.float32, device=pages.a.device)


def _run(y: Tensor, x: Tensor, work: DecodeWork, pages: Pages, scratch: Tensor | None, padded: bool) -> None:
    check_rows(x, y, work.rows, pages)
    if work.padded_rank == 0:
        return
    s = decode_scratch(work, pages) if scratch is None else scratch
    rank_tiles = triton.cdiv(work.padded_rank, BLOCK_RANK)
    shrink[(work.rows, rank_tiles, PARTS)](
        x,
        pages.a,
        pages.table,
        pages.rank,
        work.adapter,
        s,
        work.rows,
        pages.in_features,
        work.padded_rank,
        x.stride(0),
        pages.table.stride(0),
        PADDED=padded,
        PARTS=PARTS,
        BLOCK_RANK=BLOCK_RANK,
        BLOCK_IN=BLOCK_IN,
    )
    expand[(work.rows, triton.cdiv(pages.out_features, BLOCK_OUT))](
        s,
        pages.b,
        pages.table,
        pages.rank,
        pages.scale,
        work.adapter,
        y,
        work.rows,
        pages.out_features,
        work.padded_rank,
        y.stride(0),
        pages.table.stride(0),
        PADDED=padded,
        PARTS=PARTS,
        BLOCK_RANK=BLOCK_RANK,
        BLOCK_OUT=BLOCK_OUT,
    )
