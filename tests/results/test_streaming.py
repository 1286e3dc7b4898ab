"""A run too large for memory writes its requests as they end: the same files as of one that keeps them."""

import gc
import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

import simlora
from simlora.api import running
from simlora.api.running import Interrupted
from simlora.cli import report
from simlora.core.errors import InputError
from simlora.engine.cluster.dispatcher import Dispatcher
from simlora.metrics.slo import is_finished
from simlora.metrics.stored import NAMES, StoredRequests
from simlora.report.html import render
from simlora.report.results import RunResults
from simlora.results import files, tables
from simlora.results.files import load_results
from simlora.results.result import Result

GROUP = 64
CHOICES: dict[str, tuple[str, ...]] = {
    "all end": (),
    "some are cached": (
        "system=fastlibra",
        "workload=agent",
        "workload.rate_rps=3",
        "workload.duration_s=60",
    ),
    "some are aborted": (
        "scheduler=early_abort",
        "workload.rate_rps=30",
        "workload.duration_s=30",
        "slo.ttft_s=2",
    ),
    "some are left": ("until_s=40",),
    "some are counted": ("window.warm_up_s=10", "window.drain_s=10"),
}


@pytest.fixture
def small_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (running, tables, files):
        monkeypatch.setattr(module, "ROW_GROUP", GROUP)


def simulate(*overrides: str) -> Result:
    return simlora.simulate(["seed=3", *overrides])


def read(path: Path) -> bytes:
    return path.read_bytes()


def without_machine(summary: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in summary.items() if name not in ("simulation", "command")}


def drafts(folder: Path) -> list[str]:
    return [path.name for path in folder.rglob(".writing-*")]


@pytest.mark.parametrize("choice", CHOICES)
def test_what_is_streamed_is_what_would_be_kept(choice, tmp_path, request):
    kept = simulate(*CHOICES[choice])
    request.getfixturevalue("small_groups")
    streamed = simulate(*CHOICES[choice])
    assert isinstance(streamed.rows, StoredRequests)
    assert len(streamed.rows) == len(kept.rows) > GROUP
    assert without_machine(streamed.summary) == without_machine(kept.summary)
    pd.testing.assert_frame_equal(streamed.requests, kept.requests, check_exact=True)
    kept.save(tmp_path / "kept", report=False)
    streamed.save(tmp_path / "streamed", report=False)
    for name in ("requests", "timeline"):
        assert read(tmp_path / f"kept/{name}.parquet") == read(tmp_path / f"streamed/{name}.parquet")
    assert pq.read_metadata(streamed.rows.path).num_row_groups == -(-len(kept.rows) // GROUP)


def test_the_page_is_the_same_from_memory_and_from_disk(tmp_path, small_groups):
    simulate(*CHOICES["some are aborted"]).save(tmp_path, report=False)
    stored = load_results(tmp_path)
    assert isinstance(stored.rows, StoredRequests)
    whole = RunResults(stored.summary, stored.requests, stored.timeline, stored.config)
    assert render(stored) == render(whole)


def test_a_report_reads_of_a_file_no_column_that_it_does_not_draw(tmp_path, small_groups, monkeypatch):
    simulate().save(tmp_path / "run", report=False)
    columns: set[str] = set()
    read_group = pq.ParquetFile.read_row_group

    def noted(self: pq.ParquetFile, group: int, names: list[str]) -> Any:
        columns.update(names)
        return read_group(self, group, names)

    monkeypatch.setattr(pq.ParquetFile, "read_row_group", noted)
    read_whole = pd.read_parquet
    whole: list[str] = []
    monkeypatch.setattr(
        pd, "read_parquet", lambda path, **how: whole.append(path.name) or read_whole(path, **how)
    )
    assert report.main([str(tmp_path / "run"), "--out", str(tmp_path / "page.html")]) == 0
    assert columns == {"status", "ttft_s", "tpot_s", "latency_s"}
    assert "requests.parquet" not in whole


def test_columns_and_rows_of_a_file_are_those_of_its_table(tmp_path, small_groups):
    stored = simulate(*CHOICES["some are aborted"]).rows
    assert isinstance(stored, StoredRequests)
    frame = stored.frame()
    done, even = is_finished(frame), np.arange(len(frame)) % 2 == 0
    for rows, expected in (
        (stored, frame),
        (stored[done], frame[done]),
        (stored[even][done[even]], frame[even & done]),
        (stored[~done][np.zeros((~done).sum(), dtype=np.bool_)], frame[:0]),
    ):
        assert (len(rows), rows.empty) == (len(expected), expected.empty)
        for name in frame.columns:
            found = rows[name].astype("str") if name in NAMES else rows[name]
            np.testing.assert_array_equal(found.to_numpy(), expected[name].to_numpy())


def test_an_interrupted_run_keeps_what_was_finished(tmp_path, small_groups, monkeypatch):
    dispatch = Dispatcher.dispatch

    def interrupted(self: Dispatcher, request: Any) -> None:
        if request.id == 150:
            raise KeyboardInterrupt
        dispatch(self, request)

    monkeypatch.setattr(Dispatcher, "dispatch", interrupted)
    with pytest.raises(Interrupted) as caught:
        simulate()
    found = caught.value.result
    assert isinstance(found.rows, StoredRequests)
    found.save(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "requests.incomplete.parquet",
        "summary.incomplete.json",
    ]
    table = pd.read_parquet(tmp_path / "requests.incomplete.parquet")
    assert table.request_id.tolist() == list(range(len(table)))
    summary = json.loads((tmp_path / "summary.incomplete.json").read_text())
    assert (table.status == "finished").sum() == summary["requests"]["finished"] > GROUP


def test_a_result_is_saved_as_often_as_one_likes_and_then_leaves_nothing_behind(
    tmp_path, small_groups, monkeypatch
):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    result = simulate()
    assert len(drafts(tmp_path)) == 1
    first, second = result.save(tmp_path / "1", report=False), result.save(tmp_path / "2", report=False)
    expected = result.requests
    del result
    gc.collect()
    assert not drafts(tmp_path)
    for folder in (first, second):
        pd.testing.assert_frame_equal(load_results(folder).requests, expected)


def test_a_disk_that_is_full_while_requests_end_is_one_sentence_and_leaves_nothing(
    tmp_path, small_groups, monkeypatch
):
    written = pq.ParquetWriter.write_table

    def full(self: pq.ParquetWriter, table: Any, **how: Any) -> None:
        if table["request_id"][0].as_py() == GROUP:
            raise OSError(28, "No space left on device")
        written(self, table, **how)

    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(pq.ParquetWriter, "write_table", full)
    with pytest.raises(InputError, match=r"cannot write results to .*: No space left on device"):
        simulate()
    assert not list(tmp_path.iterdir())
