"""Arena: best fit over one address space, and what compacting it gives back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simlora.memory.arena import Arena, NoRun


def taken(arena: Arena) -> list[tuple[int, int]]:
    """(start, cells) of every block, by address."""
    return sorted(arena._blocks.values())


@pytest.mark.parametrize(
    "holes, asked, addresses",
    [((6, 2, 3), (cells,), (at,)) for cells, at in ((1, 7), (2, 7), (3, 10), (4, 0), (6, 0))]
    + [((5, 3, 3, 3), (3, 3, 3), (6, 10, 14))],
)
def test_the_smallest_run_that_is_large_enough_is_taken_from_its_start_and_of_equals_the_lowest(
    holes, asked, addresses
):
    """Free runs of these sizes, in order of address, with a block of one cell behind each."""
    arena = Arena(sum(holes) + len(holes))
    names = [(arena.allocate(size), arena.allocate(1))[0] for size in holes]
    for name in names:
        arena.free(name)
    assert tuple(arena._blocks[arena.allocate(cells)][0] for cells in asked) == addresses


def test_compacting_puts_all_blocks_back_to_back_in_the_same_order():
    arena = Arena(20)
    names = [arena.allocate(cells) for cells in (2, 3, 4, 5)]
    arena.free(names[0])
    arena.free(names[2])
    arena.compact()
    assert taken(arena) == [(0, 3), (3, 5)]
    assert arena.largest_run == arena.free_cells == 12
    arena.free(names[1])
    assert taken(arena) == [(3, 5)], "a block keeps its name"


def test_a_copy_can_be_tried_without_a_trace():
    arena = Arena(10)
    kept = arena.allocate(4)
    twin = arena.copy()
    twin.allocate(6)
    twin.free(kept)
    assert (taken(arena), taken(twin)) == ([(0, 4)], [(4, 6)])


@given(st.lists(st.one_of(st.integers(1, 12), st.sampled_from(("free", "compact"))), max_size=60))
def test_blocks_never_overlap_and_free_and_used_cells_are_all_there_are(steps):
    arena, names = Arena(40), []
    for at, step in enumerate(steps):
        if step == "compact":
            arena.compact()
            assert arena.largest_run == arena.free_cells
        elif step == "free":
            if names:
                arena.free(names.pop(at % len(names)))
        elif step <= arena.largest_run:
            names.append(arena.allocate(step))
        else:
            before = taken(arena)
            with pytest.raises(NoRun):
                arena.allocate(step)
            assert taken(arena) == before
        blocks = taken(arena)
        assert len(blocks) == len(names)
        ends = [0, *(first + cells for first, cells in blocks)]
        assert all(first >= end for (first, _), end in zip(blocks, ends, strict=False)), "they overlap"
        assert ends[-1] <= arena.capacity
        assert arena.free_cells + sum(cells for _, cells in blocks) == arena.capacity
        runs = [first - end for (first, _), end in zip(blocks, ends, strict=False)]
        assert arena.largest_run == max(*runs, arena.capacity - ends[-1], 0)
