"""`simlora-report` on the command line: a page, or one sentence and nothing."""

import json
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from simlora.cli.report import main
from tests.report.make_sweep import make_run, make_sweep
from tests.report.test_html import Page


def sweep() -> Path:
    return make_sweep(Path("sweep"), lambda system, rate, seed: 0.9 - 0.1 * rate - 0.01 * seed)


def test_it_writes_a_page_and_says_where(capsys):
    assert main([str(sweep())]) == 0
    out = capsys.readouterr().out
    first, *rest = out.split("\n\n")
    assert first == "slora; vllm: SLO TTFT < 6 s"
    assert rest[0].startswith("12 runs, 2 lines over workload.rate_rps\nReport: comparison.html, ")
    text = Path("comparison.html").read_text(encoding="utf-8")
    assert text.startswith("<!doctype html>")
    assert sorted(path.name for path in Path().iterdir()) == ["comparison.html", "sweep"]


def test_the_page_has_the_command_that_makes_it_again(capsys):
    make_run(Path("a run"))
    arguments = ["a run", str(sweep()), "--out", "pages/here.html", "--by=system", "--figure", "makespan_s"]
    assert main(arguments) == 0
    page = Page(Path("pages/here.html").read_text(encoding="utf-8"))
    assert "simlora-report 'a run' sweep --out pages/here.html --by=system --figure makespan_s" in page.text
    assert "asked-makespan_s" in page.data["charts"]


def test_what_is_not_as_expected_is_noticed(capsys):
    make_run(Path("a"))
    make_run(Path("b"))
    assert main(["a", "b"]) == 0
    captured = capsys.readouterr()
    assert "notice: b is the very run that a is" in captured.err
    assert "\n\n1 run, 1 line\n" in captured.out


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["nowhere"], "nowhere does not exist, must be the folder of a run or of a sweep"),
        (["sweep", "empty"], "empty cannot be read as the folder of a run: summary.json has no makespan_s"),
        (["sweep", "torn"], "torn/requests.parquet cannot be read"),
        (["sweep", "--out", "sweep"], "--out sweep is a folder, must be a file such as sweep/page.html"),
    ],
)
def test_bad_input_is_a_sentence_and_leaves_nothing(arguments, sentence, capsys):
    sweep()
    for name in ("empty", "share", "torn"):
        make_run(Path(name))
    Path("empty/summary.json").write_text("{}")
    found = json.loads(Path("share/summary.json").read_text())
    found["slo"]["attainment"] = 7.5
    Path("share/summary.json").write_text(json.dumps(found))
    Path("torn/requests.parquet").write_text("no table")
    Path("table").mkdir()
    short = pd.DataFrame({"key": ["a"], "seed": [0], "status": ["ran"], "reason": [""], "load": ["below"]})
    short.to_parquet("table/sweep.parquet")
    before = sorted(Path().rglob("*"))
    assert main(arguments) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("simlora: error: ")
    assert sentence in line
    assert sorted(Path().rglob("*")) == before


def edited(**columns: object) -> None:
    """Give every row of the sweep's table these values."""
    path = sweep() / "sweep.parquet"
    table = pd.read_parquet(path)
    values = {name: pd.Series([value] * len(table), dtype=object) for name, value in columns.items()}
    table.assign(**values).to_parquet(path)


@pytest.mark.parametrize(
    ("column", "value"),
    [
        *(("system", value) for value in ([1, 2], {"a": 1}, b"x", pd.Timestamp("2020-01-01"), float("inf"))),
        *((name, [1, 2]) for name in ("workload.rate_rps", "status", "load", "ttft_s.p50")),
        *((name, "x") for name in ("makespan_s", "cost.gpu_hours", "load.independent_requests")),
        *(("side.changed", value) for value in ("not json", "[]", '[["a"]]')),
        ("status", "won"),
    ],
)
def test_values_that_no_sweep_has_are_refused(column, value, capsys):
    edited(**{column: value})
    assert main(["sweep"]) == 2
    err = capsys.readouterr().err
    assert err.startswith("simlora: error: sweep/sweep.parquet has other values than ")
    assert err.endswith(f" in the column {column}, must be a sweep's table\n")


@pytest.mark.parametrize("column", ["key", "seed", "status"])
def test_every_row_has_what_tells_it_from_others(column, capsys):
    edited(**{column: None})
    assert main(["sweep"]) == 2
    assert f"has a row without a {column}, must be a sweep's table\n" in capsys.readouterr().err


@pytest.mark.parametrize(
    "edit",
    [
        lambda table: table.drop(columns=["seconds", "source", "throughput_tps"]),
        lambda table: table.assign(note="seen", **{"cluster.replicas": None}),
        lambda table: table.astype({"status": "category", "key": "category", "load": "category"}),
    ],
)
def test_a_table_that_was_edited_may_still_be_drawn(edit):
    path = sweep() / "sweep.parquet"
    edit(pd.read_parquet(path)).to_parquet(path)
    assert main(["sweep"]) == 0


def test_a_table_without_rows_or_with_a_column_twice_is_refused(capsys):
    path = sweep() / "sweep.parquet"
    table = pd.read_parquet(path)
    table.iloc[:0].to_parquet(path)
    assert main(["sweep"]) == 2
    assert "sweep/sweep.parquet has no rows, must be a sweep's table" in capsys.readouterr().err
    names = ["seed" if name == "seconds" else name for name in table]
    pq.write_table(pa.Table.from_pandas(table, preserve_index=False).rename_columns(names), path)
    assert main(["sweep"]) == 2
    assert capsys.readouterr().err.startswith("simlora: error: sweep/sweep.parquet ")
