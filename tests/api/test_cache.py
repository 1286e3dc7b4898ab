"""Every run is made once and kept, until something that it depends on changes."""

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


def test_a_run_is_kept_as_json_and_found_again_in_any_order_but_not_with_another_override_or_source(
    own_cache, monkeypatch
):
    cache = a_cache(own_cache)
    assert kept_run(cache, OVERRIDES) is None
    outcome = run(OVERRIDES, cache)
    kept = kept_run(cache, OVERRIDES)
    assert kept["seconds"] == outcome.seconds > 0
    (path,) = own_cache.iterdir()
    assert json.loads(path.read_text())["overrides"] == sorted(OVERRIDES)
    monkeypatch.setattr(running, "simulated", lambda overrides: pytest.fail("it was simulated again"))
    again = run((*OVERRIDES[1:], OVERRIDES[0]), a_cache(own_cache))
    assert again.figure("latency_s.mean") == outcome.figure("latency_s.mean")
    assert kept_run(cache, (*OVERRIDES, "seed=1")) is None
    assert kept_run(Cache(own_cache, "other"), OVERRIDES) is None


@pytest.mark.parametrize("first, second", [("seed=1", "seed=2"), ("slo={ttft_s: 1}", "slo.ttft_s=2")])
def test_where_the_order_matters_both_are_kept(own_cache, first, second):
    cache = a_cache(own_cache)
    one, other = (*OVERRIDES, first, second), (*OVERRIDES, second, first)
    run(one, cache)
    assert kept_run(cache, other) is None
    run(other, cache)
    assert kept_run(cache, one) is not None


@pytest.mark.parametrize("name", ["engine/clock.py", "conf/gpu/a10g.yaml", "latency/calibrations/x.yaml"])
def test_any_file_that_results_depend_on_changes_the_source(tmp_path, name):
    path = tmp_path / name
    path.parent.mkdir(parents=True)
    before = fingerprint.source(tmp_path)
    path.write_text("a: 1\n")
    between = fingerprint.source(tmp_path)
    path.write_text("a: 2\n")
    assert len({before, between, fingerprint.source(tmp_path)}) == 3


def test_a_file_that_only_shows_results_does_not(tmp_path):
    path = tmp_path / "report" / "html.py"
    path.parent.mkdir()
    before = fingerprint.source(tmp_path)
    path.write_text("")
    assert fingerprint.source(tmp_path) == before


def test_a_run_during_which_the_sources_changed_is_not_kept(own_cache, monkeypatch):
    cache = a_cache(own_cache)
    monkeypatch.setattr(cache_module, "source", lambda: "edited meanwhile")
    found = run(OVERRIDES, cache)
    assert found.status == RAN
    assert found.reason == "not kept: simlora's own files have changed since it began"
    assert not own_cache.exists()


def test_what_is_not_in_its_name_is_not_kept(own_cache, tmp_path):
    cache = a_cache(own_cache)
    outside = tmp_path / "lengths.csv"
    outside.write_text("x\n1\n")
    assert not put(cache, OVERRIDES, f"workload: {{path: {outside}}}")
    assert not put(cache, OVERRIDES, "scheduler: {_target_: tests.examples.MyScheduler}")
    assert put(cache, OVERRIDES, "scheduler: {_target_: simlora.policies.scheduling.fcfs.Fcfs}")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What is kept of one run."""
    cache = a_cache(tmp_path_factory.mktemp("whole"))
    run(OVERRIDES, cache)
    return dict(json.loads(cache.path(OVERRIDES).read_text()))


@pytest.mark.parametrize(
    "damage",
    [
        *("", "{", "[]", '{"source": "x"}', "[" * 100_000, "1" * 5000),
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
def test_a_file_that_was_damaged_or_edited_counts_as_not_there(own_cache, whole, damage):
    if isinstance(damage, dict):
        damage = json.dumps({key: value for key, value in (whole | damage).items() if value})
    own_cache.mkdir()
    cache = a_cache(own_cache)
    cache.path(OVERRIDES).write_text(damage)
    assert kept_run(cache, OVERRIDES) is None


def test_a_figure_that_was_edited_is_not_believed_and_the_run_is_kept_anew(own_cache, whole):
    own_cache.mkdir()
    cache = a_cache(own_cache)
    edited = whole["run"] | {"summary": whole["run"]["summary"] | {"makespan_s": 1.0}}
    cache.path(OVERRIDES).write_text(json.dumps(whole | {"run": edited}))
    assert kept_run(cache, OVERRIDES) is None
    assert run(OVERRIDES, cache).status == RAN
    assert kept_run(cache, OVERRIDES) is not None


def test_a_file_is_whole_or_not_there(own_cache, monkeypatch):
    cache = a_cache(own_cache)

    def killed(source: str, target: Path) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(cache_module.os, "replace", killed)
    with pytest.raises(KeyboardInterrupt):
        run(OVERRIDES, cache)
    assert kept_run(cache, OVERRIDES) is None
    assert list(own_cache.iterdir()) == []


def test_a_board_that_was_killed_goes_on_where_it_was(tmp_path, monkeypatch):
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


def test_a_folder_that_cannot_be_written_is_named(tmp_path):
    in_the_way = tmp_path / "file"
    in_the_way.write_text("")
    with pytest.raises(InputError, match=r"cannot keep a run as .*SIMLORA_CACHE_DIR"):
        run(OVERRIDES, a_cache(in_the_way))


def test_the_cache_is_where_the_environment_says(own_cache, monkeypatch):
    assert cache_dir() == own_cache
    monkeypatch.delenv("SIMLORA_CACHE_DIR")
    assert cache_dir().parts[-2:] == ("outputs", "cache")
    monkeypatch.setenv("SIMLORA_CACHE_DIR", "~/kept")
    assert cache_dir() == Path.home() / "kept"


# Runs


def test_a_system_that_does_not_exist_is_reported_and_not_kept(tmp_path, own_cache):
    series = {"lcfs": {"title": "none", "system": "time_machine"}}
    study = read(a_study(tmp_path, series=series, rules=None, printed=None))
    outcomes = set(map(astuple_of, run_study(points(study), jobs=1).values()))
    assert outcomes == {(NOT_SIMULATED, "there is no system time_machine yet")}
    assert not own_cache.exists()


def astuple_of(outcome: Outcome) -> tuple[str, str]:
    return outcome.status, outcome.reason


def test_a_model_that_does_not_fit_is_told_from_other_refusals(own_cache):
    cache = a_cache(own_cache)
    too_large = run(("model=llama_30b", "gpu=a10g"), cache)
    assert too_large.status == DOES_NOT_FIT
    assert "llama_30b needs" in too_large.reason
    assert run(("workload.rate_rps=fast",), cache).status == NOT_SIMULATED
    assert too_large.figure("throughput_rps") is None


def test_a_mistake_of_ours_is_not_taken_for_a_refusal(own_cache, monkeypatch):
    def broken(overrides: tuple[str, ...]) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(running, "simulated", broken)
    with pytest.raises(ZeroDivisionError):
        run(OVERRIDES, a_cache(own_cache))


def test_the_largest_batch_is_that_of_the_busiest_replica():
    summary = {"replicas": [{"most_running": 3}, {"most_running": 7}], "throughput_rps": None}
    assert Outcome(RAN, summary).figure("replicas.most_running") == 7
    assert Outcome(RAN, summary).figure("throughput_rps") is None
