"""The page of `python -m experiments.fidelity`: every measured file, here small ones of our own making."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from experiments.fidelity import __main__ as command
from experiments.fidelity import (
    base_engine,
    dlora,
    keeping,
    notes,
    predict,
    profiles,
    scatter,
    single_requests,
    slora_h100,
    vllm_steps,
    vllm_v0,
)
from experiments.fidelity.__main__ import SOURCES, main
from experiments.fidelity.compare import JUDGED, Comparison, furthest
from experiments.fidelity.page import FIGURES, overview
from experiments.fidelity.rows import read
from experiments.fidelity.scatter import Dot, Panel, Plot
from experiments.fidelity.section import Errors, Section
from experiments.fidelity.unused import REASONS, unused
from experiments.fidelity.vllm import predict as vllm_predict
from experiments.profiles import build
from experiments.scenarios import scenario
from experiments.studies import markdown, several
from simlora.core.errors import InputError
from simlora.sweeps.outcome import NOT_SIMULATED, RAN, Outcome, Overrides
from tests.experiments import (
    test_fidelity,
    test_fidelity_base_engine,
    test_fidelity_saturating,
    test_fidelity_vllm,
    test_fidelity_vllm_steps,
    test_profiles,
)
from tests.experiments.test_fidelity import a_file

PER_TOKEN_S = 0.5
"""What every request of dLoRA's made-up runs takes for a token."""
ARTIFACT: dict[str, Any] = {
    "figure9": {"rows": []},
    "figure10": [
        {"policy": "fcfs", "stride": 4, "avg_lat": 1.0, "p90_lat": 2.0},
        {"policy": "credit", "stride": 32, "avg_lat": 0.4, "p90_lat": 0.5},
    ],
    "figure11a": [],
    "figure12": [{"exec_type": 2, "num_adapters": 16, "throughput": 2.0}],
}
SINGLE = {
    "model": "llama_7b",
    "tp": 8,
    "rank": 8,
    "prompt_tokens": 200,
    "output_tokens": 4,
    "ttft_s": 0.2,
    "latency_s": 0.6,
}
STEP = {
    "kind": "no_lora",
    "model": "llama-3.1-8b-instruct",
    "max_num_seqs": 8,
    "max_loras": 4,
    "max_lora_rank": 16,
    "adapters_used": 0,
    "requests": 8,
    "prompt_tokens_each": 100,
    "output_tokens_each": 50,
    "duration_s": 1,
    "ttft_mean_ms": 20,
    "tpot_mean_ms": 10,
    "itl_mean_ms": 10,
}
POOLS_HEAD = "model,lora,max_loras,max_lora_rank,kv_tokens\n"
POOL = {
    "model": "llama-3.1-8b-instruct",
    "lora": "on",
    "max_loras": 4,
    "max_lora_rank": 16,
    "kv_tokens": 300_000,
}


def fake_runs(points: Sequence[Any], jobs: int = 1) -> dict[Overrides, Outcome]:
    summary = {
        "latency_per_output_token_s": {"mean": PER_TOKEN_S, "p90": 2 * PER_TOKEN_S},
        "throughput_rps": 3.0,
    }
    return {point.overrides: Outcome(RAN, summary) for point in points}


def iteration_rows() -> Iterator[dict[str, object]]:
    """Yield made-up whole iterations, with the batch of 32 that is printed."""
    for row in test_profiles.iteration_rows():
        yield row
        if row["batch_size"] == 8:
            yield row | {"batch_size": 32, "prompt_time": 20 + 0.1 * 512 * 32}


def fill(folder: Path) -> Path:
    """Write small files of all schemas into a folder."""
    a_file(folder, {}, {"system": "slora_lcfs", "throughput_rps": "1.2"}).rename(folder / "slora_runs.csv")
    test_fidelity_vllm.a_file(folder, {}, {"max_loras": "5"}).rename(folder / "vllm_lora_runs.csv")
    own = test_fidelity_saturating
    own.a_file(folder, own.SLORA, {}, {"median_ttft_ms": "20000"}).rename(folder / slora_h100.FILE)
    own.a_file(folder, own.VLLM, {}).rename(folder / vllm_v0.FILE)
    rows = test_fidelity_vllm_steps.rows()
    test_fidelity_vllm_steps.a_file(folder, rows).rename(folder / vllm_steps.FILE)
    (folder / dlora.FILE).write_text(json.dumps(ARTIFACT))
    test_profiles.write(folder / single_requests.FILE, [SINGLE, SINGLE | {"prompt_tokens": 400}])
    (folder / base_engine.FILE).mkdir()
    test_fidelity_base_engine.a_run(folder / base_engine.FILE)
    measured = folder / "profiles"
    measured.mkdir()
    plan = build.plan()
    for table in plan["operators"].values():
        test_profiles.write(measured / table["file"], list(test_profiles.operator_rows()))
    test_profiles.write(measured / plan["attention"]["file"], list(test_profiles.attention_rows()))
    for table in plan["all_reduces"].values():
        test_profiles.write(measured / table["file"], list(test_profiles.all_reduce_rows()))
    for table in plan["iterations"].values():
        test_profiles.write(measured / table["file"], list(iteration_rows()))
    test_profiles.write(measured / profiles.STEPS, [STEP])
    test_profiles.write(measured / profiles.POOLS, [POOL, POOL | {"lora": "off", "kv_tokens": 330_000}])
    (measured / "README.md").touch()
    (measured / "more.csv").touch()
    return folder


@dataclass(frozen=True)
class Made:
    """A page that was made of the small files, and what its making printed."""

    measured: Path
    cache: Path
    page: Path
    printed: str

    @property
    def text(self) -> str:
        return self.page.read_text()


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """Make the page once."""
    folder = tmp_path_factory.mktemp("fidelity")
    (folder / "measured").mkdir()
    measured, page, cache = fill(folder / "measured"), folder / "docs" / "fidelity.md", folder / "cache"
    lines: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SIMLORA_MEASURED_DIR", str(measured))
        patch.setenv("SIMLORA_CACHE_DIR", str(cache))
        patch.setattr(several, "run_all", fake_runs)
        patch.setattr(command, "PAGE", page)
        patch.setattr("builtins.print", lambda *words, **_: lines.append(" ".join(map(str, words))))
        assert main(["--jobs", "1", "--json", str(folder / "out.json")]) == 0
    return Made(measured, cache, page, "\n".join(lines))


@pytest.fixture
def again(made: Made, monkeypatch: pytest.MonkeyPatch) -> Made:
    """Return what was made, in the surroundings that it was made in."""
    monkeypatch.setenv("SIMLORA_MEASURED_DIR", str(made.measured))
    monkeypatch.setenv("SIMLORA_CACHE_DIR", str(made.cache))
    monkeypatch.setattr(several, "run_all", fake_runs)
    monkeypatch.setattr(command, "PAGE", made.page)
    return made


# The page


def test_the_page_has_a_section_a_file_with_its_table(made: Made) -> None:
    headings = [line for line in made.text.splitlines() if line.startswith("## ")]
    assert len(headings) == 1 + len(SOURCES) + 1, "what is worst, the files, and those that are left out"
    assert "slora              a10g      S2   ours              predicted    1" in made.text
    assert "| predicted | 2 | " in made.text
    assert "figure_10 one_gpu, mean time per token, Unmerged-only" in made.text
    assert "median  50.0 %: -50 at 4" in made.text
    assert "llama_7b, rank 8                            1" in made.text
    assert "| iterations of | prefill: sums / measured" in made.text
    assert "a100_80g-llama_2_70b-tp8     published        11" in made.text
    assert f"wrote {made.page}" in made.printed


def test_the_worst_stand_first(made: Made) -> None:
    table = made.text.partition("## The worst first")[2].partition("##")[0]
    medians = [
        float(each.replace(",", "")) for each in re.findall(r"\| ([\d,.]+) % \| [\d,]+ % \|$", table, re.M)
    ]
    assert len(medians) > 10
    assert medians == sorted(medians, reverse=True)
    assert "whole iterations by sums of kernels: decode step" in table


def test_pictures_are_linked_and_there_and_small(made: Made) -> None:
    linked = re.findall(r"!\[.+\]\((.+\.png)\)", made.text)
    assert [Path(link).stem for link in linked] == list(SOURCES)
    for link in linked:
        drawn = (made.page.parent / link).read_bytes()
        assert drawn.startswith(b"\x89PNG")
        assert len(drawn) < 100_000
        assert b"matplotlib" not in drawn, "no version, which would change the bytes"


def test_every_place_of_the_notes_is_filled_or_named(made: Made) -> None:
    assert "${" not in made.text
    missing = re.findall(r"without a number: notes/(\w+).md", made.printed)
    assert set(missing) == {"slora", "vllm", "profiles"}, "those that name rows of the published files"
    assert made.text.count(notes.ABSENT) == len(missing)


def test_files_that_nothing_is_compared_with_are_listed(made: Made) -> None:
    assert "\n* `profiles/more.csv`: this command does not know it.\n" in made.text
    reason, *_ = REASONS
    own = made.measured.parent / "others"
    (own / "profiles").mkdir(parents=True)
    (own / reason).touch()
    (own / "slora_runs.csv").touch()
    assert unused(own, {"slora_runs.csv"}) == f"* `{reason}`: {REASONS[reason]}."
    assert unused(own, {"slora_runs.csv", reason}) == "None."


def test_every_file_has_its_json(made: Made) -> None:
    folder = made.measured.parent
    trees = {
        name: json.loads(path.read_text())
        for name in SOURCES
        if (
            path := folder / f"out{'' if name == 'slora' else '.' + Path(SOURCES[name].file).stem}.json"
        ).exists()
    }
    assert list(trees) == list(SOURCES)
    assert [row["line"] for row in trees["vllm"]["rows"]] == [2, 3]
    assert trees["dlora"]["rows"][0] == {
        "study": "figure_10",
        "panel": "one_gpu",
        "series": "released",
        "x": 32,
        "metric": dlora.measured.TIME,
        "measured": 0.4,
        "simulated": PER_TOKEN_S,
        "least": PER_TOKEN_S,
        "most": PER_TOKEN_S,
        "error": pytest.approx(0.25),
    }


def test_a_second_time_nothing_is_simulated_and_the_bytes_are_the_same(
    again: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (predict, vllm_predict, single_requests):
        monkeypatch.setattr(module, "simulate", lambda _: pytest.fail("simulated again"))
    paths = [again.page, *sorted((again.page.parent / FIGURES).iterdir())]
    before = [path.read_bytes() for path in paths]
    assert main(["--jobs", "1"]) == 0
    assert [path.read_bytes() for path in paths] == before


def test_without_a_file_the_page_stays_as_it_is_unless_it_is_asked_for(
    again: Made, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    os.symlink(again.measured / "slora_runs.csv", tmp_path / "slora_runs.csv")
    monkeypatch.setenv("SIMLORA_MEASURED_DIR", str(tmp_path))
    before = again.page.read_bytes()
    assert main(["--jobs", "1"]) == 0
    assert again.page.read_bytes() == before
    said = capsys.readouterr().out
    for name, source in SOURCES.items():
        line = f"skipped: there is no {tmp_path / source.file}; set SIMLORA_MEASURED_DIR to the folder with "
        assert (line + source.file in said) is (name != "slora")
    assert "fidelity.md stays as it is, as files are missing" in said
    assert main(["--jobs", "1", "--markdown", str(tmp_path / "page.md")]) == 0
    written = (tmp_path / "page.md").read_text()
    assert "*Without `vllm_lora_runs.csv`, which was not there.*" in written
    assert [path.name for path in (tmp_path / FIGURES).iterdir()] == ["slora.png"]


def test_a_single_file_makes_a_page_only_where_it_is_asked_for(again: Made, tmp_path: Path) -> None:
    before = again.page.read_bytes()
    runs = again.measured / "vllm_lora_runs.csv"
    assert main(["--runs", str(runs)]) == 0
    assert again.page.read_bytes() == before
    assert main(["--runs", str(runs), "--markdown", str(tmp_path / "own.md")]) == 0
    written = (tmp_path / "own.md").read_text()
    assert "vLLM with LoRA" in written
    assert "Without" not in written.partition("## vLLM")[0]
    assert "Files that nothing" not in written


@pytest.mark.parametrize(
    ("option", "said"), [("--markdown", "nowhere cannot be written"), ("--json", "nowhere cannot be written")]
)
def test_what_cannot_be_written_is_said(
    again: Made, tmp_path: Path, capsys: pytest.CaptureFixture[str], option: str, said: str
) -> None:
    (tmp_path / "nowhere").mkdir()
    runs = again.measured / "slora_runs.csv"
    assert main(["--runs", str(runs), option, str(tmp_path / "nowhere")]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("error:") == 1  # lines of progress may stand before it


@pytest.mark.parametrize(
    ("file", "text", "said"),
    [
        (single_requests.FILE, "model,tp\nllama_7b,8\n", "has no column rank"),
        (
            single_requests.FILE,
            "model,tp,rank,prompt_tokens,output_tokens,ttft_s,latency_s\nx,8,8,2,2,1,1\n",
            "'x'",
        ),
        (
            single_requests.FILE,
            "model,tp,rank,prompt_tokens,output_tokens,ttft_s,latency_s\nllama_7b,8,8,2,2,0,1\n",
            "line 2 has ttft_s = 0 s, must be above 0",
        ),
        (dlora.FILE, "[]", "is not what dLoRA's artifact plots"),
        (
            dlora.FILE,
            json.dumps(ARTIFACT | {"figure12": [{"exec_type": 2, "num_adapters": 16, "throughput": "fast"}]}),
            "throughput_rps of figure_12 eight_gpus peft 16 is 'fast', must be a number above 0",
        ),
        (f"profiles/{profiles.POOLS}", f"{POOLS_HEAD}x,on,4,16,1\n", "line 2 has model 'x'"),
        (
            f"profiles/{profiles.POOLS}",
            f"{POOLS_HEAD}llama-3.1-8b-instruct,on,4,16,0\n",
            "line 2 has kv_tokens = 0, must be above 0",
        ),
        (f"profiles/{profiles.STEPS}", "kind\nno_lora\n", "has no column model"),
    ],
)
def test_bad_input_is_one_sentence(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    file: str,
    text: str,
    said: str,
) -> None:
    monkeypatch.setenv("SIMLORA_MEASURED_DIR", str(tmp_path))
    monkeypatch.setattr(several, "run_all", fake_runs)
    path = tmp_path / file
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    assert main(["--jobs", "1"]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1


# What is kept


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SIMLORA_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_an_interrupted_command_goes_on_where_it_was(
    tmp_path: Path, own_cache: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = a_file(tmp_path, {}, {"req_rate": "1"})
    whole, seen = predict.simulate, []

    def interrupted(row: Any) -> dict[str, float]:
        seen.append(row)
        if len(seen) == 2:
            raise KeyboardInterrupt
        return whole(row)

    monkeypatch.setattr(predict, "simulate", interrupted)
    assert main(["--runs", str(path), "--jobs", "1"]) == 130
    assert "interrupted" in capsys.readouterr().err
    assert main(["--runs", str(path), "--jobs", "1"]) == 0
    assert [row.workload["req_rate"] for row in seen] == [2, 1, 1]


def test_a_row_is_simulated_again_when_its_columns_or_coefficients_are_others(
    tmp_path: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from experiments.fidelity import report

    seen: list[str] = []
    monkeypatch.setattr(predict, "simulate", lambda row: seen.append(row.key) or {"throughput_rps": 1.0})
    for change in ({}, {"cv": "2"}, {"kv_token_budget": "9000"}, {"system": "slora_lcfs"}, {}):
        report.figures(read(a_file(tmp_path, change))[0])
    assert len(seen) == 4
    slower = SimpleNamespace(coefficients={"decode.intercept_s": 1.0})
    monkeypatch.setattr(report, "calibration_of", lambda row: slower)
    report.figures(read(a_file(tmp_path, {}))[0])
    assert len(seen) == 5


def test_what_was_measured_changes_nothing_of_what_is_kept(tmp_path: Path, own_cache: Path) -> None:
    from experiments.fidelity import report

    rows = read(a_file(tmp_path, {"duration_s": "2"}, {"duration_s": "2", "throughput_rps": "7"}))
    assert report.figures(rows[0]) == report.figures(rows[1])
    assert len(list(own_cache.iterdir())) == 1


def test_figures_are_not_kept_if_files_changed_meanwhile(
    own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keeping, "source", lambda: "another")
    assert keeping.kept(["a"], lambda: {"b": 1.0}) == {"b": 1.0}
    assert not own_cache.exists()


def test_a_hash_is_that_of_what_the_files_hold(tmp_path: Path) -> None:
    one, other = tmp_path / "a", tmp_path / "b"
    one.write_text("a")
    other.write_text("a")
    assert keeping.hashed(one) == keeping.hashed(other) != keeping.hashed(one, other)


# Notes


TREE = {"medians": {"all": {"median": 0.01234}}, "rows": [{"line": 2, "x": -1.5}, {"line": 3, "x": 2.0}]}


@pytest.mark.parametrize(
    ("place", "written"),
    [
        ("${medians/all/median|.1%}", "1.2 %"),
        ("${rows/line=2/x|+.2f}", "-1.50"),
        ("${rows/line=3,x=2.0/x}", "2.0"),
        ("${table}", "a table"),
        ("${rows/line=4/x}", "n/a"),
        ("${medians/none/median|.1%}", "n/a"),
        ("${rows/line=2/x|nonsense}", "n/a"),
    ],
)
def test_a_place_is_filled_from_parts_or_tree(place: str, written: str) -> None:
    text, absent = notes.filled(f"It is {place}.", {"table": "a table"}, TREE)
    assert text == f"It is {written}."
    assert bool(absent) is (written == "n/a")


def test_a_place_that_two_rows_have_is_none() -> None:
    with pytest.raises(LookupError, match="2 rows have kind=a"):
        notes.found({"rows": [{"kind": "a"}, {"kind": "a"}]}, "rows/kind=a/x")


def test_prose_is_broken_anew_and_nothing_else_is() -> None:
    long = "word " * 40
    table = "\n".join(["| a | b |", "| --- | --: |", f"| {long}| 1 |"])
    fence = f"```\n{long}\n* not an item\n```"
    text = f"# {long}\n\nsome\nwords\n\n* one\n  item\n* {long}\n\n{table}\n\n{fence}\n\n![{long}](a.png)"
    found = notes.rewrapped(text).split("\n\n")
    assert found[1] == "some words"
    items = found[2].split("\n")
    assert items[0] == "* one item"
    assert items[1].startswith("* word")
    assert items[2].startswith("  word")
    assert max(map(len, items)) <= notes.WIDTH
    assert [found[0], *found[3:]] == [f"# {long}", table, fence, f"![{long}](a.png)"]


def test_every_source_has_its_note() -> None:
    for name in ("head", *SOURCES, "others"):
        assert notes.note(name).startswith("#")


# Pictures


def test_axes_are_logarithmic_where_numbers_differ_much() -> None:
    wide = [Dot(1.0, 1.0, "a", False), Dot(100.0, 90.0, "a", False)]
    assert Panel("t", "s", wide).logarithmic
    assert not Panel("t", "s", wide, relative=False).logarithmic
    assert not Panel("t", "s", [Dot(1.0, 2.0, "a", False)]).logarithmic
    assert not Panel("t", "s", []).logarithmic


def test_what_logarithmic_axes_cannot_show_is_counted() -> None:
    panel = Panel(
        "queue", "s", [Dot(1.0, 1.0, "a", False), Dot(50.0, 0.0, "a", False), Dot(9.0, 9.0, "a", True)]
    )
    assert len(panel.shown) == 2
    assert panel.heading == "queue, ±10 %, 1 at zero not shown"
    low, high = panel.limits
    assert low < 1.0
    assert high > 9.0


def test_the_band_is_relative_or_absolute() -> None:
    assert Panel("t", "s", [], band=0.1).around(10.0) == (9.0, 11.0)
    assert Panel("t", "", [], band=0.05, relative=False).around(0.5) == pytest.approx((0.45, 0.55))
    assert Panel("t", "", [], band=0.05, relative=False).heading == "t, ±0.05"


def test_a_picture_has_a_plot_a_panel_and_is_the_same_every_time(tmp_path: Path) -> None:
    dots = [Dot(1.0 + n, 1.1 + n, f"system {n % 9}", n % 2 == 0) for n in range(18)]
    plot = Plot("p", "title", [Panel(f"panel {n}", "s", dots) for n in range(3)])
    assert len(plot.systems) == 9 <= len(scatter.PALETTE)
    scatter.draw(plot, tmp_path / "a.png")
    scatter.draw(plot, tmp_path / "b.png")
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()


def test_a_picture_of_nothing_is_drawn_too(tmp_path: Path) -> None:
    scatter.draw(Plot("p", "title", [Panel("panel", "s", [])]), tmp_path / "a.png")
    assert (tmp_path / "a.png").exists()


# Sections


def test_the_overview_has_the_worst_median_first_and_says_of_which_file() -> None:
    one = Section("", {}, {}, errors=[Errors("a", 3, 0.01, 0.5), Errors("b", 2, 0.2, 12.5)])
    lines = overview({"x": one}, {"x": "x.csv"}).split("\n")[2:]
    assert lines == ["| b | `x.csv` | 2 | 20.0 % | 1,250 % |", "| a | `x.csv` | 3 | 1.0 % | 50 % |"]
    assert markdown.table(["a", "b"], [["1", "2"]], numbers=True) == "| a | b |\n| --- | --: |\n| 1 | 2 |"
    assert markdown.table(["", "b"], [["1|2", "3"]]) == "|  | b |\n|---|---|\n| 1\\|2 | 3 |"
    assert (
        markdown.by_column("c", {"a": {"1": "2"}, "b": {"1": "3"}})
        == "| c | a | b |\n|---|---|---|\n| 1 | 2 | 3 |"
    )


def test_rows_of_s_lora_that_are_furthest_off_are_named_the_worst_first(tmp_path: Path) -> None:
    rows = read(a_file(tmp_path, {"throughput_rps": "1.5"}, {"throughput_rps": "3"}, {"throughput_rps": "9"}))
    compared = [Comparison(row, {"throughput_rps": 1.5}, row is rows[2]) for row in rows]
    assert [c.row for c in furthest(compared, JUDGED, 5)] == [rows[1], rows[0]]
    assert rows[0].place == "a10g S2 ours num_adapters=20 alpha=1 req_rate=2 cv=1"


def test_only_measured_points_of_dlora_are_run_and_their_seeds_averaged(
    again: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted: list[Any] = []

    def uneven(points: Sequence[Any], jobs: int) -> dict[Overrides, Outcome]:
        wanted.extend(points)
        outcomes = fake_runs(points)
        for seed, point in enumerate(points):
            throughput = {**outcomes[point.overrides].summary, "throughput_rps": 2.0 + seed % 3}
            outcomes[point.overrides] = Outcome(RAN, throughput)
        return outcomes

    monkeypatch.setattr(several, "run_all", uneven)
    section = dlora.report(again.measured / dlora.FILE, 1)
    assert {(point.study, point.series, point.x) for point in wanted} == {
        ("figure_10", "unmerged_only", 4),
        ("figure_10", "released", 32),
        ("figure_12", "peft", 16),
    }
    assert len(wanted) == 3 * section.tree["seeds"] == 9
    (row,) = (row for row in section.tree["rows"] if row["study"] == "figure_12")
    assert (row["simulated"], row["least"], row["most"]) == (3.0, 2.0, 4.0)
    assert [panel.title for panel in section.plots[0].panels] == [
        "mean time per token",
        "90th percentile of time per token",
        "throughput",
    ]


def test_points_that_cannot_be_simulated_are_said(again: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    refused = Outcome(NOT_SIMULATED, reason="there is no system peft yet")
    monkeypatch.setattr(several, "run_all", lambda points, jobs: {p.overrides: refused for p in points})
    section = dlora.report(again.measured / dlora.FILE, 1)
    assert section.tree["rows"] == []
    assert section.printed.endswith("not simulated: there is no system peft yet")
    assert section.pictures == []


def test_a_single_request_is_a_command_line_and_every_second_length_was_fitted(made: Made) -> None:
    rows = single_requests.read(made.measured / single_requests.FILE)
    assert [row.fitted for row in rows] == [True, False]
    run = scenario(rows[0].overrides)
    assert run.calibration.path == "a100_40g-llama_7b-tp8-loraserve"
    assert (len(run.trace), run.trace.prompt_tokens[0], run.trace.adapters[0].rank) == (1, 200, 8)


def test_a_single_request_that_simlora_itself_measured_is_predicted_exactly(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    test_profiles.write(tmp_path / "runs.csv", [SINGLE | {"prompt_tokens": 400}])
    (row,) = single_requests.read(tmp_path / "runs.csv")
    test_profiles.write(
        tmp_path / "runs.csv", [SINGLE | {"prompt_tokens": 400} | single_requests.simulate(row)]
    )
    section = single_requests.report(tmp_path / "runs.csv", 1)
    assert section.tree["medians"]["predicted"]["ttft_s"] == {"median": 0.0, "worst": 0.0, "median_ms": 0.0}
    assert [line.median for line in section.errors] == [0.0, 0.0]


def test_whole_iterations_are_held_against_fits_and_against_sums_of_kernels(made: Made) -> None:
    entry = build.entries()["a100_80g-llama_2_70b-tp8"]
    timed = list(profiles.iterations(entry, made.measured / "profiles"))
    fitted = [one.dot.fitted for one in timed if one.what == "prefill" and "kernels" not in one.dot.system]
    assert fitted == [True, True, False, True, True] * 2 + [True], (
        "every fifth is held out, from the third on"
    )
    summed = [one.dot for one in timed if one.dot.system.endswith(profiles.KERNELS)]
    assert len(summed) == len(timed) / 2
    assert not any(dot.fitted for dot in summed)
    steps_ms = [one.dot.measured for one in timed if one.what == "decode step"]
    assert min(steps_ms) == pytest.approx(40 + 0.5 + 1e-4 * (128 + 64))


def test_pools_and_steps_are_those_that_simlora_has(made: Made) -> None:
    on, off = (one.dot for one in profiles.pools(made.measured / "profiles"))
    assert 250 < on.simulated < off.simulated
    assert off.simulated == pytest.approx(334.8, rel=0.01), "what vLLM reports without LoRA"
    (step,) = profiles.step_times(made.measured / "profiles")
    assert step.dot.measured == 10
    assert step.dot.simulated > 0


def test_profiles_that_are_missing_are_said_and_the_others_are_compared(made: Made, tmp_path: Path) -> None:
    (tmp_path / "profiles").mkdir()
    for path in (made.measured / "profiles").iterdir():
        if "h100" not in path.name and path.name != profiles.POOLS:
            os.symlink(path, tmp_path / "profiles" / path.name)
    section = profiles.report(tmp_path / "profiles")
    assert "there is no vidur_llama2-70b_h100_mlp.csv" in section.tree["skipped"]
    assert f"there is no {profiles.POOLS}" in section.tree["skipped"]
    assert "a100_80g-llama_2_70b-tp2" not in section.parts["operators"], "its collectives are of two tables"
    assert "a40-llama_2_7b-tp1" in section.parts["operators"]
    assert section.parts["scalings"] == "*Files of the profiles are missing.*"


def test_files_of_the_profiles_that_are_compared_are_known() -> None:
    assert {profiles.STEPS, profiles.POOLS, "splitwise_sim_perf_model.csv"} < profiles.files()


def test_a_broken_table_of_steps_is_said(tmp_path: Path) -> None:
    (tmp_path / profiles.STEPS).write_text("kind\nno_lora\n")
    with pytest.raises(InputError, match="cannot be read"):
        list(profiles.step_times(tmp_path))


def test_the_schemas_of_both_kinds_of_runs_are_told_apart(tmp_path: Path) -> None:
    assert list(command.asked(a_file(tmp_path, {}))) == ["slora"]
    assert list(command.asked(test_fidelity_vllm.a_file(tmp_path, {}))) == ["vllm"]
    assert list(command.asked(None)) == list(SOURCES)
    assert test_fidelity.CELLS.keys() != test_fidelity_vllm.CELLS.keys()
