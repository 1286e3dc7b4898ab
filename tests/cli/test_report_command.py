"""`simlora-report` on the command line: a page, or one sentence and nothing."""

from pathlib import Path

import pandas as pd
import pytest

from simlora.cli.report import main
from tests.cli.command import sentence
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


SPOILT = {
    "run/summary.json": "run cannot be read as the folder of a run: summary.json has no makespan_s",
    "run/requests.parquet": "run/requests.parquet cannot be read",
    "": "--out sweep is a folder, must be a file such as sweep/page.html",
}
"""The file without anything in it, and what is said."""


@pytest.mark.parametrize("spoilt", SPOILT)
def test_bad_input_is_a_sentence_and_leaves_nothing(spoilt, capsys):
    paths = [str(sweep()), str(make_run(Path("run")))]
    if spoilt:
        Path(spoilt).write_text("{}")
    before = sorted(Path().rglob("*"))
    assert main([*paths, "--out", "page.html" if spoilt else "sweep"]) == 2
    assert SPOILT[spoilt] in sentence(capsys)
    assert sorted(Path().rglob("*")) == before


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
