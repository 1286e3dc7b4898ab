"""PrefixTree in HBM alone: what goes first, where a segment is cut, when it grows, how often it was used.

What is found, held and evicted at all is held against sets in test_prefix_tree_and_host.py.
"""

import pytest

from simlora.memory.prefix_tree import PrefixTree
from tests.memory.trees import A, B, ByRule, blocks, request, running, segments, serve, served, started, walk


@pytest.fixture
def cache() -> PrefixTree:
    return PrefixTree(4)


def test_a_look_at_what_is_there_changes_nothing(cache):
    served(cache, request(0, 1, 2, 3))
    segments = cache.segments
    assert cache.matched_tokens(request(1, 1, 2, 7)) == 8
    assert cache.matched_tokens(request(2, 1, 2, 3, prompt=12)) == 8, "one token at least is left to prefill"
    assert cache.matched_tokens(request(3, 1, 2, 3, adapter=B)) == 0
    assert cache.segments == segments
    cache.evict(8, 1.0)
    assert cache.matched_tokens(request(4, 1, 2, 3)) == 4


def test_what_was_used_longest_ago_goes_first_and_its_last_block_before_its_first(cache):
    serve(cache, (1, 2), (5, 6), (1,))  # the last uses the first block of the oldest again
    gone = []
    for _ in range(4):
        before = blocks(cache)
        cache.evict(1, 9.0)
        gone += [path[-1] for path in before - blocks(cache)]
    assert gone == [2, 6, 5, 1]


@pytest.mark.parametrize("tokens", [4, 8, 16])
def test_small_evictions_take_what_a_large_one_takes(cache, tokens):
    served(cache, request(0, 1, 2, 3), now_s=1.0)
    served(cache, request(1, 5, 6, 7), now_s=1.0)  # last used at the same moment
    for _ in range(0, 16, tokens):
        cache.evict(tokens, 9.0)
    assert {path[1:] for path in blocks(cache)} == {(5,), (5, 6)}


# Segments -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "requests, cut",
    [
        ([(1, 2, 3)], [(1, 2, 3)]),  # what one brought
        ([(1, 2, 3), (1, 2, 7, 8)], [(1, 2), (3,), (7, 8)]),  # where another parts from it
        ([(1, 2, 3), (1,)], [(1,), (2, 3)]),  # where another ends
    ],
)
def test_a_segment_is_cut_where_requests_differ(cache, requests, cut):
    serve(cache, *requests)
    assert segments(cache) == [(blocks, True) for blocks in cut]
    assert cache.segments == len(cut)


# Growth -------------------------------------------------------------------------------------


def test_the_output_of_a_request_is_part_of_its_own_segment_and_found_without_a_cut(cache):
    served(cache, request(0, prompt=9, session="s"), output_tokens=8)
    assert segments(cache) == [((0, 1, 2, 3), True)]
    assert served(cache, request(1, prompt=17, session="s")) == 16
    assert segments(cache) == [((0, 1, 2, 3), True)]
    assert (cache.tokens, cache.held_tokens, cache.segments) == (16, 0, 1)


@pytest.mark.parametrize("has_gone", [True, False])
def test_a_segment_that_another_request_has_used_does_not_grow(cache, has_gone):
    """It is another's history: what comes behind is worth something else."""
    first, second = running(cache, request(0, prompt=9, session="s")), request(1, prompt=9, session="s")
    assert started(cache, second) == 8
    if has_gone:
        cache.leave(second, 1.0)
    cache.add(first, 16, 1.0)
    assert segments(cache) == [((0, 1), True), ((2, 3), True)]
    assert cache.tokens == cache.held_tokens == 16


def test_nor_does_one_behind_which_something_else_follows_or_that_was_held_before(cache):
    first = running(cache, request(0, prompt=9, session="s"))
    cache.claim_prefix(request(1, prompt=6, session="s"))  # where others would part, it is cut
    cache.add(first, 16, 1.0)
    assert segments(cache) == [((0,), True), ((1, 2, 3), True)]
    second = running(cache, request(2, prompt=21, session="s"))
    cache.add(second, 24, 1.0)
    assert segments(cache) == [((0,), True), ((1, 2, 3), True), ((4, 5), True)], "its own part does"


# Visits, and when something was used last ---------------------------------------------------


def visits(cache: PrefixTree, *hashes: int) -> list[int]:
    """How often each segment was used that such a request would find."""
    return [segment.visits for segment in cache.claim_prefix(request(9, *hashes))]


def test_every_request_that_holds_or_brings_a_segment_counts_as_a_visit_of_all_its_parts(cache):
    one, other = request(0, 1, 2), request(1, 1, 2)
    for new in (one, other):
        started(cache, new)
    for new in (one, other):
        cache.add(new, new.prompt_tokens, 0.0)
    assert visits(cache, 1, 2) == [2], "another has brought it meanwhile"
    started(cache, request(2, 1, 2))
    assert visits(cache, 1, 2) == [3]
    served(cache, request(3, 1, 7))
    assert visits(cache, 1, 2) == [4, 3]
    assert visits(cache, 1, 7) == [4, 1]


@pytest.mark.parametrize("used_when_found, found_s", [(False, 9.0), (True, 5.0)])
def test_what_is_found_is_used_then_or_until_its_request_ends(used_when_found, found_s):
    """And what a request brings until it ends, either way."""
    tree = PrefixTree(4, used_when_found=used_when_found)
    served(tree, request(1, 1, 2))
    longer = running(tree, request(2, 1, 2, 3), now_s=5.0)
    tree.leave(longer, 9.0)
    used_s = {path[1:]: segment.used_s for path, segment in walk(tree)}
    assert used_s == {(1,): found_s, (1, 2): found_s, (1, 2, 3): 9.0}


# Worth --------------------------------------------------------------------------------------


def test_what_is_worth_least_goes_first_whatever_its_last_use():
    """Here the larger: of two blocks, then of one. One more of a segment that is cut is worth less again."""
    cache = PrefixTree(4, worth=ByRule(lambda segment: -len(segment.blocks)))
    serve(cache, (7,), (1, 2, 3), (5, 6))
    cache.evict(4, 9.0)
    assert blocks(cache) == {(0, 7), (0, 1), (0, 1, 2), (0, 5), (0, 5, 6)}
    served(cache, request(3, 5), now_s=9.0)
    cache.evict(4, 9.0)
    assert (0, 1, 2) not in blocks(cache), "of the others, none has more than a block"


@pytest.mark.parametrize("now_s, left", [(1.0, 1), (9.0, 2)])
def test_worth_can_fade_as_time_goes_by(now_s, left):
    """Used a moment ago, the second loses its lead of a half; when that is long past, it has it again."""
    just_now = lambda segment, now: 1.0 if now == segment.used_s else 0.0  # noqa: E731
    cache = PrefixTree(4, worth=ByRule(lambda segment: 0.5 * segment.used_s, just_now, most_fade=1.0))
    serve(cache, (1,), (2,))
    cache.evict(4, now_s)
    assert blocks(cache) == {(0, left)}


# What never happens -------------------------------------------------------------------------


def test_what_was_promised_has_to_be_there_and_an_adapter_that_is_there_does_not_come(cache):
    new = request(0, 1, 2)
    new.cached_tokens = 8
    with pytest.raises(AssertionError, match="request 0 counts on cached KV that has gone"):
        cache.hold(new, 0.0)
    cache.adapter(A.id, True)
    with pytest.raises(AssertionError, match="adapter 0 comes or leaves twice"):
        cache.adapter(A.id, True)


def test_neither_what_is_in_use_leaves_nor_what_something_lies_behind(cache):
    running(cache, request(0, 1, 2))
    (segment,) = cache.claim_prefix(request(1, 1, 2))
    with pytest.raises(AssertionError, match="cached KV in use is evicted"):
        cache.take_out(segment, 1.0)
    served(cache, request(2, 5, 6))
    served(cache, request(3, 5, 7))
    first, _ = cache.claim_prefix(request(4, 5, 6))
    with pytest.raises(AssertionError, match="cached KV is evicted before what lies behind it"):
        cache.take_out(first, 1.0)


# KV that needs its adapter ------------------------------------------------------------------


def test_no_request_finds_kv_whose_adapter_is_not_there_if_it_is_needed():
    tree = PrefixTree(4, needs_adapter=True)
    tree.adapter(A.id, resident=True)
    assert [served(tree, request(id, 1, 2)) for id in (1, 2)] == [0, 8]
    tree.adapter(A.id, resident=False)
    assert served(tree, request(3, 1, 2)) == 0
    assert (tree.tokens, blocks(tree)) == (8, {(0, 1), (0, 1, 2)}), "what is prefilled anew is no second copy"
    tree.adapter(A.id, resident=True)
    assert served(tree, request(4, 1, 2)) == 8
    assert [served(tree, request(id, 1, 2, adapter=None)) for id in (5, 6)] == [0, 8], (
        "the base model is there"
    )


def test_what_lies_on_the_host_comes_back_with_a_request_that_prefills_it_anew():
    tree = PrefixTree(4, host_capacity_tokens=100, needs_adapter=True)
    tree.adapter(A.id, resident=True)
    served(tree, request(1, 1, 2))
    tree.evict(8, 2.0)
    tree.adapter(A.id, resident=False)
    assert (tree.tokens, tree.host_tokens) == (0, 8)
    assert served(tree, request(3, 1, 2)) == 0
    assert (tree.tokens, tree.host_tokens) == (8, 0)


def test_a_prompt_begins_on_the_host_where_blocks_but_for_its_last_token_lie_there_alone():
    tree = PrefixTree(4, host_capacity_tokens=100)
    served(tree, request(0, 1, 2, 3))
    assert not tree.begins_on_host(request(1, 1, 2, 3, prompt=13))
    tree.evict(4, 1.0)  # the third block
    assert tree.begins_on_host(request(2, 1, 2, 3, prompt=13))
    assert not tree.begins_on_host(request(3, 1, 2, 3, prompt=12)), "its last token is prefilled in any case"
    assert not tree.begins_on_host(request(4, 1, 2, 9))


@pytest.mark.parametrize("trials", [0, 1])
def test_a_trial_that_comes_again_does_not_decide_what_leaves_the_host(trials):
    """A waiting request begins with one block of three; these leave HBM in parts, and then the host is too small."""
    tree = PrefixTree(4, host_capacity_tokens=12)
    served(tree, request(0, 1, 2, 3))
    waiting = request(1, 1, 9)
    tree.claim_prefix(waiting)
    tree.evict(8, 1.0)
    tree.evict(4, 1.0)
    for _ in range(trials):
        tree.claim_prefix(waiting)
    served(tree, request(2, 5), now_s=2.0)
    tree.evict(4, 3.0)
    assert tree.known_tokens(waiting, 4) == 4
    assert tree.host_tokens == 8
