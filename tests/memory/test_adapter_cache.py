"""AdapterCache: which adapters are resident, which are pinned, and which leave first."""

import pytest

from simlora.core.adapter import Adapter
from simlora.memory.adapter_cache import AdapterCache, DividedAdapterCache
from simlora.policies.eviction.lru import Lru
from simlora.policies.eviction.on_demand import OnDemand

A, B, C = (Adapter(i, name, 2, 128, 8) for i, name in enumerate("abc"))


def cache(*adapters: Adapter, capacity: int = 32, used: bool = True, eviction=Lru) -> AdapterCache:
    """A cache with these adapters; each was in use once, unless it was only prefetched."""
    new = AdapterCache(capacity, eviction().victims)
    for adapter in adapters:
        new.insert(adapter, 0.0)
        if used:
            new.pin(adapter)
            new.unpin(adapter)
    return new


def resident(of: AdapterCache) -> str:
    return "".join(adapter.name for adapter in (A, B, C) if adapter in of)


def test_a_load_in_flight_holds_its_slots_from_the_start() -> None:
    one = cache()
    one.insert(A, 7.5)
    assert A in one
    assert one.ready_s[A.id] == 7.5
    assert one.adapter_tokens == 8
    assert one.free_tokens(kv_tokens=10) == 32 - 8 - 10


def test_an_adapter_is_not_loaded_twice() -> None:
    with pytest.raises(AssertionError, match="adapter a is loaded twice"):
        cache(A).insert(A, 1.0)


def test_an_adapter_is_pinned_until_its_last_request_is_gone() -> None:
    one = cache(A)
    one.pin(A)
    one.pin(A)
    assert (len(one.pinned), one.pinned_tokens) == (1, 8)
    one.unpin(A)
    assert one.is_pinned(A)
    one.unpin(A)
    assert not one.is_pinned(A)
    assert (len(one.pinned), one.pinned_tokens, one.adapter_tokens) == (0, 0, 8)


def test_a_pinned_adapter_is_never_evicted() -> None:
    one = cache(A, B)
    one.pin(A)
    assert one.make_room(kv_tokens=30) == 30 + 8 - 32, "what is still short without B"
    assert resident(one) == "a"


def test_an_eviction_policy_that_names_a_pinned_adapter_is_caught() -> None:
    one = AdapterCache(32, lambda idle, short: [A])
    one.insert(A, 0.0)
    one.pin(A)
    one.insert(B, 0.0)
    one.pin(B)
    one.unpin(B)
    with pytest.raises(AssertionError, match="adapter a is pinned and was evicted"):
        one.sweep()


def test_on_demand_a_sweep_drops_every_idle_adapter() -> None:
    one = cache(A, B, C, eviction=OnDemand)
    one.pin(B)
    one.sweep()
    assert resident(one) == "b"
    assert one.adapter_tokens == 8


def test_lru_a_sweep_drops_nothing() -> None:
    one = cache(A, B)
    one.sweep()
    assert resident(one) == "ab"


@pytest.mark.parametrize("kv, left", [(8, "abc"), (9, "bc"), (16, "bc"), (17, "c"), (25, "")])
def test_lru_the_least_recently_used_leave_just_as_many_as_it_takes(kv: int, left: str) -> None:
    one = cache(A, B, C)
    assert one.make_room(kv_tokens=kv) == 0
    assert resident(one) == left


def test_lru_using_an_adapter_again_makes_it_the_last_to_leave() -> None:
    one = cache(A, B, C)
    one.pin(A)
    one.unpin(A)
    one.make_room(kv_tokens=9)
    assert resident(one) == "ac"


def test_on_demand_room_is_made_by_dropping_every_idle_adapter() -> None:
    one = cache(A, B, C, eviction=OnDemand)
    one.make_room(kv_tokens=9)
    assert resident(one) == ""


def test_room_can_be_made_for_more_than_kv() -> None:
    one = cache(A, B)
    assert one.make_room(kv_tokens=12, more=8) == 0
    assert resident(one) == "b"


def test_no_adapter_leaves_while_there_is_room() -> None:
    one = cache(A, B, eviction=OnDemand)
    assert one.make_room(kv_tokens=16) == 0
    assert resident(one) == "ab"


def test_prefetched_adapters_leave_after_all_others_the_latest_first() -> None:
    one = cache(A)
    one.insert(B, 0.0)
    one.insert(C, 0.0)
    one.make_room(kv_tokens=9)
    assert resident(one) == "bc"
    one.make_room(kv_tokens=17)
    assert resident(one) == "b"
    one.make_room(kv_tokens=25)
    assert resident(one) == ""


def test_a_prefetched_adapter_is_not_swept() -> None:
    one = cache(A, used=False, eviction=OnDemand)
    one.sweep()
    assert resident(one) == "a"


def test_a_divided_pool_lends_neither_side_any_room() -> None:
    one = DividedAdapterCache(32, Lru().victims, adapter_capacity=16)
    for adapter in (A, B):
        one.insert(adapter, 0.0)
        one.pin(adapter)
        one.unpin(adapter)
    assert one.free_tokens(kv_tokens=30) == 2
    assert one.adapter_room(kv_tokens=32, keep=()) == 16, "they are idle and may be replaced"
    assert one.adapter_room(kv_tokens=32, keep={B.id}) == 8, "but for those to keep"
    one.pin(A)
    assert one.adapter_room(kv_tokens=32, keep=()) == 8
    one.unpin(A)
    assert one.make_room(kv_tokens=32) == 0
    assert resident(one) == "ab", "KV needs none of theirs"
    assert one.make_room(kv_tokens=35) == 3, "and they have none for it"
    assert one.make_room(kv_tokens=32, more=8, keep={A.id, B.id}) == 8
    assert one.make_room(kv_tokens=32, more=8) == 0
    assert resident(one) == "a", "used last"


def test_a_shared_pool_has_the_same_room_for_both() -> None:
    one = cache(A)
    assert one.free_tokens(kv_tokens=20) == one.adapter_room(kv_tokens=20, keep=()) == 4


def test_listeners_hear_of_each_adapter_that_comes_or_leaves_and_of_all_that_leave_at_once() -> None:
    one = cache(A, eviction=OnDemand)
    changes: list[tuple[int, bool]] = []
    evicted: list[str] = []
    one.on_change += (lambda id, resident: changes.append((id, resident)),)
    one.on_evict += (lambda gone: evicted.append("".join(adapter.name for adapter in gone)),)
    one.insert(B, 0.0)
    one.pin(B)
    assert changes == [(B.id, True)], "pinning changes nothing"
    one.unpin(B)
    one.sweep()
    assert changes[1:] == [(A.id, False), (B.id, False)]
    assert evicted == ["ab"]


def test_a_listener_finds_the_adapter_that_has_just_come() -> None:
    one = cache()
    found: list[tuple[Adapter, float]] = []
    one.on_change += (lambda id, _: found.append((one.adapter(id), one.ready_s[id])),)
    one.insert(B, 2.5)
    assert found == [(B, 2.5)]


def test_an_adapter_is_idle_if_it_is_resident_and_not_pinned() -> None:
    one = cache(A, B)
    one.pin(A)
    assert [one.is_idle(adapter.id) for adapter in (A, B, C)] == [False, True, False]
    assert one.pinned == {A.id}


def test_adapters_can_take_the_whole_pool_or_their_part_of_it() -> None:
    assert cache().room == 32
    assert DividedAdapterCache(32, Lru().victims, adapter_capacity=16).room == 16
