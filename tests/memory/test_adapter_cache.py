"""AdapterCache: which adapters are resident, which are pinned, and which leave first."""

import pytest

from simlora.core.adapter import Adapter
from simlora.memory.adapter_cache import AdapterCache, DividedAdapterCache
from simlora.policies.eviction.lru import Lru
from simlora.policies.eviction.on_demand import OnDemand

A, B, C = ALL = tuple(Adapter(i, name, 2, 128, 8) for i, name in enumerate("abc"))


def use(of: AdapterCache, *adapters: Adapter) -> None:
    for adapter in adapters:
        of.pin(adapter)
        of.unpin(adapter, 0.0)


def cache(*adapters: Adapter, eviction=Lru, **divided: int) -> AdapterCache:
    """A cache of 32 slots with these adapters, of 8 slots each; each was in use once."""
    new = (DividedAdapterCache if divided else AdapterCache)(32, eviction().victims, **divided)
    for adapter in adapters:
        new.insert(adapter, 0.0)
        use(new, adapter)
    return new


def resident(of: AdapterCache) -> str:
    return "".join(adapter.name for adapter in ALL if adapter in of)


def test_a_load_in_flight_holds_its_slots_from_the_start():
    one = cache()
    one.insert(A, 7.5)
    assert A in one
    assert (one.ready_s[A.id], one.adapter_tokens) == (7.5, 8)
    assert one.free_tokens(kv_tokens=10) == 32 - 8 - 10


def test_an_adapter_is_not_loaded_twice():
    with pytest.raises(AssertionError, match="adapter a is loaded twice"):
        cache(A).insert(A, 1.0)


def test_an_adapter_is_pinned_until_its_last_request_is_gone():
    one = cache(A, B)
    one.pin(A)
    one.pin(A)
    assert (one.pinned, one.pinned_tokens) == ({A.id}, 8)
    assert [one.is_idle(adapter.id) for adapter in ALL] == [False, True, False], "the third is not resident"
    one.unpin(A, 0.0)
    assert one.is_pinned(A)
    one.unpin(A, 0.0)
    assert not one.is_pinned(A)
    assert (one.pinned, one.pinned_tokens, one.adapter_tokens) == (set(), 0, 16)


def test_a_pinned_adapter_is_never_evicted():
    one = cache(A, B)
    one.pin(A)
    assert one.make_room(kv_tokens=30) == 30 + 8 - 32, "what is still short without B"
    assert resident(one) == "a"


def test_an_eviction_policy_that_names_a_pinned_adapter_is_caught():
    one = AdapterCache(32, lambda idle, short: [A])
    for adapter in (A, B):
        one.insert(adapter, 0.0)
    one.pin(A)
    use(one, B)
    with pytest.raises(AssertionError, match="adapter a is pinned and was evicted"):
        one.sweep()


@pytest.mark.parametrize("eviction, left", [(OnDemand, "b"), (Lru, "abc")])
def test_on_demand_a_sweep_drops_every_idle_adapter(eviction, left):
    one = cache(*ALL, eviction=eviction)
    one.pin(B)
    one.sweep()
    assert resident(one) == left
    assert one.adapter_tokens == 8 * len(left)


@pytest.mark.parametrize(
    "eviction, kv_tokens, left",
    [(Lru, *row) for row in ((8, "abc"), (9, "bc"), (16, "bc"), (17, "c"), (25, ""))]
    + [(OnDemand, 8, "abc"), (OnDemand, 9, "")],
)
def test_for_room_the_least_recently_used_leave_just_as_many_as_it_takes_or_on_demand_all(
    eviction, kv_tokens, left
):
    one = cache(*ALL, eviction=eviction)
    assert one.make_room(kv_tokens=kv_tokens) == 0
    assert resident(one) == left


def test_using_an_adapter_again_makes_it_the_last_to_leave():
    one = cache(*ALL)
    use(one, A)
    one.make_room(kv_tokens=9)
    assert resident(one) == "ac"


def test_room_can_be_made_for_more_than_kv():
    one = cache(A, B)
    assert one.make_room(kv_tokens=12, more=8) == 0
    assert resident(one) == "b"


def test_prefetched_adapters_leave_after_all_others_the_latest_first_and_are_not_swept():
    one = cache(A)
    one.insert(B, 0.0)
    one.insert(C, 0.0)
    left = []
    for kv_tokens in (9, 17, 25):
        one.make_room(kv_tokens)
        left.append(resident(one))
    assert left == ["bc", "b", ""]
    one = cache(eviction=OnDemand)
    one.insert(A, 0.0)
    one.sweep()
    assert resident(one) == "a"


def test_a_divided_pool_lends_neither_side_any_room():
    one = cache(A, B, adapter_capacity=16)
    assert (one.room, cache().room) == (16, 32)
    assert one.free_tokens(kv_tokens=30) == 2
    assert one.adapter_room(kv_tokens=32, keep=()) == 16, "they are idle and may be replaced"
    assert one.adapter_room(kv_tokens=32, keep={B.id}) == 8, "but for those to keep"
    one.pin(A)
    assert one.adapter_room(kv_tokens=32, keep=()) == 8
    one.unpin(A, 0.0)
    assert one.make_room(kv_tokens=32) == 0
    assert resident(one) == "ab", "KV needs none of theirs"
    assert one.make_room(kv_tokens=35) == 3, "and they have none for it"
    assert one.make_room(kv_tokens=32, more=8, keep={A.id, B.id}) == 8
    assert one.make_room(kv_tokens=32, more=8) == 0
    assert resident(one) == "a", "used last"


def test_a_shared_pool_has_the_same_room_for_both():
    one = cache(A)
    assert one.free_tokens(kv_tokens=20) == one.adapter_room(kv_tokens=20, keep=()) == 4


def test_listeners_hear_of_each_adapter_that_comes_or_leaves_and_of_all_that_leave_at_once():
    one = cache(A, eviction=OnDemand)
    changes: list[tuple[int, bool]] = []
    evicted: list[str] = []
    found: list[float] = []
    one.on_change += (lambda id, resident: changes.append((id, resident)),)
    one.on_change += (lambda id, resident: found.append(one.ready_s[id]) if resident else None,)
    one.on_evict += (lambda gone: evicted.append("".join(adapter.name for adapter in gone)),)
    one.insert(B, 2.5)
    one.pin(B)
    assert (changes, found) == ([(B.id, True)], [2.5]), (
        "it is there when it is told of; pinning changes nothing"
    )
    one.unpin(B, 0.0)
    one.sweep()
    assert changes[1:] == [(A.id, False), (B.id, False)]
    assert evicted == ["ab"]
