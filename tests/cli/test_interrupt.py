"""Ctrl-C keeps what was finished, and nothing that looks whole."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import pandas as pd
import pytest

from simlora.cli.guarded import INTERRUPTED, guarded
from tests.cli.command import COMMANDS, Command, Ended

STOP = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # as in a terminal; of background jobs it is ignored

def stop():
    os.kill(os.getpid(), signal.SIGINT)

class Stop:
    def find_spec(self, name, *rest):
        if name == WHERE:
            stop()

sys.meta_path.insert(0, Stop())
"""
COMPOSING = """
from simlora.config.crossing import Loader
compose = Loader._load_single_config
Loader._load_single_config = lambda *given, **named: (stop(), compose(*given, **named))[1]
"""
KEPT = "the runs that were finished are kept, and the same command goes on from there"
LINES = {
    "simlora": "this run leaves no results",
    "simlora-report": "no page was written",
    "simlora-serve": "nothing was served",
    "simlora-record": "nothing was recorded",
    "simlora-trace": "nothing was written",
    "simlora-calibrate": "nothing was written",
    **dict.fromkeys(("simlora-sweep", "simlora-capacity", "simlora-plan", "simlora-validate"), KEPT),
}
WORDS = {
    "simlora-trace": ("info", "t.csv"),
    "simlora-report": ("a",),
    "simlora-validate": ("t.csv",),
    "simlora-record": ("new.csv", "--upstream=http://a"),
    "simlora-calibrate": ("list",),
}


@pytest.mark.parametrize("command", LINES)
def test_each_command_says_what_is_left_of_it(command, monkeypatch, capsys):
    def interrupted(*given):
        raise KeyboardInterrupt

    module = import_module(COMMANDS[command])
    monkeypatch.setattr(module, "_run", interrupted)
    assert module.main(WORDS.get(command, ())) == INTERRUPTED
    assert capsys.readouterr().err == f"simlora: interrupted; {LINES[command]}\n"


def stopped(folder: Path, command: str, where: str, code: str = "") -> tuple[int, str]:
    """Return how a command ends, and what it says, that gets SIGINT when a module is imported or `code` has it."""
    words = [command, "workload.duration_s=3"]
    lines = [f"WHERE = {where!r}{STOP}sys.argv = {words!r}{code}", f"from {COMMANDS[command]} import main"]
    program = "\n".join([*lines, "sys.exit(main())"])
    ended = subprocess.run(
        [sys.executable, "-c", program], cwd=folder, capture_output=True, text=True, check=False, timeout=120
    )
    assert os.listdir(folder) == []
    return ended.returncode, ended.stderr


@pytest.mark.parametrize(
    ("command", "where"), [("simlora", "simlora.core.build"), ("simlora-sweep", "simlora.cli.messages")]
)
def test_a_command_may_be_stopped_while_it_is_imported(tmp_path, command, where):
    assert stopped(tmp_path, command, where) == (130, "simlora: interrupted; nothing was begun\n")


@pytest.mark.parametrize(
    ("command", "where"),
    [
        ("simlora", "hydra"),
        ("simlora", "simlora.engine.scenario"),
        ("simlora-sweep", "joblib"),
        ("simlora", ""),
    ],
)
def test_and_while_what_it_needs_is_imported_or_its_configuration_composed(tmp_path, command, where):
    code = "" if where else COMPOSING
    assert stopped(tmp_path, command, where, code) == (130, f"simlora: interrupted; {LINES[command]}\n")


def test_a_program_that_imports_simlora_is_stopped_as_it_likes():
    code = "import signal\nsignal.signal(signal.SIGINT, signal.default_int_handler)\nimport simlora\n"
    code += "assert signal.getsignal(signal.SIGINT) is signal.default_int_handler"
    subprocess.run([sys.executable, "-c", code], check=True)


SIGNALS = """
import os, signal
from simlora.policies.scheduling.fcfs import Fcfs

class Signals(Fcfs):
    def __init__(self):
        self.asked = 0

    def schedule(self, view):
        self.asked += 1
        if self.asked == 200:
            os.kill(os.getpid(), signal.{name})
        return super().schedule(view)
"""


def signalled(simlora: Command, name: str, *arguments: str) -> Ended:
    """Run what gets a signal in the middle."""
    Path("own_scheduler.py").write_text(SIGNALS.format(name=name))
    own = "scheduler._target_=own_scheduler.Signals"
    return simlora.apart(own, "workload.duration_s=600", *arguments)


def test_an_interrupted_run_is_marked_as_incomplete(simlora):
    ended = signalled(simlora, "SIGINT", "hydra.run.dir=out")
    assert ended.status == 130, ended.err
    assert sorted(os.listdir("out")) == ["requests.incomplete.parquet", "summary.incomplete.json"]
    summary = json.loads(Path("out/summary.incomplete.json").read_text())
    assert summary["complete"] is False
    requests = pd.read_parquet("out/requests.incomplete.parquet")
    counts = requests["status"].value_counts()
    assert set(counts.index) == {"finished", "unfinished"}
    assert counts["finished"] == summary["requests"]["finished"] > 0
    assert requests.loc[requests["status"] == "finished", "latency_s"].notna().all()
    assert requests.loc[requests["status"] == "unfinished", "finish_s"].isna().all()
    arrived = summary["requests"]["submitted"]
    assert arrived == (requests["arrival_s"] <= summary["makespan_s"]).sum() < len(requests)
    assert summary["load"]["label"] == "unknown"
    assert ended.err == (
        f"simlora: interrupted; {counts['finished']:,} of the {arrived:,} requests so far were finished: "
        "out/requests.incomplete.parquet and summary.incomplete.json\n"
    )


def test_a_batch_systems_signal_ends_a_sweep(simlora):
    ended = signalled(simlora, "SIGTERM", "-m", "report=false", "seed=1,2", "hydra.sweep.dir=all")
    assert ended.status == 130, ended.err
    assert sorted(os.listdir("all")) == ["0", "multirun.yaml"]
    assert "summary.json" not in os.listdir("all/0")


# What fails meanwhile ------------------------------------------------------------------------


def failing_after(interrupt: BaseException | None, error: Exception) -> Callable[[], int]:
    """Return a command that fails in what it does in the end, as OmegaConf's `flag_override` did."""

    def command() -> int:
        try:
            if interrupt is not None:
                raise interrupt
        finally:
            raise error

    return command


def test_what_fails_while_an_interrupt_is_cleaned_up_is_the_interrupt(capsys):
    error = AttributeError("'NoneType' object has no attribute '_invalidate_flags_cache'")
    assert guarded(failing_after(KeyboardInterrupt(), error), "nothing was done") == INTERRUPTED
    assert capsys.readouterr().err == "simlora: nothing was done\n"


@pytest.mark.parametrize(
    ("interrupt", "error"),
    [
        (None, AttributeError("x")),
        (None, AssertionError("3 blocks are nowhere")),
        (KeyboardInterrupt(), AssertionError("3 blocks are nowhere")),
    ],
)
def test_an_error_of_our_own_keeps_its_traceback_and_a_broken_invariant_also_after_an_interrupt(
    interrupt, error
):
    with pytest.raises(type(error), match=str(error)):
        guarded(failing_after(interrupt, error), "nothing was done")
