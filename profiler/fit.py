"""Fits latency models to measured points: non-negative linear regression of relative errors."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.optimize import nnls

from profiler.points import ITERATIONS
from simlora.core.errors import InputError
from simlora.hardware.model import ModelShape
from simlora.latency.calibration import PASS_BY_TOKENS
from simlora.latency.curve import Curve

FOLDS = 5
PASSES = 4
DRAWS = 200
"""Of points, with replacement, for confidence intervals."""
Floats = NDArray[np.float64]
Feature = Callable[[pd.DataFrame], "Floats | pd.Series[float]"]


@dataclass(frozen=True)
class Model:
    """Linear in `features`, each named by its coefficient in a calibration. `base` is what is taken off first."""

    name: str
    section: str
    features: Mapping[str, Feature]
    kernel: str = ""
    base: str = ""


@dataclass(frozen=True)
class Fitted:
    """Coefficients with 95 % intervals, and how far off points are that a fit has not seen.

    `points`: the rows with `seconds`, and `predicted_s` by the fit to the other folds. `r2` and `mape` are of those.
    """

    model: Model
    coefficients: Mapping[str, float]
    intervals: Mapping[str, tuple[float, float]]
    points: pd.DataFrame
    r2: float
    mape: float

    def predict(self, points: pd.DataFrame) -> Floats:
        """Return the seconds of other points."""
        return np.asarray(_columns(self.model, points) @ np.array(list(self.coefficients.values())))


def _ones(points: pd.DataFrame) -> Floats:
    return np.ones(len(points))


PASS_TOKENS = (16, 512, 1024, 4096)
"""Counts at which the curve of passes has its points: on an H100 launches take longer than kernels up to 384 tokens.

Points at 64, 128 and 256 would follow the noise of the launches: unseen prefills of Llama-2-13B on an H200 are 10.8 %
off without them and 19.0 % with them.
"""
DECODE = Model(
    "decode",
    "decode",
    {
        "intercept_s": _ones,
        "per_sequence_s": lambda p: p["requests"],
        "per_sequence_sq_s": lambda p: p["requests"] ** 2,
        "per_context_token_s": lambda p: p["batch_tokens"],
    },
)


def prefill_model(points: pd.DataFrame) -> Model:
    """Return prefill as a curve of the tokens of a pass, as far as these points go, and the squares of its prompts.

    Each feature of the curve is 1 at its own count and falls to 0 at the counts beside it, so that its coefficient is
    the seconds there.
    """
    most = points["batch_tokens"].max()
    counts = PASS_TOKENS[: max(2, sum(tokens <= most for tokens in PASS_TOKENS))]
    curve = {
        f"{PASS_BY_TOKENS.partition('.')[2]}.{count}": _near(index, counts)
        for index, count in enumerate(counts)
    }
    return Model("prefill", "prefill", {**curve, "per_token_sq_s": lambda p: p["tokens_sq"]})


def _near(index: int, counts: Sequence[int]) -> Feature:
    """Return the share of each point that the curve's value at `counts[index]` has in it."""
    unit = np.eye(len(counts))[index]
    ends = Curve(dict(zip(counts, unit.tolist(), strict=True)))
    return lambda points: np.asarray(ends.at_all(points["batch_tokens"]), dtype=np.float64)


def _of_kernel(kernel: str, phase: str, **features: Feature) -> Model:
    """Return what a LoRA kernel adds to prefill or decode; all kernels have an intercept."""
    return Model(f"kernels.{kernel}.{phase}", phase, {"intercept_s": _ones, **features}, kernel, phase)


KERNELS = (
    _of_kernel(
        "bgmv",
        "decode",
        per_sequence_s=lambda p: p["requests"],
        per_sequence_max_rank_s=lambda p: p["requests"] * p["max_rank"],
    ),
    _of_kernel("bgmv", "prefill", per_token_max_rank_s=lambda p: p["batch_tokens"] * p["max_rank"]),
    _of_kernel(
        "mbgmv",
        "decode",
        per_rank_sum_s=lambda p: p["rank_sum"],
        per_sequence_s=lambda p: p["requests"],
        per_sequence_max_rank_s=lambda p: p["requests"] * p["max_rank"],
    ),
    _of_kernel("mbgmv", "prefill", per_token_rank_s=lambda p: p["token_rank_sum"]),
    _of_kernel(
        "padded_bmm",
        "decode",
        per_segment_s=lambda p: p["requests"],
        per_segment_max_rank_s=lambda p: p["requests"] * p["max_rank"],
    ),
    _of_kernel(
        "padded_bmm",
        "prefill",
        per_segment_s=lambda p: p["requests"],
        per_token_max_rank_s=lambda p: p["batch_tokens"] * p["max_rank"],
    ),
    _of_kernel(
        "one_hot_einsum",
        "decode",
        per_sequence_adapter_max_rank_s=lambda p: p["requests"] ** 2 * p["max_rank"],
    ),
)
COPIES = (
    Model("adapter_load", "adapter_load", {"latency_s": _ones, "s_per_byte": lambda p: p["size_bytes"]}),
    Model("merge", "merge", {"intercept_s": _ones, "per_byte_s": lambda p: p["size_bytes"]}),
)
CPU = (
    Model(
        "cpu_lora",
        "cpu_lora",
        {
            "intercept_s": _ones,
            "per_token_s": lambda p: p["tokens"],
            "per_token_rank_s": lambda p: p["tokens"] * p["max_rank"],
        },
    ),
)


def features(points: pd.DataFrame, shape: ModelShape) -> pd.DataFrame:
    """Add what the models are linear in: sums over the requests of a point, and the bytes of its first adapter."""
    ranks = [
        [int(pattern[i % len(pattern)]) for i in range(requests)] if (pattern := text.split()) else [0]
        for text, requests in zip(points["ranks"], points["requests"], strict=True)
    ]
    return points.assign(
        batch_tokens=points["requests"] * points["tokens"],
        tokens_sq=points["requests"] * points["tokens"] ** 2,
        rank_sum=[sum(each) for each in ranks],
        token_rank_sum=[tokens * sum(each) for each, tokens in zip(ranks, points["tokens"], strict=True)],
        max_rank=[max(each) for each in ranks],
        size_bytes=[shape.adapter_bytes(each[0]) if each[0] else 0 for each in ranks],
    )


def fit(model: Model, points: pd.DataFrame, base: Fitted | None = None, seed: int = 0) -> Fitted:
    """Fit a model to its points, whose `seconds` are those of whole iterations: `base` is taken off first.

    Errors count relative to the whole. Raises InputError when there are fewer points than coefficients.
    """
    names = list(model.features)
    if len(points) <= len(names):
        raise InputError(
            f"{model.name} has {len(names)} coefficients and only {len(points)} points; measure a larger plan"
        )
    measured = points["seconds"].to_numpy(np.float64)
    below = base.predict(points) if base is not None else np.zeros(len(points))
    columns = _columns(model, points)
    predicted = np.empty(len(points))
    order = np.random.RandomState(seed).permutation(len(points))
    for unseen in np.array_split(order, min(FOLDS, len(points))):
        known = np.setdiff1d(order, unseen)
        found = _solve(columns[known], measured[known], below[known])
        predicted[unseen] = below[unseen] + columns[unseen] @ found
    rng = np.random.default_rng(seed)
    drawn = []
    for _ in range(DRAWS):
        at = rng.integers(0, len(points), len(points))
        drawn.append(_solve(columns[at], measured[at], below[at]))
    low, high = np.quantile(drawn, (0.025, 0.975), axis=0)
    best = _solve(columns, measured, below)
    off = predicted - measured
    spread = measured - measured.mean()
    return Fitted(
        model=model,
        coefficients={name: float(value) for name, value in zip(names, best, strict=True)},
        intervals={name: (float(a), float(b)) for name, a, b in zip(names, low, high, strict=True)},
        points=points.assign(predicted_s=predicted),
        r2=float(1.0 - off @ off / (spread @ spread)),
        mape=float(np.mean(np.abs(off) / measured)),
    )


def fit_all(points: pd.DataFrame, shape: ModelShape) -> list[Fitted]:
    """Fit every model that the points have measured."""
    table = features(points, shape)
    base: dict[str, Fitted] = {}
    found = []
    for model in (*_base(table), *KERNELS, *COPIES, *CPU):
        mine = _mine(model, table)
        if mine.empty:
            continue
        fitted = fit(model, mine, base.get(model.base))
        if model.section in ITERATIONS and not model.kernel:
            base[model.name] = fitted
        found.append(fitted)
    return found


def _base(table: pd.DataFrame) -> list[Model]:
    """Return the models of the base model's iterations that the points have."""
    prefills = table[(table["section"] == "prefill") & (table["kernel"] == "")]
    return [*([] if prefills.empty else [prefill_model(prefills)]), DECODE]


def fit_iterations(iterations: pd.DataFrame, kernel: str) -> dict[str, Fitted]:
    """Fit whole iterations of an engine, base model and LoRA `kernel` at once; prefill and decode each.

    `iterations` has `kind`, `seconds` and the sums that `features` makes. The coefficients have their dotted names.
    """
    found = {}
    for section in ITERATIONS:
        table = iterations[iterations["kind"] == section]
        base = DECODE if section == DECODE.section else prefill_model(table)
        lora = next(each for each in KERNELS if (each.kernel, each.section) == (kernel, base.section))
        both = {
            f"{each.name}.{name}": feature for each in (base, lora) for name, feature in each.features.items()
        }
        # Only where some iterations have no LoRA work do they tell one intercept from the other.
        if (table["rank_sum"] > 0).all():
            del both[f"{lora.name}.intercept_s"]
        found[base.section] = fit(Model(base.section, base.section, both), table)
    return found


def readings(fitted: Fitted, base: Fitted) -> dict[str, float]:
    """Return the error of held-out points if a decode step's kernel follows the sum of ranks, the highest, or both.

    CaraServe (§5) says the sum of ranks for MBGMV, LoRAServe (§3) the highest.
    """
    of_rank = {"the sum of ranks": "per_rank_sum_s", "the highest rank": "per_sequence_max_rank_s"}
    found = {"both": fitted.mape}
    for reading, kept in of_rank.items():
        given = {
            name: feature
            for name, feature in fitted.model.features.items()
            if name == kept or name not in of_rank.values()
        }
        model = Model(fitted.model.name, fitted.model.section, given, fitted.model.kernel, fitted.model.base)
        found[reading] = fit(model, fitted.points.drop(columns="predicted_s"), base).mape
    return found


def _mine(model: Model, table: pd.DataFrame) -> pd.DataFrame:
    mine = table[table["section"] == model.section]
    if model.section == "adapter_load":
        # What a serving system copies from is pinned, where there is such a thing.
        return mine[mine["kernel"] == ("pinned" if "pinned" in set(mine["kernel"]) else "pageable")]
    if model.section == "cpu_lora":
        return mine[mine["cores"] == 1]
    return mine[mine["kernel"] == model.kernel]


def _columns(model: Model, points: pd.DataFrame) -> Floats:
    return np.column_stack(
        [np.asarray(feature(points), dtype=np.float64) for feature in model.features.values()]
    )


def _solve(columns: Floats, measured: Floats, below: Floats) -> Floats:
    """Least squares of relative errors with coefficients of at least 0, on top of what is `below`.

    Relative to what is expected, not to what was measured: that would take the fast ones of equal iterations
    for more certain than the slow ones, and end below their mean (by 8 % on a noisy CPU). So it takes a few passes.
    """
    expected = measured
    for _ in range(PASSES):
        scaled = columns / expected[:, None]
        size = np.maximum(np.abs(scaled).max(axis=0), 1e-300)
        found = np.asarray(nnls(scaled / size, (measured - below) / expected)[0] / size)
        expected = np.maximum(below + columns @ found, 1e-3 * measured)
    return found
