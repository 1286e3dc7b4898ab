"""Chameleon's eviction (§4.2): a score of three parts, and adapters that requests wait for leave last."""

import pytest

from simlora.core.adapter import Adapter
from simlora.policies.eviction.compound import Compound
from tests.policies.hand import Idle

SMALL, MIDDLE, LARGE = (Adapter(i, f"a{i}", rank=8 << i, kv_tokens=32 << i, size_bytes=1) for i in range(3))


def idle_ones(*known: tuple[Adapter, int, float, int]) -> Idle:
    """Idle adapters at 10 s, each with its uses, its last use and the requests that wait for it."""
    return Idle(
        *((adapter, uses, last_s, 0.0, waiting) for adapter, uses, last_s, waiting in known), now_s=10.0
    )


def test_a_score_weighs_uses_recency_and_size_each_relative_to_the_highest():
    idle = idle_ones((SMALL, 8, 2.0, 0), (MIDDLE, 2, 6.0, 0), (LARGE, 4, 8.0, 0))
    assert Compound().scores(idle, idle.adapters) == pytest.approx(
        [
            0.45 * 8 / 8 + 0.10 * 0 + 0.45 * 32 / 128,
            0.45 * 2 / 8 + 0.10 * (1 - 4 / 8) + 0.45 * 64 / 128,
            0.45 * 4 / 8 + 0.10 * (1 - 2 / 8) + 0.45 * 128 / 128,
        ]
    )


def test_the_lowest_scores_leave_until_enough_slots_are_free():
    idle = idle_ones((SMALL, 8, 2.0, 0), (MIDDLE, 2, 6.0, 0), (LARGE, 4, 8.0, 0))
    assert list(Compound().victims(idle, 0)) == []
    assert list(Compound().victims(idle, 64)) == [MIDDLE]
    assert list(Compound().victims(idle, 65)) == [MIDDLE, SMALL]


def test_an_adapter_that_a_request_waits_for_leaves_after_all_others():
    idle = idle_ones((SMALL, 8, 2.0, 0), (MIDDLE, 2, 6.0, 1), (LARGE, 4, 8.0, 0))
    assert list(Compound().victims(idle, 9999)) == [SMALL, LARGE, MIDDLE]


@pytest.mark.parametrize(
    "weights, first",
    [((1, 0, 0), MIDDLE), ((0, 1, 0), SMALL), ((0, 0, 1), SMALL)],
    ids=["the least used", "the longest idle", "the smallest"],
)
def test_a_weight_alone_orders_by_its_part(weights, first):
    idle = idle_ones((LARGE, 4, 8.0, 0), (SMALL, 8, 2.0, 0), (MIDDLE, 2, 6.0, 0))
    assert next(iter(Compound(*weights).victims(idle, 1))) is first


def test_of_equal_scores_the_least_recently_used_leaves_first():
    twin = Adapter(9, "twin", rank=8, kv_tokens=32, size_bytes=1)
    assert list(Compound(1, 0, 1).victims(idle_ones((twin, 3, 1.0, 0), (SMALL, 3, 5.0, 0)), 1)) == [twin]


def test_an_adapter_that_was_never_used_has_been_idle_since_the_start():
    idle = idle_ones((SMALL, 0, float("-inf"), 0), (MIDDLE, 1, 5.0, 0))
    assert Compound(0, 1, 0).scores(idle, idle.adapters) == pytest.approx([0.0, 0.5])
