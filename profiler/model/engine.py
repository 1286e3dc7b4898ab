"""Prefills and decode steps of live sequences, as a serving engine runs them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from profiler.device import Device
from profiler.kernels.work import BASE_MODEL
from profiler.model.cache import KvCache
from profiler.model.graphs import KERNELS, Graphs
from profiler.model.llama import DecodeBatch, Llama, Lora, no_lora
from profiler.model.lora import Adapters
from simlora.hardware.model import ModelShape

SPARE_TOKENS = 32
"""Cache of each sequence beyond its context: a page that has begun, and steps to come."""


@dataclass
class Live:
    """A request on the device: `context` tokens of it have keys and values in the cache, `last` is its newest token."""

    id: int
    adapter: int
    prompt: list[int]
    context: int = 0
    last: int = 0


class Engine:
    """A model, a cache and adapters; every call is one iteration. `kernel` names how LoRA is multiplied."""

    def __init__(
        self,
        shape: ModelShape,
        device: Device,
        cache_tokens: int,
        ranks: Sequence[int],
        seed: int = 0,
    ) -> None:
        self.shape, self.device = shape, device
        self.model = Llama(shape, device.dtype, device.torch, seed)
        self.cache = KvCache(shape, cache_tokens, device.dtype, device.torch, seed)
        self.adapters = Adapters(shape, ranks, device.dtype, device.torch, seed)
        self.graphs: Graphs | None = None
        if device.is_gpu:
            self.graphs = Graphs(self.model, self.cache, self.adapters, captures=True)

    def prefill(self, joining: Sequence[Live], kernel: str) -> None:
        """Process whole prompts, and produce their first tokens."""
        tokens: list[int] = []
        slots: list[int] = []
        for one in joining:
            self.enter(one)
            tokens += one.prompt
            slots += self.cache.slots(one.id, 0, one.context)
        lengths = [one.context for one in joining]
        lora: Lora = no_lora
        if any(one.adapter != BASE_MODEL for one in joining):
            lora = self.adapters.prefill(kernel, [(one.adapter, one.context) for one in joining])
        following = self.model.prefill(self._ints(tokens), lengths, self._ints(slots), self.cache, lora)
        self._sampled(joining, following)

    def decode(self, running: Sequence[Live], kernel: str) -> None:
        """Produce one more token of every sequence."""
        for one in running:
            one.context += 1
            self.cache.grow(one.id, one.context)
        batch, used = self._batch(running), [one.adapter for one in running]
        if self.graphs is not None and kernel in KERNELS:
            self._sampled(running, self.graphs.decode(batch, kernel, used))
            return
        lora: Lora = no_lora
        if any(adapter != BASE_MODEL for adapter in used):
            lora = self.adapters.decode(kernel, used)
        self._sampled(running, self.model.decode(batch, self.cache, lora))

    def warm(self, kernel: str, most_sequences: int, most_tokens: int) -> None:
        """Run each kind of iteration once: the first of a kind compiles its kernels, or records its step.

        On an H100 the first step of a size took 60 ms instead of 10.
        """
        of_rank = {rank: adapter for adapter, rank in enumerate(self.adapters.ranks)}
        lengths = [1 << power for power in range(4, max(5, most_tokens.bit_length()))]
        for adapter in (BASE_MODEL, *of_rank.values()):
            for tokens in lengths:
                first = Live(0, adapter, [0] * tokens)
                self.prefill([first], kernel)
                self.decode([first], kernel)
                self.leave(first)
        if self.graphs is not None and kernel in KERNELS:
            self.graphs.record(kernel, most_sequences, most_tokens)

    def enter(self, one: Live) -> None:
        """Give a sequence a cache for its prompt as if that had been prefilled."""
        one.context = len(one.prompt)
        self.cache.grow(one.id, one.context)

    def leave(self, one: Live) -> None:
        """Give back a sequence's part of the cache."""
        self.cache.drop(one.id)

    def _batch(self, running: Sequence[Live]) -> DecodeBatch:
        lengths = tuple(one.context for one in running)
        owned = [self.cache.table(one.id) for one in running]
        widest = max(map(len, owned))
        table = [pages + [0] * (widest - len(pages)) for pages in owned]
        # One copy to the device for all of them.
        columns = self._ints(
            [
                [one.last, one.context - 1, self.cache.slots(one.id, one.context - 1, one.context)[0]]
                for one in running
            ]
        )
        tokens, positions, slots = columns.unbind(1)
        return DecodeBatch(
            tokens=tokens,
            positions=positions,
            slots=slots,
            contexts=(positions + 1).int(),
            table=torch.tensor(table, dtype=torch.int32).to(self.device.torch),
            lengths=lengths,
        )

    def _sampled(self, sequences: Sequence[Live], following: Tensor) -> None:
        # tolist waits for the device: the iteration is over.
        for one, token in zip(sequences, following.tolist(), strict=True):
            one.last = token

    def _ints(self, values: Sequence[int] | Sequence[Sequence[int]]) -> Tensor:
        return torch.tensor(values, dtype=torch.int64).to(self.device.torch)
