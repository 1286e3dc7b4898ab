"""Least recently used in turn, against a plain list of slots that every step goes through."""

from __future__ import annotations

from collections import OrderedDict

from hypothesis import given
from hypothesis import strategies as st

from simlora.policies.eviction.lru_in_turn import LruInTurn, turn

IN_TURN = sorted(range(12), key=turn)
"""Adapters by their place in the order of a step."""


class Slots:
    """What vLLM does, word for word: touch what is there, load what is not over the least recent."""

    def __init__(self, slots: int) -> None:
        self.slots = slots
        self.recent: OrderedDict[int, None] = OrderedDict()

    def step(self, adapters: set[int]) -> list[int]:
        loaded = []
        for id in sorted(adapters, key=turn):
            if id not in self.recent:
                loaded.append(id)
                if len(self.recent) == self.slots:
                    self.recent.popitem(last=False)
                self.recent[id] = None
            self.recent.move_to_end(id)
        return loaded


def reloads(slots: int, before: set[int], now: set[int], idle: int = 0) -> list[int]:
    """What is loaded again by a step after one that used `before` in as many slots, `idle` of them held by others."""
    missing, left = now - before, sorted(before - now, key=turn)
    over = max(len(missing) - idle - (slots - len(before) - idle), 0)
    return list(LruInTurn().reloads(now, missing, left[:over]))


def test_an_adapter_that_takes_the_place_of_one_whose_turn_was_before_its_own_disturbs_nobody() -> None:
    first, second, third, fourth, *_ = IN_TURN
    assert reloads(3, {first, second, third}, {second, third, fourth}) == []


def test_all_whose_turn_is_between_the_newcomers_and_the_leavers_are_loaded_again() -> None:
    first, second, third, fourth, *_ = IN_TURN
    assert reloads(3, {second, third, fourth}, {first, second, third}) == [second, third]
    assert reloads(3, {first, second, fourth}, {first, second, third}) == []


def test_an_idle_adapter_in_a_slot_spares_them() -> None:
    first, second, third, *_ = IN_TURN
    assert reloads(3, {second, third}, {first, second}, idle=1) == []


@given(
    before=st.sets(st.integers(0, 11), min_size=1, max_size=8),
    now=st.sets(st.integers(0, 11), min_size=1, max_size=8),
    idle=st.integers(0, 3),
    free=st.integers(0, 2),
)
def test_it_loads_as_often_as_slots_that_are_gone_through_one_by_one(
    before: set[int], now: set[int], idle: int, free: int
) -> None:
    others = set(range(20, 20 + idle))
    slots = max(len(before) + idle + free, len(now))
    plain = Slots(slots)
    plain.step(others)
    plain.step(before)
    missing = now - before
    over = max(len(missing) - idle - (slots - len(before) - idle), 0)
    gone = sorted(before - now, key=turn)[:over]
    again = list(LruInTurn().reloads(now, missing, gone))
    assert sorted(plain.step(now)) == sorted([*missing, *again])
    assert set(again) <= now & before
    assert len(set(again)) == len(again)
