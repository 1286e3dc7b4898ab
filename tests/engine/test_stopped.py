"""A run that is stopped: the rows of requests that were admitted and have not ended."""

from __future__ import annotations

from math import isnan

import pandas as pd

from tests.engine.by_hand import load_s, prefill_s, steps_s
from tests.engine.cases import Case, Row


def row(of: Case) -> pd.Series:
    """The first request's row."""
    first = of.run().requests().iloc[0]
    assert first.status == "unfinished"
    assert isnan(first.finish_s)
    return first


def case(adapter: int | None, until_s: float, **changes: object) -> Case:
    known = {"kernel": "merged", "reserve": "full", "eviction": "lru", "ranks": (1,)}
    return Case(rows=(Row(0.0, adapter, 9, 40, 40),), until_s=until_s, **(known | changes))  # type: ignore[arg-type]


def test_a_running_request_has_been_admitted_and_has_a_first_token() -> None:
    found = row(case(None, prefill_s(9) + steps_s(2, 10)))
    assert (found.replica, found.admitted_s, found.first_token_s) == (0, 0.0, prefill_s(9))


def test_a_request_whose_prefill_is_under_way_has_been_admitted() -> None:
    found = row(case(None, prefill_s(9) / 2))
    assert (found.replica, found.admitted_s, found.queue_s) == (0, 0.0, 0.0)
    assert isnan(found.first_token_s)


def test_a_deferred_request_has_not_begun() -> None:
    found = row(case(0, load_s(1) / 2, loader="asynchronous"))
    assert found.replica == 0
    assert isnan(found.admitted_s)
    assert isnan(found.queue_s)


def test_a_request_that_would_begin_after_the_stop_when_the_replica_has_waited_for_weights_has_not_begun() -> (
    None
):
    found = row(case(0, load_s(1) / 2, loader="blocking"))
    assert found.replica == 0
    assert isnan(found.admitted_s)
    assert row(case(0, load_s(1) + prefill_s(9) / 2, loader="blocking")).admitted_s == load_s(1)


def test_a_prefill_in_chunks_has_been_admitted() -> None:
    found = row(case(None, prefill_s(9) / 2, scheduler="chunked_prefill"))
    assert (found.replica, found.admitted_s) == (0, 0.0)


def test_a_request_that_has_moved_has_been_admitted() -> None:
    at_s = prefill_s(9) + steps_s(5, 10) + 0.01
    found = row(case(None, at_s + prefill_s(15) / 2, replicas=2, failures=((0, at_s, None),)))
    assert (found.replica, found.migrations, found.first_token_s) == (1, 1, prefill_s(9))
