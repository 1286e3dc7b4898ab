"""DecodeWindow: k steps end in closed form, and where the first boundary after an event lies."""

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from simlora.engine.replica.decode_window import DecodeWindow

STARTS = st.floats(0, 1e5)
BASES = st.floats(1e-5, 10)
SLOPES = st.one_of(st.just(0.0), st.floats(1e-9, 1e-2))


@given(STARTS, BASES, SLOPES, st.integers(0, 300))
def test_k_steps_take_the_sum_of_their_lengths(start_s: float, base_s: float, slope_s: float, steps: int):
    window = DecodeWindow(start_s, base_s, slope_s)
    end_s = start_s + sum(base_s + i * slope_s for i in range(steps))
    assert window.end_s(steps) == pytest.approx(end_s, rel=1e-12)


@given(STARTS, BASES, SLOPES, st.floats(-1, 1e4))
def test_the_first_boundary_is_the_earliest_that_is_not_before_the_event(
    start_s: float, base_s: float, slope_s: float, later_s: float
) -> None:
    window = DecodeWindow(start_s, base_s, slope_s)
    event_s = start_s + later_s
    steps = window.first_boundary(event_s)
    assert steps >= 1
    assert window.end_s(steps) >= event_s
    assert steps == 1 or window.end_s(steps - 1) < event_s


@given(STARTS, BASES, SLOPES, st.integers(1, 10_000))
@example(0.0, 1e-5, 0.0, 10_000)
def test_an_event_on_a_boundary_belongs_to_it(start_s: float, base_s: float, slope_s: float, steps: int):
    window = DecodeWindow(start_s, base_s, slope_s)
    assert window.end_s(window.first_boundary(window.end_s(steps))) == window.end_s(steps)


def test_steps_may_take_no_time() -> None:
    window = DecodeWindow(5.0, 0.0, 0.0)
    assert window.end_s(100) == 5.0
    assert window.first_boundary(5.0) == 1


def test_a_long_window_keeps_its_boundaries_exact() -> None:
    window = DecodeWindow(0.0, 2**-6, 2**-20)
    lengths = 2**-6 + np.arange(100_000) * 2.0**-20
    assert window.end_s(100_000) == lengths.sum()
