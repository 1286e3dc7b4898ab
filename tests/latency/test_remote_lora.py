"""What LoRA on other GPUs exchanges, and how much of it hides."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simlora.hardware.link import Link
from simlora.hardware.model import ModelShape
from simlora.latency.remote_lora import RemoteIteration, RemoteLora, beside_s

MODEL = ModelShape("m", layers=2, hidden=8, heads=2, kv_heads=1, head_dim=4, intermediate=24, vocab=10)
LINK = Link("link", 0.5, 64.0)


def test_projections_that_read_the_same_share_a_round():
    """q, k and v: 8 elements there, 8 + 4 + 4 back; two bytes each, in two layers."""
    remote = RemoteLora(MODEL, ("q", "k", "v"), 1, LINK)
    assert remote.exchange_s(0) == 0.0
    assert remote.exchange_s(3) == 2 * 2 * 0.5 + 3 * 2 * 2 * (8 + 16) / 64


def test_other_projections_take_rounds_of_their_own():
    remote = RemoteLora(MODEL, ("q", "o", "gate", "up", "down"), 1, LINK)
    elements = (8 + 8) + (8 + 8) + (8 + 24 + 24) + (24 + 8)
    assert remote.exchange_s(1) == 4 * 2 * 2 * 0.5 + 2 * 2 * elements / 64


def test_each_gpu_has_a_link_and_a_token_goes_to_each_of_its_experts():
    mixture = replace(MODEL, experts=8, experts_per_token=3)
    remote = RemoteLora(mixture, ("down",), 2, LINK)
    assert remote.exchange_s(1) == 2 * 2 * 0.5 + 2 * 2 * 3 * (24 + 8) / (64 * 2)


def test_a_card_of_the_server_receives_and_sends_at_once():
    """The input of o and its output are as wide; of q, k and v more comes back than goes there."""
    assert RemoteLora(MODEL, ("o",), 1, LINK).cards_s(5) == (5 * 2 * 2 * 8 / 64, 5 * 2 * 2 * 8 / 64)
    two = RemoteLora(MODEL, ("q", "k", "v"), 2, LINK).cards_s(5)
    assert two == (5 * 2 * 2 * 8 / 64, 5 * 2 * 2 * 16 / 64), "whatever the replica has"


def test_it_hides_behind_the_base_models_own_products():
    layer = 64 + 32 + 32 + 64 + 3 * 8 * 24
    weights = 2 * layer + 10 * 8
    assert RemoteLora(MODEL, ("q", "o"), 1, LINK).hidden_share == pytest.approx(2 * 128 / weights)


def iteration(own_s=0.0, gpu_s=0.0, receive_s=0.0, send_s=0.0, hidden_s=0.0):
    """An iteration that takes this long without LoRA, at the server's GPUs and at its cards."""
    stations = gpu_s, receive_s, send_s
    return RemoteIteration(own_s, hidden_s, sum(stations), stations)


def test_alone_what_does_not_hide_comes_on_top():
    assert beside_s(iteration(own_s=5.0, gpu_s=2.0, hidden_s=0.5), []) == 6.5
    assert beside_s(iteration(own_s=5.0, gpu_s=2.0, hidden_s=3.0), []) == 5.0


def test_a_long_pass_of_another_replica_costs_a_step_as_much_as_it_is_at_the_server():
    """It is there for a fifth of its 1,000 s, so that the server's part of a step takes 1.2 times as long."""
    long = iteration(own_s=800.0, gpu_s=200.0)
    assert beside_s(iteration(own_s=15.0, gpu_s=1.0), [long]) == pytest.approx(15 + 1.2)
    assert beside_s(iteration(own_s=15.0, send_s=1.0), [long]) == 16.0, "at another station"
    assert beside_s(long, [iteration(own_s=15.0, gpu_s=1.0)]) == pytest.approx(800 + 200 * (1 + 1 / 16))


def test_waiting_hides_as_work_does():
    others = [iteration(gpu_s=1.0)] * 2
    assert beside_s(iteration(own_s=9.0, gpu_s=1.0), others) == pytest.approx(9 + 3)
    assert beside_s(iteration(own_s=9.0, gpu_s=1.0, hidden_s=2.5), others) == pytest.approx(9 + 0.5)


@pytest.mark.parametrize("own_s", [0.0, 0.5, 1.0, 4.0, 30.0])
@pytest.mark.parametrize("replicas", [1, 2, 3, 8])
def test_equal_replicas_take_what_mean_value_analysis_says(replicas, own_s):
    """Exactly up to two replicas; of more, the numbers of the others are an approximation that is never too low."""
    one, exact_s, there = iteration(own_s=own_s, gpu_s=1.0), 0.0, 0.0
    for number in range(1, replicas + 1):
        spent_s = 1.0 + there
        exact_s = own_s + spent_s
        there = number * spent_s / exact_s
    found_s = beside_s(one, [one] * (replicas - 1))
    assert exact_s * (1 - 1e-9) <= found_s <= exact_s * (1.05 if replicas > 2 else 1 + 1e-9)


PARTS = st.floats(0.0, 10.0)


@given(st.lists(st.builds(iteration, st.floats(0.01, 10.0), PARTS, PARTS, PARTS), min_size=1, max_size=6))
def test_no_station_is_busier_than_it_can_be(together):
    took_s = [beside_s(one, together[:i] + together[i + 1 :]) for i, one in enumerate(together)]
    for station in range(3):
        assert sum(one.stations_s[station] / s for one, s in zip(together, took_s, strict=True)) <= 1 + 1e-9
    for one, s in zip(together, took_s, strict=True):
        assert s >= beside_s(one, [])
