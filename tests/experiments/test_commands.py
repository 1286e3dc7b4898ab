"""What all commands do alike: say what they are for, and end with a sentence and a status where something is wrong."""

from __future__ import annotations

import os
import signal
from importlib import import_module
from pathlib import Path

import pytest

from experiments import __main__ as index
from experiments.studies.command import ended
from simlora.calibrate.calibration_file import CALIBRATIONS, save
from simlora.core.errors import InputError
from simlora.latency import calibration as calibrations

INTO_A_FOLDER = (
    "caraserve.calibration",
    "dlora.calibration",
    "dlora.slower",
    "fastlibra.calibration",
    "fastlibra.links",
    "fastlibra.reductions",
    "fidelity.fit",
    "fidelity.vllm.fit",
    "loraserve.calibration",
    "profiles.__main__",
)
COMMANDS = (
    *INTO_A_FOLDER,
    "coverage.__main__",
    "dlora.shape",
    "fastlibra.ablations",
    "fastlibra.averages",
    "fastlibra.ideal",
    "kernels.measured",
    "loraserve.improvements",
    "loraserve.operating_points",
    "loraserve.rates",
    "loraserve.scaling",
    "mutation.__main__",
    "planning.gateway_log",
    "profiles.compare",
    "speed.__main__",
    "speed.growth",
    "speed.reading",
    "speed.sizes",
    "speed.start",
)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_says_how_it_is_called(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        import_module(f"experiments.{name}").main(["--help"])
    assert left.value.code == 0
    called = name.removesuffix(".__main__")
    assert f"usage: python -m experiments.{called} " in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize("name", INTO_A_FOLDER)
def test_a_folder_that_cannot_be_made_is_said_before_anything_is_done(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert import_module(f"experiments.{name}").main(["--out", "/dev/null/x"]) == 2
    said = capsys.readouterr()
    assert said.err == "simlora: error: --out /dev/null/x cannot be made: Not a directory\n"
    assert said.out == ""


@pytest.mark.parametrize(
    ("name", "arguments", "said"),
    [
        ("claims.__main__", ["--paper", "slor"], "--paper is 'slor'; did you mean"),
        ("composition.__main__", ["--trials", "0"], "--trials is 0"),
        (
            "cross_table.__main__",
            ["--workload", "shiftin"],
            "--workload is 'shiftin'; did you mean",
        ),
        ("__main__", ["dlora", "figure_21"], "study is 'figure_21'; did you mean"),
        ("fidelity.vllm.fit", ["llama_3_1_80b"], "no plan for 'llama_3_1_80b'; did you mean llama_3_1_8b"),
        ("infer.__main__", ["caraserv"], "'caraserv'; did you mean caraserve"),
        ("loraserve.calibration", [], "there is no loraserve_single_request.csv"),
        ("mutation.__main__", ["--rooms", "memory", "--only", "nowhere"], "--only is 'nowhere'"),
        ("profiles.__main__", [], "there are no profiles in"),
        ("profiles.__main__", ["a40-llama_2_7b-tp3"], "no plan for 'a40-llama_2_7b-tp3'; did you mean"),
        ("speed.__main__", ["--json", "/nowhere/x"], "cannot be written: No such file"),
        ("speed.against", ["/dev"], "has no simlora/__init__.py"),
        ("speed.counts", ["--requests", "0"], "--requests is 0"),
        ("torture.__main__", ["--minutes", "0"], "--minutes is 0.0, must be greater than 0"),
        ("__main__", ["what_if", "stal"], "study is 'stal'; did you mean"),
    ],
)
def test_bad_input_is_one_sentence_before_anything_is_done(
    name: str,
    arguments: list[str],
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("SIMLORA_MEASURED_DIR", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    assert import_module(f"experiments.{name}").main(arguments) == 2
    printed = capsys.readouterr()
    assert printed.err.startswith("simlora: error: ")
    assert said in printed.err
    assert printed.err.count("\n") == 1
    assert printed.out == ""


def test_a_command_that_is_told_to_stop_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    """By SIGTERM, as batch systems send it."""
    assert ended(lambda: os.kill(os.getpid(), signal.SIGTERM)) == 130
    assert capsys.readouterr().err == "simlora: interrupted; the runs that were finished are kept\n"


def test_a_calibration_is_written_whole_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = (CALIBRATIONS / "a10-llama_2_7b-tp1.yaml").read_text()
    path = tmp_path / "own.yaml"
    assert save(path, text).coefficients == calibrations.load("a10-llama_2_7b-tp1").coefficients
    with pytest.raises(InputError, match="decod"):
        save(path, text.replace("\ndecode:", "\ndecod:"))
    assert path.read_text() == text
    with pytest.raises(InputError, match=r"none/own\.yaml cannot be written: No such file or directory"):
        save(tmp_path / "none" / "own.yaml", text)
    assert [path.name for path in tmp_path.iterdir()] == ["own.yaml"]


def test_one_command_lists_all_and_runs_each(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    have = index.commands()
    assert {name.removesuffix(".__main__") for name in COMMANDS} <= have.keys()
    assert all(about and ": `" not in about for about in have.values())
    assert index.main([]) == 0
    assert f"  {'dlora.shape':<27}{have['dlora.shape']}\n" in capsys.readouterr().out
    monkeypatch.setattr("sys.argv", ["python -m experiments"])
    with pytest.raises(SystemExit) as left:
        index.main(["planning", "--help"])
    assert left.value.code == 0
    assert "usage: python -m experiments.planning" in capsys.readouterr().out
    assert index.main(["planing"]) == 2
    assert "did you mean planning" in capsys.readouterr().err
