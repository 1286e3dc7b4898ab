"""Fits on points whose latencies are made up."""

import numpy as np
import pandas as pd
import pytest

from profiler.fit import DECODE, KERNELS, features, fit, fit_all, prefill_model, readings
from profiler.points import Point
from simlora.core.errors import InputError
from simlora.hardware.model import ModelShape

TINY = ModelShape("tiny", layers=1, hidden=64, heads=2, kv_heads=2, head_dim=32, intermediate=128, vocab=64)
MBGMV = next(model for model in KERNELS if model.name == "kernels.mbgmv.decode")
STEPS = [Point("decode", requests=n, tokens=c) for n in (1, 2, 4, 8, 16) for c in (32, 128, 512)]
LORA = [
    Point("decode", "mbgmv", n, 128, ranks)
    for n in (1, 4, 16, 32)
    for ranks in ((8,), (64,), (8, 64), (8, 8, 8, 64))
]


def step_s(point: Point) -> float:
    return 1e-3 + 2e-4 * point.requests + 1e-7 * point.requests * point.tokens


def measured(points: list[Point], seconds: list[float]) -> pd.DataFrame:
    return features(pd.DataFrame([point.row() for point in points]), TINY).assign(seconds=seconds)


def test_coefficients_come_back_and_those_that_have_no_part_in_it_are_nought():
    found = fit(DECODE, measured(STEPS, [step_s(point) for point in STEPS]))
    assert found.coefficients["intercept_s"] == pytest.approx(1e-3)
    assert found.coefficients["per_sequence_s"] == pytest.approx(2e-4)
    assert found.coefficients["per_context_token_s"] == pytest.approx(1e-7)
    assert found.coefficients["per_sequence_sq_s"] == pytest.approx(0.0, abs=1e-12)
    assert found.r2 == pytest.approx(1.0)
    assert found.mape == pytest.approx(0.0, abs=1e-9)


def test_a_prefill_with_a_floor_of_launches_and_a_slope_of_kernels_comes_back_as_its_curve():
    points = [Point("prefill", tokens=t) for t in (16, 32, 64, 128, 256, 384, 512, 768, 1024, 1536, 2048)]
    points += [Point("prefill", requests=n, tokens=t) for n in (2, 4) for t in (32, 64, 256)]
    table = measured(points, [max(0.012, 0.012 + 0.018 * (p.requests * p.tokens / 512 - 1)) for p in points])
    found = fit(prefill_model(table), table)
    curve = {name: value for name, value in found.coefficients.items() if name != "per_token_sq_s"}
    assert list(curve) == [f"pass_s_by_tokens.{count}" for count in (16, 512, 1024)]
    assert curve["pass_s_by_tokens.16"] == pytest.approx(0.012, rel=0.01)
    assert curve["pass_s_by_tokens.1024"] == pytest.approx(0.03, rel=0.01)
    assert found.coefficients["per_token_sq_s"] == pytest.approx(0.0, abs=1e-10)
    assert found.predict(table) == pytest.approx(table["seconds"].to_numpy(), rel=0.05)


def test_errors_are_of_points_that_a_fit_has_not_seen():
    """One point is twice as slow. A fit that had seen it would lean towards it."""
    seconds = [step_s(point) for point in STEPS]
    seconds[-1] *= 2
    found = fit(DECODE, measured(STEPS, seconds))
    last = found.points.iloc[-1]
    assert last.predicted_s == pytest.approx(step_s(STEPS[-1]), rel=1e-6)
    assert found.mape >= 0.5 / len(STEPS)


def test_intervals_hold_the_coefficient_most_of_the_time_and_narrow_with_less_noise():
    def intervals(noise: float) -> list[tuple[float, float]]:
        found = []
        for seed in range(8):
            off = np.random.default_rng(seed).normal(1.0, noise, len(STEPS))
            table = measured(STEPS, [step_s(point) * float(by) for point, by in zip(STEPS, off, strict=True)])
            found.append(fit(DECODE, table).intervals["per_sequence_s"])
        return found

    little, much = intervals(0.01), intervals(0.1)
    assert sum(low <= 2e-4 <= high for low, high in little) >= 6
    assert all(high - low < 1e-4 for low, high in little)
    assert np.mean([high - low for low, high in much]) > 3 * np.mean([high - low for low, high in little])


def test_a_kernel_is_fitted_to_what_it_adds_to_the_base_model():
    base = fit(DECODE, measured(STEPS, [step_s(point) for point in STEPS]))
    table = measured(LORA, [step_s(p) + 1e-4 + 1e-6 * sum(p.ranks_of_requests()) for p in LORA])
    found = fit(MBGMV, table, base)
    assert found.coefficients["intercept_s"] == pytest.approx(1e-4)
    assert found.coefficients["per_rank_sum_s"] == pytest.approx(1e-6)
    assert found.coefficients["per_sequence_max_rank_s"] == pytest.approx(0.0, abs=1e-10)


@pytest.mark.parametrize("follows", ["the sum of ranks", "the highest rank"])
def test_the_data_say_whether_a_kernel_follows_the_sum_of_ranks_or_the_highest(follows):
    def added_s(point: Point) -> float:
        ranks = point.ranks_of_requests()
        return 1e-5 * (sum(ranks) if follows == "the sum of ranks" else len(ranks) * max(ranks))

    base = fit(DECODE, measured(STEPS, [step_s(point) for point in STEPS]))
    found = fit(MBGMV, measured(LORA, [step_s(p) + added_s(p) for p in LORA]), base)
    errors = readings(found, base)
    assert errors["both"] == pytest.approx(0.0, abs=1e-9)
    assert errors[follows] == pytest.approx(0.0, abs=1e-9)
    assert max(errors.values()) > 0.02


def test_too_few_points_are_no_fit():
    with pytest.raises(InputError, match="decode has 4 coefficients and only 4 points"):
        fit(DECODE, measured(STEPS[:4], [step_s(point) for point in STEPS[:4]]))


def test_of_two_kinds_of_memory_the_pinned_one_counts():
    points = [
        Point("adapter_load", memory, ranks=(rank,))
        for memory in ("pinned", "pageable")
        for rank in (8, 16, 32, 64)
    ]
    slow = [1e-3 + 1e-9 * TINY.adapter_bytes(p.ranks[0]) * (1 if p.kernel == "pinned" else 5) for p in points]
    (found,) = fit_all(measured(points, slow), TINY)
    assert found.coefficients["s_per_byte"] == pytest.approx(1e-9)
