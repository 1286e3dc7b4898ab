"""The page of `python -m experiments.fidelity`: every measured file, here small ones of our own making."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from experiments.fidelity import __main__ as command
from experiments.fidelity import (
    base_engine,
    cells,
    dlora,
    page,
    predict,
    profiles,
    report,
    scatter,
    sheeted,
    vllm_steps,
)
from experiments.fidelity.__main__ import SOURCES, main
from experiments.fidelity.compare import Comparison, Errors, Section, furthest
from experiments.fidelity.page import FIGURES, REASONS, overview, unused
from experiments.fidelity.rows import read
from experiments.fidelity.scatter import Dot, Panel, Plot
from experiments.fidelity.vllm import predict as vllm_predict
from experiments.profiles import build
from experiments.scenarios import scenario
from experiments.studies import found as of_studies
from simlora.sweeps.outcome import NOT_SIMULATED, RAN, Outcome, Overrides
from tests.experiments import (
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
LORASERVE = SOURCES["loraserve"].file
POOLS_HEAD = "model,lora,max_loras,max_lora_rank,kv_tokens\n"
SINGLE_HEAD = "model,tp,rank,prompt_tokens,output_tokens,ttft_s,latency_s\n"
POOL = {
    "model": "llama-3.1-8b-instruct",
    "lora": "on",
    "max_loras": 4,
    "max_lora_rank": 16,
    "kv_tokens": 300_000,
}


def fake_runs(points: Sequence[Any], jobs: int = 1) -> dict[Overrides, Outcome]:
    latency_s = {"mean": PER_TOKEN_S, "p90": 2 * PER_TOKEN_S}
    return {
        point.overrides: Outcome(RAN, {"latency_per_output_token_s": latency_s, "throughput_rps": 3.0})
        for point in points
    }


def fill(folder: Path) -> Path:
    """Write small files of all schemas into a folder."""
    a_file(folder, {}, {"system": "slora_lcfs", "throughput_rps": "1.2"}).rename(folder / "slora_runs.csv")
    test_fidelity_vllm.a_file(folder, {}, {"max_loras": "5"}).rename(folder / "vllm_lora_runs.csv")
    own = test_fidelity_saturating
    a_file(folder, {}, {"median_ttft_ms": "20000"}, row=own.SLORA).rename(folder / SOURCES["slora_h100"].file)
    a_file(folder, {}, row=own.VLLM).rename(folder / SOURCES["vllm_v0"].file)
    rows = test_fidelity_vllm_steps.rows()
    test_fidelity_vllm_steps.a_file(folder, rows).rename(folder / vllm_steps.FILE)
    (folder / dlora.FILE).write_text(json.dumps(ARTIFACT))
    test_profiles.write(folder / LORASERVE, [SINGLE, SINGLE | {"prompt_tokens": 400}])
    (folder / base_engine.FILE).mkdir()
    test_fidelity_base_engine.a_run(folder / base_engine.FILE)
    measured = folder / "profiles"
    measured.mkdir()
    test_profiles.write_profiles(measured)
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
        patch.setattr(of_studies, "run_all", fake_runs)
        patch.setattr(command, "PAGE", page)
        patch.setattr("builtins.print", lambda *words, **_: lines.append(" ".join(map(str, words))))
        assert main(["--jobs", "1", "--json", str(folder / "out.json")]) == 0
    return Made(measured, cache, page, "\n".join(lines))


@pytest.fixture
def again(made: Made, monkeypatch: pytest.MonkeyPatch) -> Made:
    """Return what was made, in the surroundings that it was made in."""
    monkeypatch.setenv("SIMLORA_MEASURED_DIR", str(made.measured))
    monkeypatch.setenv("SIMLORA_CACHE_DIR", str(made.cache))
    monkeypatch.setattr(of_studies, "run_all", fake_runs)
    monkeypatch.setattr(command, "PAGE", made.page)
    return made


# The page


def test_the_page_has_a_section_a_file_with_its_numbers(made: Made) -> None:
    headings = [line for line in made.text.splitlines() if line.startswith("## ")]
    assert len(headings) == 1 + len(SOURCES) + 1, "what is worst, the files, and those that are left out"
    assert "slora              a10g      S2   ours              predicted    1" in made.text
    assert "median  50.0 %: -50 at 4" in made.text


def test_the_worst_stand_first(made: Made) -> None:
    table = made.text.partition("## The worst first")[2].partition("##")[0]
    cells = re.findall(r"\| ([\d,.]+) % \| [\d,]+ % \|$", table, re.M)
    medians = [float(cell.replace(",", "")) for cell in cells]
    assert len(medians) > 10
    assert medians == sorted(medians, reverse=True)


def test_the_picture_of_every_file_is_linked_and_there(made: Made) -> None:
    linked = re.findall(r"!\[.+\]\((.+\.png)\)", made.text)
    assert [Path(link).stem for link in linked] == list(SOURCES)
    for link in linked:
        assert b"matplotlib" not in (made.page.parent / link).read_bytes(), (
            "no version, which would change it"
        )


def test_every_place_of_the_notes_is_filled_or_named(made: Made) -> None:
    assert "${" not in made.text
    missing = re.findall(r"without a number: notes/(\w+).md", made.printed)
    assert set(missing) == {"slora", "vllm", "profiles"}, "those that name rows of the published files"
    assert made.text.count(page.ABSENT) == len(missing)


def test_files_that_nothing_is_compared_with_are_listed_with_their_reason(made: Made, tmp_path: Path) -> None:
    assert re.findall(r"^\* `(.+)`: this command does not know it", made.text, re.M) == ["profiles/more.csv"]
    reason, *_ = REASONS
    (tmp_path / "profiles").mkdir()
    (tmp_path / reason).touch()
    assert unused(tmp_path, set()) == f"* `{reason}`: {REASONS[reason]}."
    assert unused(tmp_path, {reason}) == "None."


def test_every_file_has_its_json(made: Made) -> None:
    stems = ["out", *(f"out.{Path(source.file).stem}" for source in list(SOURCES.values())[1:])]
    trees = [json.loads((made.measured.parent / f"{stem}.json").read_text()) for stem in stems]
    found = dict(zip(SOURCES, trees, strict=True))
    assert [row["line"] for row in found["vllm"]["rows"]] == [2, 3]
    first = found["dlora"]["rows"][0]
    assert (first["study"], first["series"], first["x"]) == ("figure_10", "released", 32)
    assert (first["measured"], first["simulated"], first["error"]) == (0.4, PER_TOKEN_S, pytest.approx(0.25))


def test_a_second_time_nothing_is_simulated_and_the_bytes_are_the_same(
    again: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sheeted, "single_times", lambda _: pytest.fail("simulated again"))
    for module in (predict, vllm_predict, sheeted):
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
    skipped = re.findall(
        rf"skipped: there is no {tmp_path}/(\S+); set SIMLORA_MEASURED_DIR", capsys.readouterr().out
    )
    assert skipped == [source.file for name, source in SOURCES.items() if name != "slora"]
    assert main(["--jobs", "1", "--markdown", str(tmp_path / "page.md")]) == 0
    assert "*Without `vllm_lora_runs.csv`, which was not there.*" in (tmp_path / "page.md").read_text()


def test_a_single_file_makes_a_page_of_its_own_only_where_it_is_asked_for(
    again: Made, tmp_path: Path
) -> None:
    before = again.page.read_bytes()
    runs = str(again.measured / "vllm_lora_runs.csv")
    assert main(["--runs", runs, "--jobs", "1"]) == 0
    assert main(["--runs", runs, "--jobs", "1", "--markdown", str(tmp_path / "own.md")]) == 0
    assert again.page.read_bytes() == before
    written = (tmp_path / "own.md").read_text()
    assert "vLLM with LoRA" in written
    assert "Files that nothing" not in written


@pytest.mark.parametrize("option", ["--markdown", "--json"])
def test_what_cannot_be_written_is_said(
    again: Made, tmp_path: Path, capsys: pytest.CaptureFixture[str], option: str
) -> None:
    assert main(["--runs", str(again.measured / "slora_runs.csv"), option, str(tmp_path)]) == 2
    assert f"{tmp_path} cannot be written" in capsys.readouterr().err


FAST = [{"exec_type": 2, "num_adapters": 16, "throughput": "fast"}]


@pytest.mark.parametrize(
    ("file", "text", "said"),
    [
        (LORASERVE, "model,tp\nllama_7b,8\n", "has no column rank"),
        (LORASERVE, f"{SINGLE_HEAD}x,8,8,2,2,1,1\n", "'x'"),
        (LORASERVE, f"{SINGLE_HEAD}llama_7b,8,8,2,2,0,1\n", "line 2 has ttft_s"),
        (dlora.FILE, "[]", "is not what dLoRA's artifact plots"),
        (dlora.FILE, json.dumps(ARTIFACT | {"figure12": FAST}), "figure_12 eight_gpus peft 16 is 'fast'"),
        (f"profiles/{profiles.POOLS}", f"{POOLS_HEAD}x,on,4,16,1\n", "line 2 has model 'x'"),
        (
            f"profiles/{profiles.POOLS}",
            f"{POOLS_HEAD}llama-3.1-8b-instruct,on,4,16,0\n",
            "line 2 has kv_tokens",
        ),
        (f"profiles/{profiles.STEPS}", "kind\nno_lora\n", "has no column model"),
    ],
)
def test_bad_input_is_one_sentence_that_names_its_place(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    file: str,
    text: str,
    said: str,
) -> None:
    monkeypatch.setenv("SIMLORA_MEASURED_DIR", str(tmp_path))
    monkeypatch.setattr(of_studies, "run_all", fake_runs)
    (tmp_path / file).parent.mkdir(exist_ok=True)
    (tmp_path / file).write_text(text)
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
    tmp_path: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, seen = a_file(tmp_path, {}, {"req_rate": "1"}), []

    def interrupted(row: Any) -> dict[str, float]:
        seen.append(row.workload["req_rate"])
        if len(seen) == 2:
            raise KeyboardInterrupt
        return row.measured

    monkeypatch.setattr(predict, "simulate", interrupted)
    assert main(["--runs", str(path), "--jobs", "1"]) == 130
    assert main(["--runs", str(path), "--jobs", "1"]) == 0
    assert seen == [2, 1, 1]


def test_a_row_is_simulated_again_when_its_columns_or_coefficients_are_others_but_not_its_measurements(
    tmp_path: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []
    monkeypatch.setattr(predict, "simulate", lambda row: seen.append(row.key) or {"throughput_rps": 1.0})
    others = ({"cv": "2"}, {"kv_token_budget": "9000"}, {"system": "slora_lcfs"})
    for change in ({}, *others, {}, {"throughput_rps": "7"}):
        report.figures(read(a_file(tmp_path, change))[0])
    assert len(seen) == len(list(own_cache.iterdir())) == 4
    slower = SimpleNamespace(coefficients={"decode.intercept_s": 1.0})
    monkeypatch.setattr(report, "calibration_of", lambda row: slower)
    report.figures(read(a_file(tmp_path, {}))[0])
    assert len(seen) == 5


def test_figures_are_not_kept_if_files_changed_meanwhile(
    own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cells.running, "source", lambda: "another")
    assert cells.kept(["a"], lambda: {"b": 1.0}) == {"b": 1.0}
    assert not own_cache.exists()


def test_a_hash_is_that_of_what_the_files_hold(tmp_path: Path) -> None:
    one, other = tmp_path / "a", tmp_path / "b"
    one.write_text("a")
    other.write_text("a")
    assert cells.hashed(one) == cells.hashed(other) != cells.hashed(one, other)


# Notes


TREE = {"medians": {"all": {"median": 0.01234}}, "rows": [{"line": 2, "x": -1.5}, {"line": 2, "x": 2.0}]}


@pytest.mark.parametrize(
    ("place", "written"),
    [
        ("${medians/all/median|.1%}", "1.2 %"),
        ("${rows/line=2,x=-1.5/x|+.2f}", "-1.50"),
        ("${table}", "a table"),
        ("${rows/line=2/x}", "n/a"),  # two rows
        ("${medians/none/median|.1%}", "n/a"),
        ("${rows/x=2.0/x|nonsense}", "n/a"),
    ],
)
def test_a_place_is_filled_from_parts_or_tree_if_exactly_one_row_has_it(place: str, written: str) -> None:
    text, absent = page.filled(f"It is {place}.", {"table": "a table"}, TREE)
    assert text == f"It is {written}."
    assert bool(absent) is (written == "n/a")


# Pictures


def test_axes_are_logarithmic_where_relative_numbers_differ_much() -> None:
    wide = [Dot(1.0, 1.0, "a", False), Dot(100.0, 90.0, "a", False)]
    assert Panel("t", "s", wide).logarithmic
    assert not Panel("t", "s", wide, relative=False).logarithmic
    assert not Panel("t", "s", [Dot(1.0, 2.0, "a", False)]).logarithmic


def test_what_logarithmic_axes_cannot_show_is_counted() -> None:
    ends = [Dot(1.0, 1.0, "a", False), Dot(9.0, 9.0, "a", True)]
    panel = Panel("queue", "s", [*ends, Dot(50.0, 0.0, "a", False)])
    assert panel.shown == ends
    assert panel.heading == "queue, ±10 %, 1 at zero not shown"
    low, high = panel.limits
    assert low < 1.0 < 9.0 < high


def test_the_band_is_relative_or_absolute() -> None:
    assert Panel("t", "s", [], band=0.1).around(10.0) == (9.0, 11.0)
    assert Panel("t", "", [], band=0.05, relative=False).around(0.5) == pytest.approx((0.45, 0.55))


def test_a_picture_of_nothing_is_drawn_too(tmp_path: Path) -> None:
    scatter.draw(Plot("p", "title", [Panel(f"panel {n}", "s", []) for n in range(3)]), tmp_path / "a.png")
    assert (tmp_path / "a.png").exists()


# Sections


def test_the_overview_has_the_worst_median_first_and_says_of_which_file() -> None:
    one = Section("", {}, {}, errors=[Errors("a", 3, 0.01, 0.5), Errors("b", 2, 0.2, 12.5)])
    lines = overview({"x": one}, {"x": "x.csv"}).split("\n")[2:]
    assert lines == ["| b | `x.csv` | 2 | 20.0 % | 1,250 % |", "| a | `x.csv` | 3 | 1.0 % | 50 % |"]


def test_rows_of_s_lora_that_are_furthest_off_are_named_the_worst_first(tmp_path: Path) -> None:
    rows = read(a_file(tmp_path, {"throughput_rps": "1.5"}, {"throughput_rps": "3"}, {"throughput_rps": "9"}))
    compared = [Comparison(row, {"throughput_rps": 1.5}, row is rows[2]) for row in rows]
    assert [c.row for c in furthest(compared, report.JUDGED, 5)] == [rows[1], rows[0]], "the last was fitted"


def test_only_measured_points_of_dlora_are_run_and_their_seeds_averaged(
    again: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted: list[Any] = []

    def uneven(points: Sequence[Any], jobs: int) -> dict[Overrides, Outcome]:
        wanted.extend(points)
        found = fake_runs(points)
        for seed, outcome in enumerate(found.values()):
            outcome.summary["throughput_rps"] = 2.0 + seed % 3
        return found

    monkeypatch.setattr(of_studies, "run_all", uneven)
    section = dlora.report(again.measured / dlora.FILE, 1)
    assert {(point.study, point.series, point.x) for point in wanted} == {
        ("figure_10", "unmerged_only", 4),
        ("figure_10", "released", 32),
        ("figure_12", "peft", 16),
    }
    assert len(wanted) == 3 * section.tree["seeds"] == 9
    (row,) = (row for row in section.tree["rows"] if row["study"] == "figure_12")
    assert (row["simulated"], row["least"], row["most"]) == (3.0, 2.0, 4.0)


def test_points_that_cannot_be_simulated_are_said(again: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    refused = Outcome(NOT_SIMULATED, reason="there is no system peft yet")
    monkeypatch.setattr(of_studies, "run_all", lambda points, jobs: {p.overrides: refused for p in points})
    section = dlora.report(again.measured / dlora.FILE, 1)
    assert (section.tree["rows"], section.picture) == ([], None)
    assert section.printed.endswith("not simulated: there is no system peft yet")


def test_a_single_request_is_a_command_line_and_every_second_length_was_fitted(made: Made) -> None:
    rows = sheeted.singles(made.measured / LORASERVE)
    assert [row.fitted for row in rows] == [True, False]
    run = scenario(rows[0].overrides)
    assert run.calibration.path == "a100_40g-llama_7b-tp8-loraserve"
    assert (len(run.trace), run.trace.prompt_tokens[0], run.trace.adapters[0].rank) == (1, 200, 8)


def test_a_single_request_that_simlora_itself_measured_is_predicted_exactly(tmp_path: Path) -> None:
    path, longer = tmp_path / "runs.csv", SINGLE | {"prompt_tokens": 400}
    test_profiles.write(path, [longer])
    (row,) = sheeted.singles(path)
    test_profiles.write(path, [longer | sheeted.single_times(row)])
    section = sheeted.report_singles(path, 1)
    assert section.tree["medians"]["predicted"]["ttft_s"] == {"median": 0.0, "worst": 0.0, "median_ms": 0.0}


def test_whole_iterations_are_held_against_fits_and_against_sums_of_kernels(made: Made) -> None:
    entry = build.entries()["a100_80g-llama_2_70b-tp8"]
    timed = list(profiles.iterations(entry, made.measured / "profiles"))
    fitted = [one.dot.fitted for one in timed if one.what == "prefill" and "kernels" not in one.dot.system]
    every_fifth_is_held_out = [True, True, False, True, True]
    assert fitted == every_fifth_is_held_out * 2 + [True]
    summed = [one.dot.fitted for one in timed if one.dot.system.endswith(profiles.KERNELS)]
    assert summed == [False] * (len(timed) // 2)
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
    folder = tmp_path / "profiles"
    folder.mkdir()
    for path in (made.measured / "profiles").iterdir():
        if "h100" not in path.name and path.name != profiles.POOLS:
            os.symlink(path, folder / path.name)
    section = profiles.report(folder)
    assert "there is no vidur_llama2-70b_h100_mlp.csv" in section.tree["skipped"]
    assert f"there is no {profiles.POOLS}" in section.tree["skipped"]
    assert "a100_80g-llama_2_70b-tp2" not in section.parts["operators"], "its collectives are of two tables"
    assert "a40-llama_2_7b-tp1" in section.parts["operators"]


def test_the_schemas_of_both_kinds_of_runs_are_told_apart(tmp_path: Path) -> None:
    assert list(command.asked(a_file(tmp_path, {}))) == ["slora"]
    assert list(command.asked(test_fidelity_vllm.a_file(tmp_path, {}))) == ["vllm"]
