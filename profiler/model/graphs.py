"""Decode steps with buffers that stay: on a GPU they are recorded once a size, and replayed as CUDA graphs.

A step of a 7B model is about 500 launches, which Python takes longer to ask for than a GPU to do when the batch is
small. Source: what vLLM and SGLang do; sizes between two are padded to the next.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import NamedTuple

import torch
from torch import Tensor

from profiler.kernels.work import BASE_MODEL, DecodeWork, check_adapters
from profiler.model.cache import PAGE_TOKENS, KvCache
from profiler.model.llama import DecodeBatch, Llama, no_lora
from profiler.model.lora import Adapters

ROWS = (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 160, 192, 256)
KERNELS = ("", "bgmv", "mbgmv")
"""Whose launches do not depend on what only the host knows: "" is the base model alone."""
LEAST_PAGES = 16
PADDING = -1
"""The sequence that owns the page which padding writes to."""


class Size(NamedTuple):
    """What a recorded step can take; `padded_rank` is the highest rank of its adapters."""

    rows: int
    pages: int
    kernel: str
    padded_rank: int


class Graphs:
    """Steps by size, recorded when they are first needed. Without `captures` they run as they are, buffers and all."""

    def __init__(self, model: Llama, cache: KvCache, adapters: Adapters, captures: bool) -> None:
        self.model, self.cache, self.adapters, self.captures = model, cache, adapters, captures
        cache.grow(PADDING, 1)
        self.padding_page = cache.table(PADDING)[0]
        self.pool = torch.cuda.graph_pool_handle() if captures else None
        self._steps: dict[Size, Step] = {}

    def decode(self, batch: DecodeBatch, kernel: str, used: Sequence[int]) -> Tensor:
        """Take one step of every sequence, row i with adapter `used[i]`; return their next tokens [sequences].

        Raises InputError for an adapter that there is not.
        """
        check_adapters(used, next(iter(self.adapters.pages.values())))
        rows, pages = batch.table.shape
        highest = max((self.adapters.ranks[adapter] for adapter in used if adapter != BASE_MODEL), default=0)
        size = Size(
            rows=next((enough for enough in ROWS if enough >= rows), rows),
            pages=max(LEAST_PAGES, 1 << (pages - 1).bit_length()),
            kernel=kernel if highest else "",
            padded_rank=highest,
        )
        if size not in self._steps:
            self._steps[size] = Step(self, size)
        return self._steps[size](batch, used)

    def record(self, kernel: str, most_rows: int, most_tokens: int) -> None:
        """Record every step that batches of up to `most_rows` sequences, with contexts of up to `most_tokens`, need."""
        pages = [LEAST_PAGES]
        while pages[-1] * PAGE_TOKENS < most_tokens:
            pages.append(2 * pages[-1])
        enough = next((index + 1 for index, rows in enumerate(ROWS) if rows >= most_rows), len(ROWS))
        for rows, count, highest in product(ROWS[:enough], pages, sorted({0, *self.adapters.ranks})):
            size = Size(rows, count, kernel if highest else "", highest)
            if size not in self._steps:
                self._steps[size] = Step(self, size)


class Step:
    """One size: its buffers, and what runs over them."""

    def __init__(self, graphs: Graphs, size: Size) -> None:
        device, rows = graphs.model.device, size.rows
        self._graphs, self._size = graphs, size
        self._adapter = torch.full((rows,), BASE_MODEL, dtype=torch.int32, device=device)
        self._batch = DecodeBatch(
            tokens=torch.zeros(rows, dtype=torch.int64, device=device),
            positions=torch.zeros(rows, dtype=torch.int64, device=device),
            slots=torch.full((rows,), graphs.padding_page * PAGE_TOKENS, device=device),
            contexts=torch.ones(rows, dtype=torch.int32, device=device),
            table=torch.full((rows, size.pages), graphs.padding_page, dtype=torch.int32, device=device),
            lengths=(size.pages * PAGE_TOKENS,) * rows,
        )
        self._work = DecodeWork(self._adapter, (BASE_MODEL,) * rows, size.padded_rank)
        self._graph: torch.cuda.CUDAGraph | None = None
        if graphs.captures:
            self._record()

    def __call__(self, batch: DecodeBatch, used: Sequence[int]) -> Tensor:
        """Return the next tokens of a batch that is no larger than the step."""
        rows, pages = batch.table.shape
        mine = self._batch
        for buffer, given, padding in (
            (mine.tokens, batch.tokens, 0),
            (mine.positions, batch.positions, 0),
            (mine.slots, batch.slots, self._graphs.padding_page * PAGE_TOKENS),
            (mine.contexts, batch.contexts, 1),
            (self._adapter, torch.tensor(used, dtype=torch.int32), BASE_MODEL),
        ):
            buffer[:rows].copy_(given)
            buffer[rows:].fill_(padding)
        mine.table[:rows, :pages].copy_(batch.table)
        mine.table[rows:].fill_(self._graphs.padding_page)
        if self._graph is None:
            return self._run()[:rows]
        self._graph.replay()
        return self._following[:rows]

    def _run(self) -> Tensor:
        graphs = self._graphs
        lora = graphs.adapters.step(self._size.kernel, self._work) if self._size.kernel else no_lora
        return graphs.model.decode(self._batch, graphs.cache, lora)

    def _record(self) -> None:
        # Once before, beside the main stream: what is compiled or allocated at first use must not be recorded.
        beside = torch.cuda.Stream()
        beside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(beside):
            self._run()
        torch.cuda.current_stream().wait_stream(beside)
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph, pool=self._graphs.pool):
            self._following = self._run()
