"""Arena: best fit over one address space, and what compacting it gives back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simlora.memory.arena import Arena, NoRun


def holes(*sizes: int) -> Arena:
    """An arena whose free runs have these sizes, in order of address, with a block of one cell behind each."""
    arena = Arena(sum(sizes) + len(sizes))
    free = []
    for size in sizes:
        free.append(arena.allocate(size))
        arena.allocate(1)
    for name in free:
        arena.free(name)
    return arena


def taken(arena: Arena) -> list[tuple[int, int]]:
    """(start, cells) of every block, by address."""
    return sorted(arena._blocks.values())


def start(arena: Arena, name: int) -> int:
    return arena._blocks[name][0]


def test_an_empty_arena_is_one_run() -> None:
    arena = Arena(10)
    assert (arena.free_cells, arena.largest_run) == (10, 10)
    assert start(arena, arena.allocate(10)) == 0
    assert (arena.free_cells, arena.largest_run) == (0, 0)


@pytest.mark.parametrize("cells, address", [(1, 7), (2, 7), (3, 10), (4, 0), (6, 0)])
def test_the_smallest_run_that_is_large_enough_is_taken_from_its_start(cells: int, address: int) -> None:
    arena = holes(6, 2, 3)
    assert start(arena, arena.allocate(cells)) == address


def test_of_equal_runs_the_one_with_the_lowest_address_is_taken() -> None:
    arena = holes(5, 3, 3, 3)
    assert [start(arena, arena.allocate(3)) for _ in range(3)] == [6, 10, 14]


def test_the_rest_of_a_run_stays_free() -> None:
    arena = holes(6, 2)
    arena.allocate(4)
    assert (arena.free_cells, arena.largest_run) == (4, 2)


def test_free_neighbours_make_one_run() -> None:
    arena = Arena(9)
    names = [arena.allocate(3) for _ in range(3)]
    arena.free(names[0])
    arena.free(names[2])
    assert arena.largest_run == 3
    arena.free(names[1])
    assert arena.largest_run == 9


def test_enough_free_cells_are_not_enough_when_they_are_not_in_a_row() -> None:
    arena = holes(2, 3)
    before = taken(arena)
    with pytest.raises(NoRun):
        arena.allocate(4)
    assert taken(arena) == before


def test_compacting_puts_all_blocks_back_to_back_in_the_same_order() -> None:
    arena = Arena(20)
    names = [arena.allocate(cells) for cells in (2, 3, 4, 5)]
    arena.free(names[0])
    arena.free(names[2])
    arena.compact()
    assert taken(arena) == [(0, 3), (3, 5)]
    assert start(arena, names[3]) == 3
    assert arena.largest_run == arena.free_cells == 12
    arena.free(names[1])
    assert taken(arena) == [(3, 5)], "a block keeps its name"


def test_a_copy_can_be_tried_without_a_trace() -> None:
    arena = Arena(10)
    kept = arena.allocate(4)
    twin = arena.copy()
    twin.allocate(6)
    twin.free(kept)
    assert taken(arena) == [(0, 4)]
    assert taken(twin) == [(4, 6)]


@given(st.lists(st.one_of(st.integers(1, 12), st.sampled_from(("free", "compact"))), max_size=60))
def test_blocks_never_overlap_and_free_and_used_cells_are_all_there_are(steps: list[int | str]) -> None:
    arena, names = Arena(40), []
    for at, step in enumerate(steps):
        if step == "compact":
            arena.compact()
            assert arena.largest_run == arena.free_cells
        elif step == "free":
            if names:
                arena.free(names.pop(at % len(names)))
        else:
            fits = arena.largest_run >= step
            try:
                names.append(arena.allocate(step))
                assert fits
            except NoRun:
                assert not fits
        blocks = taken(arena)
        assert len(blocks) == len(names)
        ends = [0, *(first + cells for first, cells in blocks)]
        assert all(first >= end for (first, _), end in zip(blocks, ends, strict=False)), "they overlap"
        assert ends[-1] <= arena.capacity
        assert arena.free_cells + sum(cells for _, cells in blocks) == arena.capacity
        runs = [first - end for (first, _), end in zip(blocks, ends, strict=False)]
        assert arena.largest_run == max(*runs, arena.capacity - ends[-1], 0)
