"""S-LoRA's generator, number for number."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simlora.core.errors import InputError
from simlora.core.trace import BASE_MODEL
from simlora.workload.slora import SLora


def recipe(seed, adapters, alpha, rate_rps, cv, duration_s, prompt, output):
    """The published recipe, a request at a time, in plain Python over one legacy generator."""
    legacy = np.random.RandomState(seed)
    n = int(rate_rps * duration_s)
    shares = [legacy.power(alpha) for _ in range(n)]
    prompts = [legacy.randint(*prompt) for _ in range(n)]
    outputs = [legacy.randint(*output) for _ in range(n)]
    rows, now_s = [], 0.0
    for share, prompt_tokens, output_tokens in zip(shares, prompts, outputs, strict=True):
        now_s += legacy.gamma(1 / (cv * cv), cv * cv / rate_rps)
        adapter = int(share * adapters) if adapters else BASE_MODEL
        rows.append((now_s, adapter, prompt_tokens, output_tokens))
    return rows


def columns(trace):
    return list(
        zip(
            trace.arrival_s.tolist(),
            trace.adapter.tolist(),
            trace.prompt_tokens.tolist(),
            trace.output_tokens.tolist(),
            strict=True,
        )
    )


def test_the_first_requests_of_the_published_default():
    trace = SLora().build(seed=7)
    assert len(trace) == 600
    assert columns(trace)[:3] == recipe(42, 200, 1.0, 2.0, 1.0, 300.0, (8, 512), (8, 512))[:3]
    # as an outside check, three numbers that any NumPy gives for np.random.seed(42); np.random.power(1, 600)
    assert trace.adapter[:3].tolist() == [74, 190, 146]


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    adapters=st.integers(0, 1000),
    alpha=st.sampled_from([0.1, 0.3, 0.6, 1, 1.0]),
    rate_rps=st.sampled_from([1, 1.5, 2, 2.5, 8]),
    cv=st.sampled_from([1, 2, 4, 6, 8]),
    duration_s=st.sampled_from([30, 60, 120.0]),
    hi=st.sampled_from([9, 512, 1024]),
)
def test_every_number_is_the_recipe_s(seed, adapters, alpha, rate_rps, cv, duration_s, hi):
    workload = SLora(adapters, alpha, rate_rps, cv, duration_s, (8, hi), (8, 512), seed=seed)
    assert columns(workload.build(0)) == recipe(
        seed, adapters, alpha, rate_rps, cv, duration_s, (8, hi), (8, 512)
    )


def test_the_run_s_seed_does_not_matter_unless_asked_for():
    fixed, free = SLora(), SLora(seed=None)
    assert columns(fixed.build(1)) == columns(fixed.build(2)) == columns(free.build(42))
    assert columns(free.build(1)) != columns(free.build(2))


def test_global_randomness_is_neither_used_nor_touched():
    before = np.random.get_state()[1].tolist()
    SLora().build(0)
    assert np.random.get_state()[1].tolist() == before


def test_ranks_go_round():
    trace = SLora(adapters=5, ranks=[64, 32, 16, 8]).build(0)
    assert [spec.rank for spec in trace.adapters] == [64, 32, 16, 8, 64]
    assert [spec.name for spec in trace.adapters][:2] == ["adapter_0", "adapter_1"]


def test_no_adapters_means_the_base_model_with_the_same_requests():
    with_lora, without = SLora(adapters=100).build(0), SLora(adapters=0).build(0)
    assert without.adapters == ()
    assert set(without.adapter.tolist()) == {BASE_MODEL}
    assert [row[0] for row in columns(without)] == [row[0] for row in columns(with_lora)]


def test_the_tokenizer_s_own_token_comes_on_top():
    plain, longer = SLora().build(0), SLora(bos_tokens=1).build(0)
    assert np.array_equal(longer.prompt_tokens, plain.prompt_tokens + 1)
    assert np.array_equal(longer.output_tokens, plain.output_tokens)


def test_the_output_length_is_declared_exactly():
    trace = SLora().build(0)
    assert np.array_equal(trace.max_output_tokens, trace.output_tokens)


def test_the_range_of_lengths_stops_short_of_its_end():
    trace = SLora(prompt_tokens=[8, 9], rate_rps=50).build(0)
    assert set(trace.prompt_tokens.tolist()) == {8}
    assert (trace.output_tokens.min(), trace.output_tokens.max()) == (8, 511)


@pytest.mark.parametrize(
    "setting, message",
    [
        ({"rate_rps": 0}, "workload.rate_rps is 0, must be greater than 0 requests per second"),
        ({"rate_rps": "fast"}, "workload.rate_rps is 'fast', must be a finite number greater than 0"),
        ({"rate_rps": True}, "workload.rate_rps is True"),
        ({"rate_rps": float("inf")}, "workload.rate_rps is inf"),
        ({"rate_rps": 1e300, "duration_s": 1e300}, "workload.rate_rps x workload.duration_s is inf"),
        ({"duration_s": -1}, "workload.duration_s is -1, must be greater than 0 seconds"),
        ({"duration_s": 0.1}, "workload.rate_rps x workload.duration_s is 0.2, must be at least 1"),
        ({"cv": 0}, "workload.cv is 0, must be at least 1e-06 and at most 1,000"),
        ({"alpha": 0}, "workload.alpha is 0, must be greater than 0"),
        ({"adapters": -1}, "workload.adapters is -1, must be a whole number of adapters, at least 0"),
        ({"adapters": 1.5}, "workload.adapters is 1.5"),
        ({"ranks": []}, r"workload.ranks is \[\], must be a list with at least one entry"),
        ({"ranks": 8}, r"workload.ranks is 8, must be a list .* such as \[64,32,16,8\]"),
        (
            {"ranks": [8, 0]},
            r"workload.ranks\[1\] is 0, must be a whole number, at least 1 and at most 1,024",
        ),
        ({"ranks": [10_000]}, r"workload.ranks\[0\] is 10000"),
        ({"prompt_tokens": [8]}, r"workload.prompt_tokens is \[8\], must be \[lo, hi\]"),
        ({"prompt_tokens": [0, 8]}, r"workload.prompt_tokens\[0\] is 0, must be a whole number of tokens"),
        ({"output_tokens": [8, 8]}, r"workload.output_tokens\[1\] is 8, .* at least 9"),
        ({"bos_tokens": -1}, "workload.bos_tokens is -1"),
        ({"seed": -1}, "workload.seed is -1"),
    ],
)
def test_a_setting_out_of_range_is_refused_by_its_key(setting, message):
    with pytest.raises(InputError, match=message):
        replace(SLora(), **setting)
