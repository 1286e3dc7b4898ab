"""Where the locale is C and Python is told to take it at its word, text beyond ASCII is refused in a sentence."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.command import COMMANDS, python
from tests.traces import csv

C = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
TRACE = ("0,é,8,100,10", "1,b,8,100,10")
POLICY = "from simlora.policies.scheduling.fcfs import Fcfs\n\n\nclass Mé(Fcfs):\n    pass\n"


def run(folder: Path, command: str, *arguments: str, **locale: str) -> subprocess.CompletedProcess[bytes]:
    words = [os.fsencode(word) for word in (*python(command), *arguments)]
    return subprocess.run(words, cwd=folder, env=os.environ | locale, capture_output=True, check=False)


@pytest.mark.parametrize(
    ("command", "arguments"), [("simlora", ("gpu='é'",)), ("simlora-trace", ("info", "é.csv"))]
)
def test_an_argument_is_refused_with_the_way_out(tmp_path, command, arguments):
    ended = run(tmp_path, command, *arguments, **C)
    assert ended.returncode == 2
    written = arguments[-1].replace("é", "\\xe9")
    quote = '"' if "'" in written else "'"
    assert ended.stderr.decode("ascii") == (
        f"simlora: error: {quote}{written}{quote} is no text in this locale (ascii); "
        "set PYTHONUTF8=1, by which it is read as UTF-8\n"
    )
    assert list(tmp_path.iterdir()) == []


def test_so_is_the_current_folder(tmp_path):
    folder = tmp_path / "é"
    folder.mkdir()
    ended = run(folder, "simlora", **C)
    assert ended.returncode == 2
    assert b"' is no text in this locale (ascii)" in ended.stderr


def test_where_python_reads_utf_8_in_the_locale_of_c_all_of_it_works(tmp_path):
    csv(tmp_path, *TRACE, name="é.csv")
    (tmp_path / "é.py").write_text(POLICY, encoding="utf-8")
    own = ("workload=file", "workload.path='é.csv'", "scheduler._target_='é.Mé'", "hydra.run.dir='outé'")
    ended = run(tmp_path, "simlora", *own, **C | {"PYTHONUTF8": "1"})
    assert ended.returncode == 0, ended.stderr
    assert "outé/report.html" in ended.stdout.decode()
    assert {"summary.json", "report.html"} <= {*os.listdir(tmp_path / "outé")}


def test_bytes_that_are_no_utf_8_are_refused(tmp_path):
    ended = run(tmp_path, "simlora", "gpu=\udce9", LC_ALL="C.UTF-8")
    assert (ended.returncode, ended.stderr.decode()) == (
        2,
        "simlora: error: 'gpu=\\\\xe9' is no text in this locale (utf-8); must be UTF-8\n",
    )


IN_TURN = """
import sys
from importlib import import_module
for name, *words in {commands}:
    print(import_module(name).main(words), file=sys.stderr)
"""
TOLD = "workload=file", "workload.path=t.csv"


@pytest.mark.parametrize(
    ("commands", "errors"),
    [
        ([["simlora", "-m", *TOLD, "seed=1,2", "report=false"], ["simlora-trace", "info", "t.csv"]], ""),
        ([["simlora-sweep", *TOLD, "--jobs=1"]], "ascii:strict"),
    ],
    ids=["as the locale says", "strictly"],
)
def test_what_is_printed_can_be_printed_there(tmp_path, commands, errors):
    csv(tmp_path, *TRACE, name="t.csv")
    program = IN_TURN.format(commands=[[COMMANDS[name], *words] for name, *words in commands])
    words, environment = [sys.executable, "-c", program], os.environ | C | {"PYTHONIOENCODING": errors}
    ended = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, check=False)
    assert b"Traceback" not in ended.stderr
    statuses = [line for line in ended.stderr.splitlines() if not line.startswith(b"simlora: notice")]
    assert statuses == [b"0"] * len(commands), ended.stderr
    assert ended.stdout.decode("ascii")
