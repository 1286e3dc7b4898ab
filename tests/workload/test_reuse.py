"""Ideal reuse: what a cache that never forgets would find of a trace."""

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simlora.core.errors import InputError
from simlora.core.trace import BASE_MODEL, AdapterSpec, Trace
from simlora.workload.conversations import Conversations
from simlora.workload.lengths import Fixed, Geometric, Uniform
from simlora.workload.mooncake import Mooncake
from simlora.workload.popularity import Uniform as Even
from simlora.workload.reuse import Reuse, ideal_reuse

PUBLISHED = Path(os.environ.get("SIMLORA_TRACE_DIR", "../shared/traces")) / "mooncake_conversation.jsonl"


def trace(prompts, outputs=None, adapters=None, session=None, hashes=None, block_tokens=4):
    """Return a trace of requests one after the other."""
    n = len(prompts)
    outputs = np.array(outputs or [1] * n)
    return Trace(
        arrival_s=np.arange(n, dtype=np.float64),
        adapter=np.array(adapters or [0] * n),
        prompt_tokens=np.array(prompts),
        output_tokens=outputs,
        max_output_tokens=outputs,
        adapters=(AdapterSpec("a", 8), AdapterSpec("b", 8)),
        session=session,
        block_hashes=hashes,
        hash_block_tokens=block_tokens,
    )


SAME = [(1, 2, 3)] * 4
BOTH = ["s", "s"]
FOUND = {
    "its first blocks": ({"hashes": [(1, 2, 3, 4), (1, 2, 5, 6), (1, 2, 5, 7)]}, [13, 14, 13], 0 + 2 + 3),
    "nothing behind a block that is new": ({"hashes": [(1, 2, 3), (4, 2, 5)]}, [9, 9], 0),
    # Of 10 tokens the third block is a half; a prompt with all of it has a block of another hash, or should have.
    "no block that is a part": ({"hashes": [(1, 2, 3), (1, 2, 3, 4, 5)]}, [10, 20], 2),
    "all but one token, which is computed": ({"hashes": [(1, 2), (1, 2), (1, 2, 3)]}, [8, 8, 9], 0 + 1 + 2),
    "no answers, which have no hashes": ({"outputs": [100, 1], "hashes": [(1,), (1, 2, 3)]}, [4, 9], 1),
    "KV of the same adapter": ({"adapters": [0, 0, 0, 0], "hashes": SAME}, [9] * 4, 6),
    "no KV of another adapter": ({"adapters": [0, 1, BASE_MODEL, 1], "hashes": SAME}, [9] * 4, 2),
    # 5 of the second prompt's 20 tokens are new; of 15 before 14 have KV: three blocks of four.
    "all of the turn before but its last token": ({"outputs": [5, 1], "session": BOTH}, [10, 20], 3),
    "and of one more block": ({"outputs": [7, 1], "session": BOTH}, [10, 20], 4),
    "no more than is asked for": ({"outputs": [90, 1, 1], "session": ["s"] * 3}, [10, 10, 30], 2 + 7),
    "nothing of another session": ({"session": ["s", "t"]}, [9, 9], 0),
    "nothing of a session with another adapter": ({"session": BOTH, "adapters": [0, 1]}, [9, 9], 0),
    "a session around a request that has none": ({"session": ["s", None, "s"]}, [9, 9, 9], 2),
    "nothing of no session without hashes": ({}, [9, 9], 0),
    "hashes where there are some": ({"session": [None] * 3, "hashes": [(), (1, 2), (1, 2)]}, [9, 9, 9], 2),
    "hashes before sessions": ({"session": BOTH, "hashes": [(1, 2), (3, 4)]}, [9, 9], 0),
}


@pytest.mark.parametrize("name", FOUND)
def test_a_prompt_finds(name):
    more, prompts, blocks = FOUND[name]
    assert ideal_reuse(trace(prompts, **more)).found_blocks == blocks


# Shares --------------------------------------------------------------------------------------


def test_shares_are_of_tokens_and_of_blocks():
    reuse = ideal_reuse(trace([13, 14], hashes=[(1, 2, 3, 4), (1, 2, 5, 6)]))
    assert reuse == Reuse(found_blocks=2, blocks=8, prompt_tokens=27, block_tokens=4)
    assert (reuse.found_tokens, reuse.of_tokens, reuse.of_blocks) == (8, 8 / 27, 2 / 8)


def test_of_nothing_nothing_is_found():
    reuse = ideal_reuse(trace([]))
    assert (reuse.of_tokens, reuse.of_blocks) == (0, 0)


def test_blocks_of_sessions_are_of_any_size_but_hashes_say_theirs():
    sessions = trace([10, 20], outputs=[5, 1], session=["s", "s"])
    assert [ideal_reuse(sessions, size).found_tokens for size in (1, 2, 5, 8, 16)] == [14, 14, 10, 8, 0]
    hashed = trace([9, 9], hashes=[(1, 2), (1, 2)])
    assert ideal_reuse(hashed, 16) == ideal_reuse(hashed)
    with pytest.raises(InputError, match="block_tokens is 0, must be a whole number of tokens, at least 1"):
        ideal_reuse(sessions, 0)


requests = st.tuples(
    st.integers(1, 30), st.integers(1, 9), st.integers(-1, 1), st.sampled_from(["s", "t", None])
)


@given(st.lists(requests, min_size=1, max_size=20))
def test_less_is_found_in_larger_blocks_and_never_a_whole_prompt(rows):
    prompts, outputs, adapters, session = map(list, zip(*rows, strict=True))
    turns = trace(prompts, outputs, adapters, session)
    by_token, by_two, by_four = (ideal_reuse(turns, size) for size in (1, 2, 4))
    assert by_four.found_tokens <= by_two.found_tokens <= by_token.found_tokens
    assert by_token.found_tokens <= by_token.prompt_tokens - len(rows)
    alone = replace(turns, session=[f"s{i}" for i in range(len(rows))])
    assert ideal_reuse(alone).found_blocks == 0


@given(st.lists(requests, min_size=1, max_size=20))
def test_hashes_find_what_sessions_without_answers_find(rows):
    """Prompts of a session are beginnings of one long text here, of which a block's hash is its session and number."""
    prompts, outputs, adapters, session = map(list, zip(*rows, strict=True))
    hashes = [
        tuple(1000 * ord(own) + i for i in range(-(-prompt // 4))) if own else ()
        for own, prompt in zip(session, prompts, strict=True)
    ]
    by_hash = ideal_reuse(trace(prompts, outputs, adapters, hashes=hashes))
    by_session = ideal_reuse(trace(prompts, None, adapters, session))
    assert by_hash == by_session


# Workloads -----------------------------------------------------------------------------------


def test_conversations_of_one_turn_find_nothing_and_of_many_almost_all():
    talk = Conversations(Uniform(8, 100), Uniform(20, 300), Fixed(1), Even(), context_tokens=None)
    assert ideal_reuse(talk.build(1)).found_blocks == 0
    shares = [ideal_reuse(replace(talk, turns=Geometric(mean)).build(1)).of_tokens for mean in (2, 5, 20)]
    assert shares == sorted(shares)
    assert (shares[0] > 0.5, shares[2] > 0.9) == (True, True)


@pytest.mark.skipif(not PUBLISHED.exists(), reason="the published trace is not here; set SIMLORA_TRACE_DIR")
def test_of_the_published_conversations_36_6_per_cent_of_the_blocks_come_again():
    reuse = ideal_reuse(Mooncake(str(PUBLISHED), Even(), adapters=0).build(0))
    assert reuse == Reuse(found_blocks=105_592, blocks=288_500, prompt_tokens=144_793_823, block_tokens=512)
    assert reuse.of_tokens == pytest.approx(0.3734, abs=5e-5)
    assert reuse.of_blocks == pytest.approx(0.3660, abs=5e-5)
