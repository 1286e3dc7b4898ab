"""What docs/extending.md shows works as it stands there."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from simlora import simulate
from simlora.engine.replica.part import HOOKS
from tests.traces import workload

TEXT = (Path(__file__).parents[1] / "docs" / "extending.md").read_text()
ROOM = Path(__file__).parents[1] / "simlora"
QUIET = ("workload.duration_s=20", "report=false", "timeline=false")


def block(language: str, heading: str = "# ") -> str:
    """Return the first block in a language below a heading of the page."""
    found = re.search(rf"```{language}\n(.*?)```", TEXT.partition(heading)[2], re.DOTALL)
    assert found
    return found[1]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's folder with the policy and the system of the page, from which Python is started."""
    (tmp_path / "shortest.py").write_text(block("python"))
    (tmp_path / "mine" / "system").mkdir(parents=True)
    (tmp_path / "mine" / "system" / "shortest_first.yaml").write_text(block("yaml"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def run(folder: Path, *command: str) -> str:
    """Run a command of simlora's there; return what it printed."""
    ended = subprocess.run(
        [sys.executable, "-m", *command], cwd=folder, capture_output=True, text=True, timeout=300
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def test_the_policy_changes_which_request_goes_first(folder):
    busy = ("workload.rate_rps=6", "replica.kv_token_budget=6000", *QUIET)
    run(folder, "simlora", "scheduler._target_=shortest.ShortestFirst", *busy, "hydra.run.dir=ours")
    ours, theirs = pd.read_parquet(folder / "ours" / "requests.parquet"), simulate(busy).requests
    assert ours["arrival_s"].equals(theirs["arrival_s"])
    short = ours["prompt_tokens"] < ours["prompt_tokens"].median()
    assert ours["ttft_s"][short].mean() < 0.8 * theirs["ttft_s"][short].mean()
    summary = json.loads((folder / "ours" / "summary.json").read_text())
    assert summary["run"]["policies"]["scheduler"] == "shortest.ShortestFirst"


def test_an_eviction_sees_how_often_and_when_adapters_were_used(folder):
    (folder / "least_used.py").write_text(block("python", "An eviction that keeps"))
    many = (
        "workload=synthetic",
        "workload/popularity=zipf",
        "workload.adapters=100",
        "workload.ranks=[8,64]",
    )
    tight = ("replica.kv_token_budget=9000", "workload.arrivals.rate_rps=0.8", "workload.duration_s=400")
    ours, lru = (
        simulate([f"eviction._target_={name}", *many, *tight]).summary["adapters"]["loads"]
        for name in ("least_used.LeastFrequentlyUsed", "simlora.policies.eviction.lru.Lru")
    )
    assert ours < lru


def test_a_sweep_takes_it_beside_others_in_any_number_of_processes(folder):
    both = "scheduler._target_=shortest.ShortestFirst,simlora.policies.scheduling.fcfs.Fcfs"
    out = run(folder, "simlora.cli.sweep", both, "workload.rate_rps=2", "workload.duration_s=20", "--jobs=2")
    assert "shortest.ShortestFirst" in out
    assert len(pd.read_parquet(folder / "outputs/sweep/sweep.parquet")) == 2


def test_the_system_is_a_choice(folder):
    out = run(folder, "simlora", "--config-dir", "mine", "system=shortest_first", *QUIET)
    assert out.startswith("shortest_first: llama_7b on 2")


def finish_s(folder: Path, request: str, *overrides: str) -> float:
    """Return when the one request of a run ends."""
    (folder / "stalls.py").write_text(block("python", "## A part of your own"))
    found = simulate([*workload(folder, request), *overrides]).requests["finish_s"]
    return float(found.item())


def test_the_part_stalls_every_ten_seconds(folder):
    """The decode of the request takes half a minute."""
    command, request = re.search(r"^simlora .*'(parts=.*?)'", TEXT, re.MULTILINE), "0,a,8,100,1000"
    assert command
    plain_s = finish_s(folder, request)
    assert 30.0 < plain_s < 40.0
    stalled_s = finish_s(folder, request, command[1])
    assert stalled_s == pytest.approx(plain_s + 3 * 0.05, abs=1e-9)
    assert finish_s(folder, request, command[1], "fast_forward=false") == pytest.approx(stalled_s, abs=1e-9)


def test_a_stall_that_falls_due_while_the_engine_is_idle_delays_no_request(folder):
    without, stalled = (
        finish_s(folder, "25,a,8,100,10", f"parts=[{part}]") for part in ("", "stalls.Stalls")
    )
    assert without == stalled


def test_the_driven_run_prints_what_the_page_says(folder):
    (folder / "drive.py").write_text(block("python", "## Drive it from outside"))
    assert run(folder, "drive") == block("text", "## Drive it from outside")


def test_every_hook_is_in_the_table():
    table = "".join(re.findall(r"^\| .* \| (`.*) \|$", TEXT.partition("### The hooks")[2], re.MULTILINE))
    assert set(re.findall(r"`(\w+)`", table)) == {*HOOKS, "awaits", "steps", "next_s"} - {"sample"}, (
        "sample is for parts of simlora's own"
    )


def test_every_file_it_names_is_there():
    slots = re.findall(r"^\| `\w+` \| .*? \| `([\w/.]+)` \| (.*?) \|$", TEXT, re.MULTILINE)
    assert len(slots) == 8
    for base, examples in slots:
        assert (ROOM / base).exists()
        for name in re.findall(r"`([\w.]+)`", examples):
            found = (ROOM / base).parent / name
            assert found.exists() or f"class {name}" in (ROOM / base).read_text(), name
