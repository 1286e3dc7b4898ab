"""The user's own configurations and code: --config-dir in every command, and errors that name the line."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

import simlora
from simlora.api.own_code import OwnCodeFailed
from simlora.calibrate.shapes import gpu_named, model_named
from simlora.cli import main as run_main
from simlora.cli.calibrate import main as calibrate_main
from simlora.cli.capacity import main as capacity_main
from simlora.cli.check import main as check_main
from simlora.cli.plan import main as plan_main
from simlora.cli.sweep import main as sweep_main
from simlora.cli.trace import main as trace_main
from simlora.core.errors import InputError
from simlora.latency.calibration import STEP_BY_BATCH, load
from simlora.latency.parts.composed import composed

ROUTER = """
from simlora.policies.routing.base import Router


class Mine(Router):
    def route(self, request, candidates, view):
        return int(candidates[{which}])
"""
SMALL = ("gpu=a10g", "model=llama_7b", "workload.duration_s=20", "cluster.replicas=2", "router=mine")

PLANNED = (
    "model=llama_3_1_8b",
    "workload=short",
    "slo.ttft_s=5",
    "--gpus=l40s",
    "--price=l40s=1.9",
    "--tp=1",
    "--seeds=1",
    "--plans=1",
    "--tune=replica.max_loras=8",
    "--jobs=1",
)


@pytest.fixture(autouse=True)
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make the current folder a user's: a module with a router, and a folder of configurations with a choice of it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("SIMLORA_CACHE_DIR", str(tmp_path / "kept"))
    monkeypatch.delitem(sys.modules, "own_router", raising=False)
    (tmp_path / "own_router.py").write_text(ROUTER.format(which=0))
    (tmp_path / "conf" / "router").mkdir(parents=True)
    (tmp_path / "conf" / "router" / "mine.yaml").write_text("_target_: own_router.Mine\n")
    (tmp_path / "conf" / "workload").mkdir()
    (tmp_path / "conf" / "workload" / "short.yaml").write_text(
        "defaults: [slora, _self_]\nduration_s: 20.0\n"
    )
    return tmp_path


@pytest.mark.parametrize(
    "command",
    [
        lambda: run_main(["--config-dir", "conf", *SMALL, "hydra.run.dir=out"]),
        lambda: sweep_main(
            ["--config-dir", "conf", *SMALL, "workload.rate_rps=1,2", "--out=out", "--jobs=1"]
        ),
        lambda: capacity_main(
            [
                "--config-dir",
                "conf",
                *SMALL,
                "--limit=ttft_s.p95=2",
                "--seeds=1",
                "--longest=1",
                "--out=out",
                "--jobs=1",
            ]
        ),
        lambda: plan_main(["--config-dir", "conf", *PLANNED, "--out=out"]),
    ],
    ids=["simlora", "simlora-sweep", "simlora-capacity", "simlora-plan"],
)
def test_a_folder_of_ones_own_adds_choices_to_every_command(command: Callable[[], int], own: Path) -> None:
    assert command() == 0
    assert any((own / "out").iterdir())


def test_and_to_python(own: Path) -> None:
    found = simlora.simulate(SMALL, config_dir="conf")
    assert set(found.requests["replica"]) == {0}
    table = simlora.sweep([*SMALL, "workload.rate_rps=1,2"], config_dir=own / "conf", jobs=1).table
    assert table["status"].tolist() == ["ran", "ran"]


def test_and_to_searches_from_python(own: Path) -> None:
    limits, searched = {"ttft_s.p95": 2.0}, {"seeds": 1, "longest": 1, "jobs": 1, "precision": 0.5}
    found = simlora.capacity(SMALL, config_dir="conf", limits=limits, **searched)
    assert found.side.name == "slora + router=mine"
    several = simlora.capacities(
        [*SMALL[:-1], "router=round_robin,mine"], config_dir="conf", limits=limits, **searched
    )
    assert list(several.found) == ["slora, round_robin", "slora, mine"]
    assert several.found["slora, mine"].value == found.value


def test_a_row_of_a_sweep_is_run_again_by_its_overrides(own: Path) -> None:
    sweep_main(["--config-dir", "conf", *SMALL, "--out=out", "--jobs=1"])
    overrides = pd.read_parquet(own / "out" / "sweep.parquet")["overrides"][0]
    assert "hydra.searchpath" in overrides
    assert simlora.simulate(shlex.split(overrides)).summary["requests"]["finished"] > 0


def test_a_run_is_kept_until_the_configuration_or_the_code_changes(own: Path) -> None:
    def ran() -> tuple[str, float]:
        sys.modules.pop("own_router", None)
        row = simlora.sweep(SMALL, config_dir="conf", jobs=1).table.iloc[0]
        return row["key"], row["seconds"]

    first = ran()
    assert ran() == first
    (own / "conf" / "router" / "mine.yaml").write_text("_target_: own_router.Mine\n# the same, edited\n")
    second = ran()
    assert second[0] != first[0]
    (own / "own_router.py").write_text(ROUTER.format(which=1))
    assert ran()[1] != second[1]


def test_an_edited_choice_is_read_again_in_the_same_process(own: Path) -> None:
    assert set(simlora.simulate(SMALL, config_dir="conf").requests["replica"]) == {0}
    (own / "conf" / "router" / "mine.yaml").write_text(
        "_target_: simlora.policies.routing.round_robin.RoundRobin\n"
    )
    assert set(simlora.simulate(SMALL, config_dir="conf").requests["replica"]) == {0, 1}


def test_a_trace_is_shown_as_a_workload_of_ones_own_draws_it(
    own: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (own / "t.csv").write_text(
        "arrival_s,adapter,rank,prompt_tokens,output_tokens\n0,a,8,10,10\n1,b,8,10,10\n"
    )
    assert trace_main(["info", "t.csv", "--config-dir", "conf", "--picture", "t.png"]) == 0
    assert "requests    2 in 1.00 s" in capsys.readouterr().out


def test_a_choice_of_ones_own_is_checked_by_its_name(own: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert check_main(["--config-dir", "conf", "router=mine"]) == 0
    assert capsys.readouterr().out.startswith("router=mine, a router\n")
    assert check_main(["router=mine"]) == 2
    assert "there is no router 'mine'" in capsys.readouterr().err


def test_a_calibration_is_derived_for_a_gpu_of_ones_own(
    own: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (own / "conf" / "gpu").mkdir()
    (own / "conf" / "gpu" / "half.yaml").write_text(
        "defaults: [a100_80g, _self_]\nname: half\nmemory_bandwidth_bytes_per_s: 1019.5e9\n"
    )
    asked = ["derive", "--config-dir", "conf", "--gpu", "half", "--model", "llama_2_7b", "--out", "c.yaml"]
    assert calibrate_main(asked) == 2
    assert "the kernels of half are not known" in capsys.readouterr().err
    assert calibrate_main([*asked, "--like", "a100_80g"]) == 0
    command = capsys.readouterr().out.splitlines()[-1].split()
    assert run_main([*command[1:], "hydra.run.dir=out", "workload.duration_s=5"]) == 0
    a100 = composed(gpu_named("a100_80g"), model_named("llama_2_7b"), 1, "vllm")
    assert a100 is not None
    step, there = f"{STEP_BY_BATCH}.1", load("c.yaml").coefficients
    assert 1.5 < there[step] / a100.coefficients[step] < 2


@pytest.mark.parametrize(("folder", "said"), [("nowhere", "is no folder"), ("t,", "which Hydra cannot read")])
def test_a_folder_that_cannot_be_one_is_refused(own: Path, folder: str, said: str) -> None:
    (own / "t,").mkdir()
    with pytest.raises(InputError, match=said):
        simlora.simulate(SMALL, config_dir=folder)


@pytest.mark.parametrize("words", [["--config-dir=~/conf"], ["--config-dir", "~/conf"], ["-cd", "~/conf"]])
def test_a_folder_may_begin_at_home(own: Path, words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(own))
    assert run_main([*words, *SMALL, "hydra.run.dir=out", "report=false"]) == 0


@pytest.mark.parametrize("folder", ["nowhere", "~nouser/conf", "x" * 5_000])
def test_of_any_command_a_folder_that_is_not_there_is_a_short_sentence(
    folder: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for command in (run_main, sweep_main):
        assert command([f"--config-dir={folder}", *SMALL]) == 2
        said = capsys.readouterr().err
        assert said.startswith("simlora: error: ")
        assert len(said) < 200


@pytest.mark.parametrize("command", ["run", "python"])
def test_a_policy_that_raises_is_named_with_the_line_in_its_file(
    own: Path, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (own / "own_router.py").write_text(ROUTER.format(which="0] + 1 / len([]) or [0"))
    said = "own_router.Mine.route raised ZeroDivisionError: division by zero; "
    place = f"{own / 'own_router.py'}, line 7: return int(candidates[0] + 1 / len([]) or [0])"
    if command == "run":
        assert run_main(["--config-dir", "conf", *SMALL, "hydra.run.dir=out"]) == 2
        assert capsys.readouterr().err.splitlines() == [f"simlora: error: {said}{place}"]
    else:
        with pytest.raises(OwnCodeFailed) as failed:
            simlora.simulate(SMALL, config_dir="conf")
        assert str(failed.value) == said + place
        assert isinstance(failed.value.__cause__, ZeroDivisionError)


def test_in_a_sweep_it_is_a_row_beside_the_others(own: Path) -> None:
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


class Helped(Nowhere):
    def route(self, request, candidates, view):
        return deeper(request)


class Placing(ReplicateAll):
    def place(self, *arguments):
        return deeper(3)


class Short(Router):
    def route(self, request):
        return 0
"""


@pytest.mark.parametrize(
    ("chosen", "override", "said"),
    [
        (
            "77",
            "router._target_=broken.Nowhere",
            "Nowhere chose replica 77; simlora-check broken.Nowhere says",
        ),
        (
            "None",
            "router._target_=broken.Nowhere",
            "Nowhere chose None, must be a replica's id; simlora-check",
        ),
        ("0", "router._target_=broken.BadInit", "broken.BadInit.__init__ raised ValueError: no; "),
        ("0", "router._target_=broken.Helped", "broken.Helped.route raised AttributeError: "),
        ("0", "placement._target_=broken.Placing", "broken.Placing.place raised AttributeError: "),
        (
            "0",
            "router._target_=broken.Short",
            "Short.route() takes 2 positional arguments but 4 were given; ",
        ),
    ],
)
def test_whatever_a_policy_does_wrong_is_one_sentence(
    own: Path,
    chosen: str,
    override: str,
    said: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (own / "broken.py").write_text(BROKEN.replace("{chosen}", chosen))
    monkeypatch.delitem(sys.modules, "broken", raising=False)
    assert run_main([*SMALL[:-1], override, "hydra.run.dir=out"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"simlora: error: {said}")
