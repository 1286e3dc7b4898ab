"""Conversations: what their turns carry along, when they come, how many of them, and for which adapter."""

import math
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simlora.core import libm
from simlora.core.errors import InputError
from simlora.workload.arrivals import Gamma
from simlora.workload.lengths import Fixed, Geometric, Lengths, Uniform
from simlora.workload.popularity import Explicit, InTurn, Popularity
from simlora.workload.turns import Talk
from tests.workload.test_every_workload import WORKLOADS

PLAIN = WORKLOADS["conversations"]
BUSY = replace(PLAIN, rate_rps=40.0)


@dataclass(frozen=True)
class Given(Lengths):
    """Lengths from a list, in order."""

    values: tuple[int, ...]

    def draw(self, rng, n):
        return np.array(self.values[:n], dtype=np.int64)


def by_session(trace):
    """Return the positions of each session's requests, in order, by its name."""
    sessions = {}
    for i, name in enumerate(trace.session):
        sessions.setdefault(name, []).append(i)
    return sessions


def begins(workload):
    """Return a trace of such conversations with lengths that tell first turns, and which they are [requests]."""
    lengths = {"first_tokens": Fixed(10**6), "prompt_tokens": Fixed(1), "output_tokens": Fixed(1)}
    trace = replace(workload, **lengths).build(1)
    return trace, trace.prompt_tokens == 10**6 + 1


# What a turn carries along -------------------------------------------------------------------

TALK = Talk(
    turns=Given((3, 1, 2)),
    gaps=Gamma(0.1, 0.0),
    first_tokens=None,
    messages=Given((1, 2, 3, 4, 5, 6)),
    outputs=Given((10, 20, 30, 40, 50, 60)),
    context_tokens=None,
)


def spoken(talk=TALK, n=3):
    return talk.draw([np.random.default_rng(i) for i in range(5)], n)


def test_a_prompt_is_all_that_was_said_before_and_the_new_message_a_gap_after_the_turn_before():
    said = spoken()
    assert said.conversation.tolist() == [0, 0, 0, 1, 2, 2]
    assert said.prompts.tolist() == [1, 1 + 10 + 2, 1 + 10 + 2 + 20 + 3, 4, 5, 5 + 50 + 6]
    assert said.outputs.tolist() == [10, 20, 30, 40, 50, 60]
    assert said.after_s.tolist() == [0, 10, 20, 0, 0, 10]
    begun = spoken(replace(TALK, first_tokens=Given((1000, 2000, 3000))))
    assert begun.prompts.tolist() == [1001, 1013, 1036, 2004, 3005, 3061], "what comes first stays"


@pytest.mark.parametrize(
    "context_tokens, left",
    [
        (66, [(0, 1), (0, 13), (0, 36), (1, 4), (2, 5)]),  # 61 and an answer of 60 are too many
        (65, [(0, 1), (0, 13), (1, 4), (2, 5)]),
        (44, [(0, 1), (0, 13), (1, 4)]),  # the third one's first turn has 55, so that it never is
        (10, []),
    ],
)
def test_a_conversation_ends_before_the_turn_that_would_not_fit_with_its_answer(context_tokens, left):
    said = spoken(replace(TALK, context_tokens=context_tokens))
    assert list(zip(said.conversation.tolist(), said.prompts.tolist(), strict=True)) == left


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    turns=st.sampled_from([Fixed(1), Fixed(6), Geometric(2.5), Uniform(1, 12)]),
    first=st.sampled_from([None, Fixed(500), Uniform(1, 900)]),
    gap_cv=st.sampled_from([0.0, 1.0, 5.0]),
    context=st.sampled_from([None, 2048, 1100]),
    shape=st.sampled_from([None, [1, 3], [0, 1]]),
)
def test_sessions_are_conversations(seed, turns, first, gap_cv, context, shape):
    workload = replace(PLAIN, turns=turns, first_tokens=first, gap_cv=gap_cv, context_tokens=context)
    trace = replace(workload, duration_s=300.0, shape=shape).build(seed)
    assert 0 <= trace.arrival_s[0] <= trace.arrival_s[-1] < 300
    assert np.array_equal(trace.max_output_tokens, trace.output_tokens)
    if context is not None:
        assert (trace.prompt_tokens + trace.output_tokens).max() <= context
    for own in by_session(trace).values():
        assert len({int(trace.adapter[i]) for i in own}) == 1
        for before, i in pairwise(own):  # in the trace's order, so that arrivals do not go back
            new = trace.prompt_tokens[i] - trace.prompt_tokens[before] - trace.output_tokens[before]
            assert 8 <= new < 100


# When turns come -----------------------------------------------------------------------------


@pytest.mark.parametrize("gap_cv", [0.0, 1.0, 2.0])
def test_gaps_between_turns_have_that_mean_and_variation(gap_cv):
    """Of runs far longer than conversations, where no gap is cut by the end."""
    trace = replace(PLAIN, turns=Fixed(4), gap_s=5.0, gap_cv=gap_cv, duration_s=20_000.0).build(1)
    gaps_s = np.concatenate([np.diff(trace.arrival_s[own]) for own in by_session(trace).values()])
    n = len(gaps_s)
    assert n > 20_000
    assert gaps_s.mean() == pytest.approx(5, abs=4.5 * 5 * gap_cv / math.sqrt(n) + 1e-9)
    assert gaps_s.std() / 5 == pytest.approx(gap_cv, abs=6 * gap_cv * (1 + gap_cv) / math.sqrt(n) + 1e-9)


@pytest.mark.parametrize(
    "setting",
    [
        {},
        {"gap_s": 600.0, "gap_cv": 3.0},
        {"turns": Uniform(1, 30)},
        {"epochs": 5, "epoch_sigma_log": 2.0},
        {"shape": [1, 5, 2], "gap_s": 300.0},
        {"shape": [1, 4], "day_s": 2500.0, "gap_s": 500.0},
    ],
)
def test_the_mean_rate_is_what_was_asked_for(setting):
    found = [len(replace(PLAIN, **setting).build(seed)) for seed in range(25)]
    assert np.mean(found) == pytest.approx(1.6 * 1800, abs=4.5 * np.std(found) / math.sqrt(25))


def test_at_0_everything_is_under_way():
    """As many turns come in the first minutes as later, and they are as far into their conversations."""
    workload = replace(BUSY, rate_rps=20.0, gap_s=200.0, cv=3.0)
    counts, prompts = [], []
    for seed in range(20):
        trace = workload.build(seed)
        tenth = (trace.arrival_s // 180).astype(int)
        counts.append(np.bincount(tenth, minlength=10))
        prompts.append(np.bincount(tenth, trace.prompt_tokens, minlength=10) / counts[-1])
    for each in (np.array(counts), np.array(prompts)):
        error = each.std() / math.sqrt(20)
        assert np.all(np.abs(each.mean(axis=0) - each.mean()) < 4.5 * error)


def test_turns_before_0_are_not_there_but_known():
    trace, first = begins(replace(BUSY, turns=Fixed(20), gap_s=100.0))
    sessions = by_session(trace)
    later = [own[0] for own in sessions.values() if not first[own[0]]]
    assert len(later) / len(sessions) == pytest.approx(1900 / (1800 + 1900), abs=0.05)
    assert trace.arrival_s[later].max() < 1800
    assert set((trace.prompt_tokens[later] - 10**6 - 1) % 2) == {0}, "two tokens for every turn unseen"
    assert (trace.prompt_tokens[later] > 10**6 + 1).all()


def test_a_shape_is_that_of_beginnings():
    trace, first = begins(replace(BUSY, shape=[1, 0, 3], gap_s=100.0))
    found = np.histogram(trace.arrival_s[first], 3, (0, 1800))[0]
    assert found[1] == 0
    assert found[2] / found.sum() == pytest.approx(0.75, abs=0.02)
    late = np.histogram(trace.arrival_s[~first], 3, (0, 1800))[0]
    assert late[1] > 0.1 * late.sum(), "conversations go on after the last has begun"


# For which adapter ---------------------------------------------------------------------------


def test_conversations_come_by_popularity():
    trace = replace(BUSY, adapters=4, popularity=Explicit([4, 3, 0, 1]), turns=Fixed(1)).build(1)
    expected = len(trace) * np.array([0.5, 0.375, 0, 0.125])
    assert np.all(np.abs(np.bincount(trace.adapter, minlength=4) - expected) <= 4.5 * np.sqrt(expected))


def test_history_is_the_rate_of_each_adapter_in_the_long_run():
    trace = replace(PLAIN, adapters=3, popularity=Explicit([1, 1, 2]), epochs=4, epoch_sigma_log=2.0).build(1)
    assert trace.history_rps.tolist() == [0.4, 0.4, 0.8]


def in_epochs(workload, seed, epochs):
    """Return the shares of adapters in each of so many equal parts of the run [epochs, adapters]."""
    trace = workload.build(seed)
    part = (trace.arrival_s * epochs // workload.duration_s).astype(int)
    counts = [np.bincount(trace.adapter[part == i], minlength=workload.adapters) for i in range(epochs)]
    return np.array(counts) / np.sum(counts, axis=1, keepdims=True)


def test_in_every_epoch_popularity_is_multiplied_by_a_factor_of_its_own():
    steady = replace(BUSY, turns=Fixed(1), popularity=InTurn(), adapters=50, rate_rps=200.0)
    drifting = replace(steady, epochs=3, epoch_sigma_log=1.5)
    assert libm.log(in_epochs(steady, 1, 3) * 50).std() < 0.05
    logs = libm.log(in_epochs(drifting, 1, 3))
    assert logs.std(axis=1).mean() == pytest.approx(1.5, abs=0.25)
    apart = np.corrcoef(logs)[np.triu_indices(3, 1)]
    assert np.all(np.abs(apart) < 0.45)


def test_before_0_it_is_as_in_the_first_epoch():
    workload = replace(BUSY, turns=Fixed(10), gap_s=180.0, epochs=2, epoch_sigma_log=2.0, adapters=5)
    trace, first = begins(workload)
    names = np.array(trace.session)
    unseen = [own[0] for own in by_session(trace).values() if not first[own[0]]]
    early = first & (trace.arrival_s < 900)
    assert len(set(names[unseen])) > 1000
    for adapter in range(5):
        share = np.mean(trace.adapter[early] == adapter)
        error = math.sqrt(share / len(unseen)) + math.sqrt(share / early.sum())
        assert np.mean(trace.adapter[unseen] == adapter) == pytest.approx(share, abs=4.5 * error + 1e-3)


# What is refused -----------------------------------------------------------------------------


def test_a_popularity_of_one_s_own_must_say_how_popular_adapters_are():
    class Mine(Popularity):
        def draw(self, rng, adapters, n):
            return np.zeros(n, dtype=np.int64)

    with pytest.raises(InputError, match=r"Mine draws adapters and does not say .* a method"):
        replace(PLAIN, popularity=Mine())
