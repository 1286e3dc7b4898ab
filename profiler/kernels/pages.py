"""The adapters of one projection, their weights in pages that lie anywhere in a pool."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from simlora.core.errors import InputError

DTYPES = (torch.float16, torch.bfloat16, torch.float32)
MOST_RANK = 256


@dataclass(frozen=True)
class Pages:
    """Low-rank weights as the kernels read them. Source: S-LoRA (MLSys'24) §5.1, unified paging.

    `a` [pages, in_features] and `b` [pages, out_features] hold one row of an A and of a transposed B each, so that
    adapter i adds `scale[i] * x @ A.T @ B` with A = a[table[i, :rank[i]]] and B = b[table[i, :rank[i]]].
    `table` [adapters, padded_rank] says where the rows are. Beyond an adapter's own rank it names pages of
    zeros, which no adapter of the same rank shares: kernels that pad read them as they would read weights.
    """

    a: Tensor
    b: Tensor
    table: Tensor
    rank: Tensor
    scale: Tensor
    ranks: tuple[int, ...]
    scales: tuple[float, ...]
    """`rank` and `scale` on the host."""

    @property
    def padded_rank(self) -> int:
        """The highest rank of the adapters."""
        return max(self.ranks)

    @property
    def in_features(self) -> int:
        """The width of the projection's input."""
        return self.a.shape[1]

    @property
    def out_features(self) -> int:
        """The width of the projection's output."""
        return self.b.shape[1]

    def weights(self, adapter: int) -> tuple[Tensor, Tensor]:
        """Return one adapter's A [rank, in_features] and B [rank, out_features], copied out of their pages."""
        rows = self.table[adapter, : self.ranks[adapter]].long()
        return self.a[rows], self.b[rows]


def random_pages(
    ranks: Sequence[int],
    in_features: int,
    out_features: int,
    dtype: torch.dtype,
    device: torch.device,
    seed: int = 0,
) -> Pages:
    """Make adapters with random weights in random pages.

    Weights are scaled so that the products stay near 1. Raises InputError for ranks, widths and types that the
    kernels cannot take.
    """
    if not ranks:
        raise InputError("there is no adapter; name the rank of at least one")
    for rank in ranks:
        if not 1 <= rank <= MOST_RANK:
            raise InputError(f"rank {rank} of an adapter must be from 1 to {MOST_RANK}")
    for name, width in (("in_features", in_features), ("out_features", out_features)):
        if width < 1:
            raise InputError(f"{name} is {width}, must be at least 1")
    if dtype not in DTYPES:
        raise InputError(
            f"weights of type {dtype} are not supported; choose torch.float16, torch.bfloat16 or torch.float32"
        )
    padded = max(ranks)
    order = np.random.default_rng(seed)
    # Padding of adapters of the same rank lies apart; of different ranks it may be the same.
    like = [ranks[:index].count(rank) for index, rank in enumerate(ranks)]
    zeros = (max(like) + 1) * padded if min(ranks) < padded else 0
    pages = order.permutation(sum(ranks) + zeros).astype(np.int32)
    beyond, own = pages[:zeros].reshape(-1, padded), np.split(pages[zeros:], np.cumsum(ranks)[:-1])
    table = np.stack(
        [
            np.concatenate([own[i], beyond[like[i], rank:]]) if zeros else own[i]
            for i, rank in enumerate(ranks)
        ]
    )
    generator = torch.Generator(device).manual_seed(seed)
    a = (
        torch.randn(len(pages), in_features, generator=generator, dtype=dtype, device=device)
        / in_features**0.5
    )
    b = torch.randn(len(pages), out_features, generator=generator, dtype=dtype, device=device) / padded**0.5
    empty = torch.from_numpy(pages[:zeros]).long().to(device)
    a[empty] = 0.0
    b[empty] = 0.0
    scales = order.uniform(0.5, 2.0, len(ranks)).astype(np.float32)
    return Pages(
        a=a,
        b=b,
        table=torch.from_numpy(table).to(device),
        rank=torch.tensor(ranks, dtype=torch.int32, device=device),
        scale=torch.from_numpy(scales).to(device),
        ranks=tuple(ranks),
        scales=tuple(scales.tolist()),
    )
