"""S-LoRA's generator, number for number."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

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
    names = ("arrival_s", "adapter", "prompt_tokens", "output_tokens")
    return list(zip(*(getattr(trace, name).tolist() for name in names), strict=True))


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


def test_the_tokenizer_s_own_token_comes_on_top():
    plain, longer = SLora().build(0), SLora(bos_tokens=1).build(0)
    assert np.array_equal(longer.prompt_tokens, plain.prompt_tokens + 1)
    assert np.array_equal(longer.output_tokens, plain.output_tokens)
