"""Hosts that fail: whose requests begin anew where, with which tokens, and what is left of adapters."""

from __future__ import annotations

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from simlora.core.errors import InputError
from simlora.engine.scenario import Failure
from tests.engine.by_hand import load_s, prefill_s, steps_s
from tests.engine.cases import Case, Row, failing
from tests.engine.test_fast_forward import assert_same
from tests.invariants.watch import watched


def case(*rows: Row, failures: tuple[tuple[int, float, float | None], ...], **changes: object) -> Case:
    known = {"ranks": (1, 1), "replicas": 2, "kernel": "merged", "reserve": "full", "eviction": "lru"}
    return Case(rows=rows, failures=failures, **(known | changes))  # type: ignore[arg-type]


LONG = Row(0.0, None, 9, 40, 40)


def test_a_request_goes_on_elsewhere_with_the_tokens_that_it_has() -> None:
    """Five steps are over when its host fails, in the middle of the sixth; all its tokens are prefilled anew."""
    at_s = prefill_s(9) + steps_s(5, 10) + 0.01
    cluster = case(LONG, failures=((0, at_s, None),)).cluster()
    table = cluster.recorder.requests()
    assert table.status.tolist() == ["finished"]
    assert table.replica.tolist() == [1]
    assert table.migrations.tolist() == [1]
    again_s = at_s + prefill_s(9 + 6)
    assert table.finish_s[0] == pytest.approx(again_s + steps_s(40 - 7, 9 + 7))
    assert table.first_token_s[0] == pytest.approx(prefill_s(9)), "that was had before"
    (moved,) = cluster.recorder.journal.moved
    assert (moved.source, moved.target, moved.recomputed_tokens) == (0, 1, 15)
    assert moved.reason == "host 0 failed"


def test_a_prefill_that_is_under_way_is_lost() -> None:
    table = case(LONG, failures=((0, prefill_s(9) / 2, None),)).run().requests()
    assert table.first_token_s[0] == pytest.approx(1.5 * prefill_s(9))


def test_who_waited_waits_elsewhere_and_nobody_is_lost() -> None:
    rows = tuple(Row(0.0, None, 9, 20, 20) for _ in range(9))
    cluster = case(*rows, failures=((0, 0.1, None),), max_batch_size=1).cluster()
    table = cluster.recorder.requests()
    assert (table.status == "finished").all()
    assert (table.replica == 1).sum() >= 8
    assert cluster.outstanding.tolist() == [0, 0]


def test_a_host_that_comes_back_is_empty_and_serves_again() -> None:
    """Its adapter has to be loaded anew."""
    rows = (Row(0.0, 0, 1, 2, 2), Row(2.0, None, 1, 2, 2), Row(9.0, 0, 1, 2, 2))
    cluster = case(*rows, failures=((0, 1.0, 5.0),), placement="contiguous").cluster()
    table = cluster.recorder.requests()
    assert table.replica.tolist() == [0, 1, 0]
    assert table.cold_start_s.tolist() == pytest.approx([load_s(1), 0.0, load_s(1)])


def test_an_adapter_that_only_the_failed_host_held_is_read_from_storage() -> None:
    """64 bytes at 128 a second, and the latency; then a load."""
    rows = (Row(2.0, 0, 1, 2, 2), Row(9.0, 0, 1, 2, 2))
    known = {"placement": "contiguous", "adapter_pool": "distributed", "eviction": "on_demand"}
    cluster = case(*rows, failures=((0, 1.0, None),), **known).cluster()
    table = cluster.recorder.requests()
    assert table.replica.tolist() == [1, 1]
    assert table.cold_start_s[0] == pytest.approx(2**-6 + 64 / 128 + load_s(1))
    assert table.cold_start_s[1] == pytest.approx(load_s(1)), "it lies in the other's memory since"
    assert cluster.recorder.storage_loads == 1


def test_one_that_another_host_holds_too_comes_from_there() -> None:
    rows = (Row(0.5, 0, 1, 2, 2), Row(2.0, 0, 1, 2, 2))
    known = {"adapter_pool": "distributed", "replicas": 3}
    cluster = case(*rows, failures=((0, 1.0, None),), **known).cluster()
    assert cluster.recorder.storage_loads == 0
    assert (cluster.recorder.requests().status == "finished").all()


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


@given(failing(), st.booleans())
def test_everybody_ends_whatever_fails(case: Case, fast_forward: bool) -> None:
    cluster = watched(case, fast_forward=fast_forward)
    table = cluster.recorder.requests()
    assert (table.status != "unfinished").all()
    done = table[table.status == "finished"]
    assert (done.arrival_s <= done.admitted_s).all()
    assert (done.first_token_s <= done.finish_s).all()
    assert cluster.outstanding.sum() == 0
    assert sum(len(replica.held()) for replica in cluster.replicas) == 0, "everything is given back"
    event(f"moved: {len(cluster.recorder.journal.moved) > 0}")


@given(failing())
def test_fast_forward_equals_the_plain_loop_whatever_fails(case: Case) -> None:
    """Where a run is broken off, who has come from another replica counts among the waiting since his arrival."""
    assert_same(case.cluster(), case.cluster(fast_forward=False), most_waiting=False)


@pytest.mark.parametrize(
    "failures, message",
    [
        (((2, 1.0, None),), "cluster.failures has host 2, must be one of the 2 hosts, from 0 on"),
        (
            ((0, 1.0, None), (0, 2.0, None)),
            "cluster.failures has host 0 fail at 2 s, when it has not come back",
        ),
        (
            ((0, 1.0, 3.0), (0, 2.0, 4.0)),
            "cluster.failures has host 0 fail at 2 s, when it has not come back",
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
