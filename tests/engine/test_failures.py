"""Hosts that fail: whose requests begin anew where, with which tokens, and what is left of adapters.

Stragglers and slow links: what takes longer, from when on, and what does not.
"""

import gc

import pytest

from simlora.api.facts import adapter_facts, failure_facts
from simlora.engine.cluster.simulation import Simulation
from simlora.engine.replica.kv_cache_manager import KVCacheManager
from simlora.metrics.journal import Failed
from simlora.metrics.recorder import Sample
from tests.engine.by_hand import load_s, merge_s, prefill_s, steps_s
from tests.engine.cases import Case, Row

case = Case(ranks=(1, 1), replicas=2, kernel="merged", reserve="full", eviction="lru").of
LONG = Row(0.0, None, 9, 40, 40)
SIXTH_S, SEVENTH_S = (prefill_s(9) + steps_s(steps, 10) for steps in (5, 6))
"""When LONG begins its sixth step, with six tokens, and its seventh."""


def short(arrival_s: float, adapter: int | None = None, output_tokens: int = 2) -> Row:
    return Row(arrival_s, adapter, 1, output_tokens, output_tokens)


def test_a_request_goes_on_elsewhere_with_the_tokens_that_it_has():
    """Five steps are over when its host fails, in the middle of the sixth; all its tokens are prefilled anew."""
    at_s = SIXTH_S + 0.01
    recorder = case(LONG, failures=((0, at_s, None),)).run()
    row = recorder.requests().loc[0]
    assert (row.status, row.replica, row.migrations) == ("finished", 1, 1)
    assert row.finish_s == pytest.approx(at_s + prefill_s(9 + 6) + steps_s(40 - 7, 9 + 7))
    assert row.first_token_s == pytest.approx(prefill_s(9)), "that was had before"
    (moved,) = recorder.journal.moved
    assert (moved.source, moved.target, moved.recomputed_tokens) == (0, 1, 15)
    assert moved.reason == "host 0 failed"


def test_a_prefill_that_is_under_way_is_lost_and_a_load_is_a_cold_start_until_then():
    """It waits for half of one, and elsewhere for all of another; nothing was prefilled."""
    row = case(LONG, failures=((0, prefill_s(9) / 2, None),)).table().loc[0]
    assert row.first_token_s == pytest.approx(1.5 * prefill_s(9))
    row = case(Row(0.0, 0, 9, 1, 1), failures=((0, load_s(1) / 2, None),)).table().loc[0]
    assert row.queue_s == row.cold_start_s == pytest.approx(1.5 * load_s(1))


def test_the_requests_of_a_host_are_routed_in_the_order_in_which_they_came():
    """Two replicas fail together; whichever had them, their requests go to the other two in turn."""
    rows = (Row(0.0, None, 9, 20, 20),) * 9
    failed = case(*rows, failures=((0, 0.1, None),), max_num_seqs=1, replicas=4, replicas_per_host=2)
    table = failed.table()
    moved = table[table.migrations > 0]
    assert moved.request_id.tolist() == [0, 1, 4, 5, 8]
    assert moved.replica.tolist() in ([2, 3, 2, 3, 2], [3, 2, 3, 2, 3])


def test_a_host_that_fails_as_soon_as_it_is_back_is_not_there():
    """It is so from 1 s to 5 s: requests that arrive meanwhile wait for that, and are served once."""
    rows = (short(0.0), short(1.5), short(3.5))
    recorder = case(*rows, failures=((0, 3.0, 5.0), (0, 1.0, 3.0)), replicas=1, max_num_seqs=1).run()
    first_s = [5.0 + prefill_s(1), 5.0 + 2 * prefill_s(1) + steps_s(1, 2)]
    assert recorder.requests().first_token_s[1:].tolist() == pytest.approx(first_s)
    assert recorder.token_steps == 3
    assert [failed.time_s for failed in recorder.journal.failed] == [1.0, 3.0]


def test_what_a_failed_replica_held_is_freed_at_once():
    """The garbage collector is off while a cluster runs; what is there is counted after each failure."""
    there: dict[int, int] = {}

    def count() -> int:
        return sum(issubclass(type(each), KVCacheManager) for each in gc.get_objects())

    def boundary(sample: Sample) -> None:
        if (failures_yet := len(running.recorder.journal.failed)) not in there:
            there[failures_yet] = count()

    gc.collect()
    before = count()
    rows = tuple(Row(0.25 * i, 0, 9, 4, 4) for i in range(16))
    failures = tuple((0, float(i), i + 0.5) for i in range(1, 4))
    running = Simulation(case(*rows, failures=failures, prefix_caching=True).scenario())
    running.recorder.on_boundary += (boundary,)
    assert (running.run().requests().status == "finished").all()
    assert there == dict.fromkeys(range(4), before + 2)


def test_while_all_are_gone_requests_wait_for_the_first_to_come_back():
    row = case(short(2.0, None, 1), failures=((0, 1.0, 4.0), (1, 1.0, None))).table().loc[0]
    assert (row.replica, row.first_token_s) == (0, pytest.approx(4.0 + prefill_s(1)))


@pytest.mark.parametrize("failures", [((0, 1.0, None),), ((0, 1.0, 1.25), (0, 1.75, None))])
def test_or_are_turned_away_if_none_does(failures):
    """So does one that ran when the last host failed; a host that was back and is gone for good is not waited for."""
    rows = (LONG._replace(output_tokens=400, max_output_tokens=400), short(2.0))
    table = case(*rows, failures=((1, 1.5, None), *failures)).table()
    assert table.status.tolist() == ["rejected", "rejected"]
    assert table.reason.tolist() == ["no replica is left"] * 2


# What is said of it --------------------------------------------------------------------------


def test_how_busy_a_replica_was_goes_on_when_it_is_back():
    """It was busy until it failed, in the middle of its sixth step, and is again for one prefill."""
    at_s = SIXTH_S + 0.01
    of = case(LONG, Row(5.0, None, 3, 1, 1), replicas=1, failures=((0, at_s, 4.0),))
    (replica,) = of.simulation().fleet.replicas
    again_s = prefill_s(9 + 6) + steps_s(40 - 7, 9 + 7)
    assert replica.busy_s == pytest.approx(at_s + again_s + prefill_s(3))


def test_one_that_was_roused_and_had_not_begun_when_it_failed_was_not_busy_since_its_last_work():
    of = case(short(0.0, None, 1), short(1.0, None, 1), replicas=1, failures=((0, 1.0, 3.0),))
    (replica,) = of.simulation().fleet.replicas
    assert replica.busy_s == pytest.approx(2 * prefill_s(1))


def test_how_busy_its_host_link_was_goes_on_and_a_load_that_broke_off_counts_in_part():
    half_s = load_s(1) / 2
    of = case(short(0.0, 0, 1), short(9.0, 0, 1), placement="contiguous", failures=((0, half_s, 5.0),))
    replicas = of.but(eviction="on_demand").simulation().fleet.replicas
    links = [replica.host_link.to_gpu.busy_s for replica in replicas]
    assert links == pytest.approx([half_s + load_s(1), load_s(1)])


def test_failures_are_written_down_with_what_they_cost():
    """The first runs, the second waits, and both go on elsewhere; no other replica holds their adapter."""
    at_s = SIXTH_S + load_s(1) + 0.01
    rows = (LONG._replace(adapter=0), LONG._replace(adapter=0))
    failures = ((0, at_s, 2.0), (1, 99.0, None))
    known = {"placement": "contiguous", "adapter_pool": "distributed", "max_num_seqs": 1}
    simulation = case(*rows, failures=failures, **known).simulation()
    (failed, late) = simulation.recorder.journal.failed
    assert failed == Failed(at_s, 0, 2.0, 2, 1, 15, 1)
    assert late.time_s == 99.0
    makespan_s = simulation.recorder.last_s
    facts = failure_facts(simulation, makespan_s)
    assert [one["host"] for one in facts["each"]] == [0], "what fails after all requests is of no consequence"
    counts = {"failures": 1, "hosts": 1, "requests": 2, "restarted": 1}
    counts |= {"recomputed_tokens": 15, "lost_adapters": 1, "storage_loads": 1}
    assert counts.items() <= facts.items()
    assert facts["downtime_s"] == pytest.approx(2.0 - at_s)
    of_hosts = {
        "host_storage_loads": [0, 1],
        "host_remote_loads": [0, 0],
        "host_adapters": [1, 2],
        "host_adapters_at_end": [0, 0],  # the second failed in the end
    }
    assert of_hosts.items() <= adapter_facts(simulation, makespan_s).items()


# Stragglers and slow links -------------------------------------------------------------------


alone = case(replicas=1).of


def one(arrival_s: float, adapter: int | None) -> Row:
    return Row(arrival_s, adapter, 9, 1, 1)


def test_the_step_under_way_goes_on_as_it_began_and_the_next_is_slower():
    """It gets slow in the middle of the sixth step, and is itself again in the middle of a slow one."""
    until_s = SEVENTH_S + 3 * steps_s(2, 16) + 0.01
    table = alone(LONG, stragglers=((0, SIXTH_S + 0.01, until_s, 3.0),)).table()
    assert table.finish_s[0] == pytest.approx(SEVENTH_S + 3 * steps_s(3, 16) + steps_s(39 - 9, 19))


def test_at_the_very_moment_of_a_boundary_the_next_step_is_slow():
    table = alone(LONG, stragglers=((0, SIXTH_S, None, 2.0),)).table()
    assert table.finish_s[0] == pytest.approx(SIXTH_S + 2 * steps_s(34, 15))


MERGES = {"scheduler": "merged_only", "loader": "cached"}


@pytest.mark.parametrize(
    "row, changes, cold_s, ttft_s",
    [
        (one(0.0, 0), {"stragglers": ((0, 0.0, None, 4.0),)} | MERGES, 0.0, 4 * (merge_s(1) + prefill_s(9))),
        (one(0.0, 0), {"stragglers": ((0, 0.0, None, 4.0),)}, load_s(1), load_s(1) + 4 * prefill_s(9)),
        (one(5.0, 0), {"slow_links": ((0, 1.0, None, 8.0),)}, 8 * load_s(1), 8 * load_s(1) + prefill_s(9)),
        (one(0.0, 0), {"slow_links": ((0, load_s(1) / 2, None, 8.0),)}, load_s(1), load_s(1) + prefill_s(9)),
        (one(2.0, None), {"stragglers": ((0, 1.0, 1.5, 2.0), (0, 1.75, None, 3.0))}, 0.0, 3 * prefill_s(9)),
        (one(0.0, None), {"stragglers": ((0, 0.005, None, 2.0),)}, 0.0, prefill_s(9)),
        (one(0.0, None), {"stragglers": ((0, 0.0, None, 0.5),)}, 0.0, prefill_s(9) / 2),
        (one(0.0, None), {"stragglers": ((1, 0.0, None, 2.0),), "replicas": 2}, 0.0, prefill_s(9)),
    ],
    ids=[
        "a straggler merges slowly, too",
        "and loads as fast as ever",
        "over a slow link loads take longer and computing does not",
        "a transfer under way goes on as it began",
        "an idle replica that gets slow is slow when it has work",
        "a prefill under way goes on as it began",
        "one may be fast",
        "only the one that straggles is slow",
    ],
)
def test_what_is_slow(row, changes, cold_s, ttft_s):
    found = alone(row, **changes).table().loc[0]
    assert (found.cold_start_s, found.ttft_s) == pytest.approx((cold_s, ttft_s))


def test_a_host_with_slow_links_is_slow_to_give_and_to_take_over_the_network():
    of = alone(one(1.0, 0), replicas=2, adapter_pool="distributed", placement="contiguous")
    simulation = Simulation(of.but(slow_links=((1, 0.0, None, 8.0),)).scenario())
    simulation.run()
    stores = simulation.store
    to_host = [replica.host_link.to_host for replica in simulation.fleet.replicas]
    for links in (stores._sends, stores._receives, to_host):
        assert [link.slowdown for link in links] == [1.0, 8.0]
    stores.fail(1)
    assert [link.slowdown for link in stores._receives] == [1.0, 8.0], "also when it comes back"
    cold_s = simulation.recorder.requests().cold_start_s[0]
    assert cold_s == pytest.approx(load_s(1)), "the other's are as they were"


def test_a_host_that_comes_back_is_as_slow_as_it_was_and_so_is_each_of_its_replicas():
    slow = {"stragglers": ((0, 0.0, None, 2.0),), "slow_links": ((0, 0.0, None, 8.0),)}
    back = {"failures": ((0, 1.0, 2.0),)} | slow
    assert alone(one(3.0, 0), **back).table().ttft_s[0] == pytest.approx(8 * load_s(1) + 2 * prefill_s(9))
    table = alone(Row(3.0, None, 9, 40, 40), one(3.0, 0), replicas=2, replicas_per_host=2, **back).table()
    assert table.replica.tolist() == [0, 1]
    assert table.cold_start_s[1] == pytest.approx(8 * load_s(1))


def test_what_begins_when_the_one_before_it_ends_is_not_ended_with_it():
    """Whatever the order in which they are listed."""
    slow = ((0, 2.0, 3.0, 4.0), (0, 1.0, 2.0, 2.0))
    table = alone(one(2.5, 0), stragglers=slow, slow_links=slow).table()
    assert table.ttft_s[0] == pytest.approx(4 * load_s(1) + 4 * prefill_s(9))
