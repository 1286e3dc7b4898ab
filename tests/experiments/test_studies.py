"""A study is expanded into runs, set beside what was published, and drawn."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from PIL import Image

from experiments.fidelity import rows as fidelity_rows
from experiments.fidelity.rows import Row
from experiments.studies import measured, running
from experiments.studies.draw import draw
from experiments.studies.found import Found, write_csv
from experiments.studies.points import points
from experiments.studies.simulating import main
from experiments.studies.slora_runs import setting_of
from experiments.studies.study import read
from simlora.core.errors import InputError
from simlora.results.result import Result
from simlora.sweeps.outcome import RAN, Outcome
from tests.experiments.studied import a_study, tree
from tests.experiments.test_fidelity import CELLS as SLORA_CELLS


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "cache"
    monkeypatch.setenv("SIMLORA_CACHE_DIR", str(folder))
    monkeypatch.setenv("SIMLORA_MEASURED_DIR", str(tmp_path / "measured"))
    return folder


# Expansion


def test_a_study_is_all_of_its_panels_series_and_values_of_x(tmp_path: Path) -> None:
    found = [point.key for point in points(read(a_study(tmp_path)))]
    assert found == [
        ("figure_1", "small", "fcfs", 1),
        ("figure_1", "small", "fcfs", 2),
        ("figure_1", "small", "lcfs", 1),
        ("figure_1", "small", "lcfs", 2),
        ("figure_1", "large", "fcfs", 2),
        ("figure_1", "large", "lcfs", 2),
    ]


def test_the_last_setting_of_a_key_counts_and_rules_come_last(tmp_path: Path) -> None:
    budgets = {
        point.key[1:]: point.settings["replica.kv_token_budget"]
        for point in points(read(a_study(tmp_path)))
        if point.series == "fcfs"
    }
    assert budgets == {("small", "fcfs", 1): 6000, ("small", "fcfs", 2): 7000, ("large", "fcfs", 2): 14500}


def test_a_point_is_overrides_as_on_the_command_line(tmp_path: Path) -> None:
    last = list(points(read(a_study(tmp_path))))[-1]
    assert last.overrides[0] == "system=slora_lcfs"
    assert "workload.rate_rps=2" in last.overrides
    assert "workload.prompt_tokens=[8,512]" in last.overrides


def test_a_rule_may_leave_points_out_and_says_why(tmp_path: Path) -> None:
    study = read(a_study(tmp_path))
    assert [point.key[1:] for point in points(study) if point.skip] == [("small", "lcfs", 1)]
    assert sum(not point.skip for point in points(study)) == 5


@pytest.mark.parametrize("kind", ["lines", "bars"])
def test_points_beyond_all_measurements_are_simulated_and_told_apart(tmp_path: Path, kind: str) -> None:
    rules = [{"where": {"series": "lcfs"}, "beyond": "nobody measured it"}]
    ran = Outcome(RAN, {"throughput_rps": 1.0, "slo": {"attainment": 1.0}})
    for name, given in (("with", rules), ("without", None)):
        study = read(a_study(tmp_path / name, kind=kind, rules=given, printed=None))
        gathered = [Found(point, [ran]) for point in points(study)]
        write_csv(tmp_path / f"{name}.csv", study, gathered)
        draw(study, gathered, tmp_path / f"{name}.png")
    with (tmp_path / "with.csv").open() as file:
        said = {(row["series"], row["beyond"]) for row in csv.DictReader(file)}
    assert said == {("fcfs", ""), ("lcfs", "nobody measured it")}
    assert (tmp_path / "with.png").read_bytes() != (tmp_path / "without.png").read_bytes()


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"titel": "x"}, "has an unknown key titel; did you mean title"),
        ({"metrics": ["latency_s.men"]}, "metric is 'latency_s.men'; did you mean latency_s.mean"),
        ({"rules": [{"where": {"panel": "smal"}, "set": {}}]}, "where.panel is 'smal'; did you mean small?"),
        ({"rules": [{"where": {"panel": "small"}}]}, "rule 1 must have either set, skip or beyond"),
        ({"printed": {"small": {"fcfs": {1: [1, 2, 3]}}}}, "has 3 values"),
        ({"x": {"key": "seed", "label": "seed"}}, "panel small has no x"),
    ],
)
def test_a_mistake_is_one_sentence_that_names_file_and_key(
    tmp_path: Path, changes: dict[str, object], said: str
) -> None:
    with pytest.raises(InputError, match=r"figure_1\.yaml") as caught:
        read(a_study(tmp_path, **changes))
    assert said in str(caught.value)


# Published points

CELLS = {
    "setting": "S1",
    "kv_token_budget": "14500",
    "campaign": "synthetic",
    "num_adapters": "5",
    "duration_s": "10",
    "output_hi": "64",
    "attainment_6s": "0.75",
}


def measured_rows(*changes: dict[str, str]) -> list[Row]:
    """Return measured runs of the study's second load but for these columns."""
    return [Row({**SLORA_CELLS, **CELLS, **change}, {}, {}) for change in changes]


def published_of(study_path: Path, rows: list[Row] | None, panel: str = "large") -> dict[str, list[float]]:
    study = read(study_path)
    point = next(p for p in points(study) if (p.panel, p.series) == (panel, "fcfs"))
    return measured.published(study, point, rows)


def test_a_measured_run_is_found_by_what_was_run_and_has_several_values_if_it_was_repeated(
    tmp_path: Path,
) -> None:
    path = a_study(tmp_path, printed=None)
    others = [{"req_rate": "3"}, {"setting": "S2"}, {"kv_token_budget": "9000"}]
    assert published_of(path, measured_rows({}, *others)) == {
        "throughput_rps": [1.5],
        "slo.attainment": [0.75],
    }
    again = measured_rows({}, {"throughput_rps": "1.7", "kv_token_budget": ""})
    assert published_of(path, again)["throughput_rps"] == [1.5, 1.7]


def test_printed_numbers_come_from_the_study_alone(tmp_path: Path) -> None:
    path, rows = a_study(tmp_path), measured_rows({})
    assert published_of(path, rows, "small") == {"throughput_rps": [0.9], "slo.attainment": [1.0]}
    assert published_of(path, rows) == {}


# The command


def test_figures_and_tables_are_made(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paper, out = tmp_path / "paper", tmp_path / "out"
    a_study(paper, "figure_1", note="a word about it")
    a_study(paper, "table_2", kind="bars", logarithmic=["throughput_rps"])
    assert main(paper, ["--out", str(out), "--jobs", "1"]) == 0
    printed = capsys.readouterr().out
    assert "a word about it" in printed
    assert "skipped the measured points" in printed
    for name in ("figure_1", "table_2"):
        with Image.open(out / f"{name}.png") as image:
            colours = {colour for _, colour in image.convert("RGB").getcolors(1 << 24)}
        assert {(0x2B, 0x6C, 0xD4), (0xD0, 0x87, 0x00)} <= colours, "both series are drawn"
        with (out / f"{name}.csv").open() as file:
            rows = list(csv.DictReader(file))
        assert len(rows) == 5
        assert all(row["status"] == RAN and float(row["throughput_rps"]) > 0 for row in rows)
        assert rows[0]["throughput_rps published"] == "0.9"
        assert rows[1]["slo.attainment published"] == "OOM"


def test_what_cannot_be_simulated_is_drawn_without_it_and_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    series = tree()["series"] | {"lcfs": {"title": "none", "system": "time_machine"}}
    a_study(tmp_path / "paper", series=series)
    assert main(tmp_path / "paper", ["figure_1", "--out", str(tmp_path), "--jobs", "1"]) == 0
    said = "not simulated: 2 runs, from small lcfs at 2 on: there is no system time_machine yet"
    assert said in capsys.readouterr().out
    assert (tmp_path / "figure_1.png").exists()


def test_the_settings_of_the_paper_are_those_of_the_measured_runs() -> None:
    assert fidelity_rows.RANKS["S2"] == (64, 32, 16, 8)
    assert setting_of({"model": "llama_13b", "workload.ranks": [64, 32, 16]}) == "S4"
    assert setting_of({"model": "llama_30b", "workload.ranks": [32]}) == ""


# What only the tables of a run have


def test_a_number_of_a_run_s_tables_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = next(points(read(a_study(tmp_path))))
    first = running.of_run(run, longest_s)
    assert first > 0
    monkeypatch.setattr(running, "simulate", lambda overrides: pytest.fail("simulated again"))
    assert running.of_run(run, longest_s) == first


def longest_s(result: Result) -> float:
    return float(result.requests["latency_s"].max())
