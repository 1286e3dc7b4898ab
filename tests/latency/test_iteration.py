"""IterationModel and AdapterLoad: linear, by hand."""

import pytest

from simlora.core.errors import InputError
from simlora.latency.calibration import Calibration
from simlora.latency.iteration import IterationModel
from simlora.latency.transfer import AdapterLoad

NEEDED = {
    "prefill.intercept_s": 0.02,
    "prefill.per_token_s": 0.001,
    "decode.intercept_s": 0.01,
    "decode.per_sequence_s": 0.002,
    "decode.per_context_token_s": 0.0001,
}


def calibration(coefficients: dict[str, float]) -> Calibration:
    return Calibration("mine.yaml", "gpu", "model", 1, {}, coefficients)


def test_prefill_counts_tokens() -> None:
    assert IterationModel(calibration(NEEDED)).prefill_s(100, 5000) == pytest.approx(0.02 + 0.1)


def test_prefill_counts_squares_where_attention_shows() -> None:
    model = IterationModel(calibration(NEEDED | {"prefill.per_token_sq_s": 1e-5}))
    assert model.prefill_s(30, 10**2 + 20**2) == pytest.approx(0.02 + 0.03 + 0.005)


def test_decode_counts_sequences_and_their_contexts() -> None:
    assert IterationModel(calibration(NEEDED)).decode_s(3, 500) == pytest.approx(0.01 + 0.006 + 0.05)


def test_decode_counts_the_square_of_the_batch_where_a_calibration_says_so() -> None:
    model = IterationModel(calibration(NEEDED | {"decode.per_sequence_sq_s": 0.5}))
    assert model.decode_s(3, 500) == pytest.approx(0.01 + 0.006 + 4.5 + 0.05)


def test_every_decode_step_is_longer_by_one_token_of_context_each() -> None:
    model = IterationModel(calibration(NEEDED))
    assert model.decode_s(7, 507) - model.decode_s(7, 500) == pytest.approx(model.decode_slope_s(7))


@pytest.mark.parametrize("missing", sorted(NEEDED))
def test_a_missing_coefficient_is_named(missing: str) -> None:
    rest = {key: value for key, value in NEEDED.items() if key != missing}
    with pytest.raises(InputError, match=f"has no {missing}, which this run needs"):
        IterationModel(calibration(rest))


def test_a_load_is_a_fixed_cost_and_a_bandwidth() -> None:
    load = AdapterLoad(calibration({"adapter_load.latency_s": 0.004, "adapter_load.bytes_per_s": 1e9}))
    assert load.load_s(0) == 0.004
    assert load.load_s(500_000_000) == pytest.approx(0.504)


@pytest.mark.parametrize("missing", ["latency_s", "bytes_per_s"])
def test_a_load_needs_both(missing: str) -> None:
    both = {"adapter_load.latency_s": 0.004, "adapter_load.bytes_per_s": 1e9}
    del both[f"adapter_load.{missing}"]
    with pytest.raises(InputError, match=f"adapter_load.{missing}"):
        AdapterLoad(calibration(both))
