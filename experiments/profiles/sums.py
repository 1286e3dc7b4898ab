"""Iterations as sums of kernels: operators times layers, and attention beside them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from experiments.profiles.fits import Fit, by_octave, fit
from experiments.profiles.scaling import Setting, pass_s, scaled

BATCH_MOST = 512
"""Largest decode batch that is fitted."""


@dataclass(frozen=True)
class Attention:
    """Attention of all layers of one measured setting, as linear forms."""

    source: Setting
    prefill: Fit
    decode: Fit
    save: Fit

    def coefficients(self) -> dict[str, float]:
        """Return the coefficients of all three by name."""
        fits = {"prefill": self.prefill, "decode": self.decode, "save": self.save}
        return {
            f"{phase}.{name}": value
            for phase, one in fits.items()
            for name, value in one.coefficients.items()
        }


def attention(prompts: pd.DataFrame, steps: pd.DataFrame, source: Setting) -> Attention:
    """Fit attention to one layer's times; see `tables` for what the columns mean."""
    layers = source.model.layers
    tokens = prompts.tokens.to_numpy(dtype=float)
    batch, context = steps.batch.to_numpy(dtype=float), steps.context.to_numpy(dtype=float)
    prompt_s, step_s, save_s = (
        layers * column.to_numpy() for column in (prompts.seconds, steps.seconds, steps.save_s)
    )
    one = np.ones_like
    return Attention(
        source=source,
        prefill=fit(
            {"intercept_s": one(tokens), "per_token_s": tokens, "per_token_sq_s": tokens**2}, prompt_s
        ),
        decode=fit(
            {"intercept_s": one(batch), "per_sequence_s": batch, "per_context_token_s": batch * context},
            step_s,
        ),
        save=fit({"intercept_s": one(batch), "per_token_s": batch}, save_s),
    )


def prefill(table: pd.DataFrame, source: Setting, target: Setting) -> Fit:
    """Fit a pass over a prompt without its attention; only its last token needs the output head."""
    times = scaled(table, source, target)
    total = pass_s(times, target, rows_out=np.ones(len(times), dtype=np.int64))
    tokens = total.index.to_numpy(dtype=float)
    return fit({"intercept_s": np.ones_like(tokens), "per_token_s": tokens}, total.to_numpy())


def decode(table: pd.DataFrame, source: Setting, target: Setting) -> Fit:
    """Fit a decode step without its attention: a pass over as many tokens as there are requests."""
    total = pass_s(scaled(table, source, target), target)
    total = total[total.index <= BATCH_MOST]
    batch = total.index.to_numpy(dtype=float)
    terms = {"intercept_s": np.ones_like(batch), "per_sequence_s": batch, "per_sequence_sq_s": batch**2}
    return fit(terms, total.to_numpy())


def combined(prefill: Fit, decode: Fit, attention: dict[str, float]) -> dict[str, float]:
    """Return the coefficients of whole iterations. What is 0 and may be left out is left out."""
    launches = attention["save.intercept_s"]
    total = {
        "prefill.intercept_s": prefill["intercept_s"] + attention["prefill.intercept_s"] + launches,
        "prefill.per_token_s": prefill["per_token_s"]
        + attention["prefill.per_token_s"]
        + attention["save.per_token_s"],
        "prefill.per_token_sq_s": attention["prefill.per_token_sq_s"],
        "decode.intercept_s": decode["intercept_s"] + attention["decode.intercept_s"] + launches,
        "decode.per_sequence_s": decode["per_sequence_s"]
        + attention["decode.per_sequence_s"]
        + attention["save.per_token_s"],
        "decode.per_sequence_sq_s": decode["per_sequence_sq_s"],
        "decode.per_context_token_s": attention["decode.per_context_token_s"],
    }
    return {name: value for name, value in total.items() if value or not name.endswith("sq_s")}


def all_reduce(table: pd.DataFrame, gpus: int) -> Fit:
    """Fit an all-reduce: `latency_s` and the `s_per_byte` that each GPU sends, 2 (N - 1) / N of the size."""
    size = table["size"].to_numpy(dtype=float)
    sent = 2 * (gpus - 1) / gpus * size
    terms = {"latency_s": np.ones_like(sent), "s_per_byte": sent}
    return fit(terms, table.seconds.to_numpy(), by_octave(size))


def whole_prefill(table: pd.DataFrame) -> Fit:
    """Fit measured prefills: `prompt` tokens each, `batch` of them."""
    batch, prompt = table.batch.to_numpy(dtype=float), table.prompt.to_numpy(dtype=float)
    terms = {
        "intercept_s": np.ones_like(batch),
        "per_token_s": batch * prompt,
        "per_token_sq_s": batch * prompt**2,
    }
    return fit(terms, table.prompt_s.to_numpy())


def whole_decode(table: pd.DataFrame) -> Fit:
    """Fit measured decode steps; a context is on average the prompt and half of what is produced."""
    batch = table.batch.to_numpy(dtype=float)
    context = table.prompt.to_numpy(dtype=float) + table.output.to_numpy(dtype=float) / 2
    terms = {
        "intercept_s": np.ones_like(batch),
        "per_sequence_s": batch,
        "per_context_token_s": batch * context,
    }
    return fit(terms, table.token_s.to_numpy())
