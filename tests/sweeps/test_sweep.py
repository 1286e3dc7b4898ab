"""A sweep is a table of runs, which a kill does not cost a run."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import pandas as pd
import pytest

import simlora
from simlora import Sweep, sweep
from simlora.core.errors import InputError
from simlora.sweeps import running
from simlora.sweeps import table as table_module
from simlora.sweeps.table import TABLE, read_sweep

GRID = (
    "system=slora,slora_lcfs",
    "workload.rate_rps=1,2",
    "workload.duration_s=20",
    "replica.kv_token_budget=14500",
)
TIMES = ["seconds", "simulation.wall_s", "simulation.requests_per_wall_s"]


@pytest.fixture(autouse=True, scope="module")
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SIMLORA_CACHE_DIR", str(tmp_path_factory.mktemp("sweeps")))
        yield


@pytest.fixture(scope="module")
def small(own_cache: None) -> Sweep:
    return sweep(GRID, seeds=2, jobs=1)


def of(table: pd.DataFrame) -> pd.DataFrame:
    """Return a table without what simulating took."""
    return table.drop(columns=[name for name in TIMES if name in table])


def test_there_is_a_row_a_run_in_the_order_of_the_grid(small):
    assert small.axes == ["system", "workload.rate_rps"]
    rows = list(small.table[["system", "workload.rate_rps", "seed"]].itertuples(index=False, name=None))
    assert rows == [(s, r, seed) for s in ("slora", "slora_lcfs") for r in (1, 2) for seed in (0, 1)]
    assert (small.table["status"] == "ran").all()
    assert small.table["key"].is_unique


def test_a_row_has_the_numbers_of_the_summary(small):
    row = small.table.iloc[1]
    alone = simlora.simulate(
        ["workload.rate_rps=1", *GRID[2:], "seed=1", "workload.seed=1", "timeline=false"]
    )
    summary = alone.summary
    assert row["ttft_s.p95"] == summary["ttft_s"]["p95"]
    assert row["slo.attainment"] == summary["slo"]["attainment"]
    assert row["requests.finished"] == summary["requests"]["finished"]
    assert row["load"] == summary["load"]["label"]


def test_a_run_that_is_refused_or_fails_is_a_row_with_its_reason(monkeypatch):
    real = running.simulated

    def fails_with_lcfs(overrides: tuple[str, ...]) -> object:
        if "system=slora_lcfs" in overrides:
            raise ZeroDivisionError("division by zero")
        return real(overrides)

    monkeypatch.setattr(running, "simulated", fails_with_lcfs)
    found = sweep(
        ("system=slora,slora_lcfs,slora_cluster", "replica.kv_token_budget=14501,10", *GRID[2:3]), jobs=1
    ).table
    by_system = found.set_index(["system", "replica.kv_token_budget"])
    assert by_system.loc[("slora", 14501), "status"] == "ran"
    assert by_system.loc[("slora", 10), "status"] == "not simulated"
    assert "requests is rejected" in by_system.loc[("slora", 10), "reason"]
    failed = by_system.loc[("slora_lcfs", 14501)]
    assert (failed["status"], failed["reason"]) == ("failed", "ZeroDivisionError: division by zero")
    assert pd.isna(failed["ttft_s.mean"])


def test_a_sweep_of_which_nothing_runs_is_an_error():
    with pytest.raises(InputError, match="none of the 2 runs could be simulated; the first: every one of"):
        sweep(["replica.kv_token_budget=10,20", "workload.duration_s=20"], jobs=1)


def test_another_sweep_adds_its_rows(tmp_path, small):
    sweep(GRID, seeds=2, jobs=1, out=tmp_path)
    sweep(("system=slora", "workload.rate_rps=1,3", *GRID[2:]), seeds=1, jobs=1, out=tmp_path)
    table = read_sweep(tmp_path)
    assert table["key"].is_unique
    runs = list(table[["system", "workload.rate_rps", "seed"]].itertuples(index=False, name=None))
    assert sorted(runs) == sorted(
        [("slora", 1, 0), ("slora", 3, 0), ("slora", 1, 1)]
        + [("slora", 2, seed) for seed in (0, 1)]
        + [("slora_lcfs", rate, seed) for rate in (1, 2) for seed in (0, 1)]
    )


def test_rows_of_an_older_simlora_are_not_kept_beside_newer_ones(tmp_path, small):
    old = small.table.assign(source="older", key=[f"old {i}" for i in range(len(small.table))])
    old.to_parquet(tmp_path / TABLE)
    sweep(GRID, seeds=2, jobs=1, out=tmp_path)
    assert of(read_sweep(tmp_path)).equals(of(small.table))


def test_the_table_is_the_same_on_any_number_of_processes(small, tmp_path, monkeypatch):
    monkeypatch.setenv("SIMLORA_CACHE_DIR", str(tmp_path))
    assert of(sweep(GRID, seeds=2, jobs=2).table).equals(of(small.table))


def test_a_sweep_that_was_killed_goes_on_where_it_was(tmp_path, small, monkeypatch):
    cache, out = tmp_path / "cache", tmp_path / "out"
    monkeypatch.setenv("SIMLORA_CACHE_DIR", str(cache))
    code = "import sys; from simlora import sweep; sweep(sys.argv[2:], seeds=2, jobs=1, out=sys.argv[1])"
    process = subprocess.Popen([sys.executable, "-c", code, str(out), *GRID], start_new_session=True)
    until = time.monotonic() + 120
    while len(list(cache.glob("*.json"))) < 3 and time.monotonic() < until:
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    done = len(list(cache.glob("[0-9a-f]*.json")))
    assert 3 <= done < 8, "it was killed in the middle"
    again = []
    real = running.simulated
    monkeypatch.setattr(running, "simulated", lambda overrides: again.append(overrides) or real(overrides))
    found = sweep(GRID, seeds=2, jobs=1, out=out)
    assert len(again) == 8 - done
    assert of(found.table).equals(of(small.table))
    assert of(read_sweep(out)).equals(of(small.table))


def test_the_table_is_written_while_runs_go_on(tmp_path, monkeypatch):
    monkeypatch.setattr(table_module, "EVERY_S", 0.0)
    real, seen = running.simulated, []

    def looked_at(overrides: tuple[str, ...]) -> object:
        seen.append(len(read_sweep(tmp_path)) if (tmp_path / TABLE).exists() else 0)
        return real(overrides)

    monkeypatch.setattr(running, "simulated", looked_at)
    sweep(("workload.rate_rps=1,2,3", "workload.duration_s=21"), jobs=1, out=tmp_path)
    assert seen[0] == 0
    assert seen[-1] > 0


def test_means_differences_text_and_picture(small):
    assert len(small.aggregate("ttft_s.mean")) == 4
    differences = small.paired("ttft_s.mean", "system", "slora")
    assert list(differences["workload.rate_rps"]) == [1, 2]
    lines = small.text("ttft_s.mean").splitlines()
    assert lines[0] == "ttft_s.mean: mean over seeds, 95 % interval"
    assert len(lines) == 2 + 4
    assert "difference from system=slora" in small.text("ttft_s.mean", "system=slora")
    ax = small.plot("ttft_s.mean", "workload.rate_rps")
    assert [line.get_label() for line in ax.get_lines()] == [
        "slora + kv_token_budget=14500",
        "slora_lcfs + kv_token_budget=14500",
    ]
    with pytest.raises(InputError, match="'gpu=a10g' is no value of what was varied; choose one of system"):
        small.text("ttft_s.mean", "gpu=a10g")
