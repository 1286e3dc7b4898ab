"""The decode steps that the times of tokens show: how many sequences each had, their contexts, and how long it took."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from simlora.calibrate.host import LEAST, solved
from simlora.calibrate.scaling import HOST, HOST_SEQUENCE
from simlora.core.arrays import Floats, Ints
from simlora.core.errors import InputError
from simlora.core.trace import BASE_MODEL, Trace
from simlora.latency.calibration import Calibration
from simlora.latency.iteration import IterationModel
from simlora.latency.kernels import Kernel, LoraWork
from simlora.validation.measured import Measured

TOKENS_LEAST = 20
"""Times between tokens that a batch must have for its median to count."""
BUCKETS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
"""Batches from each of these up to the next are one row of the table."""


@dataclass(frozen=True)
class DecodeSteps:
    """Decode steps, a row for each size of the batch: medians of contexts in all, of seconds and distinct adapters."""

    batch: Ints
    context_tokens: Floats
    seconds: Floats
    adapters: Ints


@dataclass(frozen=True)
class StepRow:
    """Steps of batches from `least` to `most`: the median measured, and the median that the calibration says."""

    least: int
    most: int
    measured_s: float
    calibrated_s: float


def decode_steps(measured: Measured) -> DecodeSteps | None:
    """Return the decode steps of one server's run.

    None where the log has no times of tokens. The batch between two tokens of a request is the requests that have
    their first token and not yet their last; its contexts are their prompts and what they have generated. Requests
    whose tokens came several at a time give no steps. No time counts in which another request's first token came: its
    prompt was in that iteration.
    """
    if measured.gaps_s is None:
        return None
    trace = measured.trace
    firsts_s = trace.arrival_s + measured.ttft_s
    tokens_s = [first + np.cumsum(gaps) for first, gaps in zip(firsts_s, measured.gaps_s, strict=True)]
    lasts_s = np.array(
        [each[-1] if len(each) else first for first, each in zip(firsts_s, tokens_s, strict=True)]
    )
    one_by_one = [
        at for at, each in enumerate(tokens_s) if len(each) and len(each) == trace.output_tokens[at] - 1
    ]
    if not one_by_one:
        return None
    ends_s = np.concatenate([tokens_s[at] for at in one_by_one])
    begins_s = np.concatenate([np.r_[firsts_s[at], tokens_s[at][:-1]] for at in one_by_one])
    middles_s = (begins_s + ends_s) / 2
    first_tokens_s = np.sort(firsts_s)
    prompts = np.searchsorted(first_tokens_s, ends_s, "right") - np.searchsorted(
        first_tokens_s, begins_s, "right"
    )
    batch = _level([(firsts_s, 1.0), (lasts_s, -1.0)], middles_s)
    prompt, output = trace.prompt_tokens.astype(np.float64), trace.output_tokens.astype(np.float64)
    later_s = np.concatenate(tokens_s)
    received = np.array([len(each) for each in tokens_s], dtype=np.float64)
    each_token = np.repeat((output - 1) / np.maximum(received, 1), received.astype(np.int64))
    contexts = _level(
        [(firsts_s, prompt + 1), (later_s, each_token), (lasts_s, -(prompt + output))], middles_s
    )
    adapters = _level(_spells(trace.adapter.astype(np.int64), firsts_s, lasts_s), middles_s)
    plain = (prompts == 0) & (batch >= 1)
    return _medians(batch[plain], contexts[plain], (ends_s - begins_s)[plain], adapters[plain])


def _level(changes: Sequence[tuple[Floats, Floats | float]], at_s: Floats) -> Floats:
    """Return a level at some moments, 0 at first, that changes by so much at each of other moments."""
    when = np.concatenate([moments for moments, _ in changes])
    by = np.concatenate([np.broadcast_to(change, moments.shape) for moments, change in changes])
    order = np.argsort(when, kind="stable")
    levels = np.r_[0.0, np.cumsum(by[order])]
    return np.asarray(levels[np.searchsorted(when[order], at_s, "right")])


def _spells(adapter: Ints, firsts_s: Floats, lasts_s: Floats) -> list[tuple[Floats, Floats | float]]:
    """Return when adapters come into the batch and when they leave it, as changes of how many are in it."""
    begins, ends = [], []
    for one in np.unique(adapter[adapter != BASE_MODEL]).tolist():
        own = np.flatnonzero(adapter == one)
        own = own[np.argsort(firsts_s[own], kind="stable")]
        until_s = -np.inf
        for first_s, last_s in zip(firsts_s[own].tolist(), lasts_s[own].tolist(), strict=True):
            if first_s > until_s:
                if np.isfinite(until_s):
                    ends.append(until_s)
                begins.append(first_s)
            until_s = max(until_s, last_s)
        ends.append(until_s)
    return [(np.array(begins), 1.0), (np.array(ends), -1.0)]


def _medians(batch: Floats, contexts: Floats, seconds: Floats, adapters: Floats) -> DecodeSteps | None:
    rows = []
    for size in np.unique(batch).tolist():
        own = batch == size
        if own.sum() >= TOKENS_LEAST:
            rows.append((size, *(float(np.median(each[own])) for each in (contexts, seconds, adapters))))
    if not rows:
        return None
    sizes, context, step_s, distinct = np.array(rows).T
    return DecodeSteps(sizes.astype(np.int64), context, step_s, np.rint(distinct).astype(np.int64))


def calibrated_s(calibration: Calibration, kernel: Kernel, steps: DecodeSteps, trace: Trace) -> Floats:
    """Return the seconds that a calibration and a LoRA kernel say of these steps [rows].

    The sequences have the mean rank of the trace's requests, and the highest of its adapters.
    """
    model = IterationModel(calibration)
    ranks = np.array([adapter.rank for adapter in trace.adapters] or [0])
    with_adapter = trace.adapter[trace.adapter != BASE_MODEL]
    share = len(with_adapter) / len(trace)
    mean = float(ranks[with_adapter].mean()) if len(with_adapter) else 0.0
    found = []
    for batch, context, adapters in zip(
        steps.batch.tolist(), steps.context_tokens.tolist(), steps.adapters.tolist(), strict=True
    ):
        tokens = max(round(batch * share), int(adapters > 0))
        work = LoraWork(tokens, round(tokens * mean), int(ranks.max()) if tokens else 0, adapters, adapters)
        found.append(model.decode_s(batch, context) + (kernel.decode_s(work) if tokens else 0.0))
    return np.array(found)


def rows_of(steps: DecodeSteps, expected_s: Floats) -> list[StepRow]:
    """Return the steps in buckets of their batch, measured and as a calibration says [rows]."""
    place = np.searchsorted(BUCKETS, steps.batch, "right")
    rows = []
    for bucket in np.unique(place).tolist():
        own = place == bucket
        least, most = int(steps.batch[own].min()), int(steps.batch[own].max())
        rows.append(
            StepRow(least, most, float(np.median(steps.seconds[own])), float(np.median(expected_s[own])))
        )
    return rows


def error_of_steps(steps: DecodeSteps, expected_s: Floats) -> float:
    """Return the mean of |expected / measured seconds - 1|, every bucket of batches alike."""
    off = np.abs(expected_s / steps.seconds - 1)
    place = np.searchsorted(BUCKETS, steps.batch, "right")
    return float(np.mean([off[place == bucket].mean() for bucket in np.unique(place)]))


def host_of(
    calibration: Calibration, steps: DecodeSteps | None, expected_s: Floats | None
) -> tuple[float, float]:
    """Return the host's seconds of a step and of a sequence that explain measured steps best.

    `expected_s` [rows] are what the calibration says of them. Raises InputError where the calibration has no host, or
    the steps cannot tell both.
    """
    if HOST not in calibration.coefficients or HOST_SEQUENCE not in calibration.coefficients:
        raise InputError(
            f"calibration {calibration.path} has no host part, so --fit has nothing to adjust; one composed of parts "
            "has (simlora-calibrate list)"
        )
    if steps is None or expected_s is None:
        raise InputError(
            "--fit needs the times of single tokens of one server: vllm bench serve --save-detailed or "
            "sglang.bench_serving --output-details writes them"
        )
    if len(steps.batch) < LEAST:
        raise InputError(
            f"--fit needs decode steps of {LEAST} different batches, and the log has {len(steps.batch)}; measure at a "
            "higher rate"
        )
    others_s = expected_s - calibration.need(HOST) - calibration.need(HOST_SEQUENCE) * steps.batch
    return solved(others_s, steps.batch.astype(np.float64), steps.seconds)
