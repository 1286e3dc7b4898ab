"""How many token slots a replica has left, and what is said when it has none."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simlora.core.errors import InputError
from simlora.hardware.budget import AdapterSlots, kv_token_budget
from simlora.hardware.gpu import Gpu
from simlora.hardware.link import LINKS
from simlora.hardware.model import ModelShape

PCIE = LINKS["pcie_4_x16"]
A10G = Gpu("a10g", 24_000_000_000, 600e9, 70e12, PCIE, PCIE)
H100_64G = Gpu("h100_64g", 68_000_000_000, 2.02e12, 989e12, PCIE, PCIE)
LLAMA_7B = ModelShape("llama_7b", 32, 4096, 32, 32, 128, 11008, 32000)
LLAMA_70B = ModelShape("llama_2_70b", 80, 8192, 64, 8, 128, 28672, 32000)
LLAMA_3_1_8B = ModelShape("llama_3_1_8b", 32, 4096, 32, 8, 128, 14336, 128256)
QWEN_2_5_7B = ModelShape("qwen_2_5_7b", 28, 3584, 28, 4, 128, 18944, 152064, qkv_bias=True)


@pytest.mark.parametrize("model, slots", [(LLAMA_3_1_8B, 334_816), (QWEN_2_5_7B, 777_904)])
def test_the_pools_that_vllm_reported_on_an_h100_of_64_gb(model, slots):
    assert kv_token_budget(model, H100_64G) == pytest.approx(slots, rel=0.002)


def test_the_pool_by_hand():
    # 24 GB x 0.9 less 1 GB and 13.48 GB of weights, at half a mebibyte a token
    free_bytes = 24e9 * 0.9 - 1e9 - 2 * 6_738_415_616
    assert kv_token_budget(LLAMA_7B, A10G, reserve_bytes=1_000_000_000) == int(free_bytes / 524_288)


def test_s_lora_set_its_pool_by_hand_near_ours():
    assert kv_token_budget(LLAMA_7B, A10G) == pytest.approx(14_500, rel=0.15)


def test_two_gpus_hold_more_than_twice_the_tokens_of_one():
    assert kv_token_budget(LLAMA_7B, A10G, tp=2) > 2 * kv_token_budget(LLAMA_7B, A10G)


def test_kv_heads_are_copied_when_there_are_more_gpus_than_heads():
    large = replace(A10G, memory_bytes=10**12)
    eight, sixteen = (kv_token_budget(LLAMA_70B, large, tp) for tp in (8, 16))
    assert eight < sixteen < 1.02 * eight  # only the weights get thinner


def test_a_model_that_does_not_fit_is_refused_in_one_sentence():
    with pytest.raises(InputError) as error:
        kv_token_budget(LLAMA_70B, A10G)
    assert str(error.value) == (
        "llama_2_70b needs 138.0 GB of weights on 1 x a10g, which has 24.0 GB (21.6 GB usable at "
        "gpu_memory_utilization 0.9, 1.3 GB a GPU of it for activations); use a larger GPU or replica.tp >= 8"
    )


def test_the_plural_and_no_way_out():
    tiny = replace(A10G, name="tiny", memory_bytes=1_500_000_000)
    with pytest.raises(InputError, match=r"on 2 x tiny, which have 3\.0 GB \(.*\); use a larger GPU$"):
        kv_token_budget(LLAMA_70B, tiny, tp=2)


@given(tp=st.sampled_from([1, 2, 4, 8, 16, 32, 64]), memory_gb=st.integers(1, 300), used=st.floats(0.05, 1.0))
def test_the_advice_given_works(tp, memory_gb, used):
    gpu = replace(A10G, memory_bytes=memory_gb * 10**9)
    try:
        assert kv_token_budget(LLAMA_70B, gpu, tp, used) >= 1
    except InputError as error:
        if ">= " in str(error):
            more = int(str(error).rsplit(">= ", 1)[1])
            assert more > tp
            assert kv_token_budget(LLAMA_70B, gpu, more, used) >= 1


def test_copies_that_do_not_fit_count_their_adapter_slots_too():
    slots = AdapterSlots(slots=8, rank=64, size_bytes=20_000_000_000)
    a100 = replace(A10G, name="a100", memory_bytes=80_000_000_000)
    message = (
        r"4 copies of llama_7b .* each needs 13.5 GB of weights, 20.0 GB for 8 adapter slots of rank 64 and "
        r"1.3 GB for activations, and has 18.0 GB; at most 2 fit"
    )
    with pytest.raises(InputError, match=message):
        kv_token_budget(LLAMA_7B, a100, engines=4, adapter_slots=slots)
    assert kv_token_budget(LLAMA_7B, a100, engines=2, adapter_slots=slots) >= 1


@given(memory_gb=st.integers(1, 300), engines=st.integers(2, 20), slots_gb=st.integers(0, 40))
def test_as_many_copies_fit_as_is_said(memory_gb, engines, slots_gb):
    gpu = replace(A10G, memory_bytes=memory_gb * 10**9)
    slots = AdapterSlots(4, 64, slots_gb * 10**9)
    try:
        assert kv_token_budget(LLAMA_7B, gpu, engines=engines, adapter_slots=slots) >= 1
    except InputError as error:
        fit = int(str(error).rsplit("at most ", 1)[1].split()[0])
        assert fit < engines
        if fit:
            assert kv_token_budget(LLAMA_7B, gpu, engines=fit, adapter_slots=slots) >= 1


@pytest.mark.parametrize(
    "settings, message",
    [
        ({"tp": 0}, "replica.tp is 0, must be a whole number of GPUs, at least 1"),
        ({"tp": 3}, "replica.tp is 3, must divide the 32 attention heads of llama_7b"),
        (
            {"gpu_memory_utilization": 0},
            "replica.gpu_memory_utilization is 0, must be greater than 0 and at most 1",
        ),
        ({"gpu_memory_utilization": 1.1}, "replica.gpu_memory_utilization is 1.1, must be"),
    ],
)
def test_settings_out_of_range_are_refused(settings, message):
    with pytest.raises(InputError, match=message):
        kv_token_budget(LLAMA_7B, A10G, **settings)
