"""What a user installs: the wheel is whole, the command is declared, and an import costs little."""

import configparser
import os
import runpy
import shutil
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from simlora.core import starting
from tests.cli.command import SCRIPTS

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "simlora"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[zipfile.ZipFile]:
    """The wheel, built from this tree without the network."""
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    built = subprocess.run(command, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stdout + built.stderr
    (path,) = folder.glob("simlora-*.whl")
    with zipfile.ZipFile(path) as archive:
        yield archive


def compiled(path: Path) -> bool:
    return path.suffix == ".so" or path.name == "compiled.json"


def data_files() -> set[str]:
    """Everything below simlora/ and profiler/ that a run may read, as paths inside the wheel."""
    return {
        path.relative_to(ROOT).as_posix()
        for package in (PACKAGE, ROOT / "profiler")
        for path in package.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts and not compiled(path)
    }


def test_the_wheel_holds_every_file_of_the_package_and_nothing_else(wheel):
    names = set(wheel.namelist())
    assert data_files() - names == set()
    assert "simlora/py.typed" in names
    assert any(name.startswith("simlora/conf/system/") and name.endswith(".yaml") for name in names)
    assert any(name.startswith("simlora/latency/calibrations/") and name.endswith(".yaml") for name in names)
    tops = {name.split("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"simlora", "profiler"}
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in names)


def test_the_types_that_mypyc_reads_hold_in_a_folder_that_is_not_installed(tmp_path, monkeypatch):
    """mypyc reads types as mypy does, which hides errors of an editable install: `make compiled` does not show them."""
    shutil.copytree(PACKAGE, tmp_path / "simlora", ignore=shutil.ignore_patterns("*.so", "compiled.json"))
    monkeypatch.chdir(tmp_path)
    hook = runpy.run_path(str(ROOT / "hatch_build.py"))
    wheel = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    settings = wheel["hooks"]["custom"]
    sources = hook["_sources"](settings["rooms"], settings["interpreted"])
    Path("mypy.ini").write_text(hook["TYPES"])
    kept = (
        f"--cache-dir={ROOT / '.mypy_cache' / 'not_installed'}"  # what has not changed is not checked again
    )
    command = [sys.executable, "-m", "mypy", kept, "--config-file=mypy.ini", *map(str, sources)]
    checked = subprocess.run(command, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_the_wheel_declares_the_commands(wheel):
    (name,) = [name for name in wheel.namelist() if name.endswith("entry_points.txt")]
    entry_points = configparser.ConfigParser()
    entry_points.read_string(wheel.read(name).decode())
    assert dict(entry_points["console_scripts"]) == SCRIPTS
    assert {*SCRIPTS} == {*starting.COMMANDS} - {"-m"}


def test_without_torch_the_profiler_says_what_to_install(tmp_path):
    (tmp_path / "torch.py").write_text("raise ModuleNotFoundError('No module named torch', name='torch')")
    command = [sys.executable, "-c", "import sys; from profiler.command import main; sys.exit(main([]))"]
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"}
    found = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (found.returncode, found.stderr) == (
        2,
        "simlora: error: torch is not installed; "
        "install simlora with it: pip install '.[profiler]' where simlora lies\n",
    )


def test_importing_simlora_leaves_the_heavy_libraries_alone():
    heavy = {"torch", "triton", "matplotlib", "hydra", "omegaconf"}
    code = f"import sys, simlora; print(*{heavy} & {{*sys.modules}})"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ended.stdout == "\n"
