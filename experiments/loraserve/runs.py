"""What LoRAServe's authors published of single requests, at tensor parallelism 8."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from experiments.measured import measured_dir

RUNS = "loraserve_single_request.csv"
SHAPES = {"llama_7b": "llama_7b", "llama_2_70b": "llama_2_70b_mha"}
"""Models as the runs name them and as we do."""
OUTPUT_TOKENS, EVERY = 128, 400
"""Prompts are 200 tokens apart; those that are a multiple of EVERY are held out, the longest among them."""


@dataclass(frozen=True)
class Runs:
    """Single requests `[runs]` at tensor parallelism 8. `held` are those that judge."""

    shape: NDArray[np.str_]
    rank: NDArray[np.int64]
    prompt: NDArray[np.int64]
    ttft_s: NDArray[np.float64]
    step_s: NDArray[np.float64]

    @property
    def held(self) -> NDArray[np.bool_]:
        """Whether a run is held out."""
        return np.asarray(self.prompt % EVERY == 0)

    def __len__(self) -> int:
        return len(self.shape)


def available() -> bool:
    """Return whether the runs are there."""
    return (measured_dir() / RUNS).exists()


def runs() -> Runs:
    """Return the runs, as they were published."""
    table = pd.read_csv(measured_dir() / RUNS)
    steps = (table.latency_s - table.ttft_s) / (table.output_tokens - 1)
    return Runs(
        shape=np.array([SHAPES[name] for name in table.model]),
        rank=table["rank"].to_numpy(),
        prompt=table.prompt_tokens.to_numpy(),
        ttft_s=table.ttft_s.to_numpy(dtype=float),
        step_s=steps.to_numpy(dtype=float),
    )
