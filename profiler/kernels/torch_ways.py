"""The same products in plain torch: what LoRA serving systems did before kernels of their own."""

from __future__ import annotations

import torch
from torch import Tensor

from profiler.kernels.pages import Pages
from profiler.kernels.work import BASE_MODEL, DecodeWork, PrefillWork


def padded_bmm(y: Tensor, x: Tensor, work: DecodeWork, pages: Pages) -> None:
    """Copy every row's weights, padded to the batch's highest rank, beside each other; multiply as one batch.

    Source: S-LoRA (MLSys'24) §7, its baseline bmm.
    """
    if work.padded_rank == 0:
        return
    served = work.adapter >= 0
    adapter = work.adapter.clamp(min=0).long()
    rows = pages.table[adapter, : work.padded_rank].long()
    s = torch.bmm(x.unsqueeze(1), pages.a[rows].transpose(1, 2))
    delta = torch.bmm(s, pages.b[rows]).squeeze(1)
    y += delta * (pages.scale[adapter] * served).to(y.dtype).unsqueeze(1)


def one_hot_einsum(y: Tensor, x: Tensor, work: DecodeWork, pages: Pages) -> None:
    """Multiply every row with every adapter of the batch, each row's own one picked out by ones and zeros.

    Source: dLoRA (OSDI'24) §4 and §6, unmerged inference: a request-type mapping matrix, and torch's einsum.
    """
    used = sorted({adapter for adapter in work.adapters if adapter != BASE_MODEL})
    if not used:
        return
    place = {adapter: index for index, adapter in enumerate(used)}
    ones = torch.zeros(work.rows, len(used), dtype=x.dtype, device=x.device)
    for row, adapter in enumerate(work.adapters):
        if adapter != BASE_MODEL:
            ones[row, place[adapter]] = 1.0
    indices = torch.tensor(used, device=x.device)
    rows = pages.table[indices, : work.padded_rank].long()
    s = torch.einsum("bi,nri,bn->bnr", x, pages.a[rows], ones)
    scaled = ones * pages.scale[indices].to(x.dtype)
    y += torch.einsum("bnr,nro,bn->bo", s, pages.b[rows], scaled)


def row_by_row(y: Tensor, x: Tensor, work: DecodeWork, pages: Pages) -> None:
    """Multiply each row with its own adapter's weights, one after the other: no padding."""
    for row, adapter in enumerate(work.adapters):
        if adapter != BASE_MODEL:
            a, b = pages.weights(adapter)
            y[row] += (x[row] @ a.T @ b) * pages.scales[adapter]


def segment_by_segment(y: Tensor, x: Tensor, work: PrefillWork, pages: Pages) -> None:
    """Multiply each prompt with its adapter's weights, one after the other."""
    for begin, end, adapter in stretches(work):
        if adapter != BASE_MODEL and end > begin:
            a, b = pages.weights(adapter)
            y[begin:end] += (x[begin:end] @ a.T @ b) * pages.scales[adapter]


def stretches(work: DecodeWork | PrefillWork) -> list[tuple[int, int, int]]:
    """Return (first row, end, adapter) of all rows."""
    if isinstance(work, DecodeWork):
        return [(row, row + 1, adapter) for row, adapter in enumerate(work.adapters)]
    found, begin = [], 0
    for adapter, tokens in work.segments:
        found.append((begin, begin + tokens, adapter))
        begin += tokens
    return found
