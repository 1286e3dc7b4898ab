"""Every run is made once and kept, until something that it depends on changes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from experiments.studies.points import points
from experiments.studies.running import run_all as run_study
from experiments.studies.study import read
from simlora.api import cache as cache_module
from simlora.api import fingerprint
from simlora.api.cache import Cache, cache_dir
from simlora.api.inputs import files_of, with_code
from simlora.cli.sweep import main as sweep
from simlora.core.errors import InputError
from simlora.sweeps import running
from simlora.sweeps.outcome import DOES_NOT_FIT, NOT_SIMULATED, RAN, Outcome, Overrides
from simlora.sweeps.running import run_all
from tests.experiments.studied import a_study

OVERRIDES = (
    "system=slora",
    "workload.duration_s=5",
    "workload.output_tokens=[8,16]",
    "timeline=false",
)


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "cache"
    monkeypatch.setenv("SIMLORA_CACHE_DIR", str(folder))
    monkeypatch.setenv("SIMLORA_MEASURED_DIR", str(tmp_path / "measured"))
    return folder


def a_cache(folder: Path) -> Cache:
    return Cache(folder, fingerprint.source())


def run(overrides: Overrides, cache: Cache) -> Outcome:
    return run_all([overrides], jobs=1, shown=False, cache=cache)[overrides]


def kept_run(cache: Cache, overrides: Overrides) -> dict[str, Any] | None:
    return cache.get(cache.path(overrides), overrides)


def put(cache: Cache, overrides: Overrides, config: str) -> bool:
    tree = yaml.safe_load(config)
    return cache.put(cache.path(overrides), overrides, {}, with_code(files_of(tree), tree))


# The cache


def test_a_run_is_kept_and_found_again(own_cache: Path) -> None:
    cache = a_cache(own_cache)
    assert kept_run(cache, OVERRIDES) is None
    outcome = run(OVERRIDES, cache)
    kept = kept_run(cache, OVERRIDES)
    assert kept is not None
    assert Outcome(**kept).figure("throughput_rps") == outcome.figure("throughput_rps")
    assert kept["seconds"] == outcome.seconds > 0


def test_a_kept_run_is_not_simulated_again(own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = run(OVERRIDES, a_cache(own_cache))
    monkeypatch.setattr(running, "simulated", lambda overrides: pytest.fail("it was simulated again"))
    assert _only(own_cache, OVERRIDES).figure("latency_s.mean") == first.figure("latency_s.mean")


def _only(folder: Path, overrides: tuple[str, ...]) -> Outcome:
    kept = kept_run(a_cache(folder), overrides)
    assert kept is not None
    return Outcome(**kept)


def test_another_override_is_another_run(own_cache: Path) -> None:
    cache = a_cache(own_cache)
    run(OVERRIDES, cache)
    assert kept_run(cache, (*OVERRIDES, "seed=1")) is None


def test_runs_that_say_the_same_in_another_order_are_one(own_cache: Path) -> None:
    cache = a_cache(own_cache)
    run(OVERRIDES, cache)
    assert kept_run(cache, (*OVERRIDES[1:], OVERRIDES[0])) == kept_run(cache, OVERRIDES) is not None


@pytest.mark.parametrize("first, second", [("seed=1", "seed=2"), ("slo={ttft_s: 1}", "slo.ttft_s=2")])
def test_where_the_order_matters_both_are_kept(own_cache: Path, first: str, second: str) -> None:
    cache = a_cache(own_cache)
    one, other = (*OVERRIDES, first, second), (*OVERRIDES, second, first)
    run(one, cache)
    assert kept_run(cache, other) is None
    run(other, cache)
    assert kept_run(cache, one) is not None


def test_a_run_of_other_sources_is_not_found(own_cache: Path) -> None:
    run(OVERRIDES, a_cache(own_cache))
    assert kept_run(Cache(own_cache, "other"), OVERRIDES) is None


@pytest.mark.parametrize("name", ["engine/clock.py", "conf/gpu/a10g.yaml", "latency/calibrations/x.yaml"])
def test_any_file_that_results_depend_on_changes_the_source(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.parent.mkdir(parents=True)
    before = fingerprint.source(tmp_path)
    path.write_text("a: 1\n")
    between = fingerprint.source(tmp_path)
    path.write_text("a: 2\n")
    assert len({before, between, fingerprint.source(tmp_path)}) == 3


def test_a_file_that_only_shows_results_does_not(tmp_path: Path) -> None:
    path = tmp_path / "report" / "html.py"
    path.parent.mkdir()
    before = fingerprint.source(tmp_path)
    path.write_text("")
    assert fingerprint.source(tmp_path) == before


def test_a_run_during_which_the_sources_changed_is_not_kept(
    own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = a_cache(own_cache)
    monkeypatch.setattr(cache_module, "source", lambda: "edited meanwhile")
    found = run(OVERRIDES, cache)
    assert found.status == RAN
    assert found.reason == "not kept: simlora's own files have changed since it began"
    assert not own_cache.exists()


def test_a_trace_that_changed_is_another_run(tmp_path: Path, own_cache: Path) -> None:
    trace = tmp_path / "trace.csv"
    head = "arrival_s,adapter,rank,prompt_tokens,output_tokens\n"
    trace.write_text(f"{head}0,a,8,100,10\n")
    overrides = ("workload=file", f"workload.path={trace}", "timeline=false")
    cache = a_cache(own_cache)
    assert run(overrides, cache).status == RAN
    assert kept_run(cache, overrides) is not None
    trace.write_text(f"{head}0,a,8,100,20\n")
    assert kept_run(cache, overrides) is None


def test_what_is_not_in_its_name_is_not_kept(own_cache: Path, tmp_path: Path) -> None:
    cache = a_cache(own_cache)
    outside = tmp_path / "lengths.csv"
    outside.write_text("x\n1\n")
    assert not put(cache, OVERRIDES, f"workload: {{path: {outside}}}")
    assert not put(cache, OVERRIDES, "scheduler: {_target_: tests.examples.MyScheduler}")
    assert put(cache, OVERRIDES, "scheduler: {_target_: simlora.policies.scheduling.fcfs.Fcfs}")


@pytest.mark.parametrize("damage", ["", "{", "[]", '{"source": "x"}', "[" * 100_000, "1" * 5000])
def test_a_damaged_file_counts_as_not_there(own_cache: Path, damage: str) -> None:
    cache = a_cache(own_cache)
    run(OVERRIDES, cache)
    cache.path(OVERRIDES).write_text(damage)
    assert kept_run(cache, OVERRIDES) is None
    assert run(OVERRIDES, cache).status == RAN
    assert kept_run(cache, OVERRIDES) is not None


@pytest.mark.parametrize(
    "edit",
    [
        {"run": {"state": "ran"}},
        {"run": [1]},
        {"run": {"status": 1, "summary": 2, "reason": 3, "seconds": "long", "key": None}},
        {"run": {"status": "ran"}},
        {"inputs": []},
        {"inputs": {"files": "trace.csv", "modules": 3}},
        {"inputs": None},
        {"overrides": None},
        {"source": None},
        {"note": "looked at"},
    ],
)
def test_a_file_that_was_edited_counts_as_not_there(
    own_cache: Path, edit: dict[str, Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    command = [*OVERRIDES, "--jobs=1", f"--out={tmp_path}"]
    assert sweep(command) == 0
    (path,) = own_cache.iterdir()
    whole = path.read_text()
    path.write_text(json.dumps({key: value for key, value in (json.loads(whole) | edit).items() if value}))
    assert sweep(command) == 0
    assert json.loads(path.read_text()).keys() == json.loads(whole).keys(), "it is kept anew"
    monkeypatch.setattr(running, "simulated", lambda overrides: pytest.fail("it was simulated again"))
    assert sweep(command) == 0


def test_a_figure_that_was_edited_is_not_believed(own_cache: Path) -> None:
    cache = a_cache(own_cache)
    run(OVERRIDES, cache)
    path = cache.path(OVERRIDES)
    entry = json.loads(path.read_text())
    entry["run"]["summary"]["makespan_s"] += 1
    path.write_text(json.dumps(entry))
    assert kept_run(cache, OVERRIDES) is None


def test_a_file_is_whole_or_not_there(own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = a_cache(own_cache)

    def killed(source: str, target: Path) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(cache_module.os, "replace", killed)
    with pytest.raises(KeyboardInterrupt):
        run(OVERRIDES, cache)
    assert kept_run(cache, OVERRIDES) is None
    assert list(own_cache.iterdir()) == []


def test_a_board_that_was_killed_goes_on_where_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = read(a_study(tmp_path / "paper"))
    real, done = running.simulated, []

    def killed_at_the_third(overrides: tuple[str, ...]) -> object:
        if len(done) == 2:
            raise KeyboardInterrupt
        done.append(overrides)
        return real(overrides)

    monkeypatch.setattr(running, "simulated", killed_at_the_third)
    with pytest.raises(KeyboardInterrupt):
        run_study(points(study), jobs=1)
    again = []
    monkeypatch.setattr(running, "simulated", lambda overrides: again.append(overrides) or real(overrides))
    outcomes = run_study(points(study), jobs=1)
    assert len(outcomes) == 5
    assert len(again) == 3
    assert not set(again) & set(done)


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    in_the_way = tmp_path / "file"
    in_the_way.write_text("")
    with pytest.raises(InputError, match=r"cannot keep a run as .*SIMLORA_CACHE_DIR"):
        run(OVERRIDES, a_cache(in_the_way))


def test_the_cache_is_where_the_environment_says(own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert cache_dir() == own_cache
    monkeypatch.delenv("SIMLORA_CACHE_DIR")
    assert cache_dir().parts[-2:] == ("outputs", "cache")
    monkeypatch.setenv("SIMLORA_CACHE_DIR", "~/kept")
    assert cache_dir() == Path.home() / "kept"


# Runs


def test_the_same_run_of_two_studies_is_simulated_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, count = running.simulated, []
    monkeypatch.setattr(running, "simulated", lambda overrides: count.append(1) or real(overrides))
    studies = [read(a_study(tmp_path, name)) for name in ("figure_1", "figure_2")]
    run_study([point for study in studies for point in points(study)], jobs=1)
    assert len(count) == 5


def test_a_system_that_does_not_exist_is_reported_and_not_kept(tmp_path: Path, own_cache: Path) -> None:
    series = {"lcfs": {"title": "none", "system": "time_machine"}}
    study = read(a_study(tmp_path, series=series, rules=None, printed=None))
    outcomes = set(map(astuple_of, run_study(points(study), jobs=1).values()))
    assert outcomes == {(NOT_SIMULATED, "there is no system time_machine yet")}
    assert not own_cache.exists()


def astuple_of(outcome: Outcome) -> tuple[str, str]:
    return outcome.status, outcome.reason


def test_a_model_that_does_not_fit_is_told_from_other_refusals(own_cache: Path) -> None:
    cache = a_cache(own_cache)
    too_large = run(("model=llama_30b", "gpu=a10g"), cache)
    assert too_large.status == DOES_NOT_FIT
    assert "llama_30b needs" in too_large.reason
    assert run(("workload.rate_rps=fast",), cache).status == NOT_SIMULATED
    assert too_large.figure("throughput_rps") is None


def test_a_mistake_of_ours_is_not_taken_for_a_refusal(
    own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(overrides: tuple[str, ...]) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(running, "simulated", broken)
    with pytest.raises(ZeroDivisionError):
        run(OVERRIDES, a_cache(own_cache))


def test_the_largest_batch_is_that_of_the_busiest_replica() -> None:
    summary = {"replicas": [{"most_running": 3}, {"most_running": 7}], "throughput_rps": None}
    assert Outcome(RAN, summary).figure("replicas.most_running") == 7
    assert Outcome(RAN, summary).figure("throughput_rps") is None


def test_kept_runs_are_json_that_says_what_was_run(own_cache: Path) -> None:
    run(OVERRIDES, a_cache(own_cache))
    (path,) = own_cache.iterdir()
    found = json.loads(path.read_text())
    assert found["overrides"] == sorted(OVERRIDES)
    assert found["run"]["summary"]["complete"] is True
