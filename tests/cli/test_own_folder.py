"""The user's own configurations and code: --config-dir in every command, and errors that name the line."""

import shlex
import sys

import pandas as pd
import pytest

import simlora
from simlora.api.own_code import OwnCodeFailed
from simlora.calibrate.shapes import gpu_named, model_named
from simlora.checking import check as checking
from simlora.cli import main as run_main
from simlora.cli.calibrate import main as calibrate_main
from simlora.cli.capacity import main as capacity_main
from simlora.cli.check import main as check_main
from simlora.cli.sweep import main as sweep_main
from simlora.cli.trace import main as trace_main
from simlora.core.errors import InputError
from simlora.latency.calibration import STEP_BY_BATCH, load
from simlora.latency.parts.composed import composed
from tests.cli.command import sentence
from tests.traces import csv

ROUTER = """
from simlora.policies.routing.base import Router


class Mine(Router):
    def route(self, request, candidates, view):
        return int(candidates[{which}])
"""
SMALL = ("gpu=a10g", "model=llama_7b", "workload.duration_s=4", "cluster.replicas=2", "router=mine")

RATE = ("--limit=ttft_s.p95=2", "--seeds=1", "--longest=1", "--precision=0.5")


@pytest.fixture(autouse=True)
def own(tmp_path, monkeypatch):
    """Make the current folder a user's: a module with a router, and a folder of configurations with a choice of it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("SIMLORA_CACHE_DIR", str(tmp_path / "kept"))
    monkeypatch.delitem(sys.modules, "own_router", raising=False)
    (tmp_path / "own_router.py").write_text(ROUTER.format(which=0))
    (tmp_path / "conf" / "router").mkdir(parents=True)
    (tmp_path / "conf" / "router" / "mine.yaml").write_text("_target_: own_router.Mine\n")
    return tmp_path


@pytest.mark.parametrize(
    ("command", "arguments"),
    [
        (run_main, ("hydra.run.dir=out", "report=false")),
        (sweep_main, ("workload.rate_rps=1,2", "--out=out", "--jobs=1")),
        (capacity_main, (*RATE, "--out=out", "--jobs=1")),
    ],
)
def test_a_folder_of_ones_own_adds_choices_to_every_command(command, arguments, own):
    assert command(["--config-dir", "conf", *SMALL, *arguments]) == 0
    assert any((own / "out").iterdir())


def test_and_to_python(own):
    found = simlora.simulate(SMALL, config_dir="conf")
    assert set(found.requests["replica"]) == {0}
    table = simlora.sweep([*SMALL, "workload.rate_rps=1,2"], config_dir=own / "conf", jobs=1).table
    assert table["status"].tolist() == ["ran", "ran"]
    searched = {"limits": {"ttft_s.p95": 2.0}, "seeds": 1, "longest": 1, "jobs": 1, "precision": 0.5}
    alone = simlora.capacity(SMALL, config_dir="conf", **searched)
    assert alone.side.name == "slora + router=mine"
    both = [*SMALL[:-1], "router=round_robin,mine"]
    several = simlora.capacities(both, config_dir="conf", **searched).found
    assert list(several) == ["slora, round_robin", "slora, mine"]
    assert several["slora, mine"].value == alone.value


def test_a_row_of_a_sweep_is_run_again_by_its_overrides(own):
    sweep_main(["--config-dir", "conf", *SMALL, "--out=out", "--jobs=1"])
    overrides = pd.read_parquet(own / "out" / "sweep.parquet")["overrides"][0]
    assert "hydra.searchpath" in overrides
    assert simlora.simulate(shlex.split(overrides)).summary["requests"]["finished"] > 0


def test_a_run_is_kept_until_the_configuration_changes(own):
    def ran() -> tuple[str, float]:
        sys.modules.pop("own_router", None)
        row = simlora.sweep(SMALL, config_dir="conf", jobs=1).table.iloc[0]
        return row["key"], row["seconds"]

    first = ran()
    assert ran() == first
    (own / "conf" / "router" / "mine.yaml").write_text("_target_: own_router.Mine\n# the same, edited\n")
    assert ran()[0] != first[0]


def test_an_edited_choice_is_read_again_in_the_same_process(own):
    assert set(simlora.simulate(SMALL, config_dir="conf").requests["replica"]) == {0}
    (own / "conf" / "router" / "mine.yaml").write_text(
        "_target_: simlora.policies.routing.round_robin.RoundRobin\n"
    )
    assert set(simlora.simulate(SMALL, config_dir="conf").requests["replica"]) == {0, 1}


def test_a_trace_is_shown_as_a_workload_of_ones_own_draws_it(own, capsys):
    csv(own, "0,a,8,10,10", "1,b,8,10,10", name="t.csv")
    assert trace_main(["info", "t.csv", "--config-dir", "conf", "--picture", "t.png"]) == 0
    assert "requests    2 in 1.00 s" in capsys.readouterr().out


def test_a_choice_of_ones_own_is_checked_by_its_name(own, capsys, monkeypatch):
    monkeypatch.setattr(checking, "TRIALS", dict([*checking.TRIALS.items()][:1]))
    assert check_main(["--config-dir", "conf", "router=mine"]) == 0
    assert capsys.readouterr().out.startswith("router=mine, a router\n")
    assert check_main(["router=mine"]) == 2
    assert "there is no router 'mine'" in capsys.readouterr().err


def test_a_calibration_is_derived_for_a_gpu_of_ones_own(own, capsys):
    (own / "conf" / "gpu").mkdir()
    (own / "conf" / "gpu" / "half.yaml").write_text(
        "defaults: [a100_80g, _self_]\nname: half\nmemory_bandwidth_bytes_per_s: 1019.5e9\n"
    )
    asked = ["derive", "--config-dir", "conf", "--gpu", "half", "--model", "llama_2_7b", "--out", "c.yaml"]
    assert calibrate_main(asked) == 2
    assert "the kernels of half are not known" in capsys.readouterr().err
    assert calibrate_main([*asked, "--like", "a100_80g"]) == 0
    command = capsys.readouterr().out.splitlines()[-1].split()
    assert run_main([*command[1:], "hydra.run.dir=out", "workload.duration_s=5", "report=false"]) == 0
    a100 = composed(gpu_named("a100_80g"), model_named("llama_2_7b"), 1, "vllm")
    step, there = f"{STEP_BY_BATCH}.1", load("c.yaml").coefficients
    assert 1.5 < there[step] / a100.coefficients[step] < 2


@pytest.mark.parametrize(("folder", "said"), [("nowhere", "is no folder"), ("t,", "which Hydra cannot read")])
def test_a_folder_that_cannot_be_one_is_refused(own, folder, said):
    (own / "t,").mkdir()
    with pytest.raises(InputError, match=said):
        simlora.simulate(SMALL, config_dir=folder)


@pytest.mark.parametrize("words", [["--config-dir=~/conf"], ["-cd", "~/conf"]])
def test_a_folder_may_begin_at_home(own, words, monkeypatch):
    monkeypatch.setenv("HOME", str(own))
    assert run_main([*words, *SMALL, "--cfg=job"]) == 0


@pytest.mark.parametrize(
    ("command", "folder"), [(run_main, "x" * 5_000), (sweep_main, "~nouser/conf"), (sweep_main, "nowhere")]
)
def test_of_any_command_a_folder_that_is_not_there_is_a_short_sentence(command, folder, capsys):
    assert command([f"--config-dir={folder}", *SMALL]) == 2
    assert len(sentence(capsys)) < 200


def test_a_policy_that_raises_is_named_with_the_line_in_its_file(own, capsys):
    (own / "own_router.py").write_text(ROUTER.format(which="0] + 1 / len([]) or [0"))
    said = (
        "own_router.Mine.route raised ZeroDivisionError: division by zero; "
        f"{own / 'own_router.py'}, line 7: return int(candidates[0] + 1 / len([]) or [0])"
    )
    assert run_main(["--config-dir", "conf", *SMALL, "hydra.run.dir=out"]) == 2
    assert sentence(capsys) == f"simlora: error: {said}"
    with pytest.raises(OwnCodeFailed) as failed:
        simlora.simulate(SMALL, config_dir="conf")
    assert str(failed.value) == said
    assert isinstance(failed.value.__cause__, ZeroDivisionError)


def test_in_a_sweep_it_is_a_row_beside_the_others(own):
    (own / "own_router.py").write_text(ROUTER.format(which="0] + 1 / len([]) or [0"))
    table = simlora.sweep([*SMALL[:-1], "router=round_robin,mine"], config_dir="conf", jobs=1).table
    assert table["status"].tolist() == ["ran", "failed"]
    assert "own_router.Mine.route raised ZeroDivisionError" in table["reason"][1]


BROKEN = """
from simlora.policies.routing.base import Router
from simlora.policies.placement.replicate_all import ReplicateAll


class Nowhere(Router):
    def route(self, request, candidates, view):
        return {chosen}


class BadInit(Nowhere):
    def __init__(self):
        raise ValueError("no")


def deeper(of):
    return of.nothing


class Placing(ReplicateAll):
    def place(self, *arguments):
        return deeper(3)


class Short(Router):
    def route(self, request):
        return 0
"""


@pytest.mark.parametrize(
    ("chosen", "policy", "said"),
    [
        ("77", "Nowhere", "Nowhere chose replica 77; simlora-check broken.Nowhere says"),
        ("None", "Nowhere", "Nowhere chose None, must be a replica's id; simlora-check"),
        ("0", "BadInit", "broken.BadInit.__init__ raised ValueError: no; "),
        ("0", "Placing", "broken.Placing.place raised AttributeError: "),
        ("0", "Short", "Short.route() takes 2 positional arguments but 4 were given; "),
    ],
)
def test_whatever_a_policy_does_wrong_is_one_sentence(own, chosen, policy, said, capsys, monkeypatch):
    (own / "broken.py").write_text(BROKEN.replace("{chosen}", chosen))
    monkeypatch.delitem(sys.modules, "broken", raising=False)
    slot = "placement" if policy == "Placing" else "router"
    assert run_main([*SMALL[:-1], f"{slot}._target_=broken.{policy}", "hydra.run.dir=out"]) == 2
    assert sentence(capsys).startswith(f"simlora: error: {said}")
