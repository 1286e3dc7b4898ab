"""What NVIDIA's kernel database says an iteration takes: `aiconfigurator-core`, an optional dependency.

The database has kernels measured one by one (GEMMs, attention, collectives, experts) per GPU and serving engine, and
sums them over a model's layers. It is asked when a calibration is derived, never during a run.
Source: NVIDIA's AIConfigurator, Apache-2.0, https://github.com/ai-dynamo/aiconfigurator.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from simlora.core.errors import InputError
from simlora.hardware.model import ModelShape
from simlora.latency.parts.kernel_times import APART, BATCHES, TOKENS, KernelTimes

SYSTEMS = {
    "a100_80g": "a100_sxm",
    "l40s": "l40s",
    "rtx_pro_6000": "rtx_pro_6000_server",
    "h100_80g": "h100_sxm",
    "h200_141g": "h200_sxm",
    "b200_180g": "b200_sxm",
}
"""The GPUs that were measured, by our names."""
SHORT, LONG = 256, 2048
"""Two contexts: the straight line through a step's seconds at both gives its seconds per token of context."""
PACKAGE = "aiconfigurator-core"
EXTRA = "pip install 'simlora[derive]'"


def measured(gpu: str, model: ModelShape, tp: int, engine: str) -> KernelTimes:
    """Return the kernels of a model on `tp` GPUs of a kind in SYSTEMS.

    An engine that ends with APART has each expert whole on one of the GPUs, with more tokens for some than for others,
    as the package assumes; else each GPU has a slice of every expert. Raises InputError if the package is absent, or
    has no data on these kernels.
    """
    compiled = _compiler()
    name, apart, _ = engine.partition(APART)
    experts = {"moe_ep_size" if apart else "moe_tp_size": tp} if model.experts > 1 else {}
    with TemporaryDirectory() as folder:
        Path(folder, "config.json").write_text(json.dumps(hugging_face(model)), encoding="utf-8")
        try:
            answers = compiled(folder, SYSTEMS[gpu], name, tp_size=tp, **experts)
            passes = {tokens: answers.predict_prefill_latency(1, tokens) / 1e3 for tokens in TOKENS}
            short = {batch: answers.decode_step_latency(batch, SHORT, 2) / 1e3 for batch in BATCHES}
            long = {batch: answers.decode_step_latency(batch, LONG, 2) / 1e3 for batch in BATCHES}
        except Exception as error:  # its own errors share no base class
            raise InputError(
                f"{PACKAGE} {version(PACKAGE)} has no kernels of {model.name} on {tp} {gpu} with {engine}: {error}"
            ) from None
    contexts = {batch: (long[batch] - short[batch]) / (batch * (LONG - SHORT)) for batch in BATCHES}
    return KernelTimes(
        gpu=gpu,
        model=model.name,
        tp=tp,
        engine=engine,
        source=f"{PACKAGE} {version(PACKAGE)}",
        pass_s=passes,
        step_s={batch: short[batch] - contexts[batch] * batch * SHORT for batch in BATCHES},
        context_token_s=contexts,
    )


def hugging_face(model: ModelShape) -> dict[str, Any]:
    """Return a shape as the fields of Hugging Face's config.json that decide what the kernels do."""
    found = {
        "architectures": ["LlamaForCausalLM"],
        "hidden_size": model.hidden,
        "intermediate_size": model.intermediate,
        "num_hidden_layers": model.layers,
        "num_attention_heads": model.heads,
        "num_key_value_heads": model.kv_heads,
        "head_dim": model.head_dim,
        "vocab_size": model.vocab,
        "max_position_embeddings": 131_072,
        "torch_dtype": "bfloat16",
        "hidden_act": "silu",
    }
    if model.experts > 1:
        found |= {
            "architectures": ["Qwen3MoeForCausalLM"],
            "moe_intermediate_size": model.intermediate,
            "num_experts": model.experts,
            "num_experts_per_tok": model.experts_per_token,
        }
    return found


def _compiler() -> Callable[..., Any]:
    try:
        from aiconfigurator_core.sdk.engine import EngineHandle
    except ImportError:
        raise InputError(
            f"{PACKAGE}, which has the kernels of other models, is not installed: {EXTRA}"
        ) from None
    logging.getLogger("aiconfigurator_core").setLevel(logging.ERROR)
    compiled: Callable[..., Any] = EngineHandle.compile
    return compiled
