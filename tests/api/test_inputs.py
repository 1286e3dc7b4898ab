"""A kept run is found again only while all that it has read is what it was: files, and code of the user's."""

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from simlora import sweep
from simlora.api import inputs
from simlora.api.cache import open_cache
from simlora.cli.sweep import main
from simlora.sweeps import running
from simlora.sweeps.outcome import FAILED, RAN, Outcome, Overrides
from simlora.sweeps.running import run_all
from simlora.sweeps.table import read_sweep

SHORT = ("system=slora", "workload.duration_s=5", "workload.output_tokens=[8,16]", "timeline=false")
HEAD = "arrival_s,adapter,rank,prompt_tokens,output_tokens\n"
POLICY = """
from simlora.policies.scheduling.fcfs import Fcfs
from {helper} import MOST

class Mine(Fcfs):
    most = MOST
"""


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SIMLORA_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return a folder whose modules can be imported, and are forgotten after the test."""
    folder = tmp_path / "code"
    folder.mkdir()
    monkeypatch.syspath_prepend(folder)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # an edit within a second has the same time
    before = set(sys.modules)
    yield folder
    forget(before)


def forget(before: set[str]) -> None:
    """Have modules imported anew, as another process would."""
    for name in set(sys.modules) - before:
        if name.partition(".")[0] in ("own_policies", "own_policy", "own_helper", "own_main"):
            del sys.modules[name]
    importlib.invalidate_caches()


def run(overrides: Overrides) -> Outcome:
    return run_all([overrides], jobs=1, shown=False)[overrides]


def is_kept(overrides: Overrides) -> bool:
    cache = open_cache()
    return cache.get(cache.path(overrides), overrides) is not None


def edits(monkeypatch: pytest.MonkeyPatch, path: Path, text: str) -> None:
    """Have a file edited while a run goes on that has read it."""
    real = running.simulated

    def edited(overrides: Overrides) -> object:
        found = real(overrides)
        path.write_text(text)
        return found

    monkeypatch.setattr(running, "simulated", edited)


def test_a_trace_that_is_edited_while_it_runs_is_kept_neither_as_it_was_nor_as_it_is(tmp_path, monkeypatch):
    trace = tmp_path / "trace.csv"
    trace.write_text(f"{HEAD}0,a,8,100,10\n")
    edits(monkeypatch, trace, f"{HEAD}0,a,8,100,200\n")
    overrides = ("workload=file", f"workload.path={trace}", "timeline=false")
    found = run(overrides)
    assert found.status == RAN
    assert found.reason == f"not kept: {trace} has changed since it was read"
    assert not is_kept(overrides)
    trace.write_text(f"{HEAD}0,a,8,100,10\n")
    assert not is_kept(overrides)


def test_a_sweep_says_which_run_is_not_kept(tmp_path, monkeypatch, capsys):
    trace = tmp_path / "trace.csv"
    trace.write_text(f"{HEAD}0,a,8,100,10\n")
    edits(monkeypatch, trace, f"{HEAD}0,a,8,100,200\n")
    assert main(["workload=file", f"workload.path={trace}", "--jobs=1", f"--out={tmp_path / 'out'}"]) == 0
    assert f"the first: not kept: {trace} has changed since it was read" in capsys.readouterr().err


def test_runs_that_read_a_file_after_it_was_edited_are_not_compared_with_those_before(
    tmp_path, monkeypatch, capsys
):
    trace = tmp_path / "trace.csv"
    trace.write_text(f"{HEAD}0,a,8,100,10\n")
    real, began = running.simulated, []

    def edited(overrides: Overrides) -> object:
        began.append(overrides)
        if len(began) == 2:
            trace.write_text(f"{HEAD}0,a,8,100,200\n")
        return real(overrides)

    monkeypatch.setattr(running, "simulated", edited)
    grid = ["workload=file", f"workload.path={trace}", "system=slora,slora_lcfs,slora_early_abort"]
    table = sweep(grid, jobs=1).table
    assert table["status"].tolist() == [RAN, FAILED, FAILED]
    changed = f"{trace} has changed since the first of these runs began; run it again"
    assert table["reason"].tolist()[1:] == [changed, changed]
    assert not is_kept(tuple(grid[:2]))
    monkeypatch.setattr(running, "simulated", real)
    again = sweep(grid, jobs=1).table
    assert again["status"].tolist() == [RAN] * 3
    assert again["latency_s.mean"].min() > table["latency_s.mean"][0]


def test_a_sweep_that_is_run_again_after_an_edit_replaces_its_rows(tmp_path):
    trace, out = tmp_path / "trace.csv", tmp_path / "out"
    grid = ["workload=file", f"workload.path={trace}", "system=slora,slora_lcfs"]
    for tokens in (10, 200):
        trace.write_text(f"{HEAD}0,a,8,100,{tokens}\n")
        last = sweep(grid, jobs=1, out=out).table
    assert sorted(read_sweep(out)["key"]) == sorted(last["key"])


def test_a_path_from_home_is_a_file(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "t.csv").write_text(f"{HEAD}0,a,8,100,10\n")
    overrides = ("workload=file", "workload.path='~/t.csv'", "timeline=false")
    first = run(overrides)
    assert is_kept(overrides)
    (tmp_path / "t.csv").write_text(f"{HEAD}0,a,8,100,200\n")
    assert not is_kept(overrides)
    assert run(overrides).figure("latency_s.mean") != first.figure("latency_s.mean")


def test_a_relative_path_is_of_the_folder_where_it_is_run(tmp_path, monkeypatch):
    overrides = ("workload=file", "workload.path=t.csv", "timeline=false")
    for name, tokens in (("one", 10), ("two", 200)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "t.csv").write_text(f"{HEAD}0,a,8,100,{tokens}\n")
    monkeypatch.chdir(tmp_path / "one")
    run(overrides)
    assert is_kept(overrides)
    monkeypatch.chdir(tmp_path / "two")
    assert not is_kept(overrides)


@pytest.mark.parametrize(
    ("policy", "helper"),
    [
        ("own_policy.py", "own_helper.py"),
        ("own_policies/mine.py", "own_helper.py"),  # without __init__.py
        ("own_policies/mine.py", "own_policies/helping/limits.py"),
    ],
)
@pytest.mark.parametrize("edited", ["policy", "helper"])
def test_an_edit_of_a_policy_or_of_what_it_imports_is_another_run(code, policy, helper, edited):
    for path in (policy, helper):
        (code / path).parent.mkdir(parents=True, exist_ok=True)
    (code / helper).write_text("MOST = 8\n")
    (code / policy).write_text(POLICY.format(helper=module(helper)))
    overrides = (*SHORT, f"scheduler._target_={module(policy)}.Mine")
    before = set(sys.modules)
    assert run(overrides).reason == ""
    assert is_kept(overrides)
    changed = code / (policy if edited == "policy" else helper)
    changed.write_text(f"{changed.read_text()}\nOTHER = 1\n")
    assert not is_kept(overrides)
    forget(before)
    assert run(overrides).reason == ""
    assert is_kept(overrides)


def module(path: str) -> str:
    return path.removesuffix(".py").replace("/", ".")


def test_code_that_was_edited_after_it_was_imported_is_not_taken_for_the_new(code):
    (code / "own_helper.py").write_text("MOST = 8\n")
    (code / "own_policy.py").write_text(POLICY.format(helper="own_helper"))
    importlib.import_module("own_policy")
    (code / "own_helper.py").write_text("MOST = 9\n")
    overrides = (*SHORT, "scheduler._target_=own_policy.Mine")
    assert run(overrides).reason == f"not kept: {code}/own_helper.py has changed since it was read"
    assert not is_kept(overrides)


def test_a_module_that_is_found_elsewhere_is_another(code, tmp_path, monkeypatch):
    (code / "own_helper.py").write_text("MOST = 8\n")
    (code / "own_policy.py").write_text(POLICY.format(helper="own_helper"))
    overrides = (*SHORT, "scheduler._target_=own_policy.Mine")
    before = set(sys.modules)
    run(overrides)
    assert is_kept(overrides)
    (tmp_path / "before").mkdir()
    (tmp_path / "before" / "own_policy.py").write_text((code / "own_policy.py").read_text())
    monkeypatch.syspath_prepend(tmp_path / "before")
    forget(before)
    assert not is_kept(overrides)


def test_parts_are_code_too(code):
    (code / "own_policy.py").write_text(
        "from simlora.engine.replica.part import Part\n\n"
        "class Mine(Part):\n    def __init__(self, replica):\n        pass\n"
    )
    overrides = (*SHORT, "parts=[own_policy.Mine]")
    assert run(overrides).reason == ""
    assert is_kept(overrides)
    (code / "own_policy.py").write_text((code / "own_policy.py").read_text() + "\nOTHER = 1\n")
    assert not is_kept(overrides)


def test_a_class_of_a_notebook_is_in_no_file_and_its_run_is_not_kept(monkeypatch):
    from simlora.policies.scheduling.fcfs import Fcfs

    monkeypatch.setattr(sys.modules["__main__"], "Mine", type("Mine", (Fcfs,), {}), raising=False)
    overrides = (*SHORT, "scheduler._target_=__main__.Mine")
    found = run(overrides)
    assert found.status == RAN
    assert found.reason == "not kept: the code of __main__ is in no file"
    assert not is_kept(overrides)


def test_a_policy_in_an_installed_package_is_the_users(code, tmp_path, monkeypatch):
    for kept in (inputs._libraries, inputs.is_foreign, inputs._is_named):
        kept.cache_clear()
    real = inputs._libraries()
    monkeypatch.setattr(inputs, "_libraries", lambda: [*real, code])
    (code / "own_policy.py").write_text(POLICY.format(helper="own_helper"))
    (code / "own_helper.py").write_text("MOST = 1\n")
    overrides = (*SHORT, "scheduler._target_=own_policy.Mine")
    run(overrides)
    assert is_kept(overrides)
    forget(set())
    (code / "own_policy.py").write_text(POLICY.format(helper="own_helper") + "    more = 2\n")
    assert not is_kept(overrides)
    for kept in (inputs.is_foreign, inputs._is_named):
        kept.cache_clear()
