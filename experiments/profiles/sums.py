"""Iterations as sums of kernels: operators times layers, and attention beside them, fitted by least squares.

Non-negative least squares of relative errors are judged on points that were held out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import nnls

from experiments.profiles.scaling import Setting, pass_s, scaled

Floats = NDArray[np.float64]
EVERY = 5
"""Every fifth point is held out."""


@dataclass(frozen=True)
class Fit:
    """Coefficients >= 0 by name, and the absolute relative errors of the linear form that they make [points]."""

    coefficients: dict[str, float]
    points: int
    mape: float
    held_out_mape: float
    held_out_worst: float
    r2: float
    errors: Floats

    def __getitem__(self, name: str) -> float:
        return self.coefficients[name]


def terms_of(table: pd.DataFrame, terms: Mapping[str, str]) -> dict[str, Floats]:
    """Return columns of a table, or what is computed of them, by coefficient: `batch * context`, or `1`."""
    found = {name: table.eval(term, engine="python") for name, term in terms.items()}
    return {name: np.broadcast_to(np.asarray(each, dtype=float), len(table)) for name, each in found.items()}


def fit(
    terms: Mapping[str, Floats],
    measured: ArrayLike,
    weights: Floats | None = None,
    held: NDArray[np.bool_] | None = None,
    known: ArrayLike = 0.0,
) -> Fit:
    """Fit measured = known + sum of coefficient * term, least relative squares, on the points that are not `held` out.

    All share one order, along which every fifth is held out where it is not said; `weights` say how much a point
    counts. R2 is over all points, of the times as they are.
    """
    columns = np.stack([np.asarray(term, dtype=float) for term in terms.values()], axis=1)
    times = np.asarray(measured, dtype=float)
    if held is None:
        held = np.arange(len(times)) % EVERY == EVERY // 2
    if held.all() or len(times) - held.sum() < columns.shape[1]:
        held[:] = False
    scale = (np.ones_like(times) if weights is None else np.sqrt(weights)) / times
    largest = columns.max(axis=0)  # terms differ by ten orders of magnitude
    found, _ = nnls((columns / largest * scale[:, None])[~held], ((times - known) * scale)[~held])
    found = found / largest
    fitted = columns @ found + known
    errors = np.abs(fitted / times - 1)
    judged = errors[held] if held.any() else np.array([np.nan])
    residual, spread = ((fitted - times) ** 2).sum(), ((times - times.mean()) ** 2).sum()
    return Fit(
        coefficients=dict(zip(terms, map(float, found), strict=True)),
        points=len(times),
        mape=float(errors[~held].mean()),
        held_out_mape=float(judged.mean()),
        held_out_worst=float(judged.max()),
        r2=float(1 - residual / spread),
        errors=errors,
    )


def by_octave(sizes: ArrayLike) -> Floats:
    """Return weights that give every doubling of a size the same say, however many points it has."""
    octaves = np.floor(np.log2(np.asarray(sizes, dtype=float)))
    _, index, counts = np.unique(octaves, return_inverse=True, return_counts=True)
    return np.asarray(1.0 / counts[index])


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
