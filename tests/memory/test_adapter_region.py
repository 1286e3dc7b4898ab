"""Adapters outside the pool: what a change of one buffer takes at its peak, and what padded copies take.

An adapter of s slots is s cells of half a slot in A's buffer and as many in B's. A buffer of n cells that
grows by m takes 3n + 4m cells at its peak, one that shrinks to l takes 2n + 3l (both worked out below).
"""

from __future__ import annotations

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


def request(adapter: Adapter | None) -> Request:
    return Request(0, adapter, 0.0, 10, 10)


def fits(region: AdapterRegion, *adapters: Adapter | None, running: tuple[Adapter | None, ...] = ()) -> bool:
    """Whether the last of some candidates fits beside the others, all of them with adapters to be loaded."""
    region.begin([request(adapter) for adapter in running])
    return [region.fits(request(adapter), fresh=True) for adapter in adapters][-1]


def loaded(kind: type[AdapterRegion], capacity: int, *adapters: Adapter) -> AdapterRegion:
    """A region into which these adapters were loaded one by one."""
    region = kind(capacity)
    for one in adapters:
        assert fits(region, one)
        region.load([one])
    return region


def test_the_unified_pool_has_no_region() -> None:
    assert adapter_region("unified", 0) is None
    assert isinstance(adapter_region("contiguous", 8), Contiguous)
    assert isinstance(adapter_region("padded", 8), PaddedAdapters)


# One contiguous buffer


@pytest.mark.parametrize("capacity, fit", [(7, False), (8, True)])
def test_the_first_load_takes_twice_its_size(capacity: int, fit: bool) -> None:
    """Empty tensors 4 + 4, then A of 4 and B of 4: 16 cells, 8 slots for an adapter of 4."""
    assert fits(Contiguous(capacity), A) is fit


@pytest.mark.parametrize("capacity, fit", [(13, False), (14, True)])
def test_a_load_takes_old_and_new_buffers_and_empty_tensors_at_the_same_time(
    capacity: int, fit: bool
) -> None:
    """Old A and B 4 + 4, empty tensors 4 + 4, new A of 8 (old A goes), new B of 8: 28 cells at the end."""
    region = loaded(Contiguous, capacity, A)
    assert fits(region, B) is fit
    assert region.refusals == (not fit)


@pytest.mark.parametrize("capacity, fit", [(15, False), (16, True)])
def test_adapters_that_start_together_are_loaded_together(capacity: int, fit: bool) -> None:
    """Empty tensors 8 + 8, A of 8, B of 8: 32 cells."""
    assert fits(Contiguous(capacity), A, B) is fit


def test_a_refused_candidate_leaves_no_trace_in_the_trial() -> None:
    region = Contiguous(12)
    assert fits(region, A)
    assert not region.fits(request(WIDE), fresh=True)
    assert not region.fits(request(B), fresh=True), "that would be 16"
    assert region.fits(request(A), fresh=True), "it is counted once"
    assert region.refusals == 2
    assert region.used_tokens == 0, "a trial loads nothing"


def test_what_is_there_or_has_no_adapter_always_fits() -> None:
    region = loaded(Contiguous, 8, A)
    region.begin(())
    assert region.fits(request(A), fresh=False)
    assert region.fits(request(None), fresh=False)
    assert not region.fits(request(B), fresh=True)


def peak_of_a_drop(kept: int) -> int:
    """The least capacity, in slots, with which three adapters of 4 can be gathered to `kept` of them."""
    for capacity in range(20, 40):
        region = loaded(Contiguous, capacity, A, B, C)
        region.drop([A, B, C][kept:])
        if region.used_tokens == 4 * kept:
            return capacity
    raise AssertionError("never")


def test_a_compaction_takes_the_old_buffer_and_one_and_a_half_times_the_new() -> None:
    """Old A and B 12 + 12, empty tensors l + l, A of l (one tensor goes), B of l: 24 + 3l cells.

    With l near 12 that is 2.5 times the adapters' own size.
    """
    assert peak_of_a_drop(kept=2) == (24 + 3 * 8) // 2


@pytest.mark.parametrize("capacity, used", [(23, 12), (24, 8)])
def test_a_compaction_for_which_there_is_no_room_leaves_the_buffer_with_holes(
    capacity: int, used: int
) -> None:
    region = loaded(Contiguous, capacity, A, B, C)
    region.drop([C])
    assert region.used_tokens == used


def test_holes_stay_counted_until_the_next_compaction_that_fits() -> None:
    region = loaded(Contiguous, 23, A, B, C)
    region.drop([C])
    assert not fits(region, C), "3 * 12 + 4 * 4 = 52 cells beside the holes; 40 without them"
    region.drop([B])
    assert region.used_tokens == 4, "24 + 3 * 4 = 36 cells"
    assert fits(region, C)


def test_the_last_adapter_to_leave_takes_no_room_to_do_so() -> None:
    region = loaded(Contiguous, 8, A)
    region.drop([A])
    assert (region.used_tokens, region.largest_free_tokens) == (0, 8)


@pytest.mark.parametrize("capacity, flushes", [(14, 1), (15, 1), (16, 0), (100, 0)])
def test_where_no_run_is_long_enough_but_enough_is_free_memory_is_flushed(
    capacity: int, flushes: int
) -> None:
    """The first load leaves A and B at cells 8 to 16. The empty tensors of the second take 0 to 8, new A 16 to
    24, and for new B there are 8 cells behind it, or else 4 between and 4 or 6 behind.
    """
    region = loaded(Contiguous, capacity, A)
    assert (region.flushes, region.largest_free_tokens) == (0, (2 * capacity - 16) // 2)
    region.load([B])
    assert region.flushes == flushes
    assert region.used_tokens == 8


def test_a_trial_pays_for_no_flush() -> None:
    region = loaded(Contiguous, 14, A)
    assert fits(region, B)
    assert region.flushes == 0


def test_loading_nothing_changes_nothing() -> None:
    region = loaded(Contiguous, 8, A)
    region.load([])
    assert (region.used_tokens, region.flushes) == (4, 0)


@given(
    st.integers(8, 120),
    st.lists(st.tuples(st.booleans(), st.sets(st.integers(0, 5), min_size=1)), max_size=30),
)
def test_what_was_found_to_fit_can_be_loaded_and_what_leaves_gives_everything_back(
    capacity: int, steps: list[tuple[bool, set[int]]]
) -> None:
    adapters = [adapter(id, slots=4 << id % 3) for id in range(6)]
    region, live = Contiguous(capacity), set()
    for comes, ids in steps:
        if comes:
            region.begin(())
            found = [
                adapters[id] for id in sorted(ids - live) if region.fits(request(adapters[id]), fresh=True)
            ]
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


@pytest.mark.parametrize("slots, fit", [(27, False), (28, True)])
def test_beside_the_adapters_there_is_a_padded_copy_for_each_stretch_of_equal_ones(
    slots: int, fit: bool
) -> None:
    """A and WIDE take 12; the batch A A WIDE has two stretches, each as wide as the widest: 16."""
    region = loaded(PaddedAdapters, 100, A, WIDE)
    region.capacity = slots
    region.begin([request(one) for one in (A, A)])
    assert region.fits(request(WIDE), fresh=False) is fit
    assert region.refusals == (not fit)


def test_an_adapter_that_comes_back_after_another_is_a_stretch_of_its_own() -> None:
    region = loaded(PaddedAdapters, 100, A, B)
    region.capacity = 8 + 3 * 4
    assert fits_of_those_there(region, A, running=(A, B))
    region.capacity -= 1
    assert not fits_of_those_there(region, A, running=(A, B))
    assert fits_of_those_there(region, B, running=(A, B)), "it goes on with the last stretch"


def fits_of_those_there(
    region: PaddedAdapters, adapter: Adapter, running: tuple[Adapter | None, ...]
) -> bool:
    region.begin([request(one) for one in running])
    return region.fits(request(adapter), fresh=False)


def test_a_request_for_the_base_model_neither_needs_a_copy_nor_ends_a_stretch() -> None:
    region = loaded(PaddedAdapters, 100, A)
    region.capacity = 4 + 4
    assert fits_of_those_there(region, A, running=(A, None, A, None))
    assert fits(region, None, running=(A,))


def test_a_wide_adapter_widens_the_copies_of_all_stretches() -> None:
    region = loaded(PaddedAdapters, 100, A, B)
    region.capacity = 16 + 3 * 8
    assert fits(region, WIDE, running=(A, B))
    region.capacity -= 1
    assert not fits(region, WIDE, running=(A, B))


def test_a_missing_adapter_is_counted_once_and_with_its_copy() -> None:
    assert fits(PaddedAdapters(8), A, A)
    assert not fits(PaddedAdapters(7), A)


def test_a_refused_candidate_is_no_stretch() -> None:
    region = PaddedAdapters(16)
    region.begin(())
    assert region.fits(request(A), fresh=True)
    assert not region.fits(request(WIDE), fresh=True), "12 + 2 * 8"
    assert region.fits(request(A), fresh=True), "still the first stretch"
    assert region.fits(request(B), fresh=True), "8 + 2 * 4"
    assert region.refusals == 1


def test_free_slots_are_always_in_a_row() -> None:
    region = loaded(PaddedAdapters, 40, A, B, WIDE)
    region.drop([B])
    assert (region.used_tokens, region.largest_free_tokens, region.flushes) == (12, 28, 0)
