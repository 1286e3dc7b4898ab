"""Latency models of unlike replicas, for routers: the time of the same work on each replica."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import numpy as np

from simlora.core.arrays import Floats, Ints
from simlora.latency.iteration import IterationModel
from simlora.latency.kernels import Kernel, LoraWork, priced

Kinds = Ints
"""The kind of each replica `[replicas]`."""


class MixedIterations(IterationModel):
    """Base-model iterations by replica: takes numbers or arrays `[…, replicas]`, returns seconds `[…, replicas]`."""

    __slots__ = ("_kind_of", "_models")

    def __init__(self, models: Sequence[IterationModel], kind_of: Kinds) -> None:
        self._models, self._kind_of = models, kind_of

    def prefill_s(self, tokens: int, tokens_sq: int) -> float:
        return _chosen(self._kind_of, [model.prefill_s(tokens, tokens_sq) for model in self._models])

    def decode_s(self, sequences: int, context_tokens: int) -> float:
        return _chosen(self._kind_of, [model.decode_s(sequences, context_tokens) for model in self._models])

    def mixed_s(self, tokens: int, tokens_sq: int, sequences: int, context_tokens: int) -> float:
        work = (tokens, tokens_sq, sequences, context_tokens)
        return _chosen(self._kind_of, [model.mixed_s(*work) for model in self._models])

    def decode_slope_s(self, sequences: int) -> float:
        return _chosen(self._kind_of, [model.decode_slope_s(sequences) for model in self._models])


class MixedKernels:
    """LoRA kernels by replica: takes work whose fields are arrays `[…, replicas]`, returns seconds `[…, replicas]`."""

    def __init__(self, kernels: Sequence[Kernel], kind_of: Kinds) -> None:
        self._kernels, self._kind_of = kernels, kind_of
        self.counts_adapters = any(kernel.counts_adapters for kernel in kernels)
        self.counts_segments = any(kernel.counts_segments for kernel in kernels)

    def decode_s(self, work: LoraWork) -> float:
        """Return the seconds added to a decode step on each replica."""
        return _chosen(self._kind_of, [priced(kernel.decode_s, work) for kernel in self._kernels])

    def prefill_s(self, work: LoraWork) -> float:
        """Return the seconds added to a prefill on each replica."""
        return _chosen(self._kind_of, [priced(kernel.prefill_s, work) for kernel in self._kernels])


def _chosen(kind_of: Kinds, by_kind: Sequence[float | Floats]) -> float:
    """Return the value of each replica's own kind; typed as float, as callers of latency models expect."""
    return cast(float, np.choose(kind_of, np.broadcast_arrays(*by_kind)))
