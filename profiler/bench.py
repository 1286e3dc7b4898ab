"""Times points on one device, in the way in which an engine runs them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from time import perf_counter

import numpy as np
import torch

from profiler import host
from profiler.device import Device
from profiler.kernels.work import BASE_MODEL
from profiler.model.engine import SPARE_TOKENS, Engine, Live
from profiler.model.merging import merge
from profiler.points import ITERATIONS, Point
from simlora.core.errors import InputError
from simlora.hardware.model import ModelShape

TIMED = 3
"""Runs of a point in a row, after one that is not timed."""
ADAPTER_SHARE = 0.4
"""Of the memory that weights and cache leave, what adapters may take."""


class Bench:
    """What the points of a plan need, made once."""

    def __init__(self, device: Device, shape: ModelShape, points: Sequence[Point], seed: int = 0) -> None:
        self._device, self._shape = device, shape
        if not any(point.section in (*ITERATIONS, "merge") for point in points):
            return  # a plan that is only about the host needs no model
        iterations = [point for point in points if point.section in ITERATIONS]
        room = max((point.requests * (point.tokens + SPARE_TOKENS) for point in iterations), default=0)
        ranks = sorted(
            {rank for point in points if point.section != "cpu_lora" for rank in point.ranks} or {8}
        )
        self._distinct = self._of_each_rank(iterations, ranks, room)
        self._first = {rank: index * self._distinct for index, rank in enumerate(ranks)}
        every = [rank for rank in ranks for _ in range(self._distinct)]
        self.engine = Engine(shape, device, room + SPARE_TOKENS, every, seed)
        longest = max((point.tokens for point in iterations), default=1)
        self._prompt = np.random.default_rng(seed).integers(0, shape.vocab, longest).tolist()

    def samples_s(self, point: Point) -> list[float]:
        """Run a point a few times; return what each run took."""
        match point.section:
            case "prefill":
                live = self._live(point)
                found = self._timed(lambda: self.engine.prefill(live, point.kernel))
            case "decode":
                live = self._live(point)
                for one in live:
                    self.engine.enter(one)
                    # Of the steps that are timed, the one in the middle has the context that was asked for.
                    one.context = max(one.context - 2 - TIMED // 2, 0)
                found = self._timed(lambda: self.engine.decode(live, point.kernel))
            case "adapter_load":
                return self._load_s(point)
            case "merge":
                return [
                    both_s / 2
                    for both_s in self._timed(lambda: self._in_and_out(self._first[point.ranks[0]]))
                ]
            case "cpu_lora":
                return host.lora_samples_s(self._shape, point.tokens, point.ranks[0], point.cores, TIMED)
            case "cpu_sync":
                return host.sync_samples_s(TIMED)
            case _:
                raise AssertionError(f"there is no timing of {point.section}")
        for one in live:
            self.engine.leave(one)
        return found

    def _load_s(self, point: Point) -> list[float]:
        """Copy the bytes of one adapter onto the device, from the host or from elsewhere on it."""
        size_bytes = self._shape.adapter_bytes(point.ranks[0])
        home = self._device.torch if point.kernel == "device" else torch.device("cpu")
        source = torch.ones(size_bytes, dtype=torch.uint8, device=home)
        if point.kernel == "pinned":
            source = source.pin_memory()
        target = torch.empty(size_bytes, dtype=torch.uint8, device=self._device.torch)
        return self._timed(lambda: target.copy_(source, non_blocking=True))

    def _in_and_out(self, adapter: int) -> None:
        for sign in (1.0, -1.0):
            merge(self.engine.model, self.engine.adapters, adapter, sign)

    def _live(self, point: Point) -> list[Live]:
        found, used = [], Counter[int]()
        for id, rank in enumerate(point.ranks_of_requests()):
            adapter = BASE_MODEL
            if rank:
                adapter = self._first[rank] + used[rank] % self._distinct
                used[rank] += 1
            found.append(Live(id, adapter, self._prompt[: point.tokens]))
        return found

    def _timed(self, run: Callable[[], object]) -> list[float]:
        found = []
        for _ in range(TIMED + 1):
            self._device.synchronize()
            begin = perf_counter()
            run()
            self._device.synchronize()
            found.append(perf_counter() - begin)
        return found[1:]

    def _of_each_rank(self, points: Sequence[Point], ranks: Sequence[int], room: int) -> int:
        """Return how many adapters of each rank to make: one a request, as far as they fit into memory.

        Raises InputError if not even one does.
        """
        wanted = max(
            (max(Counter(point.ranks_of_requests()).values()) for point in points if point.ranks), default=1
        )
        taken = self._shape.weight_bytes + room * self._shape.kv_bytes_per_token
        # Padding takes as much as one more adapter of the highest rank.
        of_each = self._shape.adapter_bytes(sum(ranks) + max(ranks))
        scale = torch.finfo(self._device.dtype).bits / 16
        fit = int(ADAPTER_SHARE * (self._device.memory_bytes / scale - taken) / of_each)
        if fit < 1:
            raise InputError(
                f"{self._shape.name} with {room} tokens of cache does not fit the memory of {self._device.name}; "
                f"choose a smaller model or plan"
            )
        return min(wanted, fit)
