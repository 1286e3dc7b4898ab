"""KV outside of replicas, as a set of blocks of limited size."""

from hypothesis import given
from hypothesis import strategies as st

from simlora.memory.stored_prefixes import StoredPrefixes
from tests.memory.trees import A, B, request


def test_what_was_added_is_found_as_far_as_it_reaches_by_adapter():
    stored = StoredPrefixes(4, 1000)
    stored.add(request(0, 1, 2, 3), 12, 0.0)
    assert stored.tokens == 12
    assert stored.found_tokens(request(1, 1, 2, 4), 12) == 8
    assert stored.found_tokens(request(2, 1, 2, 3), 7) == 4, "whole blocks of the first seven tokens"
    assert stored.found_tokens(request(3, 1, 2, 3, adapter=B), 12) == 0
    assert stored.found_tokens(request(4, session="s"), 12) == 0


def test_a_sessions_answers_are_stored_too():
    stored = StoredPrefixes(4, 1000)
    stored.add(request(0, prompt=5, session="s"), 14, 0.0)
    assert stored.found_tokens(request(1, prompt=30, session="s"), 29) == 12


@given(st.lists(st.lists(st.integers(1, 3), min_size=1, max_size=4), max_size=20), st.integers(1, 6))
def test_it_is_full_before_it_drops_anything_and_has_what_came_last(prompts, blocks):
    """What is found of a prompt is a prefix of it, and the last prompt is there as far as there is room."""
    stored, known = StoredPrefixes(4, 4 * blocks), set[tuple[int, ...]]()
    for now, prompt in enumerate(prompts):
        path = [hash(tuple(prompt[: n + 1])) for n in range(len(prompt))]
        known |= {tuple(path[: n + 1]) for n in range(len(path))}
        one = request(now, *path, adapter=A)
        stored.add(one, 4 * len(path), float(now))
        assert stored.tokens <= 4 * blocks
        assert stored.tokens == 4 * min(len(known), blocks)
        assert stored.found_tokens(one, 4 * len(path)) == 4 * min(len(path), blocks)
