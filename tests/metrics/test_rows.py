"""Rows of requests, packed as they end, are written in order of id."""

import numpy as np
import pandas as pd
import pytest

from simlora.core.trace import BASE_MODEL, AdapterSpec, Trace
from simlora.metrics.rows import (
    ABORTED,
    FINISHED,
    LAYOUT,
    NAN,
    SIZE,
    STATUS_AT,
    TOKENS_AT,
    UNFINISHED,
    RequestRows,
)

GROUP = 8


def trace(requests: int) -> Trace:
    tokens = np.arange(1, requests + 1)
    adapter = np.arange(requests) % 3 - 1
    return Trace(
        np.arange(requests) / 4, adapter, tokens, tokens, tokens, tuple(map(AdapterSpec, "ab", (8, 16)))
    )


def finish(rows: RequestRows, id: int) -> None:
    at_s = id / 4
    rows.put(id, FINISHED, id % 5, 0, 1, 2, at_s + 3.0, at_s + 1.0, at_s + 2.0, 0.25, 0.5, 0.75)


def abort(rows: RequestRows, id: int, reason: str) -> None:
    rows.put(id, ABORTED, -1, rows.code(reason), 0, 0, id / 4, NAN, NAN, 0.0, 0.0, 0.0)


def end(rows: RequestRows, id: int) -> None:
    if id % 7:
        finish(rows, id)
    else:
        abort(rows, id, f"reason {id % 2}")


def test_a_row_is_laid_out_as_numpy_reads_it():
    places = {name: LAYOUT.fields[name][1] for name in ("status", "cached_tokens")}
    assert (LAYOUT.itemsize, places) == (SIZE, {"status": STATUS_AT, "cached_tokens": TOKENS_AT})


def test_a_row_has_what_was_put():
    rows = RequestRows(trace(4))
    finish(rows, 2)
    abort(rows, 1, "too late")
    rows.put_cached_tokens(2, 7)
    rows.put(3, UNFINISHED, 6, 0, 0, 1, NAN, 1.5, NAN, 0.0, 0.0, 0.0)
    table = rows.frame()
    assert table.status.tolist() == ["unfinished", "aborted", "finished", "unfinished"]
    assert table.adapter.tolist() == ["", "a", "b", ""]
    assert table.reason.tolist() == ["", "too late", "", ""]
    assert table.replica.tolist() == [-1, -1, 2, 6]
    assert table.cached_tokens.tolist() == [0, 0, 7, 0]
    assert table.migrations.tolist() == [0, 0, 2, 1]
    assert table.ttft_s.tolist() == pytest.approx([NAN, NAN, 2.0, NAN], nan_ok=True)
    assert table.latency_s.tolist() == pytest.approx([NAN, NAN, 3.0, NAN], nan_ok=True)
    assert table.queue_s.tolist() == pytest.approx([NAN, NAN, 1.0, 0.75], nan_ok=True)
    assert trace(4).adapter[0] == BASE_MODEL


def test_a_group_is_written_once_all_of_its_requests_have_ended():
    rows, written = RequestRows(trace(20)), list[pd.DataFrame]()
    rows.stream(written.append, GROUP)
    for id in (*range(1, 18), 18):
        end(rows, id)
    assert not written, "request 0 runs"
    end(rows, 0)
    assert [len(group) for group in written] == [8, 8], "what waited for it goes out with it"
    rows.flush()
    assert [len(group) for group in written] == [8, 8, 4]
    assert written[-1].status.tolist() == ["finished"] * 3 + ["unfinished"]


@pytest.mark.parametrize("requests", [1, GROUP, 5 * GROUP, 2_000])
def test_whatever_the_order_of_ends_the_rows_are_those_of_one_table(requests):
    rng = np.random.default_rng(requests)
    order = np.argsort(np.arange(requests) + rng.exponential(3 * GROUP, requests))
    whole, rows, written = RequestRows(trace(requests)), RequestRows(trace(requests)), list[pd.DataFrame]()
    rows.stream(written.append, GROUP)
    for id in order[: requests - requests // 50].tolist():
        end(whole, id)
        end(rows, id)
    rows.flush()
    expected = whole.frame()
    pd.testing.assert_frame_equal(pd.concat(written, ignore_index=True), expected, check_exact=True)


def test_a_request_ends_once():
    rows = RequestRows(trace(2 * GROUP))
    rows.stream(lambda group: None, GROUP)
    for id in range(GROUP - 1):
        finish(rows, id)
    with pytest.raises(AssertionError, match="request 3 ends twice"):
        finish(rows, 3)
    finish(rows, GROUP - 1)
    with pytest.raises(AssertionError, match="request 3 ends twice"):
        finish(rows, 3)
