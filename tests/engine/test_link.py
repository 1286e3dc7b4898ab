"""A link: what is copied when, also if some of it is not there yet."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from simlora.engine.replica.link import Link


def test_what_is_not_there_yet_leaves_the_link_to_others_as_far_as_they_fit() -> None:
    link = Link()
    assert link.transfer_later(10.0, 2.0, 0.5) == 12.5
    assert link.transfer(0.0, 4.0) == 4.0, "it fits before"
    assert link.transfer(1.0, 7.0) == 19.5, "it does not"
    assert link.transfer(1.0, 1.0) == 20.5, "nor does what comes after it, first come, first served"


def test_two_that_are_there_at_once_follow_each_other() -> None:
    link = Link()
    assert link.transfer_later(10.0, 2.0, 0.0) == 12.0
    assert link.transfer_later(10.0, 2.0, 0.0) == 14.0
    assert link.transfer_later(3.0, 2.0, 0.0) == 5.0, "booked last, and there first"
    assert [link.busy_until(at_s) for at_s in (0.0, 4.0, 11.0, 20.0)] == [0.0, 1.0, 3.0, 6.0]


@given(
    st.lists(st.tuples(st.booleans(), st.integers(0, 20), st.integers(1, 6)), max_size=25), st.integers(1, 3)
)
def test_copies_never_overlap_and_none_begins_before_it_is_there(
    copies: list[tuple[bool, int, int]], slow: int
) -> None:
    link, taken = Link(), list[tuple[float, float]]()
    link.on_transfer = (lambda begin_s, end_s, what: taken.append((begin_s, end_s)),)
    link.slowdown = float(slow)
    now_s = 0.0
    for later, wait, duration in copies:
        now_s += wait % 3
        there_s = now_s + wait
        end_s = link.transfer_later(there_s, duration, 0.0) if later else link.transfer(now_s, duration)
        assert taken[-1] == (end_s - duration * slow, end_s)
        assert taken[-1][0] >= (there_s if later else now_s)
    ordered = sorted(taken)
    assert all(one[1] <= other[0] for one, other in pairwise(ordered))
    assert link.busy_until(1e9) == sum(end_s - begin_s for begin_s, end_s in taken)
