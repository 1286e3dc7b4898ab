"""LoRA on CPU cores: how many, how long, and what a prefill takes while weights travel."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simlora.core.errors import InputError
from simlora.latency.calibration import Calibration
from simlora.latency.cpu_lora import Assisted, CpuLora

COEFFICIENTS = {
    "cpu_lora.tokens_per_core": 16.0,
    "cpu_lora.intercept_s": 1e-4,
    "cpu_lora.per_token_s": 1e-5,
    "cpu_lora.per_token_rank_s": 1e-6,
    "cpu_lora.sync_s": 1e-4,
}


def model(layers: int = 10, **changes: float) -> CpuLora:
    coefficients = COEFFICIENTS | {f"cpu_lora.{name}": value for name, value in changes.items()}
    return CpuLora(Calibration("test", "gpu", "model", 1, {}, coefficients), layers)


@pytest.mark.parametrize("tokens, cores", [(1, 1), (16, 1), (17, 2), (128, 8), (129, 9)])
def test_a_core_takes_so_many_tokens(tokens, cores):
    assert model().cores(tokens) == cores


def test_slices_are_as_even_as_can_be():
    """20 tokens on two cores are 10 each, not 16 and 4."""
    assert model().layer_s(20, 8) == pytest.approx(1e-4 + 10 * (1e-5 + 8e-6))
    assert model().layer_s(1, 8) == pytest.approx(1e-4 + 1e-5 + 8e-6)


def test_the_longer_of_gpu_and_cpu_counts_and_agreeing_comes_on_top():
    slow, fast = Assisted(16, 64, 1e9), Assisted(1, 8, 1e9)  # 1.284 and 0.118 ms a layer
    gpu_s = 10e-3  # 1 ms a layer
    assert model().pass_s(gpu_s, [fast]) == pytest.approx(10 * (1e-3 + 1e-4))
    assert model().pass_s(gpu_s, [slow]) == pytest.approx(10 * (model().layer_s(16, 64) + 1e-4))
    assert model().pass_s(gpu_s, [fast, slow]) == model().pass_s(gpu_s, [slow])


def test_once_the_weights_are_there_the_gpu_goes_on_alone():
    """A layer takes 1.1 ms with the CPU: the third has begun at 2.5 ms, and seven are left."""
    assert model().pass_s(10e-3, [Assisted(1, 8, 2.5e-3)]) == pytest.approx(3 * 1.1e-3 + 7 * 1e-3)


def test_each_request_holds_the_layers_up_until_its_own_weights_are_there():
    slow_s = model().layer_s(16, 64) + 1e-4
    both = [Assisted(1, 8, 5e-3), Assisted(16, 64, 2e-3)]
    two = 2 * slow_s  # until 2.77 ms; then 1.1 ms each until 5 ms are over
    assert model().pass_s(10e-3, both) == pytest.approx(two + 3 * 1.1e-3 + 5 * 1e-3)


def test_an_engine_on_which_no_cpu_lora_was_measured_is_named():
    with pytest.raises(InputError, match="measured with S-LoRA's engine only; take another loader"):
        CpuLora(Calibration("test", "gpu", "model", 1, {}, {}), 10)


def test_an_adapter_that_has_arrived_costs_nothing():
    assert model().pass_s(10e-3, []) == pytest.approx(10e-3)
    assert model().pass_s(10e-3, [Assisted(16, 64, 0.0)]) == pytest.approx(10e-3)


several = st.lists(
    st.builds(Assisted, st.integers(1, 500), st.sampled_from((8, 64)), st.floats(0, 0.1)), max_size=5
)


@given(several, st.floats(1e-4, 1.0), st.integers(1, 40))
def test_help_never_makes_a_pass_shorter_and_less_waiting_never_longer(assisted, gpu_s, layers):
    cpu = model(layers)
    seconds = cpu.pass_s(gpu_s, assisted)
    assert seconds >= gpu_s * (1 - 1e-12)
    worst = max((cpu.layer_s(each.tokens, each.rank) for each in assisted), default=0.0)
    assert seconds <= layers * (max(gpu_s / layers, worst) + 1e-4) * (1 + 1e-12)
    assert cpu.pass_s(gpu_s, [each._replace(lands_in_s=0.0) for each in assisted]) == pytest.approx(gpu_s)


@pytest.mark.parametrize("missing", ["tokens_per_core", "per_token_s", "sync_s"])
def test_a_coefficient_that_is_missing_is_named(missing):
    coefficients = {name: value for name, value in COEFFICIENTS.items() if name != f"cpu_lora.{missing}"}
    with pytest.raises(InputError, match=rf"has no cpu_lora\.{missing}"):
        CpuLora(Calibration("test", "gpu", "model", 1, {}, coefficients), 32)
