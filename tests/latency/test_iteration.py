"""IterationModel, HostTime, AdapterLoad and Merge: linear, by hand."""

import numpy as np
import pytest

from simlora.core.errors import InputError
from simlora.hardware.link import Link
from simlora.latency.calibration import Calibration
from simlora.latency.iteration import HostTime, IterationModel
from simlora.latency.transfer import AdapterLoad, Merge
from tests.builds import ARRAYS

NEEDED = {
    "prefill.intercept_s": 0.02,
    "prefill.per_token_s": 0.001,
    "decode.intercept_s": 0.01,
    "decode.per_sequence_s": 0.002,
    "decode.per_context_token_s": 0.0001,
}


def calibration(coefficients: dict[str, float]) -> Calibration:
    return Calibration("mine.yaml", "gpu", "model", 1, {}, coefficients)


def test_prefill_counts_tokens_and_squares_where_attention_shows():
    assert IterationModel(calibration(NEEDED)).prefill_s(100, 5000) == pytest.approx(0.02 + 0.1)
    model = IterationModel(calibration(NEEDED | {"prefill.per_token_sq_s": 1e-5}))
    assert model.prefill_s(30, 10**2 + 20**2) == pytest.approx(0.02 + 0.03 + 0.005)


def test_decode_counts_sequences_their_contexts_and_the_square_of_the_batch_where_a_calibration_says_so():
    model = IterationModel(calibration(NEEDED))
    assert model.decode_s(3, 500) == pytest.approx(0.01 + 0.006 + 0.05)
    assert model.decode_s(7, 507) - model.decode_s(7, 500) == pytest.approx(model.decode_slope_s(7))
    model = IterationModel(calibration(NEEDED | {"decode.per_sequence_sq_s": 0.5}))
    assert model.decode_s(3, 500) == pytest.approx(0.01 + 0.006 + 4.5 + 0.05)


@pytest.mark.parametrize("missing", sorted(NEEDED))
def test_a_missing_coefficient_is_named(missing):
    rest = {key: value for key, value in NEEDED.items() if key != missing}
    with pytest.raises(InputError, match=f"has no {missing}, which this run needs"):
        IterationModel(calibration(rest))


def test_a_pass_that_does_the_work_of_both_reads_the_weights_once():
    """Of the two intercepts, 0.02 and 0.01, the smaller one is saved."""
    model = IterationModel(calibration(NEEDED))
    assert model.mixed_s(100, 5000, 3, 500) == pytest.approx(0.02 + 0.1 + 0.006 + 0.05)
    other = IterationModel(calibration(NEEDED | {"decode.intercept_s": 0.03}))
    assert other.mixed_s(100, 5000, 3, 500) == pytest.approx(0.03 + 0.1 + 0.006 + 0.05)


PARTS = {
    "a load": (AdapterLoad, "load_s", "adapter_load.latency_s", "adapter_load.bytes_per_s", 1e9),
    "merging": (Merge, "merge_s", "merge.intercept_s", "merge.per_byte_s", 1e-9),
    "the host": (HostTime, "host_s", "host.intercept_s", "host.per_sequence_s", 1e-9),
}


@pytest.mark.parametrize("part", PARTS)
def test_what_is_linear_has_a_fixed_cost_and_one_a_byte_or_sequence_and_needs_both(part):
    model, method, fixed, slope, value = PARTS[part]
    time_s = getattr(model(calibration({fixed: 0.004, slope: value})), method)
    assert time_s(0) == 0.004
    assert time_s(500_000_000) == pytest.approx(0.504)
    for missing, there in ((fixed, slope), (slope, fixed)):
        with pytest.raises(InputError, match=f"has no {missing}, which this run needs"):
            model(calibration({there: 0.1}))


@pytest.mark.parametrize(
    ("adapters", "more", "kv"),
    [(4e9, {}, 16e9), (18e9, {}, 18e9), (4e9, {"adapter_load.kv_bytes_per_s": 8e9}, 8e9)],
)
def test_kv_comes_as_calibrated_or_at_a_share_of_the_links_rate_or_as_fast_as_adapters(adapters, more, kv):
    loads = calibration({"adapter_load.latency_s": 0.004, "adapter_load.bytes_per_s": adapters} | more)
    load = AdapterLoad(loads, Link("a link of 20 GB/s", 0.0, 20e9))
    assert load.kv_bytes_s(10**9) == pytest.approx(1e9 / kv)
    assert load.bytes_s(10**9) == pytest.approx(1e9 / adapters)
    assert AdapterLoad(loads).kv_bytes_s(10**9) == pytest.approx(1e9 / (kv if more else adapters)), (
        "without a link"
    )


CURVES = {
    "prefill.pass_s_by_tokens.16": 0.010,
    "prefill.pass_s_by_tokens.512": 0.010,
    "prefill.pass_s_by_tokens.2048": 0.0868,
    "decode.step_s_by_batch.1": 0.011,
    "decode.step_s_by_batch.8": 0.011,
    "decode.step_s_by_batch.16": 0.012,
    "decode.per_context_token_s_by_batch.1": 4e-8,
    "decode.per_context_token_s_by_batch.16": 9e-8,
}


def test_a_curve_has_a_knee_and_goes_on_beyond_its_last_point():
    model = IterationModel(calibration(CURVES))
    assert model.prefill_s(1, 1) == model.prefill_s(512, 512**2) == pytest.approx(0.010)
    assert model.prefill_s(1024, 0) == pytest.approx(0.010 + 512 * 0.00005)
    assert [model.decode_s(batch, 0) for batch in (1, 4, 12, 24)] == pytest.approx(
        [0.011, 0.011, 0.0115, 0.013]
    )


def test_a_context_token_costs_by_the_batch_and_every_step_grows_alike():
    model = IterationModel(calibration(CURVES))
    assert model.decode_s(16, 1000) == pytest.approx(0.012 + 1000 * 9e-8)
    assert model.decode_slope_s(16) == pytest.approx(16 * 9e-8)
    assert model.decode_s(16, 1016) - model.decode_s(16, 1000) == pytest.approx(model.decode_slope_s(16))


def test_a_pass_by_a_curve_has_the_tokens_of_both():
    model = IterationModel(calibration(CURVES))
    assert model.mixed_s(500, 500**2, 16, 1000) == pytest.approx(model.prefill_s(516, 0) + 1000 * 9e-8)


def test_a_curve_of_one_part_leaves_the_coefficients_of_the_others():
    steps = {name: seconds for name, seconds in CURVES.items() if name.startswith("decode.step")}
    rest = {
        name: NEEDED[name] for name in NEEDED if not name.endswith(("decode.intercept_s", "per_sequence_s"))
    }
    model = IterationModel(calibration(steps | rest))
    assert model.prefill_s(100, 0) == pytest.approx(0.12)
    assert model.decode_s(8, 500) == pytest.approx(0.011 + 0.05)
    assert model.mixed_s(100, 0, 8, 500) == pytest.approx(0.12 + 0.011 + 0.05 - 0.011)


@ARRAYS
def test_curves_are_read_at_all_replicas_at_once():
    model = IterationModel(calibration(CURVES))
    batches, contexts = np.array([[1, 4], [12, 24]]), np.full((2, 2), 100.0)
    one_by_one = [[model.decode_s(int(batch), 100.0) for batch in row] for row in batches]
    assert model.decode_s(batches, contexts).tolist() == one_by_one


VERIFYING = IterationModel(
    calibration({
        "prefill.pass_s_by_tokens.16": 0.010, "prefill.pass_s_by_tokens.1016": 0.030,
        "decode.step_s_by_batch.1": 0.010, "decode.step_s_by_batch.100": 0.020,
        "decode.per_context_token_s": 1e-6,
        "host.per_sequence_s": 2e-5,
    })
)  # fmt: skip


def test_verification_reads_contexts_and_works_on_the_host_once_a_sequence():
    """20 sequences of 4 tokens: a step of 80, less the host's time for 60 of them."""
    step_s = 0.010 + 0.010 * 79 / 99
    assert VERIFYING.verify_s(20, 4, 5000) == pytest.approx(step_s - 60 * 2e-5 + 5000e-6)
    assert VERIFYING.verify_s(20, 1, 5000) == pytest.approx(VERIFYING.decode_s(20, 5000))


def test_verification_beyond_the_last_batch_adds_what_tokens_add_to_a_pass():
    """50 sequences of 8 tokens: 100 as a step, and 300 more as a pass has them, 20 µs each."""
    assert VERIFYING.verify_s(50, 8, 0) == pytest.approx(0.020 - 50 * 2e-5 + 300 * 2e-5)


def test_a_pass_that_prefills_and_verifies_has_the_tokens_of_both():
    assert VERIFYING.mixed_verify_s(500, 0, 20, 4, 5000) == pytest.approx(
        VERIFYING.prefill_s(580, 0) + 20 * 2e-5 + 5000e-6
    )
    assert VERIFYING.mixed_verify_s(500, 0, 20, 1, 5000) == pytest.approx(VERIFYING.mixed_s(500, 0, 20, 5000))
