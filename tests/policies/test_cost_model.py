"""FastLibra's equations 3 to 6 as they are printed, its constants, and what is no constant at all."""

from math import exp, inf, isclose, log

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simlora.policies.eviction.banded_lru import BandedLru
from simlora.policies.eviction.cost_model import CostModel
from simlora.policies.eviction.swapper import Swapper

BAND = ("idle", "idle_to", "busy_to", "busy")


def sigmoid(t: float) -> float:
    return 1 / (1 + exp(-t))


def worth(model: CostModel, cost_s: float, visits: int, idle_s: float, now_s: float = 100.0) -> float:
    """What something is worth as of now, on the model's own scale."""
    return model.key(cost_s, visits, now_s - idle_s) - model.fade(idle_s)


# Retain_Eval, equation 5 --------------------------------------------------------------------


@given(
    cost_s=st.floats(1e-6, 10.0),
    visits=st.integers(1, 10**6),
    idle_s=st.floats(0.0, 30.0),
    others=st.integers(0, 10**6),
    recency_s=st.floats(0.1, 100.0),
    now_s=st.floats(30.0, 1000.0),
)
def test_worth_is_the_logarithm_of_equation_5(cost_s, visits, idle_s, others, recency_s, now_s):
    """But for what is the same for all at any moment: how many visits there were, and the time."""
    model = CostModel(recency_s=recency_s)
    prob = visits / (visits + others)
    printed = log(cost_s) + log(prob) + log_of_what_is_left(idle_s / recency_s)
    same_for_all = log(visits + others) + now_s / recency_s
    found = worth(model, cost_s, visits, idle_s, now_s)
    assert isclose(found, printed + same_for_all, rel_tol=1e-9, abs_tol=1e-6)


def log_of_what_is_left(t: float) -> float:
    """The logarithm of 1 - sigmoid(t), from the formula as printed as long as a float can hold that."""
    return log(1 - sigmoid(t)) if t < 20 else -t


def test_worth_of_what_has_not_been_used_for_an_hour_is_still_told_apart():
    """1 - sigmoid(3600) is 0 in a float."""
    model = CostModel()
    assert worth(model, 0.01, 1, 3600.0, 1e5) > worth(model, 0.01, 1, 3601.0, 1e5)
    assert worth(model, 0.02, 1, 3600.0, 1e5) > worth(model, 0.01, 1, 3600.0, 1e5)


def test_what_was_never_used_is_worth_nothing():
    assert worth(CostModel(), 0.01, 0, 5.0) == -inf
    assert worth(CostModel(), 0.0, 5, 5.0) == -inf, "nor what costs nothing"


@pytest.mark.parametrize("model", [CostModel(recency_s="never"), CostModel("released")])
def test_time_can_take_nothing(model):
    assert model.recency_s == inf
    assert worth(model, 0.01, 3, 0.0) == worth(model, 0.01, 3, 99.0)
    assert exp(worth(model, 0.02, 3, 99.0) - worth(model, 0.01, 3, 0.0)) == pytest.approx(2)


@given(st.floats(0.0, 1e6), st.sampled_from((0.1, 1.0, 60.0, "never")))
def test_time_takes_the_most_from_what_was_used_this_moment(idle_s, recency_s):
    """Where it takes the same from all, that is left out."""
    model = CostModel(recency_s=recency_s)
    assert model.fade(0.0) == model.most_fade == (0.0 if recency_s == "never" else log(2))
    assert 0 <= model.fade(idle_s) <= model.most_fade


# LoRA_Eval, equations 4 and 6 ---------------------------------------------------------------


@pytest.mark.parametrize(
    "low, now, times", [(9.0, 3, 3), (9.0, 8, 9 / 8), (9.0, 9, 1), (9.0, 20, 1), (0.0, 0, 1)]
)
def test_an_adapter_counts_low_over_now_times_as_much_while_there_are_too_few(low, now, times):
    assert exp(CostModel().reward(low, now)) == pytest.approx(times)


def test_without_any_adapter_the_first_one_comes_before_all_else():
    assert CostModel().reward(0.5, 0) == inf


def test_without_the_reward_an_adapter_counts_as_kv_does():
    model = CostModel(adapter_reward=False)
    assert [model.reward(9.0, now) for now in (0, 3, 20)] == [0.0, 0.0, 0.0]
    assert model.key(0.01, 3, 5.0) == CostModel().key(0.01, 3, 5.0)


def test_an_adapter_and_kv_in_one_order_by_hand():
    """12 expected and 4 there: 3 * 0.01 s * 2 of 10 visits, used 3 s ago; against 0.02 s * 4 of 10, used 3 s ago."""
    model = CostModel()
    adapter = worth(model, 0.01, 2, 3.0) + model.reward(12.0, 4)
    kv = worth(model, 0.02, 4, 3.0)
    assert exp(adapter - kv) == pytest.approx((3 * 0.01 * 0.2) / (0.02 * 0.4))


# Constants ----------------------------------------------------------------------------------


def settings(model: Swapper) -> tuple[float, ...]:
    return (model.every_s, model.busy, model.busy_to, model.idle, model.idle_to)


def test_the_papers_constants():
    """Section 5.3: every 100 ms, 95 % and 70 %. Nothing is said of the unit of t, nor of how far one goes."""
    model = CostModel()
    assert settings(model) == (0.1, 0.95, 0.95, 0.7, 0.7)
    assert (model.recency_s, model.backlog_s, model.dependencies) == (1.0, 0.1, True)


def test_those_of_the_released_code():
    assert settings(CostModel("released")) == (0.0, 0.8, 0.7, 0.6, 0.7)


@pytest.mark.parametrize("constants", ["paper", "released"])
def test_each_can_be_set_and_leaves_the_others(constants):
    of = {"every_s": 0.5, "busy": 0.99, "busy_to": 0.75, "idle": 0.1, "idle_to": 0.7, "recency_s": 7.0}
    of["backlog_s"] = 3.0
    before = {name: getattr(CostModel(constants), name) for name in of}
    for name, value in of.items():
        model = CostModel(constants, **{name: value})
        assert {each: getattr(model, each) for each in of} == before | {name: value}


# The least recently used --------------------------------------------------------------------


def test_without_the_model_what_counts_is_when_something_was_used_last():
    model = BandedLru()
    assert model.key(0.5, 100, 3.0) < model.key(0.001, 1, 3.5)
    assert (model.fade(0.0), model.most_fade, model.reward(9.0, 1)) == (0.0, 0.0, 0.0)


def test_its_bands_are_the_papers():
    assert settings(BandedLru()) == settings(CostModel())
    assert BandedLru(every_s=0.5, busy=0.8, busy_to=0.75).busy_to == 0.75
