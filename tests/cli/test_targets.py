"""A configuration names code where a policy, a workload or a part stands, and nowhere else."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from simlora.api.preparing import composed
from simlora.config.setup import prepare
from simlora.core.errors import InputError
from tests.cli.command import SHORT


@pytest.fixture(autouse=True)
def as_in_a_command(at_home, monkeypatch):
    """Python finds modules in the current folder."""
    monkeypatch.syspath_prepend(str(at_home))


REFUSED = {
    "cluster.network={_target_: evil.Evil}": "cluster.network names 'evil.Evil' to be called",
    "cluster={network: {_target_: evil.Evil}}": "cluster.network names",
    "+replica.more={_target_: evil.Evil}": "replica.more names",
    "+more={_target_: evil.Evil}": "more names",
    "slo.classes=[{_target_: evil.Evil}]": "slo.classes.0 names",
    "+scheduler.more={_target_: evil.Evil}": "scheduler.more names",
    "parts=[{_target_: my.Part, more: {_target_: evil.Evil}}]": "parts.0.more names",
    "gpu._target_=evil.Evil": "gpu names",
    "model._target_=evil.Evil": "model names",
    "gpu.host_link={_target_: evil.Evil}": "gpu.host_link names",
    "cluster.replica_groups=[{gpu: {_target_: evil.Evil}, replicas: 1}]": "cluster.replica_groups.0.gpu names",
    "+hydra.callbacks.more={_target_: evil.Evil}": "hydra.callbacks.more names",
    "hydra.callbacks.folder._target_=evil.Evil": "hydra.callbacks.folder names",
    "hydra.launcher._target_=evil.Evil": "hydra.launcher names",
    "hydra.sweeper._target_=evil.Evil": "hydra.sweeper names",
    "+hydra.launcher.more={_target_: evil.Evil}": "hydra.launcher.more names",
    "+hydra.job_logging.handlers={h: {class: evil.Evil}}": "hydra.job_logging.handlers.h names",
    "+hydra.job_logging.handlers={h: {class: logging.FileHandler, filename: out}}": "job_logging.handlers.h names",
    "+hydra.job_logging.formatters={h: {class: logging.FileHandler, format: out}}": "formatters.h names",
    "+hydra.hydra_logging.handlers={h: {class: logging.handlers.SocketHandler, host: h}}": "hydra_logging.handlers.h",
    "hydra/job_logging=default": "hydra.job_logging.handlers.file names 'logging.FileHandler' to be called",
    "+hydra.env={_target_: evil.Evil}": "hydra.env names",
    "+hydra.callbacks.more=${more} +more={_target_: evil.Evil}": "hydra.callbacks.more names",
}


OF_HYDRA = [*(typed for typed in REFUSED if "hydra" in typed), "gpu._target_=evil.Evil"]
"""What only the command reads, and one of the others."""


@pytest.mark.parametrize("typed", OF_HYDRA)
def test_code_is_not_run_where_none_belongs(simlora, typed):
    Path("evil.py").write_text("raise SystemExit('evil was imported')\n")
    ended = simlora(*SHORT, *typed.replace(" +", "\n+").split("\n"))
    assert ended.status == 2
    assert REFUSED[typed] in ended.sentence
    assert "docs/configurations.md" in ended.sentence
    assert not os.path.exists("outputs")


def refused(*typed: str) -> str:
    """Return what is said of a configuration that is prepared without a command around it."""
    with pytest.raises(InputError) as error:
        prepare(*composed([*SHORT, *typed]))
    return str(error.value)


@pytest.mark.parametrize("typed", [typed for typed in REFUSED if typed not in OF_HYDRA])
def test_nor_is_it_from_python(simlora, typed):
    Path("evil.py").write_text("raise SystemExit('evil was imported')\n")
    said = refused(typed)
    assert REFUSED[typed] in said
    assert "docs/configurations.md" in said


def test_hydras_own_help_opens_no_log(simlora):
    """In a process of its own, whose logs it sets up."""
    asked = [sys.executable, "-m", "simlora", "--hydra-help"]
    ended = subprocess.run(asked, cwd=simlora.folder, capture_output=True, text=True, check=True)
    assert (ended.stdout[:7], ended.stderr) == ("Hydra (", "")
    assert simlora.files() == []


def test_what_hydra_itself_refuses_is_said_whole(simlora):
    ended = simlora(*SHORT, "parts=[os.system]")
    assert ended.status == 2
    assert "parts.0._target_ is os.system, which cannot be imported: " in ended.sentence
    assert not ended.sentence.endswith("because it allows")


def test_logs_go_to_standard_streams(simlora):
    key = "hydra.job_logging.handlers.console.stream"
    asked = (*SHORT, "hydra/job_logging=stdout", "hydra.run.dir=out")
    Path("evil.py").write_text("raise SystemExit('evil was imported')\n")
    ended = simlora(*asked, f"{key}=ext://evil.Evil")
    assert ended.status == 2
    assert f"{key} is 'ext://evil.Evil', must be ext://sys.stdout" in ended.sentence
    assert simlora(*asked, f"{key}=ext://sys.stderr").status == 0


SYNTHETIC = ("workload=synthetic", "~workload.prompt_tokens")
OWN = "own_workload_here"
NO_PARTS = ["shutil.rmtree", "os.mkdir", "pathlib.PosixPath", f"{OWN}.made", f"{OWN}.Other"]
OWN_WORKLOAD = """
from simlora.core.trace import Trace
from simlora.workload.lengths import Fixed, Lengths
from simlora.workload.slora import SLora
class Own(SLora):
    pass
class Apart:
    def __init__(self, lengths, users=3):
        self.lengths = lengths
    def build(self, seed):
        return SLora(duration_s=20, adapters=3).build(seed)
class Eight(Fixed):
    pass
class Other:
    def __init__(self, path):
        open("made", "w")
def made(path):
    open("made", "w")
"""


@pytest.mark.parametrize("target", NO_PARTS)
def test_what_is_no_part_of_a_workload_is_not_called(simlora, target):
    Path("own_workload_here.py").write_text(OWN_WORKLOAD)
    Path("victim").mkdir()
    said = refused(*SYNTHETIC, f"+workload.prompt_tokens={{_target_: {target}, path: victim}}")
    assert f"prompt_tokens._target_ is {target}, must be a class of simlora.workload, or" in said
    assert "simlora.workload.lengths.Lengths" in said
    said = refused(f"workload._target_={target}", "+workload.path=new")
    assert f"workload._target_ is {target}, must have build(seed)" in said
    assert Path("victim").is_dir()
    assert not Path("made").exists()
    assert not Path("new").exists()


def test_workloads_of_a_users_own_are_made(simlora):
    Path("own_workload_here.py").write_text(OWN_WORKLOAD)
    eight = "{_target_: own_workload_here.Eight, tokens: 8}"
    for typed in (
        ("workload._target_=own_workload_here.Own",),
        ("workload._target_=own_workload_here.Apart", f"+workload.lengths={eight}", "~workload.duration_s"),
        (*SYNTHETIC, f"+workload.prompt_tokens={eight}"),
    ):
        assert len(prepare(*composed([*SHORT, *typed])).scenario.trace) > 0


@pytest.mark.parametrize(
    "written",
    ["{callbacks: {more: {_target_: evil.Evil}}}", "{job_logging: {handlers: {more: {(): evil.Evil}}}}"],
)
def test_a_configuration_file_is_no_other(simlora, written):
    Path("mine/system").mkdir(parents=True)
    Path("mine/system/evil.yaml").write_text(f"# @package _global_\nhydra: {written}\n")
    Path("evil.py").write_text("raise SystemExit('evil was imported')\n")
    ended = simlora(*SHORT, "--config-dir", "mine", "system=evil")
    assert "more names 'evil.Evil'" in ended.sentence
