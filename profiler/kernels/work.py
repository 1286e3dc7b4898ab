"""Which rows of a batch use which adapter: checked on the host, then handed to the kernels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from profiler.kernels.pages import Pages
from simlora.core.errors import InputError

BASE_MODEL = -1
"""Instead of an adapter's index: the row uses none."""
TILE_TOKENS = 32
"""Tokens of one segment that a program of the prefill kernel takes at once."""
ALIGNED_INTS = 4
"""Of 32 bits, in the 16 bytes at which Triton wants pointers to begin."""


@dataclass(frozen=True)
class DecodeWork:
    """One token a request. `adapter` [rows] holds indices, BASE_MODEL for none; `adapters` are the same numbers."""

    adapter: Tensor
    adapters: tuple[int, ...]
    padded_rank: int

    @property
    def rows(self) -> int:
        """Requests in the batch."""
        return len(self.adapters)


@dataclass(frozen=True)
class PrefillWork:
    """Prompts one after the other, each of one adapter, cut into tiles of TILE_TOKENS tokens.

    `adapter`, `first` and `end` [tiles]: the tile's adapter, and its tokens. Prompts of the base model have no tiles.
    """

    adapter: Tensor
    first: Tensor
    end: Tensor
    segments: tuple[tuple[int, int], ...]
    tokens: int
    padded_rank: int

    @property
    def tiles(self) -> int:
        """Programs along the tokens."""
        return self.adapter.shape[0]


def decode_work(adapters: Sequence[int], pages: Pages) -> DecodeWork:
    """Check a batch's adapters, one a row. Raises InputError for an index that is none of `pages`."""
    check_adapters(adapters, pages)
    on_device = torch.tensor(adapters, dtype=torch.int32, device=pages.a.device)
    return DecodeWork(on_device, tuple(adapters), _padded(adapters, pages))


def prefill_work(segments: Sequence[tuple[int, int]], pages: Pages) -> PrefillWork:
    """Cut segments, as (adapter, tokens) in the order of the tokens, into tiles; empty ones have none.

    Raises InputError for an index that is none of `pages`, and for a negative length.
    """
    check_adapters([adapter for adapter, _ in segments], pages)
    tiles: list[tuple[int, int, int]] = []
    begin = 0
    for adapter, tokens in segments:
        if tokens < 0:
            raise InputError(f"a segment has {tokens} tokens, must be at least 0")
        if adapter != BASE_MODEL:
            firsts = range(begin, begin + tokens, TILE_TOKENS)
            tiles += [(adapter, first, min(first + TILE_TOKENS, begin + tokens)) for first in firsts]
        begin += tokens
    # One copy to the device. Every column begins at 16 bytes: for a pointer that does not, Triton compiles a kernel
    # anew, which may take seconds.
    columns = torch.zeros((3, -(-len(tiles) // ALIGNED_INTS) * ALIGNED_INTS), dtype=torch.int32)
    columns[:, : len(tiles)] = torch.tensor(tiles, dtype=torch.int32).reshape(-1, 3).T
    adapter, first, end = columns.to(pages.a.device)[:, : len(tiles)]
    used = [adapter for adapter, tokens in segments if tokens]
    return PrefillWork(adapter, first, end, tuple(segments), begin, _padded(used, pages))


def check_rows(x: Tensor, y: Tensor, rows: int, pages: Pages) -> None:
    """Raise InputError unless x [rows, in_features] and y [rows, out_features] are what the kernels can take."""
    for name, tensor, width in (("x", x, pages.in_features), ("y", y, pages.out_features)):
        if tuple(tensor.shape) != (rows, width):
            raise InputError(f"{name} has shape {list(tensor.shape)}, must be [{rows}, {width}]")
        if tensor.dtype != pages.a.dtype:
            raise InputError(f"{name} is {tensor.dtype}, must be {pages.a.dtype} as the weights are")
        if tensor.device != pages.a.device:
            raise InputError(f"{name} is on {tensor.device}, must be on {pages.a.device} as the weights are")
        if width and tensor.stride(1) != 1:
            raise InputError(f"the rows of {name} must be contiguous")


def check_adapters(adapters: Sequence[int], pages: Pages) -> None:
    """Raise InputError for an index that is none of `pages`; BASE_MODEL stands for no adapter."""
    count = len(pages.ranks)
    for row, adapter in enumerate(adapters):
        if not BASE_MODEL <= adapter < count:
            raise InputError(
                f"adapter {adapter} in row {row} is none of the {count}; no adapter is {BASE_MODEL}"
            )


def _padded(adapters: Sequence[int], pages: Pages) -> int:
    """Return the batch's highest rank."""
    return max((pages.ranks[adapter] for adapter in adapters if adapter != BASE_MODEL), default=0)
