"""A run that is stopped: the rows of requests that were admitted and have not ended."""

from __future__ import annotations

from math import isnan, nan
from typing import Any

import pytest

from tests.engine.by_hand import load_s, prefill_s, steps_s
from tests.engine.cases import Case, Row

P = prefill_s(9)
FAILS_S = P + steps_s(5, 10) + 0.01


@pytest.mark.parametrize(
    "adapter, until_s, changes, admitted_s, first_token_s",
    [
        (None, P + steps_s(2, 10), {}, 0.0, P),
        (None, P / 2, {}, 0.0, nan),
        (0, load_s(1) / 2, {"loader": "asynchronous"}, nan, nan),
        (0, load_s(1) / 2, {"loader": "blocking"}, nan, nan),
        (0, load_s(1) + P / 2, {"loader": "blocking"}, load_s(1), nan),
        (None, P / 2, {"scheduler": "chunked_prefill"}, 0.0, nan),
        (None, FAILS_S + prefill_s(15) / 2, {"replicas": 2, "failures": ((0, FAILS_S, None),)}, 0.0, P),
    ],
    ids=[
        "it decodes",
        "its prefill is under way",
        "it is deferred",
        "it would begin after the stop, when the replica has waited for weights",
        "its prefill is under way behind a load",
        "its prefill in chunks is",
        "it has moved",
    ],
)
def test_a_request_has_been_admitted_once_its_first_prefill_has_begun(
    adapter: int | None, until_s: float, changes: dict[str, Any], admitted_s: float, first_token_s: float
) -> None:
    known = {"kernel": "merged", "reserve": "full", "eviction": "lru", "ranks": (1,)}
    of = Case(rows=(Row(0.0, adapter, 9, 40, 40),), until_s=until_s).but(**(known | changes))
    row = of.table().loc[0]
    moves = int("failures" in changes)
    assert (row.status, row.replica, row.migrations) == ("unfinished", moves, moves)
    assert isnan(row.finish_s)
    found = (row.admitted_s, row.queue_s, row.first_token_s)
    assert found == pytest.approx((admitted_s, admitted_s, first_token_s), nan_ok=True)
