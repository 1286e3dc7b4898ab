"""From what was measured to what was not: another GPU, another shape, fewer heads a GPU.

A matrix product takes what its weights take to be read or its arithmetic takes to be done, whichever is longer; that
roofline says by how much two settings differ, and the measured time is scaled by the ratio. Everything else is bound
by the memory it touches: so are LoRA kernels, loads, merges and attention.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from experiments.profiles.tables import EMBEDDING, MATRICES, VECTORS
from simlora.calibrate.shapes import gpu_named, model_named
from simlora.hardware.gpu import Gpu
from simlora.hardware.model import ModelShape
from simlora.latency.calibration import Calibration
from simlora.latency.collectives import folded
from simlora.latency.iteration import IterationModel
from simlora.latency.kernels import LoraWork, Mbgmv
from simlora.latency.transfer import AdapterLoad


@dataclass(frozen=True)
class Setting:
    """A model on `tp` GPUs."""

    gpu: Gpu
    model: ModelShape
    tp: int

    @property
    def name(self) -> str:
        """The name of its calibration."""
        return f"{self.gpu.name}-{self.model.name}-tp{self.tp}"

    def weights(self, operator: str) -> float:
        """Weights that each GPU holds of one of a layer's matrix products; KV heads are copied beyond their number."""
        model, tp = self.model, self.tp
        heads = model.heads / tp + 2 * max(model.kv_heads / tp, 1)
        return {
            "attn_pre_proj": model.hidden * heads * model.head_dim,
            "attn_post_proj": model.hidden * model.heads * model.head_dim / tp,
            "mlp_up_proj": 2 * model.hidden * model.intermediate / tp,
            "mlp_down_proj": model.hidden * model.intermediate / tp,
        }[operator]

    @property
    def all_weights(self) -> float:
        """Weights of the matrix products of all layers that each GPU holds."""
        return self.model.layers * sum(map(self.weights, MATRICES))

    def width(self, operator: str) -> float:
        """Elements of one token's activations that each GPU touches, but for a constant."""
        model, tp = self.model, self.tp
        wide = {
            "attn_rope": (model.heads + model.kv_heads) * model.head_dim / tp,
            "mlp_act": model.intermediate / tp,
        }
        return wide.get(operator, model.hidden)

    def roofline_s(self, operator: str, tokens: NDArray[np.int64]) -> NDArray[np.float64]:
        """Least seconds of a matrix product of `tokens` rows, or of another operator but for a constant."""
        bandwidth = self.gpu.memory_bandwidth_bytes_per_s
        if operator not in MATRICES:
            return np.full(len(tokens), self.width(operator) / bandwidth)
        weights = self.weights(operator)
        read_s = weights * self.model.dtype_bytes / bandwidth
        return np.asarray(np.maximum(read_s, 2 * weights * tokens / self.gpu.fp16_flops))

    @property
    def kv_bytes(self) -> float:
        """Bytes of a token's keys and values on each GPU, over all layers."""
        return self.model.kv_bytes_per_token / min(self.tp, self.model.kv_heads)

    @property
    def attention_flops(self) -> float:
        """Arithmetic of attention on each GPU for a pair of tokens, over all layers, but for a constant."""
        return self.model.layers * self.model.heads * self.model.head_dim / self.tp


gpu, model = cache(gpu_named), cache(model_named)


def setting(card: str, shape: str, tp: int) -> Setting:
    """Return a setting of a GPU and a model by their names. Raises InputError for an unknown one."""
    return Setting(gpu(card), model(shape), tp)


def described(calibration: Calibration) -> Setting:
    """Return what a calibration was made for."""
    return setting(calibration.gpu, calibration.model, calibration.tp)


def scaled(table: pd.DataFrame, source: Setting, target: Setting) -> pd.DataFrame:
    """Return operator times [tokens, operator] of `target`, from those that were measured on `source`."""
    tokens = table.index.to_numpy()
    ratios = {
        operator: target.roofline_s(operator, tokens) / source.roofline_s(operator, tokens)
        for operator in (*MATRICES, *VECTORS, EMBEDDING)
    }
    return table[list(ratios)] * pd.DataFrame(ratios, index=table.index)


def pass_s(table: pd.DataFrame, target: Setting, rows_out: NDArray[np.int64] | None = None) -> pd.Series:
    """Return the seconds of one pass without attention, by tokens: layers, embedding, and the output head.

    The head is not in the tables. It is a matrix product of [hidden, vocab], priced as the MLP's first by its weights,
    for the rows that it is computed for: `rows_out`, or every token's.
    """
    layers = table[[*MATRICES, *VECTORS]].sum(axis=1) * target.model.layers
    first = table["mlp_up_proj"]
    rows = table.index.to_numpy() if rows_out is None else rows_out
    weights = target.model.hidden * target.model.vocab / target.tp
    head = np.interp(rows, first.index, first) * weights / target.weights("mlp_up_proj")
    return layers + table[EMBEDDING] + head


LORA = ("kernels", "adapter_load", "merge")
CPU_MODULES = ("q", "k", "v")
"""What the calibration with the cpu_lora of a GPU server is for."""
SAYS = {
    "cpu_lora": "per token by the width of a layer's adapters",
    "kernels": "intercepts by layers; per rank and sequence by bytes on each GPU over memory bandwidth",
    "adapter_load": "latency by layers; the same bandwidth, which many small copies bound and not the link",
    "merge": "by the weights that each GPU rewrites over memory bandwidth",
}


def lora(reference: Calibration, target: Setting) -> dict[str, float]:
    """Return the LoRA coefficients of `target`, from those of `reference`.

    A launch is a launch on every GPU, so what does not grow with the work goes by the layers. What grows is bound by
    the adapters' and the activations' bytes, of which each GPU has its share, over the memory bandwidth. The rate of
    a load stays: many small copies are what bounds it, far below the link. A merge writes all weights that it adapts.
    """
    source = described(reference)
    layers = target.model.layers / source.model.layers
    bandwidth = source.gpu.memory_bandwidth_bytes_per_s / target.gpu.memory_bandwidth_bytes_per_s
    per_rank = target.model.adapter_bytes(1) / source.model.adapter_bytes(1)
    found: dict[str, float] = {}
    for name, value in reference.coefficients.items():
        section, leaf = name.split(".")[0], name.rsplit(".", 1)[1]
        if section not in LORA:
            continue
        if leaf == "bytes_per_s":
            found[name] = value
        elif leaf == "per_byte_s":
            found[name] = value * bandwidth
        elif section == "merge":
            found[name] = value * bandwidth * _adapted_weights(target) / _adapted_weights(source)
        elif leaf.endswith(("rank_s", "rank_sum_s", "per_sequence_s")):
            found[name] = value * bandwidth * per_rank / target.tp
        else:
            found[name] = value * layers
    return found


def cpu_lora(reference: Calibration, target: ModelShape) -> dict[str, float]:
    """Return what a layer of `target` takes on CPU cores, from what one of `reference` does: by its adapters' width.

    That is for q, k, v and o, of which the reference has as many as it was measured with. Cores, and what it takes GPU
    and CPU to agree, are those of the reference.
    """
    source = model(reference.model)
    wide = (target.adapter_bytes(1) / target.layers) / (source.adapter_bytes(1, CPU_MODULES) / source.layers)
    return {
        name: value * (wide if ".per_token" in name else 1.0)
        for name, value in reference.coefficients.items()
        if name.startswith("cpu_lora.")
    }


def _adapted_weights(setting: Setting) -> float:
    """Return the weights of q, k, v and o that each GPU holds."""
    layer = setting.weights("attn_pre_proj") + setting.weights("attn_post_proj")
    return setting.model.layers * layer


def attention(fitted: dict[str, float], source: Setting, target: Setting) -> dict[str, float]:
    """Return the attention coefficients of `target` from those fitted over all layers of `source`.

    Decoding reads keys and values: by their bytes on each GPU, over the memory bandwidth. Prefill computes: by
    the arithmetic on each GPU, over the peak. A launch is a launch: by the layers.
    """
    memory = source.gpu.memory_bandwidth_bytes_per_s / target.gpu.memory_bandwidth_bytes_per_s
    read = memory * target.kv_bytes / source.kv_bytes
    compute = source.gpu.fp16_flops / target.gpu.fp16_flops * target.attention_flops / source.attention_flops
    factors = {
        "prefill.intercept_s": target.model.layers / source.model.layers,
        "decode.intercept_s": target.model.layers / source.model.layers,
        "prefill.per_token_s": compute,
        "prefill.per_token_sq_s": compute,
        "decode.per_sequence_s": read,
        "decode.per_context_token_s": read,
        "save.intercept_s": target.model.layers / source.model.layers,
        "save.per_token_s": read,
    }
    return {name: value * factors[name] for name, value in fitted.items()}


class Single:
    """One request at a time, by a calibration; seconds, collectives in all of them."""

    def __init__(self, calibration: Calibration) -> None:
        """Take a calibration of ours."""
        self.model, self.tp = model(calibration.model), calibration.tp
        whole = folded(calibration, self.model)
        self.iteration, self.kernel, self.load = IterationModel(whole), Mbgmv(whole), AdapterLoad(whole)
        self.front_end_s = calibration.coefficients.get("front_end.per_request_s", 0.0)

    def load_s(self, rank: int) -> float:
        """Return an adapter's load; S-LoRA loads it for every request that comes alone."""
        return self.load.load_s(self.model.adapter_bytes(rank) // self.tp)

    def pass_s(self, prompt: int, rank: int) -> float:
        """Return the prefill of a prompt."""
        lora_s = self.kernel.prefill_s(LoraWork(prompt, prompt * rank, rank, 1))
        return self.iteration.prefill_s(prompt, prompt**2) + lora_s

    def ttft_s(self, prompt: int, rank: int) -> float:
        """Return the time to first token."""
        return self.front_end_s + self.load_s(rank) + self.pass_s(prompt, rank)

    def without_tokens_s(self, prompt: int, rank: int) -> float:
        """Return of it load, launches and attention's square: not what tokens take, nor their ranks."""
        return self.load_s(rank) + self.iteration.prefill_s(0, prompt**2) + self.kernel.prefill_0

    def step_s(self, batch: int, context_tokens: int, rank: int) -> float:
        """Return a decode step of requests of one rank, their contexts summed."""
        lora_s = self.kernel.decode_s(LoraWork(batch, batch * rank, rank, batch))
        return self.iteration.decode_s(batch, context_tokens) + lora_s
