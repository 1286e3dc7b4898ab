"""What LoRA on other GPUs exchanges, and how much of it hides."""

from dataclasses import replace

import pytest

from simlora.hardware.link import Link
from simlora.hardware.model import ModelShape
from simlora.latency.remote_lora import RemoteLora

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


def test_a_card_of_the_server_takes_in_and_sends_at_once():
    """The input of o and its output are as wide; of q, k and v more comes back than goes there."""
    assert RemoteLora(MODEL, ("o",), 1, LINK).server_s(5) == 5 * 2 * 2 * 8 / 64
    assert RemoteLora(MODEL, ("q", "k", "v"), 2, LINK).server_s(5) == 5 * 2 * 2 * 16 / 64, (
        "whatever the replica has"
    )


def test_it_hides_behind_the_base_models_own_products():
    layer = 64 + 32 + 32 + 64 + 3 * 8 * 24
    weights = 2 * layer + 10 * 8
    assert RemoteLora(MODEL, ("q", "o"), 1, LINK).hidden_share == pytest.approx(2 * 128 / weights)
