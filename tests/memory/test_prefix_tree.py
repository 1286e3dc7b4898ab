"""PrefixTree on its own: blocks of four tokens; request i comes and goes at second i."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simlora.core.adapter import Adapter
from simlora.core.request import Request
from simlora.memory.prefix_tree import Branch, PrefixTree, Segment

A, B = Adapter(0, "a", 8, 512, 32), Adapter(1, "b", 8, 512, 32)


def request(
    id: int, *hashes: int, prompt: int = 0, adapter: Adapter | None = A, session: str | None = None
) -> Request:
    """A request whose prompt is its blocks and one token, if nothing else is said."""
    return Request(id, adapter, 0.0, prompt or 4 * len(hashes) + 1, 10, session, hashes)


def started(cache: PrefixTree, new: Request, now_s: float = 0.0) -> int:
    """Start a request as the engine does; return the tokens found."""
    new.cached_tokens = sum(map(cache.size, cache.found(new)))
    cache.hold(new, now_s)
    return new.cached_tokens


def served(cache: PrefixTree, new: Request, output_tokens: int = 1, now_s: float | None = None) -> int:
    """Start a request, prefill it, let it go; return the tokens found."""
    now_s = float(new.id) if now_s is None else now_s
    found = started(cache, new, now_s)
    cache.add(new, new.prompt_tokens, now_s)
    cache.add(new, new.prompt_tokens + output_tokens - 1, now_s)
    cache.leave(new, now_s)
    return found


def blocks(cache: PrefixTree, resident: bool = True) -> set[tuple[int, ...]]:
    """All blocks that are there, each by the blocks until it, behind the number of the adapter."""
    return {path for path, segment in walk(cache) if segment.resident == resident}


def walk(cache: PrefixTree) -> Iterator[tuple[tuple[int, ...], Segment]]:
    def below(node: Branch | Segment, path: tuple[int, ...]) -> Iterator[tuple[tuple[int, ...], Segment]]:
        for segment in node.children.values():
            for end in range(1, len(segment.blocks) + 1):
                yield path + tuple(segment.blocks[:end]), segment
            yield from below(segment, path + tuple(segment.blocks))

    for branch in cache._branches.values():
        yield from below(branch, (branch.adapter_id,))


@pytest.fixture
def cache() -> PrefixTree:
    return PrefixTree(4)


def test_what_was_prefilled_is_found_as_far_as_the_blocks_are_the_same(cache: PrefixTree) -> None:
    assert served(cache, request(0, 1, 2, 3)) == 0
    assert served(cache, request(1, 1, 2, 4)) == 8
    assert served(cache, request(2, 1, 2, 4)) == 12
    assert served(cache, request(3, 7, 2, 4)) == 0, "no block counts behind another first one"


def test_kv_of_one_adapter_is_never_found_by_another_nor_by_the_base_model(cache: PrefixTree) -> None:
    served(cache, request(0, 1, 2))
    assert served(cache, request(1, 1, 2, adapter=B)) == 0
    assert served(cache, request(2, 1, 2, adapter=None)) == 0
    assert served(cache, request(3, 1, 2, adapter=None)) == 8


def test_nothing_is_found_before_its_request_is_prefilled(cache: PrefixTree) -> None:
    first = request(0, 1, 2)
    started(cache, first)
    assert cache.found(request(1, 1, 2)) == []
    cache.add(first, first.prompt_tokens, 0.0)
    assert sum(map(cache.size, cache.found(request(1, 1, 2)))) == 8


def test_one_token_at_least_is_left_to_prefill(cache: PrefixTree) -> None:
    served(cache, request(0, 1, 2, prompt=8))
    assert served(cache, request(1, 1, 2, prompt=8)) == 4
    assert served(cache, request(2, 1, 2, prompt=9)) == 8


def test_the_last_part_of_a_prompt_that_fills_no_block_is_not_kept(cache: PrefixTree) -> None:
    served(cache, request(0, 1, 2, 3, prompt=11), output_tokens=9)
    assert cache.tokens == 8, "its output would fill the block, but with what nobody's hash names"


def test_blocks_without_hashes_at_the_end_of_a_prompt_are_its_own(cache: PrefixTree) -> None:
    served(cache, request(0, 1, prompt=40))
    assert cache.tokens == 4


def test_a_session_goes_on_with_all_that_was_said_in_it(cache: PrefixTree) -> None:
    assert served(cache, request(0, prompt=6, session="s"), output_tokens=7) == 0
    assert cache.tokens == 12, "prompt and output, but the last token, whose KV was never computed"
    assert served(cache, request(1, prompt=20, session="s")) == 12
    assert served(cache, request(2, prompt=20, session="t")) == 0, "another session"
    assert served(cache, request(3, prompt=20, session="s", adapter=B)) == 0, "another adapter"
    assert served(cache, request(4, prompt=10, session="s")) == 8, "a session that begins anew further back"


def test_a_request_of_no_session_and_without_hashes_shares_nothing(cache: PrefixTree) -> None:
    served(cache, request(0, prompt=20))
    assert cache.tokens == 0
    assert served(cache, request(1, prompt=20)) == 0


def test_blocks_that_two_requests_brought_at_once_are_one(cache: PrefixTree) -> None:
    one, other = request(0, 1, 2), request(1, 1, 2)
    for new in (one, other):
        started(cache, new)
    for new in (one, other):
        cache.add(new, new.prompt_tokens, 0.0)
        assert cache.shared_tokens(new) == 8
    assert cache.tokens == cache.held_tokens == 8


def test_held_blocks_are_not_evicted(cache: PrefixTree) -> None:
    first = request(0, 1, 2)
    started(cache, first)
    cache.add(first, first.prompt_tokens, 0.0)
    served(cache, request(1, 1, 2, 3))
    assert (cache.tokens, cache.held_tokens) == (12, 8)
    cache.evict(1000, 9.0)
    assert (cache.tokens, cache.held_tokens) == (8, 8)
    cache.leave(first, 2.0)
    assert (cache.tokens, cache.held_tokens) == (8, 0)
    cache.evict(1000, 9.0)
    assert cache.tokens == 0


def test_what_was_used_longest_ago_goes_first_and_its_last_block_before_its_first(cache: PrefixTree) -> None:
    served(cache, request(0, 1, 2))
    served(cache, request(1, 5, 6))
    served(cache, request(2, 1))  # uses the first block of the oldest again
    gone = []
    for _ in range(4):
        before = blocks(cache)
        cache.evict(1, 9.0)
        gone += [path[-1] for path in before - blocks(cache)]
    assert gone == [2, 6, 5, 1]


def test_whole_blocks_are_evicted(cache: PrefixTree) -> None:
    served(cache, request(0, 1, 2, 3))
    cache.evict(5, 9.0)
    assert cache.tokens == 4
    cache.evict(0, 9.0)
    assert cache.tokens == 4


def test_what_was_promised_has_to_be_there(cache: PrefixTree) -> None:
    new = request(0, 1, 2)
    new.cached_tokens = 8
    with pytest.raises(AssertionError, match="request 0 counts on cached KV that has gone"):
        cache.hold(new, 0.0)


@given(
    st.lists(
        st.tuples(
            st.integers(0, 1),
            st.lists(st.integers(0, 2), max_size=5),
            st.integers(0, 3),
            st.integers(0, 12),
        ),
        max_size=30,
    )
)
def test_a_request_finds_the_longest_prefix_that_is_there(
    plan: list[tuple[int, list[int], int, int]],
) -> None:
    """Against plain sets of prefixes, with the evictions that really happened."""
    cache, prefixes = PrefixTree(4), set()
    for id, (adapter, path, unhashed, evicted) in enumerate(plan):
        hashes = [hash(tuple(path[: i + 1])) for i in range(len(path))]
        new = request(id, *hashes, prompt=4 * len(path) + unhashed + 1, adapter=(A, B)[adapter])
        longest = max(n for n in range(len(path) + 1) if n == 0 or (adapter, *hashes[:n]) in prefixes)
        assert served(cache, new) == 4 * longest
        prefixes |= {(adapter, *hashes[:n]) for n in range(1, len(path) + 1)}
        assert cache.tokens == 4 * len(prefixes)
        cache.evict(evicted, float(id))
        prefixes = blocks(cache)
        assert all(len(path) == 2 or path[:-1] in prefixes for path in prefixes), (
            "a block without those before it"
        )
