"""Hosts that fail: whose requests begin anew where, with which tokens, and what is left of adapters."""

from __future__ import annotations

import gc

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from experiments.torture.watch import watched
from simlora.api.facts import adapter_facts, failure_facts
from simlora.core.errors import InputError
from simlora.engine.cluster.simulation import Simulation
from simlora.engine.incidents import Failure
from simlora.engine.replica.kv_cache_manager import KVCacheManager
from simlora.metrics.journal import Failed
from simlora.metrics.recorder import Sample
from tests.engine.by_hand import load_s, prefill_s, steps_s
from tests.engine.cases import Case, Row, failing
from tests.engine.observing import holds_nothing
from tests.engine.test_fast_forward import assert_same


def case(*rows: Row, failures: tuple[tuple[int, float, float | None], ...], **changes: object) -> Case:
    known = {"ranks": (1, 1), "replicas": 2, "kernel": "merged", "reserve": "full", "eviction": "lru"}
    return Case(rows=rows, failures=failures, **(known | changes))  # type: ignore[arg-type]


LONG = Row(0.0, None, 9, 40, 40)


def test_a_request_goes_on_elsewhere_with_the_tokens_that_it_has() -> None:
    """Five steps are over when its host fails, in the middle of the sixth; all its tokens are prefilled anew."""
    at_s = prefill_s(9) + steps_s(5, 10) + 0.01
    simulation = case(LONG, failures=((0, at_s, None),)).simulation()
    table = simulation.recorder.requests()
    assert table.status.tolist() == ["finished"]
    assert table.replica.tolist() == [1]
    assert table.migrations.tolist() == [1]
    again_s = at_s + prefill_s(9 + 6)
    assert table.finish_s[0] == pytest.approx(again_s + steps_s(40 - 7, 9 + 7))
    assert table.first_token_s[0] == pytest.approx(prefill_s(9)), "that was had before"
    (moved,) = simulation.recorder.journal.moved
    assert (moved.source, moved.target, moved.recomputed_tokens) == (0, 1, 15)
    assert moved.reason == "host 0 failed"


def test_a_prefill_that_is_under_way_is_lost() -> None:
    table = case(LONG, failures=((0, prefill_s(9) / 2, None),)).run().requests()
    assert table.first_token_s[0] == pytest.approx(1.5 * prefill_s(9))


def test_a_load_that_is_under_way_is_a_cold_start_until_then() -> None:
    """It waits for half of one, and elsewhere for all of another; nothing was prefilled."""
    table = case(Row(0.0, 0, 9, 1, 1), failures=((0, load_s(1) / 2, None),)).run().requests()
    assert table.cold_start_s[0] == pytest.approx(1.5 * load_s(1))
    assert table.queue_s[0] == table.cold_start_s[0]


def test_who_waited_waits_elsewhere_and_nobody_is_lost() -> None:
    rows = tuple(Row(0.0, None, 9, 20, 20) for _ in range(9))
    simulation = case(*rows, failures=((0, 0.1, None),), max_num_seqs=1).simulation()
    table = simulation.recorder.requests()
    assert (table.status == "finished").all()
    assert (table.replica == 1).sum() >= 8
    assert simulation.fleet.outstanding.tolist() == [0, 0]


def test_the_requests_of_a_host_are_routed_in_the_order_in_which_they_came() -> None:
    """Two replicas fail together; whichever had them, their requests go to the other two in turn."""
    rows = tuple(Row(0.0, None, 9, 20, 20) for _ in range(9))
    failed = case(*rows, failures=((0, 0.1, None),), max_num_seqs=1, replicas=4, replicas_per_host=2)
    table = failed.run().requests()
    moved = table[table.migrations > 0]
    assert moved.request_id.tolist() == [0, 1, 4, 5, 8]
    assert moved.replica.tolist() in ([2, 3, 2, 3, 2], [3, 2, 3, 2, 3])


def test_a_host_that_fails_as_soon_as_it_is_back_is_not_there() -> None:
    """It is so from 1 s to 5 s: requests that arrive meanwhile wait for that, and are served once."""
    rows = (Row(0.0, None, 1, 2, 2), Row(1.5, None, 1, 2, 2), Row(3.5, None, 1, 2, 2))
    simulation = case(*rows, failures=((0, 3.0, 5.0), (0, 1.0, 3.0)), replicas=1, max_num_seqs=1).simulation()
    table = simulation.recorder.requests()
    assert table.first_token_s[1:].tolist() == pytest.approx(
        [5.0 + prefill_s(1), 5.0 + 2 * prefill_s(1) + steps_s(1, 2)]
    )
    assert simulation.recorder.token_steps == 3
    assert [failed.time_s for failed in simulation.recorder.journal.failed] == [1.0, 3.0]


def test_who_was_back_and_is_gone_for_good_is_not_waited_for() -> None:
    rows = (Row(1.5, None, 1, 2, 2), Row(4.0, None, 1, 2, 2))
    table = case(*rows, failures=((0, 1.0, 2.0), (0, 3.0, None)), replicas=1).run().requests()
    assert table.status.tolist() == ["finished", "rejected"]
    assert table.reason[1] == "no replica is left"


def test_a_host_that_comes_back_is_empty_and_serves_again() -> None:
    """Its adapter has to be loaded anew."""
    rows = (Row(0.0, 0, 1, 2, 2), Row(2.0, None, 1, 2, 2), Row(9.0, 0, 1, 2, 2))
    simulation = case(*rows, failures=((0, 1.0, 5.0),), placement="contiguous").simulation()
    table = simulation.recorder.requests()
    assert table.replica.tolist() == [0, 1, 0]
    assert table.cold_start_s.tolist() == pytest.approx([load_s(1), 0.0, load_s(1)])


@pytest.mark.parametrize("prefix_caching", [False, True])
def test_what_a_failed_replica_held_is_freed_at_once(prefix_caching: bool) -> None:
    """The garbage collector is off while a cluster runs; what is there is counted after each failure."""
    there: dict[int, int] = {}

    def count() -> int:
        return sum(issubclass(type(each), KVCacheManager) for each in gc.get_objects())

    def boundary(sample: Sample) -> None:
        if (failures_yet := len(running.recorder.journal.failed)) not in there:
            there[failures_yet] = count()

    gc.collect()
    before = count()
    rows = tuple(Row(0.25 * i, 0, 9, 4, 4) for i in range(40))
    failures = tuple((0, float(i), i + 0.5) for i in range(1, 8))
    running = Simulation(case(*rows, failures=failures, prefix_caching=prefix_caching).scenario())
    running.recorder.on_boundary += (boundary,)
    assert (running.run().requests().status == "finished").all()
    assert there == dict.fromkeys(range(8), before + 2)


def test_an_adapter_that_only_the_failed_host_held_is_read_from_storage() -> None:
    """64 bytes at 128 a second, and the latency; then a load."""
    rows = (Row(2.0, 0, 1, 2, 2), Row(9.0, 0, 1, 2, 2))
    known = {"placement": "contiguous", "adapter_pool": "distributed", "eviction": "on_demand"}
    simulation = case(*rows, failures=((0, 1.0, None),), **known).simulation()
    table = simulation.recorder.requests()
    assert table.replica.tolist() == [1, 1]
    assert table.cold_start_s[0] == pytest.approx(2**-6 + 64 / 128 + load_s(1))
    assert table.cold_start_s[1] == pytest.approx(load_s(1)), "it lies in the other's memory since"
    assert simulation.recorder.storage_loads == 1


def test_one_that_another_host_holds_too_comes_from_there() -> None:
    rows = (Row(0.5, 0, 1, 2, 2), Row(2.0, 0, 1, 2, 2))
    known = {"adapter_pool": "distributed", "replicas": 3}
    simulation = case(*rows, failures=((0, 1.0, None),), **known).simulation()
    assert simulation.recorder.storage_loads == 0
    assert (simulation.recorder.requests().status == "finished").all()


def test_a_replica_that_has_failed_is_not_chosen() -> None:
    rows = tuple(Row(1.0 + i, None, 1, 2, 2) for i in range(4))
    table = case(*rows, failures=((1, 0.5, None),)).run().requests()
    assert table.replica.tolist() == [0, 0, 0, 0]


def test_while_all_are_gone_requests_wait_for_the_first_to_come_back() -> None:
    failures = ((0, 1.0, 4.0), (1, 1.0, None))
    table = case(Row(2.0, None, 1, 1, 1), failures=failures).run().requests()
    assert table.replica.tolist() == [0]
    assert table.first_token_s[0] == pytest.approx(4.0 + prefill_s(1))


def test_or_are_turned_away_if_nobody_does() -> None:
    failures = ((0, 1.0, None), (1, 1.5, None))
    table = case(
        LONG._replace(output_tokens=400, max_output_tokens=400), Row(2.0, None, 1, 1, 1), failures=failures
    )
    found = table.run().requests()
    assert found.status.tolist() == ["rejected", "rejected"]
    assert found.reason.tolist() == ["no replica is left"] * 2


# What is said of it --------------------------------------------------------------------------


@pytest.mark.parametrize("fast_forward", [True, False])
def test_how_busy_a_replica_was_goes_on_when_it_is_back(fast_forward: bool) -> None:
    """It was busy until it failed, in the middle of its sixth step, and is again for one prefill."""
    at_s = prefill_s(9) + steps_s(5, 10) + 0.01
    rows = (LONG, Row(5.0, None, 3, 1, 1))
    of = case(*rows, replicas=1, failures=((0, at_s, 4.0),))
    (replica,) = of.simulation(fast_forward=fast_forward).fleet.replicas
    again_s = prefill_s(9 + 6) + steps_s(40 - 7, 9 + 7)
    assert replica.busy_s == pytest.approx(at_s + again_s + prefill_s(3))


def test_who_was_roused_and_had_not_begun_when_it_failed_was_not_busy_since_its_last_work() -> None:
    of = case(Row(0.0, None, 1, 1, 1), Row(1.0, None, 1, 1, 1), replicas=1, failures=((0, 1.0, 3.0),))
    (replica,) = of.simulation().fleet.replicas
    assert replica.busy_s == pytest.approx(2 * prefill_s(1))


def test_how_busy_its_host_link_was_goes_on_and_a_load_that_broke_off_counts_in_part() -> None:
    half_s = load_s(1) / 2
    rows = (Row(0.0, 0, 1, 1, 1), Row(9.0, 0, 1, 1, 1))
    of = case(*rows, placement="contiguous", failures=((0, half_s, 5.0),), eviction="on_demand")
    links = [replica.host_link.to_gpu.busy_s for replica in of.simulation().fleet.replicas]
    assert links == pytest.approx([half_s + load_s(1), load_s(1)])


def test_who_came_from_elsewhere_did_not_wait_at_the_boundaries_before() -> None:
    """Three come in the middle of a step of the first, whose own host fails before that step ends."""
    at_s = prefill_s(9) + steps_s(5, 10) + 0.01
    rows = (LONG._replace(adapter=0), *(LONG._replace(adapter=1, prompt_tokens=1) for _ in range(3)))
    failures = ((1, at_s, None), (0, at_s + 2**-10, 9.0))
    of = case(*rows, placement="contiguous", loader="cached", failures=failures)
    for fast_forward in (True, False):
        simulation = of.simulation(fast_forward=fast_forward)
        assert simulation.recorder.journal.failed[1].requests == 4, "they were there"
        lost = simulation.recorder.journal.moved
        assert [(move.source, move.target) for move in lost[:3]] == [(1, 0)] * 3
    # When the host is back, all four wait for it at once; before it was one.
    of = of.but(failures=((1, at_s, None), (0, at_s + 2**-10, None)))
    found = [
        of.simulation(fast_forward=fast_forward).fleet.replicas[0].most_waiting
        for fast_forward in (True, False)
    ]
    assert found == [1, 1]


def test_who_comes_at_the_very_moment_of_a_boundary_is_there_when_it_is_reached() -> None:
    """Failures are before boundaries of their time, whatever the number of the host that failed."""
    at_s = prefill_s(9) + steps_s(5, 10)
    rows = (LONG._replace(adapter=0), LONG._replace(adapter=1, arrival_s=2**-6))
    of = case(*rows, placement="contiguous", loader="cached", max_wait_tokens=0, failures=((1, at_s, None),))
    fast, plain = of.simulation(), of.simulation(fast_forward=False)
    assert at_s in {run.time_s for run in plain.recorder.journal.failed}
    assert_same(fast, plain)


def test_failures_are_written_down_with_what_they_cost() -> None:
    """The first runs, the second waits, and both go on elsewhere; no other replica holds their adapter."""
    at_s = prefill_s(9) + load_s(1) + steps_s(5, 10) + 0.01
    rows = (LONG._replace(adapter=0), LONG._replace(adapter=0))
    of = case(
        *rows,
        placement="contiguous",
        adapter_pool="distributed",
        max_num_seqs=1,
        failures=((0, at_s, 2.0), (1, 99.0, None)),
    )
    simulation = of.simulation()
    (failed, late) = simulation.recorder.journal.failed
    assert failed == Failed(at_s, 0, 2.0, 2, 1, 15, 1)
    assert late.time_s == 99.0
    makespan_s = simulation.recorder.last_s
    facts = failure_facts(simulation, makespan_s)
    assert facts is not None
    assert {name: facts[name] for name in ("failures", "hosts", "requests", "restarted")} == {
        "failures": 1,
        "hosts": 1,
        "requests": 2,
        "restarted": 1,
    }, "what fails when all requests have ended is of no consequence"
    assert facts["downtime_s"] == pytest.approx(2.0 - at_s)
    assert (facts["recomputed_tokens"], facts["lost_adapters"], facts["storage_loads"]) == (15, 1, 1)
    assert [one["host"] for one in facts["each"]] == [0]
    host_facts = adapter_facts(simulation, makespan_s)
    assert host_facts["host_storage_loads"] == [0, 1]
    assert host_facts["host_remote_loads"] == [0, 0]
    assert host_facts["host_adapters"] == [1, 2]
    assert host_facts["host_adapters_at_end"] == [0, 0], "the second failed in the end"


def test_without_failures_there_are_no_failure_facts() -> None:
    simulation = case(LONG, failures=()).simulation()
    assert failure_facts(simulation, simulation.recorder.last_s) is None


@given(failing(), st.booleans())
def test_every_request_ends_whatever_fails(case: Case, fast_forward: bool) -> None:
    simulation = watched(case.scenario(fast_forward=fast_forward))
    table = simulation.recorder.requests()
    assert (table.status != "unfinished").all()
    done = table[table.status == "finished"]
    assert (done.arrival_s <= done.admitted_s).all()
    assert (done.first_token_s <= done.finish_s).all()
    assert simulation.fleet.outstanding.sum() == 0
    assert all(map(holds_nothing, simulation.fleet.replicas)), "everything is given back"
    event(f"moved: {len(simulation.recorder.journal.moved) > 0}")


@given(failing())
def test_fast_forward_equals_the_plain_loop_whatever_fails(case: Case) -> None:
    assert_same(case.simulation(), case.simulation(fast_forward=False))


@pytest.mark.parametrize(
    "failures, message",
    [
        (((2, 1.0, None),), "cluster.failures has host 2, must be one of the 2 hosts, from 0 on"),
        (
            ((0, 1.0, None), (0, 2.0, None)),
            "cluster.failures has host 0 at 2 s, when what began before is not over",
        ),
        (
            ((0, 1.0, 3.0), (0, 2.0, 4.0)),
            "cluster.failures has host 0 at 2 s, when what began before is not over",
        ),
    ],
)
def test_what_cannot_be_is_said_plainly(failures: tuple, message: str) -> None:
    with pytest.raises(InputError) as error:
        case(LONG, failures=failures).scenario()
    assert str(error.value) == message


def test_a_failure_ends_after_it_began() -> None:
    with pytest.raises(
        InputError, match=r"until_s of cluster\.failures is 3\.0, must be greater than 5 seconds"
    ):
        Failure(host=0, at_s=5.0, until_s=3.0)
