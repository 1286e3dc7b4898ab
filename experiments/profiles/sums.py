"""Iterations as sums of kernels: operators times layers, and attention beside them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from experiments.profiles.fits import Fit, by_octave, fit, terms_of
from experiments.profiles.scaling import Setting, pass_s, scaled

BATCH_MOST = 512
"""Largest decode batch that is fitted."""
PROMPT = {"intercept_s": "1", "per_token_s": "tokens", "per_token_sq_s": "tokens**2"}
STEP = {"intercept_s": "1", "per_sequence_s": "batch", "per_context_token_s": "batch * context"}


@dataclass(frozen=True)
class Attention:
    """Attention of all layers of one measured setting, as linear forms."""

    source: Setting
    prefill: Fit
    decode: Fit
    save: Fit

    def coefficients(self) -> dict[str, float]:
        """Return the coefficients of all three by name."""
        return named({"prefill": self.prefill, "decode": self.decode, "save": self.save})


def named(fits: dict[str, Fit]) -> dict[str, float]:
    """Return the coefficients of all parts by dotted name."""
    return {f"{part}.{name}": value for part, one in fits.items() for name, value in one.coefficients.items()}


def attention(prompts: pd.DataFrame, steps: pd.DataFrame, source: Setting) -> Attention:
    """Fit attention to one layer's times; see `tables` for what the columns mean."""
    layers, saved = source.model.layers, {"intercept_s": "1", "per_token_s": "batch"}
    return Attention(
        source=source,
        prefill=fit(terms_of(prompts, PROMPT), layers * prompts.seconds),
        decode=fit(terms_of(steps, STEP), layers * steps.seconds),
        save=fit(terms_of(steps, saved), layers * steps.save_s),
    )


def prefill(table: pd.DataFrame, source: Setting, target: Setting) -> Fit:
    """Fit a pass over a prompt without its attention; only its last token needs the output head."""
    times = scaled(table, source, target)
    total = pass_s(times, target, rows_out=np.ones(len(times), dtype=np.int64))
    return fit(terms_of(total.reset_index(), {"intercept_s": "1", "per_token_s": "tokens"}), total)


def decode(table: pd.DataFrame, source: Setting, target: Setting) -> Fit:
    """Fit a decode step without its attention: a pass over as many tokens as there are requests."""
    total = pass_s(scaled(table, source, target), target)
    total = total[total.index <= BATCH_MOST]
    terms = {"intercept_s": "1", "per_sequence_s": "tokens", "per_sequence_sq_s": "tokens**2"}
    return fit(terms_of(total.reset_index(), terms), total)


def combined(prefill: Fit, decode: Fit, attention: dict[str, float]) -> dict[str, float]:
    """Return the coefficients of whole iterations: attention is in both phases, and so is what keeps KV."""
    total = named({"prefill": prefill, "decode": decode})
    for phase, each in (("prefill", "per_token_s"), ("decode", "per_sequence_s")):
        for name, saved in (("intercept_s", "intercept_s"), (each, "per_token_s")):
            own = f"{phase}.{name}"
            total[own] = total[own] + attention[own] + attention[f"save.{saved}"]
    total |= {name: attention[name] for name in ("prefill.per_token_sq_s", "decode.per_context_token_s")}
    return needed(total)


def needed(coefficients: dict[str, float]) -> dict[str, float]:
    """Return coefficients without what is 0 and may be left out."""
    return {name: value for name, value in coefficients.items() if value or not name.endswith("sq_s")}


def all_reduce(table: pd.DataFrame, gpus: int) -> Fit:
    """Fit an all-reduce: `latency_s` and the `s_per_byte` that each GPU sends, 2 (N - 1) / N of the size."""
    terms = {"latency_s": "1", "s_per_byte": f"2 * ({gpus} - 1) / {gpus} * size"}
    return fit(terms_of(table, terms), table.seconds, by_octave(table["size"]))


def whole_prefill(table: pd.DataFrame) -> Fit:
    """Fit measured prefills: `prompt` tokens each, `batch` of them."""
    terms = {"intercept_s": "1", "per_token_s": "batch * prompt", "per_token_sq_s": "batch * prompt**2"}
    return fit(terms_of(table, terms), table.prompt_s)


def whole_decode(table: pd.DataFrame) -> Fit:
    """Fit measured decode steps; a context is on average the prompt and half of what is produced."""
    context = table["prompt"] + table["output"] / 2
    return fit(terms_of(table.assign(context=context), STEP), table.token_s)
