"""A model's bytes follow from its shape."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simlora.core.adapter import RANK_MAX, Adapter
from simlora.core.errors import InputError
from simlora.hardware.model import ATTENTION, ModelShape

LLAMA_7B = ModelShape("llama_7b", 32, 4096, 32, 32, 128, 11008, 32000)
LLAMA_3_1_8B = ModelShape("llama_3_1_8b", 32, 4096, 32, 8, 128, 14336, 128256)
MODULES = ("q", "k", "v", "o", "gate", "up", "down")


def test_weights_of_llama_7b_are_the_published_checkpoint():
    assert LLAMA_7B.parameters == 6_738_415_616
    assert LLAMA_7B.weight_bytes == 2 * 6_738_415_616


def test_keys_and_values_of_one_token():
    assert LLAMA_7B.kv_bytes_per_token == 524_288  # half a mebibyte, S-LoRA's and vLLM's figure
    assert LLAMA_3_1_8B.kv_bytes_per_token == 131_072  # a quarter of it: 8 KV heads for 32


def test_tied_embeddings_save_the_output_head():
    tied = replace(LLAMA_7B, tied_embeddings=True)
    assert LLAMA_7B.parameters - tied.parameters == 32000 * 4096


def test_biases_on_q_k_v_count():
    biased = replace(LLAMA_3_1_8B, qkv_bias=True)
    assert biased.parameters - LLAMA_3_1_8B.parameters == 32 * (4096 + 2 * 1024)


def test_adapter_bytes_by_hand():
    # rank 8, fp16: per layer q, k, v, o have A 4096 x 8 and B 8 x 4096
    assert LLAMA_7B.adapter_bytes(8) == 32 * 4 * 2 * 4096 * 8 * 2
    # grouped queries: B of k and v ends in 1024 columns
    assert LLAMA_3_1_8B.adapter_bytes(8, ("k",)) == 32 * (4096 + 1024) * 8 * 2
    assert LLAMA_3_1_8B.adapter_bytes(8, ("down",)) == 32 * (14336 + 4096) * 8 * 2


def test_slots_of_an_adapter_are_rounded_up():
    assert LLAMA_3_1_8B.adapter_bytes(1, ("q",)) == 524_288
    assert LLAMA_3_1_8B.adapter_kv_tokens(1, ("q",)) == 4
    assert LLAMA_3_1_8B.adapter_kv_tokens(1, ("k",)) == 3  # 2.5


@given(rank=st.integers(1, RANK_MAX), chosen=st.sets(st.sampled_from(MODULES), min_size=1))
def test_bytes_add_up_over_modules_and_grow_with_rank(rank, chosen):
    modules = sorted(chosen)
    whole = LLAMA_3_1_8B.adapter_bytes(rank, modules)
    assert whole == sum(LLAMA_3_1_8B.adapter_bytes(rank, [module]) for module in modules)
    assert whole == rank * LLAMA_3_1_8B.adapter_bytes(1, modules)
    slots = LLAMA_3_1_8B.adapter_kv_tokens(rank, modules)
    assert 0 <= slots * LLAMA_3_1_8B.kv_bytes_per_token - whole < LLAMA_3_1_8B.kv_bytes_per_token


def test_an_adapter_as_a_replica_sees_it():
    assert LLAMA_7B.adapter(3, "tenant", 16) == Adapter(3, "tenant", 16, 16 * 2_097_152, 64)


@pytest.mark.parametrize("rank", [0, -1, RANK_MAX + 1, 10_000, 1.5])
def test_a_rank_out_of_range_is_refused(rank):
    with pytest.raises(
        InputError, match=rf"rank of adapter tenant is {rank}, .* at least 1 and at most 1,024"
    ):
        LLAMA_7B.adapter(0, "tenant", rank)


def test_an_unknown_target_module_is_refused_with_the_nearest():
    with pytest.raises(InputError, match="target module 'gates' is unknown; did you mean gate"):
        LLAMA_7B.adapter_bytes(8, ("q", "gates"))


def test_target_modules_are_named_once_each():
    with pytest.raises(InputError, match="must each be named once"):
        LLAMA_7B.adapter_bytes(8, ("q", "q"))


def test_an_adapter_that_was_merged_into_a_model_of_its_own_takes_no_room():
    assert LLAMA_7B.adapter(3, "tenant", 16, ()) == Adapter(3, "tenant", 16, 0, 0)


@pytest.mark.parametrize(
    "key, value, message",
    [
        ("layers", 0, "model.layers is 0, must be a whole number, at least 1"),
        ("hidden", "wide", "model.hidden is 'wide', must be a whole number"),
        ("vocab", 0.5, "model.vocab is 0.5"),
        ("kv_heads", 5, "model.kv_heads is 5, must divide model.heads, which is 32"),
    ],
)
def test_a_shape_out_of_range_is_refused(key, value, message):
    with pytest.raises(InputError, match=message):
        replace(LLAMA_7B, **{key: value})


@pytest.mark.parametrize(("bits", "size"), [(None, 4096), (16, 4096), (8, 2048 + 64), (4, 1024 + 64)])
def test_a_quantised_adapter_has_a_scale_of_two_bytes_for_64_weights(bits, size):
    """8 ranks of 256 weights: 2048 of them, in 32 groups."""
    shape = replace(LLAMA_7B, layers=1, hidden=32, heads=1, kv_heads=1, head_dim=32, adapter_bits=bits)
    assert shape.adapter_bytes(8, ATTENTION) == size
    assert shape.adapter_kv_tokens(8, ATTENTION) == -(-size // shape.kv_bytes_per_token)
    assert shape.adapter(0, "a", 8, ATTENTION).size_bytes == size
