"""Adapters outside the pool: what a change of one buffer takes at its peak, and what padded copies take.

An adapter of s slots is s cells of half a slot in A's buffer and as many in B's. A buffer of n cells that
grows by m takes 3n + 4m cells at its peak, one that shrinks to l takes 2n + 3l (both worked out below).
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simlora.core.adapter import Adapter
from simlora.core.request import Request
from simlora.memory.adapter_region import AdapterRegion, Contiguous, PaddedAdapters, adapter_region


def adapter(id: int, slots: int = 4) -> Adapter:
    return Adapter(id, f"a{id}", slots // 4, 16 * slots, slots)


A, B, C = map(adapter, range(3))
WIDE = adapter(3, slots=8)
Batch = tuple[Adapter | None, ...]


def request(adapter: Adapter | None) -> Request:
    return Request(0, adapter, 0.0, 10, 10)


def fits(region: AdapterRegion, *adapters: Adapter | None, running: Batch = (), fresh: bool = True) -> bool:
    """Whether the last of some candidates fits beside the others, all of them with adapters to be loaded, or none."""
    region.begin([request(adapter) for adapter in running])
    return [region.fits(request(adapter), fresh=fresh) for adapter in adapters][-1]


def loaded(kind: type[AdapterRegion], capacity: int, *adapters: Adapter) -> AdapterRegion:
    """A region into which these adapters were loaded one by one."""
    region = kind(capacity)
    for one in adapters:
        assert fits(region, one)
        region.load([one])
    return region


def test_the_unified_pool_has_no_region():
    assert adapter_region("unified", 0) is None
    assert isinstance(adapter_region("contiguous", 8), Contiguous)
    assert isinstance(adapter_region("padded", 8), PaddedAdapters)


# One contiguous buffer


@pytest.mark.parametrize(
    "there, come, least",
    [((), (A,), 8), ((A,), (B,), 14), ((), (A, B), 16)],
    ids=[
        "the first: empty tensors 4 + 4, A 4, B 4",
        "28 cells in the end",
        "together: 8 + 8, A of 8, B of 8",
    ],
)
def test_a_load_takes_old_and_new_buffers_and_empty_tensors_at_the_same_time(there, come, least):
    """The second: old A and B 4 + 4, empty tensors 4 + 4, new A of 8 (old A goes), new B of 8."""
    for capacity in (least - 1, least):
        region = loaded(Contiguous, capacity, *there)
        assert fits(region, *come) == (capacity == least)
        assert region.refusals == (capacity < least)


def test_a_refused_candidate_leaves_no_trace_in_the_trial():
    region = Contiguous(12)
    assert fits(region, A)
    assert not region.fits(request(WIDE), fresh=True)
    assert not region.fits(request(B), fresh=True), "that would be 16"
    assert region.fits(request(A), fresh=True), "it is counted once"
    assert (region.refusals, region.used_tokens) == (2, 0), "a trial loads nothing"


def test_what_is_there_or_has_no_adapter_always_fits():
    region = loaded(Contiguous, 8, A)
    assert fits(region, A, fresh=False)
    assert fits(region, None, fresh=False)
    assert not fits(region, B)


@pytest.mark.parametrize("capacity, used", [(23, 12), (24, 8)])
def test_a_compaction_takes_the_old_buffer_and_one_and_a_half_times_the_new_or_leaves_holes(capacity, used):
    """Old A and B 12 + 12, empty tensors l + l, A of l (one tensor goes), B of l: 24 + 3l cells, l being 8."""
    region = loaded(Contiguous, capacity, A, B, C)
    region.drop([C])
    assert region.used_tokens == used


def test_holes_stay_counted_until_the_next_compaction_that_fits():
    region = loaded(Contiguous, 23, A, B, C)
    region.drop([C])
    assert not fits(region, C), "3 * 12 + 4 * 4 = 52 cells beside the holes; 40 without them"
    region.drop([B])
    assert region.used_tokens == 4, "24 + 3 * 4 = 36 cells"
    assert fits(region, C)


@pytest.mark.parametrize("capacity, flushes", [(14, 1), (15, 1), (16, 0), (100, 0)])
def test_where_no_run_is_long_enough_but_enough_is_free_memory_is_flushed(capacity, flushes):
    """The first load leaves A and B at cells 8 to 16. The empty tensors of the second take 0 to 8, new A 16 to
    24, and for new B there are 8 cells behind it, or else 4 between and 4 or 6 behind.
    """
    region = loaded(Contiguous, capacity, A)
    assert fits(region, B)
    assert (region.flushes, region.largest_free_tokens) == (0, (2 * capacity - 16) // 2), (
        "a trial pays nothing"
    )
    region.load([])
    assert (region.used_tokens, region.flushes) == (4, 0), "nor does loading nothing"
    region.load([B])
    assert (region.used_tokens, region.flushes) == (8, flushes)


STEPS = st.lists(st.tuples(st.booleans(), st.sets(st.integers(0, 5), min_size=1)), max_size=30)


@given(st.integers(8, 120), STEPS)
def test_what_was_found_to_fit_can_be_loaded_and_what_leaves_gives_everything_back(capacity, steps):
    adapters = [adapter(id, slots=4 << id % 3) for id in range(6)]
    region, live = Contiguous(capacity), set()
    for comes, ids in steps:
        if comes:
            region.begin(())
            missing = [adapters[id] for id in sorted(ids - live)]
            found = [one for one in missing if region.fits(request(one), fresh=True)]
            region.load(found)
            live |= {one.id for one in found}
        else:
            region.drop([adapters[id] for id in sorted(ids & live)])
            live -= ids
        own = sum(adapters[id].kv_tokens for id in live)
        assert own <= region.used_tokens <= capacity
        assert 0 <= region.largest_free_tokens <= capacity - region.used_tokens
    region.drop([adapters[id] for id in sorted(live)])
    assert (region.used_tokens, region.largest_free_tokens) == (0, capacity)


# Padded copies


@pytest.mark.parametrize(
    "there, running, comes, least",
    [
        ((A, WIDE), (A, A), WIDE, 12 + 2 * 8),  # each stretch of equal ones, as wide as the widest
        ((A, B), (A, B), A, 8 + 3 * 4),  # one that comes back is a stretch of its own
        ((A, B), (A, B), B, 8 + 2 * 4),  # one that goes on with the last is none
        ((A,), (A, None, A, None), A, 4 + 4),  # the base model ends no stretch
        ((A, B), (A, B), WIDE, 16 + 3 * 8),  # a wide one widens the copies of all
        ((), (), A, 4 + 4),  # a missing one with its copy
    ],
)
def test_beside_the_adapters_there_is_a_padded_copy_for_each_stretch(there, running, comes, least):
    fresh = comes not in there
    for capacity in (least - 1, least):
        region = loaded(PaddedAdapters, 100, *there)
        region.capacity = capacity
        assert fits(region, comes, running=running, fresh=fresh) == (capacity == least)
        assert region.refusals == (capacity < least)


def test_a_request_for_the_base_model_needs_no_copy():
    region = loaded(PaddedAdapters, 100, A)
    region.capacity = 4 + 4
    assert fits(region, None, running=(A,))


def test_a_refused_candidate_is_no_stretch():
    region = PaddedAdapters(16)
    assert fits(region, A)
    assert not region.fits(request(WIDE), fresh=True), "12 + 2 * 8"
    assert region.fits(request(A), fresh=True), "still the first stretch"
    assert region.fits(request(B), fresh=True), "8 + 2 * 4"
    assert region.refusals == 1


def test_free_slots_are_always_in_a_row():
    region = loaded(PaddedAdapters, 40, A, B, WIDE)
    region.drop([B])
    assert (region.used_tokens, region.largest_free_tokens, region.flushes) == (12, 28, 0)
