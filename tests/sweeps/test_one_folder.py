"""A sweep's folder: values of any kind, the rows of several sweeps at once, and tables that are none of ours."""

import fcntl
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from threading import Semaphore

import pandas as pd
import pytest

from simlora.cli.report import main as report
from simlora.cli.sweep import main
from simlora.core.errors import InputError
from simlora.core.locks import locked
from simlora.sweeps.gathering import gather
from simlora.sweeps.grid import grid
from simlora.sweeps.running import each_run
from simlora.sweeps.table import LOCK, TABLE, Table, read_sweep
from tests.cli.command import sentence
from tests.traces import csv

SMALL = ("workload=synthetic", "workload.duration_s=10", "workload.adapters=3", "--jobs=1")


@pytest.fixture(autouse=True)
def at_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("values", "kept"),
    [
        ("fast_forward=true,false", [True, False]),
        ("replica.target_modules=[q],[q,k]", ["['q']", "['q', 'k']"]),
        ("replica.max_loras=2,3 replica.max_loras=null", ["2", "3", "null"]),
    ],
)
def test_values_of_any_kind_beside_each_other_and_in_later_sweeps(values, kept):
    for typed in values.split(" "):
        assert main([*SMALL, typed, "--out=out"]) == 0
    assert read_sweep("out")[values.partition("=")[0]].tolist() == kept


@pytest.mark.parametrize(
    ("key", "values", "base"),
    [("replica.target_modules", "[q],[q,k]", "[q,k]"), ("replica.max_loras", "null,3", "null")],
)
def test_differences_from_a_list_and_from_nothing(key, values, base, capsys):
    assert main([*SMALL, f"{key}={values}", "--seeds=2", f"--against={key}={base}", "--out=out"]) == 0
    assert f"difference from {key}={base}" in capsys.readouterr().out
    for other, said in ("[v]", f"--against: {key} has no '[v]'"), ("{a: [", "'{a: [' is no value"):
        assert main([*SMALL, f"{key}={values}", f"--against={key}={other}", "--out=out"]) == 2
        assert said in capsys.readouterr().err


def test_rows_of_a_trace_as_it_no_longer_is_are_said(capsys):
    trace = Path(csv(Path(), "0,a,8,100,10", name="my trace.csv"))
    file = ("workload=file", "workload.path='my trace.csv'", "gpu=a10g", "--jobs=1", "--out=out")
    for seats in ("8,16", "16,32"):
        assert main([*file, f"replica.max_num_seqs={seats}"]) == 0
        assert "as they no longer are" not in capsys.readouterr().err
    trace.write_text(trace.read_text() + "1,a,8,100,10\n")
    assert main([*file, "replica.max_num_seqs=16"]) == 0
    said = "notice: 2 rows of earlier sweeps in the same table have read files as they no longer are"
    assert said in capsys.readouterr().err
    assert len(read_sweep("out")) == 3, "the row of the same overrides is replaced"


def test_two_sweeps_at_once_into_one_folder_keep_all_rows(monkeypatch):
    def gathered(seed: int) -> Table:
        cells = {
            cell.overrides: cell for cell in grid([*SMALL[:-1], f"seed={seed}", "speedup=1,2"], 1).cells()
        }
        table = Table(["speedup"], list(cells), Path("out"))
        for run, outcome in each_run(list(cells), jobs=1):
            table.add(cells[run], outcome)
        return table

    both = [gathered(seed) for seed in (0, 100)]
    comes = Semaphore(0)
    monkeypatch.setattr("simlora.sweeps.table.locked", lambda path: comes.release() or locked(path))
    Path("out").mkdir()
    with ThreadPoolExecutor() as pool, ExitStack() as held:
        held.enter_context(locked(Path("out", LOCK)))
        ended = [pool.submit(table.finished) for table in both]
        for _ in both:  # until both have come as far as writing the table
            assert comes.acquire(timeout=60)
        with Path("out", LOCK).open() as file, pytest.raises(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        assert not any(one.done() for one in ended)
        held.close()
    assert sorted(read_sweep("out")["seed"]) == [0, 0, 100, 100]


def test_a_sweep_that_was_killed_leaves_no_lock():
    Path("out").mkdir()
    code = "from pathlib import Path\nfrom simlora.core.locks import locked\n"
    code += f"with locked(Path('out', {LOCK!r})):\n    print('held', flush=True)\n    input()"
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", code], stdin=pipe, stdout=pipe, text=True) as holder:
        assert holder.stdout.readline() == "held\n"
        holder.send_signal(signal.SIGKILL)
    assert main([*SMALL, "--out=out"]) == 0


OURS = pd.DataFrame(
    {"key": ["a"], "source": ["b"], "seed": [1], "status": ["ran"], "reason": [""], "load": ["below"]}
)
NUMBERS = ("makespan_s", "requests.finished", "slo.attainment")
REFUSED = [
    *((text, " cannot be read") for text in (b"", b"not parquet", b"PAR1" + b"\0" * 40 + b"PAR1")),
    *((OURS.drop(columns=[name]), f" has no column {name}") for name in ("key", "seed", "status")),
    *((OURS.assign(**{name: None}), f" has a row without a {name}") for name in ("key", "seed", "status")),
    *(
        (OURS.assign(**{name: [value]}), f" has other values than {known} in the column {name}")
        for name, value, known in (
            ("status", "won", "ran, does not fit, not simulated, failed"),
            ("load", [1, 2], "below, unknown, near, past"),
            ("source", [1, 2], "text"),
            ("side.changed", "not json", "JSON of a mapping"),
            ("side.changed", "[]", "JSON of a mapping"),
            ("speedup", {"a": 1}, "text or numbers"),
            ("ttft_s.mean", b"x", "text or numbers"),
            ("speedup", float("inf"), "finite numbers"),
            ("slo.classes.gold.attainment", 7.5, "shares from 0 to 1"),
            ("kv.hit_rate", -0.5, "shares from 0 to 1"),
        )
    ),
]
"""A table, or what is in its file, and what is said of it."""


@pytest.mark.parametrize(("table", "said"), REFUSED)
def test_a_table_that_is_none_of_a_sweeps_is_left_alone_and_not_drawn(table, said, capsys):
    Path("out").mkdir()
    path = Path("out", TABLE)
    path.write_bytes(table if isinstance(table, bytes) else table.to_parquet())
    before = path.read_bytes()
    for command, *arguments in (main, *SMALL, "speedup=2", "--out=out"), (report, "out"):
        assert command(arguments) == 2
        assert f" out/sweep.parquet{said}, must be a sweep's table" in sentence(capsys)
    assert [*Path().rglob("*")] == [path.parent, path]
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    ("table", "said"),
    [
        (OURS, "no column makespan_s"),
        (OURS.assign(**dict.fromkeys(NUMBERS, 1.0))[:0], "no rows"),
        (OURS.assign(**dict.fromkeys(NUMBERS, "x")), "other values than numbers in the column makespan_s"),
    ],
)
def test_a_table_without_figures_is_not_drawn(table, said):
    Path("out").mkdir()
    table.to_parquet(Path("out", TABLE))
    with pytest.raises(InputError, match=f"^out/sweep.parquet has {said}, must be a sweep's table$"):
        gather([Path("out")])
