"""Fit vLLM's host time to steps without LoRA: `python -m experiments.kernels.host`.

What the kernels of the model on that GPU do not explain of a measured step is the engine's: a time per step and one per
sequence. Fitted on each model apart, and judged on the other.
"""

from __future__ import annotations

import sys

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.optimize import nnls

from experiments.measured import measured_dir
from experiments.studies.command import ended
from simlora.core.errors import InputError
from simlora.latency.curve import Curve
from simlora.latency.parts.kernel_times import BATCHES, KernelTimes, shipped

FILE = "profiles/vllm_lora_steps.csv"
GPU = "h100_64g"
MODELS = {"llama-3.1-8b-instruct": "llama_3_1_8b", "qwen-2.5-7b-instruct": "qwen_2_5_7b"}


def steps(model: str) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Return batches, mean sums of contexts and seconds of the measured decode steps [rows] of a model.

    Raises InputError if the measurements are absent.
    """
    path = measured_dir() / FILE
    if not path.exists():
        raise InputError(f"there is no {path}; set SIMLORA_MEASURED_DIR to the folder that has {FILE}")
    table = pd.read_csv(path)
    own = table[(table["kind"] == "no_lora") & (table["model"] == model) & (table["output_tokens_each"] > 1)]
    own = own[own["max_num_seqs"] <= BATCHES[-1]]
    batch = own["max_num_seqs"].to_numpy(float)
    contexts = batch * (own["prompt_tokens_each"] + own["output_tokens_each"] / 2).to_numpy(float)
    return batch, contexts, own["tpot_mean_ms"].to_numpy(float) / 1e3


def kernels_s(
    times: KernelTimes, batch: NDArray[np.float64], contexts: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the seconds of the kernels of decode steps [rows]."""
    found: NDArray[np.float64] = Curve(times.step_s).at_all(batch)
    return found + Curve(times.context_token_s).at_all(batch) * contexts


def _run() -> None:
    left, shares = {}, {}
    for name, model in MODELS.items():
        batch, contexts, seconds = steps(name)
        known_s = kernels_s(shipped()[(GPU, model, 1, "vllm")], batch, contexts)
        design = np.stack([np.ones_like(batch), batch], axis=1)
        left[model] = (design / seconds[:, None], (seconds - known_s) / seconds)
        shares[model] = seconds
    for fitted in [*([model] for model in MODELS.values()), list(MODELS.values())]:
        (step_s, sequence_s), _ = nnls(
            np.concatenate([left[model][0] for model in fitted]),
            np.concatenate([left[model][1] for model in fitted]),
        )
        print(f"fitted on {' and '.join(fitted)}: step_s {step_s:.5g}, sequence_s {sequence_s:.5g}")
        for model, (design, rest) in left.items():
            errors = np.abs(design @ [step_s, sequence_s] - rest)
            kind = "fitted" if model in fitted else "left out"
            print(
                f"  {model} ({kind}): median {100 * np.median(errors):.1f} %, worst {100 * errors.max():.1f} %"
            )


if __name__ == "__main__":
    sys.exit(ended(_run))
