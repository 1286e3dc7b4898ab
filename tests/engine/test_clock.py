"""Clock and Link: what happens at the same moment has a written order."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simlora.engine.clock import ARRIVAL, BOUNDARY, Clock, Event, Moment, Process
from simlora.engine.replica.link import Link

MOMENTS = st.tuples(st.integers(0, 3).map(float), st.sampled_from((ARRIVAL, BOUNDARY)), st.integers(0, 2**39))


@given(st.lists(MOMENTS, unique=True, max_size=20))
def test_moments_happen_in_order_of_time_then_kind_then_id(moments):
    clock, happened = Clock(), []
    for moment in moments:
        clock.call(*moment, lambda moment=moment: happened.append((clock.now, *moment[1:])))
    clock.run()
    assert ARRIVAL < BOUNDARY, "requests arrive before iterations end"
    assert happened == sorted(moments)


def test_a_period_comes_again_and_again_until_it_has_ended_and_what_has_passed_meanwhile_does_not():
    clock, seen = Clock(), []

    def looking() -> Process:
        for moment in clock.every(0.1, ARRIVAL, lambda: len(seen) == 4):
            yield moment
            seen.append(clock.now)
            if len(seen) == 2:
                yield Moment(clock.now + 0.25, ARRIVAL, 0)

    clock.process(looking())
    clock.run()
    assert seen == [0.1, 0.2, 5 * 0.1, 6 * 0.1]


def test_the_clock_refuses_to_go_back():
    clock = Clock()
    clock.run(until_s=3.0)
    with pytest.raises(AssertionError, match="goes back"):
        clock.call(2.0, ARRIVAL, 0, lambda: None)


def test_a_link_serves_one_transfer_after_the_other_and_a_listener_hears_of_each():
    link, heard = Link(), []
    link.on_transfer += (lambda *transfer: heard.append(transfer),)
    assert link.transfer(1.0, 0.5, what=7) == 1.5
    assert link.transfer(1.25, 0.5, launch_s=0.125) == 2.0, "waits for the one before"
    assert link.transfer(3.0, 0.5, launch_s=0.125) == 3.625, "starts at once when the link is free"
    assert heard == [(1.0, 1.5, 7), (1.5, 2.0, None), (3.0, 3.625, None)]
    assert link.busy_s == 1.625


# Processes ------------------------------------------------------------------------------------


def test_processes_start_in_order_and_go_on_at_the_moments_that_they_yield():
    clock, seen = Clock(), []

    def process(name: str, *times_s: float) -> Process:
        seen.append((name, clock.now))
        for time_s in times_s:
            yield Moment(time_s, BOUNDARY, 0)
            seen.append((name, clock.now))

    clock.process(process("one", 2.0, 2.0))
    clock.process(process("two", 1.0, 2.0))
    clock.run()
    assert seen == [("one", 0.0), ("two", 0.0), ("two", 1.0), ("one", 2.0), ("two", 2.0), ("one", 2.0)]


def test_events_at_the_time_until_which_it_runs_are_left_for_later():
    clock, seen = Clock(), []
    for time_s in (1.0, 2.0, 3.0):
        clock.call(time_s, ARRIVAL, 0, lambda: seen.append(clock.now))
    clock.run(until_s=2.0)
    assert (seen, clock.now) == ([1.0], 2.0)
    clock.run(until_s=2.5)
    assert (seen, clock.now) == ([1.0, 2.0], 2.5), "at their time, not before"
    clock.run()
    assert (seen, clock.now) == ([1.0, 2.0, 3.0], 3.0)


def test_stopping_lets_all_happen_that_happens_at_this_moment():
    clock, seen = Clock(), []
    clock.call(1.0, ARRIVAL, 0, clock.stop)
    for time_s in (1.0, 2.0):
        clock.call(time_s, BOUNDARY, 0, lambda: seen.append(clock.now))
    clock.run()
    assert (seen, clock.now) == ([1.0], 1.0)


# Against a sorted list --------------------------------------------------------------------------

TIMES = st.one_of(st.integers(0, 8).map(lambda n: n / 4), st.floats(0, 5), st.floats(0, 1e5), st.just(1e300))
CHANGES = st.lists(st.tuples(st.integers(0, 5), st.one_of(TIMES, st.none())), max_size=12)


@given(
    st.lists(st.tuples(TIMES, st.integers(0, 3), CHANGES), max_size=12), st.sampled_from((0.01, 1.0, 1000.0))
)
def test_events_that_are_scheduled_moved_and_cancelled_happen_as_in_a_sorted_list(events, buckets_per_s):
    """Each event that happens moves others, or cancels them; times are near and far, and many are equal."""
    clock, seen, expected = Clock(buckets_per_s), [], []
    planned: dict[int, tuple[float, int, int]] = {}  # (time, kind, number of the scheduling) by event
    made: dict[int, Event] = {}
    count = itertools.count()

    def schedule(index: int, time_s: float | None) -> None:
        time_s = None if time_s is None else clock.now + time_s
        if time_s is None:
            clock.cancel(made[index])
            planned.pop(index, None)
        else:
            clock.schedule(made[index], time_s)
            planned[index] = time_s, events[index][1], next(count)

    def happen(index: int) -> None:
        seen.append((clock.now, index))
        expected.append((planned[index][0], min(planned, key=lambda other: planned[other])))
        del planned[index]
        if len(seen) < 40:
            for other, time_s in events[index][2]:
                if other in made:
                    schedule(other, time_s)

    for index, (_, kind, _) in enumerate(events):
        made[index] = Event(kind, 0, lambda index=index: happen(index))
    for index, (time_s, _, _) in enumerate(events):
        schedule(index, time_s)
    clock.run()
    assert seen == expected
    assert not planned
