"""An adapter's product in the base model's weights: put in, and taken out again."""

from __future__ import annotations

import torch

from profiler.model.llama import Llama
from profiler.model.lora import Adapters


@torch.inference_mode()
def merge(model: Llama, adapters: Adapters, adapter: int, sign: float = 1.0) -> None:
    """Add `sign` times an adapter's B^T A to q, k, v and o of every layer; -1 takes it out.

    Source: LoRA (ICLR'22) §4.1.
    """
    shape = model.shape
    width, kv_width = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    for index, layer in enumerate(model.layers):
        q, k, v = layer.qkv.split((width, kv_width, kv_width))
        for module, weights in (("q", q), ("k", k), ("v", v), ("o", layer.o)):
            pages = adapters.pages[index, module]
            a, b = pages.weights(adapter)
            weights.addmm_(b.T, a, alpha=sign * pages.scales[adapter])
