"""The highest value that passes is found in a few questions, by whatever order of asking."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simlora.core.bisection import Bracket


def searched(bracket: Bracket, edge: float) -> tuple[Bracket, list[float]]:
    """Ask until nothing more is to be found out; what is at most `edge` passes."""
    asked: list[float] = []
    while (value := bracket.ask) is not None:
        assert value not in asked, "nothing is asked twice"
        asked.append(value)
        bracket = bracket.told(value, value <= edge)
    return bracket, asked


def test_it_doubles_until_one_fails_then_halves_the_ratio():
    bracket, asked = searched(Bracket(1.0, 0.01, 1000.0, precision=0.1), 5.0)
    assert asked[:4] == [1.0, 2.0, 4.0, 8.0]
    assert asked[4] == pytest.approx(32**0.5, rel=1e-5)
    assert bracket.low is not None
    assert bracket.high is not None
    assert bracket.low <= 5.0 < bracket.high <= 1.1 * bracket.low


def test_it_halves_until_one_passes():
    assert searched(Bracket(8.0, 0.01, 1000.0, precision=0.5), 1.5)[1][:4] == [8.0, 4.0, 2.0, 1.0]


def test_a_small_step_stays_near_a_guess_that_is_nearly_right():
    asked = searched(Bracket(10.0, 0.01, 1000.0, 0.01, step=1.05), 10.3)[1]
    assert asked[:2] == [10.0, 10.5]
    assert len(asked) == 5
    assert len(searched(Bracket(10.0, 0.01, 1000.0, 0.01), 10.3)[1]) == 9
    down = searched(Bracket(10.0, 0.01, 1000.0, 0.01, step=1.05), 0.9)[1]
    assert down[:6] == pytest.approx([10.0, 9.52381, 8.63837, 6.44607, 3.22304, 1.61152], rel=1e-3)


@given(
    edge=st.floats(0.02, 900.0),
    guess=st.floats(0.01, 1000.0),
    precision=st.sampled_from([0.001, 0.01, 0.02, 0.3]),
    step=st.sampled_from([1.01, 1.2, 2.0]),
)
def test_both_ends_enclose_the_edge(edge, guess, precision, step):
    bracket, asked = searched(Bracket(guess, 0.01, 1000.0, precision, step=step), edge)
    assert bracket.low is not None
    assert bracket.high is not None
    assert bracket.low <= edge < bracket.high <= bracket.low * (1 + precision)
    assert len(asked) < 40


@given(edge=st.integers(1, 500), guess=st.integers(1, 1000), step=st.sampled_from([1.01, 1.5, 2.0]))
def test_of_whole_numbers_it_finds_the_very_one(edge, guess, step):
    bracket, asked = searched(Bracket(guess, 1, 1000, whole=True, step=step), edge)
    assert bracket.low == edge
    assert all(value == int(value) for value in asked)


@pytest.mark.parametrize("whole", [False, True])
def test_where_all_or_none_pass_one_end_stays_open(whole):
    assert searched(Bracket(8, 1, 1000, whole=whole), 0.5)[0].low is None
    assert searched(Bracket(8, 1, 1000, whole=whole), 2000)[0].high is None


def test_what_may_follow_is_known_ahead():
    bracket = Bracket(1.0, 0.01, 1000.0)
    assert bracket.ahead(1) == [1.0]
    assert bracket.ahead(3) == [1.0, 2.0, 0.5]
    assert bracket.ahead(7) == [1.0, 2.0, 0.5, 1.41421, 0.707107, 0.25, 1.68179]
    assert max(bracket.ahead(50)) == 2.0, "what is far above costs most"
    assert searched(bracket, 3.0)[0].ahead(5) == []


@given(edge=st.floats(0.02, 900.0), count=st.integers(1, 9))
def test_asking_ahead_changes_nothing(edge, count):
    bracket, known = Bracket(1.0, 0.01, 1000.0), {}
    while (value := bracket.ask) is not None:
        if value not in known:
            known |= {one: one <= edge for one in bracket.ahead(count)}
        bracket = bracket.told(value, known[value])
    assert bracket == searched(Bracket(1.0, 0.01, 1000.0), edge)[0]
