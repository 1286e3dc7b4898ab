"""Least recently used in turn, against a plain list of slots that every step goes through."""

from collections import OrderedDict

from hypothesis import given
from hypothesis import strategies as st

from simlora.policies.eviction.lru_in_turn import LruInTurn, turn


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


@given(
    before=st.sets(st.integers(0, 11), min_size=1, max_size=8),
    now=st.sets(st.integers(0, 11), min_size=1, max_size=8),
    idle=st.integers(0, 3),
    free=st.integers(0, 2),
)
def test_it_loads_as_often_as_slots_that_are_gone_through_one_by_one(before, now, idle, free):
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
