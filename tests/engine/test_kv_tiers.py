"""KV on the disks of hosts and in a store that replicas share: what is found, when it is there, and what it costs.

Times are sums by hand: a token's KV has 16 bytes, which take 2^-6 s over the network and 2^-5 s from a disk; to the
host and back it takes 2^-10 s, and a copy over PCIe begins with 2^-8 s.
"""

from functools import partial

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from experiments.torture.watch import watched
from simlora.engine.cluster.kv_tiers import KvTiers
from simlora.engine.parts.kv_store import KvStoring
from simlora.policies.eviction.banded_lru import BandedLru
from tests.engine.by_hand import chunks_s, kv_s, load_s, prefill_s
from tests.engine.cases import COEFFICIENTS as C
from tests.engine.cases import IRREGULAR, LOADERS, Case, Row, pressed, shared_prefixes, tiered

NETWORK_S, DISK_S = 2**-9, 2**-7
"""Latencies of a copy over the network, and from a disk."""
TWO = ((1, 4), (1, 4))
"""Prompts of nine tokens, of which eight are in two blocks with these hashes."""


def case(*rows: Row, hashes: tuple[tuple[int, ...], ...] = TWO, **changes: object) -> Case:
    """Two replicas in turn, each on a host of its own, with room for KV on the host, that always fetch."""
    known = {"kernel": "merged", "reserve": "full", "max_wait_tokens": 0, "eviction": "lru", "replicas": 2}
    cached = {"prefix_caching": True, "host_kv_tokens": 10_000, "kv_fetch": "always", "block_hashes": hashes}
    return Case(rows=rows, **(known | cached | changes))  # type: ignore[arg-type]


def found(of: Case) -> list[int]:
    """The cached tokens of each request."""
    tokens: list[int] = of.table().cached_tokens.tolist()
    return tokens


AFTER = case(Row(0.0, None, 9, 2, 2), Row(4.0, None, 9, 2, 2), kv_store_tokens=10_000)
"""The second request goes to another replica than the first, which has ended."""


@pytest.mark.parametrize("servers", [1, 2])
def test_another_replica_finds_in_the_store_what_one_has_computed(servers):
    """Over its own card the copy takes as long however many servers there are; the last token has to be computed."""
    simulation = AFTER.but(kv_store_servers=servers).simulation()
    table = simulation.recorder.requests()
    waits_s = 8 * 2**-6 + NETWORK_S + kv_s(8)
    assert table.cached_tokens.tolist() == [0, 8]
    assert table.kv_cold_start_s[1] == pytest.approx(waits_s)
    assert table.ttft_s[1] == pytest.approx(waits_s + chunks_s((8, 1)))
    assert simulation.kv_tiers.facts() == {
        "tokens_to_disk": 0, "tokens_from_disk": 0, "tokens_to_store": 8, "tokens_from_store": 8,
    }  # fmt: skip


def test_a_disk_serves_the_replicas_of_its_host_only():
    on_disk = AFTER.but(kv_store_tokens=0, kv_disk_tokens=10_000)
    assert found(on_disk) == [0, 0]
    simulation = on_disk.but(replicas_per_host=2).simulation()
    table, waits_s = simulation.recorder.requests(), 8 * 2**-5 + DISK_S + kv_s(8)
    assert table.cached_tokens.tolist() == [0, 8]
    assert table.ttft_s[1] == pytest.approx(waits_s + chunks_s((8, 1)))


@pytest.mark.parametrize("policy, waits", [("write_back", 1), ("write_through", 0)])
def test_kv_that_was_written_when_it_was_computed_leaves_without_a_copy(policy, waits):
    """The second prompt drives the first out of HBM, and the third drives the second out and begins as the first."""
    rows = [Row(4.0 * at, None, 9, 2, 2) for at in range(3)]
    simulation = case(
        *rows, hashes=((1, 4), (2, 8), (1, 4)), replicas=1, capacity=12, host_kv_write_policy=policy
    ).simulation()
    table, (replica,) = simulation.recorder.requests(), simulation.fleet.replicas
    assert table.ttft_s[0] == chunks_s((0, 9))
    assert table.ttft_s[1] == pytest.approx(waits * kv_s(8) + chunks_s((0, 9)))
    assert table.ttft_s[2] == pytest.approx(waits * kv_s(8) + kv_s(8) + chunks_s((8, 1)))
    assert table.cached_tokens.tolist() == [0, 0, 8]
    assert (replica.host_link.kv_tokens_out, replica.host_link.kv_tokens_in) == (16, 8)


def test_kv_that_leaves_before_its_copy_has_ended_keeps_its_slots_until_then():
    rows = Row(0.0, None, 9, 1, 1), Row(0.0, None, 9, 1, 1)
    of = {"replicas": 1, "capacity": 12, "max_num_seqs": 1, "host_kv_write_policy": "write_through"}
    table = case(*rows, hashes=((1, 4), (2, 8)), **of).table()
    assert kv_s(8) > 0
    assert table.first_token_s[1] == pytest.approx(chunks_s((0, 9)) + kv_s(8) + chunks_s((0, 9)))


def test_a_disk_has_what_hbm_and_the_host_have_no_room_for():
    """Each prompt drives the one before out of HBM, and that the one before it out of a host for eight tokens."""
    rows = tuple(Row(4.0 * i, None, 15, 2, 2) for i in range(4))
    small = case(*rows, hashes=((1, 4), (2, 8), (3, 9), (1, 4)), replicas=1, capacity=20, host_kv_tokens=8)
    assert found(small) == [0, 0, 0, 0]
    assert found(small.but(host_kv_tokens=16)) == [0, 0, 0, 8]
    assert found(small.but(kv_disk_tokens=100)) == [0, 0, 0, 8]


def test_what_the_host_has_is_not_fetched_again_and_the_rest_comes_from_the_nearest():
    """The disk has two blocks of the second prompt; the third replica's host, none: it takes four from the store."""
    rows = tuple(Row(4.0 * i, None, 17, 2, 2) for i in range(3))
    tokens = ((1, 4, 9, 9), (1, 4, 8, 8), (1, 4, 8, 8))
    three = case(*rows, hashes=tokens, replicas=3, replicas_per_host=2)
    simulation = three.but(kv_disk_tokens=10_000, kv_store_tokens=10_000).simulation()
    assert simulation.recorder.requests().cached_tokens.tolist() == [0, 8, 16]
    facts = simulation.kv_tiers.facts()
    assert (facts["tokens_from_disk"], facts["tokens_from_store"]) == (8, 16)
    assert facts["tokens_to_store"] == 16 + 8, "blocks that are stored are not written again"


def test_kv_of_another_adapter_is_not_found():
    rows = (Row(0.0, 0, 9, 2, 2), Row(4.0, 1, 9, 2, 2), Row(8.0, 0, 9, 2, 2), Row(12.0, 0, 9, 2, 2))
    of = case(*rows, hashes=TWO * 2, kv_store_tokens=10_000)
    assert found(of) == [0, 0, 8, 8]
    assert found(of.but(block_hashes=None, sessions=("s",) * 4)) == [0, 0, 8, 8]


def test_a_store_drops_what_was_used_longest_ago_from_its_end():
    """Room for three blocks: of the first two prompts the second, and the first block of the first, are left."""
    rows = tuple(Row(4.0 * i, None, 9, 1, 1) for i in range(4))
    of = case(*rows, hashes=((1, 4), (2, 8), (1, 4), (2, 8)), replicas=4, kv_store_tokens=12)
    # The third request's own two blocks drive out one of the second prompt's.
    assert found(of) == [0, 0, 4, 4]
    assert found(of.but(kv_store_tokens=16)) == [0, 0, 8, 8]


def test_fetches_of_two_replicas_share_the_card_of_the_server():
    """The first was there alone; the other two ask at once, and two servers have twice the bandwidth."""
    rows = (Row(0.0, None, 9, 1, 1), Row(4.0, None, 9, 1, 1), Row(4.0, None, 9, 1, 1))
    of = case(*rows, hashes=TWO[:1] * 3, replicas=3, kv_store_tokens=10_000)
    alone_s, rest_s = 8 * 2**-6, NETWORK_S + kv_s(8) + chunks_s((8, 1))
    assert of.table().ttft_s[1:].tolist() == pytest.approx([alone_s + rest_s, 2 * alone_s + rest_s])
    two = of.but(kv_store_servers=2).table().ttft_s[1:].tolist()
    assert two == pytest.approx([alone_s + rest_s] * 2)


@pytest.mark.parametrize("faster", [False, True])
def test_by_cost_it_is_fetched_only_if_that_takes_less_time_than_computing_it(faster):
    """The fetch takes a little more, or a little less, than the prefill of eight tokens, each of which takes 2^-5 s."""
    slow = 2**-5 - C["prefill.per_token_s"]
    saved_s = prefill_s(9) - chunks_s((8, 1)) + 8 * slow
    token_s = (saved_s * (0.99 if faster else 1.01) - NETWORK_S - kv_s(8)) / 8
    of = AFTER.but(kv_fetch="by_cost", network_bytes_per_s=16 / token_s)
    of = of.but(coefficients={**C, "prefill.per_token_s": 2**-5})
    simulation = of.simulation()
    table, storing = simulation.recorder.requests(), simulation.fleet.replicas[1].part(KvStoring)
    assert table.cached_tokens.tolist() == [0, 8 if faster else 0]
    assert (storing.tokens_fetched, storing.tokens_recomputed) == ((8, 0) if faster else (0, 8))
    computed_s = prefill_s(9) + 9 * slow
    assert table.ttft_s[1] == pytest.approx(computed_s - (0.01 * saved_s if faster else 0.0))


def test_of_two_tiers_the_one_is_asked_that_saves_more():
    """Both have it, and both would be faster than computing it; the network is eight times as fast as the disk."""
    slow = AFTER.but(
        kv_fetch="by_cost", coefficients={**C, "prefill.per_token_s": 2**-3}, replicas_per_host=2
    )
    both = slow.but(kv_disk_tokens=10_000, network_bytes_per_s=4096.0)
    facts = both.simulation().kv_tiers.facts()
    assert (facts["tokens_from_disk"], facts["tokens_from_store"]) == (0, 8)
    alone = both.but(kv_store_tokens=0)
    assert alone.simulation().kv_tiers.facts()["tokens_from_disk"] == 8
    assert both.table().ttft_s[1] < alone.table().ttft_s[1]


def test_what_no_tier_saves_is_counted_once():
    rows = (Row(0.0, None, 9, 2, 2), Row(4.0, None, 9, 2, 2))
    of = case(*rows, kv_fetch="by_cost", replicas_per_host=2, kv_disk_tokens=100, kv_store_tokens=100)
    storing = [replica.part(KvStoring) for replica in of.simulation().fleet.replicas]
    assert [part.tokens_recomputed for part in storing if part is not None] == [0, 8]


def test_a_straggler_fetches_what_it_would_compute_more_slowly():
    of = AFTER.but(kv_fetch="by_cost")
    assert found(of) == [0, 0]
    assert found(of.but(stragglers=((1, 3.0, 9.0, 100.0),))) == [0, 8]


def test_equal_prompts_are_written_once_although_none_is_there_yet():
    rows = tuple(Row(0.0, None, 9, 1, 1) for _ in range(4))
    facts = case(*rows, hashes=TWO * 2, replicas=4, kv_store_tokens=100).simulation().kv_tiers.facts()
    assert (facts["tokens_to_store"], facts["tokens_from_store"]) == (8, 0)


def test_a_write_that_overtakes_what_it_follows_is_found_behind_it():
    """With four servers a replica's own card takes longest, so that one block is there before the two before it."""
    rows = (Row(0.0, None, 9, 1, 1), Row(0.0, None, 13, 1, 1), Row(4.0, None, 13, 1, 1))
    of = case(
        *rows, hashes=((1, 4), (1, 4, 5), (1, 4, 5)), replicas=3, kv_store_tokens=100, kv_store_servers=4
    )
    assert found(of) == [0, 0, 12]
    # The first one's host fails while it writes: nothing can begin with the block that came alone.
    lost = of.but(failures=((0, 0.15, 1.0),), until_s=0.9).simulation()
    assert (lost.kv_tiers.shared.prefixes.tokens, len(lost.kv_tiers.shared.coming)) == (0, 0)


def test_kv_that_could_not_be_matched_is_not_fetched():
    """Without invalid KV, a request whose adapter was missing at its arrival begins with none."""
    rows = (Row(0.0, 0, 9, 2, 2), Row(4.0, 0, 9, 2, 2))
    of = case(*rows, kv_store_tokens=100)
    for matches, tokens in (True, 8), (False, 0):
        brings_nothing = partial(BandedLru, every_s=1000.0, idle=0.0, idle_to=0.0, dependencies=matches)
        brings_nothing = partial(brings_nothing, matches_invalid=matches)
        simulation = of.simulation(eviction=brings_nothing)
        assert simulation.recorder.requests().cached_tokens.tolist() == [0, tokens]
        assert simulation.kv_tiers.facts()["tokens_from_store"] == tokens


def test_no_more_is_fetched_than_the_host_has_room_for():
    rows = (Row(0.0, None, 17, 2, 2), Row(4.0, None, 17, 2, 2))
    simulation = case(*rows, hashes=((1, 4, 5, 6),) * 2, host_kv_tokens=9, kv_store_tokens=100).simulation()
    assert simulation.recorder.requests().cached_tokens.tolist() == [0, 8]
    assert simulation.kv_tiers.facts()["tokens_from_store"] == 8


def test_what_waits_on_the_host_is_kept_until_its_request_is_admitted_and_others_follow():
    """One request at a time, and room for one prompt on the host: the next but one is fetched when the next begins."""
    short = [(0.0, (1, 4), 2), (1.0, (), 2), (2.0, (2, 8), 2), (4.0, (), 30)]
    behind = [(4.1, (), 1), (4.125, (1, 4), 30), (4.15, (), 1), (4.175, (2, 8), 2)]
    rows = tuple(Row(at_s, None, 9, output, output) for at_s, _, output in (*short, *behind))
    of = case(
        *rows, hashes=tuple(hashes for _, hashes, _ in (*short, *behind)), host_kv_tokens=9, max_num_seqs=1
    )
    table = of.but(kv_store_tokens=100, network_bytes_per_s=4096.0).table()
    assert table.replica.tolist() == [0, 1] * 4
    assert table.cached_tokens.tolist()[5::2] == [8, 8]
    assert table.kv_cold_start_s[7] == pytest.approx(kv_s(8)), "it was there when its turn came"


def test_a_swapper_takes_what_was_fetched_at_the_same_boundary_however_many_steps_are_one_event():
    rows = [(1, None, 8), (2, 0, 1), (58, 0, 11), (59, 0, 1), (103, 0, 1), (104, 0, 1)]
    requests = tuple(Row(at * 0.00096398798828125, adapter, 9, out, out) for at, adapter, out in rows)
    small = {"ranks": (1,), "capacity": 32, "eviction": "cost_model", "coefficients": IRREGULAR}
    of = case(
        *requests, hashes=TWO * 3, host_kv_tokens=20, kv_store_tokens=40, network_bytes_per_s=4096.0, **small
    )
    fast, plain = (of.run(fast_forward=fast_forward) for fast_forward in (True, False))
    assert fast.requests().admitted_s.tolist() == pytest.approx(plain.requests().admitted_s.tolist())


def test_a_copy_that_waits_for_the_store_does_not_keep_the_link_to_the_gpu():
    """An adapter that is asked for meanwhile is loaded as if there were no such copy, but for its bytes."""
    rows = (Row(0.0, None, 9, 2, 2), Row(4.0, None, 9, 2, 2), Row(4.0, None, 1, 1, 1), Row(4.0, 0, 1, 1, 1))
    of = case(*rows, hashes=((1, 4), (1, 4), (), ()), loader="asynchronous", kv_store_tokens=10_000)
    table = of.but(network_bytes_per_s=64.0).table()
    assert table.cold_start_s[3] < load_s(1) + kv_s(8) + prefill_s(1) < table.kv_cold_start_s[1]
    assert table.first_token_s[3] < table.first_token_s[1]


@pytest.mark.parametrize(("replicas_per_host", "same"), [(1, False), (2, True)])
def test_a_replica_that_is_made_again_alone_on_its_host_has_another_disk(replicas_per_host, same):
    """As an autoscaler does, which rents another machine."""
    tiers = KvTiers(AFTER.but(kv_disk_tokens=10_000, replicas_per_host=replicas_per_host).scenario())
    disk, store = (each.store for each in tiers.of(0))
    disk_again, store_again = (each.store for each in tiers.of(0))
    assert (disk_again is disk, store_again is store) == (same, True)


@pytest.mark.parametrize("tier, tokens", [("kv_disk_tokens", 0), ("kv_store_tokens", 8)])
def test_with_a_host_its_disk_is_gone_and_the_store_stays(tier, tokens):
    rows = (Row(0.0, None, 9, 2, 2), Row(8.0, None, 9, 2, 2))
    of = case(*rows, replicas=1, failures=((0, 4.0, 5.0),), **{tier: 10_000})
    assert found(of) == [0, tokens]
    assert found(of.but(failures=())) == [0, 8]


def test_what_a_host_was_writing_when_it_failed_is_not_there():
    """The copy to the store takes from about 0.2 s to 0.4 s."""
    rows = (Row(0.0, None, 9, 30, 30), Row(8.0, None, 9, 2, 2))
    of = case(*rows, replicas=1, kv_store_tokens=10_000, network_bytes_per_s=256.0, capacity=200)
    write_s = 8 * 2**-4
    at_s = prefill_s(9) + kv_s(8) + write_s
    for fails_s, tokens in ((at_s - 0.01, 0), (at_s + 0.02, 8)):
        # It starts again with the first request, whose prompt it would store anew: that one is cut off by then.
        simulation = of.but(failures=((0, fails_s, 7.0),), until_s=7.0).simulation()
        assert simulation.kv_tiers.shared.prefixes.tokens == tokens


def test_a_slow_network_slows_the_cards_of_its_hosts():
    slow = AFTER.but(slow_links=((1, 3.0, 9.0, 4.0),))
    more_s = slow.table().ttft_s[1] - AFTER.table().ttft_s[1]
    assert more_s == pytest.approx(3 * (8 * 2**-6 + kv_s(8) - C["adapter_load.latency_s"]))


@given(st.one_of(tiered(shared_prefixes, loaders=tuple(LOADERS)), tiered(pressed)))
def test_stores_hold_what_they_have_room_for_and_what_is_fetched_is_counted_once(of):
    simulation = watched(of.scenario())
    tiers = simulation.kv_tiers
    rooms = [(disk, of.kv_disk_tokens) for disk in tiers.disks]
    rooms += [] if tiers.shared is None else [(tiers.shared, of.kv_store_tokens * of.kv_store_servers)]
    for store, tokens in rooms:
        assert 0 <= store.prefixes.tokens <= tokens
    storing = [part for replica in simulation.fleet.replicas if (part := replica.part(KvStoring)) is not None]
    assert len(storing) == of.replicas
    fetched = sum(part.tokens_fetched for part in storing)
    assert fetched == sum(store.tokens_out for store, _ in rooms)
    fits = all(row.prompt_tokens + row.output_tokens <= of.host_kv_tokens for row in of.rows)
    assert of.kv_fetch == "by_cost" or not fits or not any(part.tokens_recomputed for part in storing)
    assert set(simulation.recorder.requests().status) <= {"finished", "rejected", "aborted"}
    event(f"fetched: {fetched > 0}")
