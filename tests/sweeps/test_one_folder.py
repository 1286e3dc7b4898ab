"""A sweep's folder: values of any kind, the rows of several sweeps at once, and tables that are none of ours."""

import fcntl
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from io import BytesIO
from pathlib import Path
from threading import Semaphore

import pandas as pd
import pytest

from simlora.cli.report import main as report
from simlora.cli.sweep import main
from simlora.core.locks import locked
from simlora.sweeps.grid import grid
from simlora.sweeps.running import each_run
from simlora.sweeps.table import LOCK, TABLE, Table, read_sweep

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
    trace = Path("my trace.csv")
    trace.write_text("arrival_s,adapter,rank,prompt_tokens,output_tokens\n0,a,8,100,10\n")
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


OURS = pd.DataFrame({"key": ["a"], "source": ["b"], "seed": [1], "status": ["ran"]})


def stored(frame: pd.DataFrame) -> bytes:
    """What is in the file of a table."""
    file = BytesIO()
    frame.to_parquet(file)
    return file.getvalue()


@pytest.mark.parametrize(
    ("content", "said"),
    [
        *((text, "cannot be read") for text in (b"", b"not parquet", b"PAR1" + b"\0" * 40 + b"PAR1")),
        *((stored(OURS.drop(columns=[name])), f"has no column {name}") for name in ("key", "seed", "status")),
        (stored(OURS.assign(source=[[1, 2]])), "in the column source"),
        (stored(OURS.assign(speedup=[{"a": 1}])), "in the column speedup"),
        (stored(OURS.assign(**{"ttft_s.mean": [b"x"]})), "in the column ttft_s.mean"),
    ],
)
def test_a_table_that_is_none_of_a_sweeps_is_left_alone(content, said, capsys):
    Path("out").mkdir()
    Path("out", TABLE).write_bytes(content)
    assert main([*SMALL, "speedup=2", "--out=out"]) == 2
    err = capsys.readouterr().err
    assert "out/sweep.parquet " in err
    assert f"{said}, must be a sweep's table" in err
    assert Path("out", TABLE).read_bytes() == content


@pytest.mark.parametrize(
    ("column", "value"),
    [("slo.attainment", 7.5), ("slo.classes.gold.attainment", 7.5), ("kv.hit_rate", -0.5)],
)
def test_shares_are_from_0_to_1(column, value, capsys):
    assert main([*SMALL, "--out=out"]) == 0
    read_sweep("out").assign(**{column: value}).to_parquet(Path("out", TABLE))
    capsys.readouterr()
    assert report(["out"]) == 2
    said = capsys.readouterr().err
    assert (
        f"out/sweep.parquet has other values than shares from 0 to 1 in the column {column}, must be" in said
    )
    assert said.count("\n") == 1
    assert not Path("comparison.html").exists()
