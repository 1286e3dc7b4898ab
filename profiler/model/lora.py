"""Adapters of all layers beside the base model, and the ways to multiply with them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from profiler.kernels.decode import bgmv, mbgmv
from profiler.kernels.pages import Pages, random_pages
from profiler.kernels.prefill import sgmv
from profiler.kernels.torch_ways import one_hot_einsum, padded_bmm, row_by_row, segment_by_segment
from profiler.kernels.work import DecodeWork, decode_work, prefill_work
from profiler.model.llama import Lora
from simlora.core.errors import InputError, nearest
from simlora.hardware.model import ATTENTION, ModelShape

Way = tuple[Callable[..., None], Callable[..., None]]
"""How a decode step multiplies, and how a prefill does."""
ON_GPU: dict[str, Way] = {
    "bgmv": (bgmv, sgmv),
    "mbgmv": (mbgmv, sgmv),
    "padded_bmm": (padded_bmm, segment_by_segment),
    "one_hot_einsum": (one_hot_einsum, segment_by_segment),
}
ON_CPU: dict[str, Way] = {"bgmv": (padded_bmm, segment_by_segment), "mbgmv": (row_by_row, segment_by_segment)}
"""On a CPU the same work in torch: padded to the highest rank, and not."""


def ways(device: torch.device) -> dict[str, Way]:
    """Return what runs on a device, by the name that a calibration has for it."""
    return ON_GPU if device.type == "cuda" else ON_CPU


class Adapters:
    """The weights of `ranks` for q, k, v and o of every layer."""

    def __init__(
        self,
        shape: ModelShape,
        ranks: Sequence[int],
        dtype: torch.dtype,
        device: torch.device,
        seed: int = 0,
    ) -> None:
        self.device, self.ranks = device, tuple(ranks)
        self.pages: dict[tuple[int, str], Pages] = {}
        for layer in range(shape.layers):
            for index, module in enumerate(ATTENTION):
                rows, columns = shape.module_shape(module)
                own = seed + len(ATTENTION) * layer + index
                self.pages[layer, module] = random_pages(ranks, rows, columns, dtype, device, own)

    def decode(self, way: str, adapters: Sequence[int]) -> Lora:
        """Return the LoRA of a step of which row i uses `adapters[i]`, in the named way."""
        return self.step(way, decode_work(adapters, next(iter(self.pages.values()))))

    def step(self, way: str, work: DecodeWork) -> Lora:
        """Return the LoRA of a step that was checked before."""
        multiply = self._way(way)[0]
        return self._lora(lambda y, x, pages: multiply(y, x, work, pages))

    def prefill(self, way: str, segments: Sequence[tuple[int, int]]) -> Lora:
        """Return the LoRA of prompts, as (adapter, tokens), in the named way."""
        multiply = self._way(way)[1]
        work = prefill_work(segments, next(iter(self.pages.values())))
        return self._lora(lambda y, x, pages: multiply(y, x, work, pages))

    def _lora(self, multiply: Callable[[Tensor, Tensor, Pages], None]) -> Lora:
        return lambda layer, module, y, x: multiply(y, x, self.pages[layer, module])

    def _way(self, name: str) -> Way:
        found = ways(self.device)
        if name not in found:
            raise InputError(f"there is no kernel {name!r} on {self.device.type}; {nearest(name, found)}")
        return found[name]
