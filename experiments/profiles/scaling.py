"""From what was measured to what was not: another GPU, another shape, fewer heads a GPU.

A matrix product takes what its weights take to be read or its arithmetic takes to be done, whichever is longer; that
roofline says by how much two settings differ, and the measured time is scaled by the ratio. Everything else is bound
by the memory it touches.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from omegaconf import OmegaConf

from experiments.profiles.tables import EMBEDDING, MATRICES, VECTORS
from simlora.config.composing import FOLDER, choices
from simlora.config.making import make
from simlora.core.errors import InputError, nearest
from simlora.hardware.gpu import Gpu
from simlora.hardware.model import ModelShape


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


@cache
def gpu(name: str) -> Gpu:
    """Return a GPU of conf/gpu. Raises InputError for an unknown name."""
    return make(_choice("gpu", name), "gpu", Gpu)


@cache
def model(name: str) -> ModelShape:
    """Return a model of conf/model. Raises InputError for an unknown name."""
    return make(_choice("model", name), "model", ModelShape)


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


def _choice(group: str, name: str) -> dict[str, object]:
    if name not in choices(group):
        raise InputError(f"there is no {group} {name!r}; {nearest(name, choices(group))}")
    return {group: OmegaConf.to_container(OmegaConf.load(FOLDER / group / f"{name}.yaml"))}
