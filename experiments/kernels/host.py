"""Fit vLLM's host time to steps without LoRA: `python -m experiments.kernels.host`.

What the kernels of the model on that GPU do not explain of a measured step is the engine's: a time per step and one per
sequence. Fitted on each model apart, and judged on the other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from experiments.studies.command import program
from experiments.studies.reading import measured_file
from simlora.calibrate.host import kernels_s, solved
from simlora.latency.parts.kernel_times import BATCHES, shipped

FILE = "profiles/vllm_lora_steps.csv"
GPU = "h100_64g"
MODELS = {"llama-3.1-8b-instruct": "llama_3_1_8b", "qwen-2.5-7b-instruct": "qwen_2_5_7b"}


def steps(model: str) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Return batches, mean sums of contexts and seconds of the measured decode steps [rows] of a model.

    Raises InputError if the measurements are absent.
    """
    table = pd.read_csv(measured_file(FILE))
    own = table[(table["kind"] == "no_lora") & (table["model"] == model) & (table["output_tokens_each"] > 1)]
    own = own[own["max_num_seqs"] <= BATCHES[-1]]
    batch = own["max_num_seqs"].to_numpy(float)
    contexts = batch * (own["prompt_tokens_each"] + own["output_tokens_each"] / 2).to_numpy(float)
    return batch, contexts, own["tpot_mean_ms"].to_numpy(float) / 1e3


@dataclass(frozen=True)
class Fit:
    """The host's time fitted to some models, and its absolute relative errors on the steps of each model."""

    fitted: Sequence[str]
    step_s: float
    sequence_s: float
    errors: Mapping[str, NDArray[np.float64]]


def fits() -> list[Fit]:
    """Return a fit to each model alone, and one to all. Raises InputError if the measurements are absent."""
    left = {}
    for name, model in MODELS.items():
        batch, contexts, seconds = steps(name)
        left[model] = kernels_s(shipped()[(GPU, model, 1, "vllm")], batch, contexts), batch, seconds
    found = []
    for fitted in [*([model] for model in MODELS.values()), list(MODELS.values())]:
        step_s, sequence_s = solved(
            *(np.concatenate([left[model][part] for model in fitted]) for part in range(3))
        )
        errors = {
            model: np.abs((known_s + step_s + sequence_s * batch) / seconds - 1)
            for model, (known_s, batch, seconds) in left.items()
        }
        found.append(Fit(fitted, step_s, sequence_s, errors))
    return found


@program()
def main() -> None:
    """Print the fits."""
    for fit in fits():
        print(
            f"fitted on {' and '.join(fit.fitted)}: step_s {fit.step_s:.5g}, sequence_s {fit.sequence_s:.5g}"
        )
        for model, errors in fit.errors.items():
            kind = "fitted" if model in fit.fitted else "left out"
            print(
                f"  {model} ({kind}): median {100 * np.median(errors):.1f} %, worst {100 * errors.max():.1f} %"
            )
