"""The base model computes what a decoder does: a step continues a prompt exactly as a longer prompt would."""

import pytest
import torch

from profiler.device import choose
from profiler.kernels.work import BASE_MODEL
from profiler.model.cache import PAGE_TOKENS, KvCache
from profiler.model.decode_attention import decode_attention, decode_attention_in_torch
from profiler.model.engine import Engine, Live
from profiler.model.graphs import PADDING, Graphs
from profiler.model.lora import ON_GPU, Adapters, ways
from profiler.model.prefill_attention import (
    TILE_TOKENS,
    prefill_attention,
    prefill_attention_in_torch,
    tiles,
)
from simlora.core.errors import InputError
from simlora.hardware.model import ModelShape

CPU = choose("cpu")
SHAPE = ModelShape("tiny", layers=2, hidden=64, heads=4, kv_heads=2, head_dim=16, intermediate=128, vocab=101)
RANKS = [8, 16, 4]


def engine(tokens: int = 1000) -> Engine:
    return Engine(SHAPE, CPU, tokens, RANKS)


def prompt(tokens: int, first: int = 3) -> list[int]:
    return [(first + 7 * at) % SHAPE.vocab for at in range(tokens)]


def said(adapter: int, kernel: str, tokens: int, steps: int) -> list[int]:
    """Return what a sequence says, step by step."""
    one, running = Live(0, adapter, prompt(tokens)), engine()
    running.prefill([one], kernel)
    found = [one.last]
    for _ in range(steps):
        running.decode([one], kernel)
        found.append(one.last)
    return found


@pytest.mark.parametrize("kernel", ways(CPU.torch))
@pytest.mark.parametrize("adapter", [BASE_MODEL, 1])
def test_a_step_says_what_a_prompt_longer_by_what_was_said_would(kernel, adapter):
    tokens = said(adapter, kernel, 20, 4)
    for step in range(1, 5):
        longer = Live(0, adapter, prompt(20) + tokens[:step])
        other = engine()
        other.prefill([longer], kernel)
        assert longer.last == tokens[step]


def test_sequences_do_not_disturb_each_other():
    alone = [said(adapter, "mbgmv", tokens, 3) for adapter, tokens in ((0, 5), (BASE_MODEL, 40), (2, 17))]
    together = engine()
    live = [
        Live(id, adapter, prompt(tokens))
        for id, (adapter, tokens) in enumerate([(0, 5), (BASE_MODEL, 40), (2, 17)])
    ]
    together.prefill(live[:2], "mbgmv")
    together.prefill(live[2:], "mbgmv")
    found = [[one.last] for one in live]
    for _ in range(3):
        together.decode(live, "mbgmv")
        for one, tokens in zip(live, found, strict=True):
            tokens.append(one.last)
    assert found == alone


def test_adapters_change_what_is_said():
    assert len({tuple(said(adapter, "mbgmv", 20, 8)) for adapter in (BASE_MODEL, 0, 1, 2)}) == 4


def test_all_ways_of_multiplying_say_the_same():
    assert len({tuple(said(1, kernel, 20, 8)) for kernel in ways(CPU.torch)}) == 1


def test_an_unknown_kernel_is_named_with_those_that_there_are():
    adapters = Adapters(SHAPE, RANKS, torch.float32, CPU.torch)
    with pytest.raises(InputError, match="there is no kernel 'mbgm' on cpu; did you mean mbgmv"):
        adapters.decode("mbgm", [0])


# Attention

TYPES_AND_HEADS = pytest.mark.parametrize(
    ("dtype", "tolerance", "heads", "kv_heads"),
    [(torch.float32, 1e-5, 5, 1), (torch.float16, 2e-3, 4, 4), (torch.bfloat16, 1.6e-2, 8, 2)],
    ids=str,
)


@TYPES_AND_HEADS
def test_the_attention_kernel_agrees_with_torch(dtype, tolerance, heads, kv_heads):
    generator = torch.Generator().manual_seed(0)
    contexts = [1, PAGE_TOKENS, 257, 600]
    q = torch.randn(len(contexts), heads, 32, generator=generator).to(dtype)
    keys, values = (
        torch.randn(200, PAGE_TOKENS, kv_heads, 32, generator=generator).to(dtype) for _ in range(2)
    )
    table = torch.randperm(200, generator=generator)[: 4 * 40].reshape(4, 40).int()
    found = decode_attention(q, keys, values, table, torch.tensor(contexts, dtype=torch.int32), max(contexts))
    expected = decode_attention_in_torch(q, keys, values, table, contexts)
    torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance)


def test_the_attention_kernel_reads_nothing_beyond_a_context():
    keys = torch.full((4, PAGE_TOKENS, 1, 16), float("nan"))
    keys[2, :5] = 1.0
    table, contexts = torch.tensor([[2, 0]], dtype=torch.int32), torch.tensor([5], dtype=torch.int32)
    found = decode_attention(torch.ones(1, 1, 16), keys, keys.clone(), table, contexts, 5)
    torch.testing.assert_close(found, torch.ones(1, 1, 16))


def test_a_token_of_a_prompt_sees_only_its_own_prompt_and_what_was_before():
    q = torch.randn(7, 2, 16, generator=torch.Generator().manual_seed(1))
    whole = prefill_attention_in_torch(q, q, q, [4, 3])
    torch.testing.assert_close(whole[:4], prefill_attention_in_torch(q[:4], q[:4], q[:4], [4]))
    torch.testing.assert_close(whole[4:6], prefill_attention_in_torch(q[4:6], q[4:6], q[4:6], [2]))


@TYPES_AND_HEADS
def test_the_attention_of_all_prompts_in_one_launch_agrees_with_prompt_by_prompt(
    dtype, tolerance, heads, kv_heads
):
    generator = torch.Generator().manual_seed(0)
    lengths = [1, TILE_TOKENS, 3, 2 * TILE_TOKENS + 9]
    # The values are a view of a wider row, as in a layer, whose q, k and v are one product.
    q, k, wide = (
        torch.randn(sum(lengths), width, 16, generator=generator).to(dtype)
        for width in (heads, kv_heads, 2 * kv_heads)
    )
    v = wide[:, kv_heads:]
    found = prefill_attention(q, k, v, tiles(lengths, CPU.torch))
    torch.testing.assert_close(
        found, prefill_attention_in_torch(q, k, v, lengths), rtol=tolerance, atol=tolerance
    )


# The cache


def test_pages_are_owned_by_one_sequence_and_come_back():
    cache = KvCache(SHAPE, 5 * PAGE_TOKENS, torch.float32, CPU.torch)
    cache.grow(0, PAGE_TOKENS + 1)
    cache.grow(1, 3 * PAGE_TOKENS)
    owned = [*cache.table(0), *cache.table(1)]
    assert len(owned) == len(set(owned)) == 5
    with pytest.raises(InputError, match="a KV cache of 80 tokens is too small"):
        cache.grow(0, 2 * PAGE_TOKENS + 1)
    cache.drop(1)
    cache.grow(0, 2 * PAGE_TOKENS + 1)
    assert len(cache.table(0)) == 3


# Steps with buffers that stay ----------------------------------------------------------------


def padded_engine() -> Engine:
    """As on a GPU, but interpreted: Triton's attention, and steps of fixed sizes."""
    running = engine()
    running.model.in_triton = True
    running.graphs = Graphs(running.model, running.cache, running.adapters, captures=False)
    return running


@pytest.mark.parametrize(
    ("adapters", "kernel"),
    [
        ((BASE_MODEL,), "mbgmv"),
        ((0, BASE_MODEL, 2), "bgmv"),
        ((0, BASE_MODEL, 2), "mbgmv"),
    ],
)
def test_a_step_that_is_padded_to_a_size_says_what_it_does_alone(adapters, kernel, monkeypatch):
    """Three sequences in buffers for four, then two of them in buffers that held three."""
    monkeypatch.setattr("profiler.model.lora.ON_CPU", ON_GPU)
    found = []
    for running in (engine(), padded_engine()):
        live = [Live(id, adapter, prompt(PAGE_TOKENS - 1 + id)) for id, adapter in enumerate(adapters)]
        running.prefill(live, kernel)
        for _ in range(2):
            running.decode(live, kernel)
        if len(live) > 1:
            running.leave(live.pop(1))
        running.decode(live, kernel)
        found.append([(one.id, one.context, one.last) for one in live])
    assert found[0] == found[1]


def test_padding_writes_into_its_own_page_alone():
    running = padded_engine()
    live = [Live(id, BASE_MODEL, prompt(10)) for id in range(4)]
    running.prefill(live, "")
    running.decode(live, "")
    running.leave(live.pop())  # whose row is padding from now on
    before = running.cache.keys.clone()
    running.decode(live, "")
    changed = (running.cache.keys != before).any(dim=(0, 3, 4)).nonzero().tolist()
    mine = {(running.cache.table(one.id)[0], 11) for one in live}
    of_padding = running.cache.table(PADDING)[0]
    assert {tuple(place) for place in changed} - {(of_padding, 0)} == mine


def test_an_engine_that_is_warm_has_recorded_every_step_that_a_trace_needs():
    running = padded_engine()
    running.warm("mbgmv", most_sequences=3, most_tokens=200)
    recorded = set(running.graphs._steps)
    live = [Live(id, adapter, prompt(90 + 50 * id)) for id, adapter in enumerate((BASE_MODEL, 2, 0))]
    for one in live:
        running.enter(one)
    for batch in (live[:1], live[:2], live):
        running.graphs.decode(running._batch(batch), "mbgmv", [one.adapter for one in batch])
    assert set(running.graphs._steps) == recorded
