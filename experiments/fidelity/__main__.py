"""Predict measured runs: `python -m experiments.fidelity [--runs FILE.csv] [--json OUT] [--markdown OUT]`."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from experiments.fidelity import base_engine, dlora, profiles, sheeted, vllm_steps
from experiments.fidelity import report as slora
from experiments.fidelity.cells import columns, sheets
from experiments.fidelity.compare import Section
from experiments.fidelity.page import PAGE, unused, write
from experiments.fidelity.vllm import report as vllm
from experiments.studies.command import JOBS, option, program
from experiments.studies.reading import measured_dir
from simlora.api.cache import HELP
from simlora.core.errors import InputError


class Source(NamedTuple):
    """A measured file, or folder of files, what reports it, and a column by which its schema is known."""

    file: str
    report: Callable[[Path, int], Section]
    mark: str | None = None


def _saturating(name: str) -> Source:
    sheet = sheets()[name]
    return Source(sheet["file"], partial(sheeted.report, name), sheet["mark"])


SOURCES = {
    "slora": Source("slora_runs.csv", slora.report),
    "vllm": Source("vllm_lora_runs.csv", vllm.report, vllm.MARK),
    "dlora": Source(dlora.FILE, dlora.report),
    "loraserve": Source(sheets()["loraserve"]["file"], sheeted.report_singles),
    "slora_h100": _saturating("slora_h100"),
    "vllm_v0": _saturating("vllm_v0"),
    "vllm_steps": Source(vllm_steps.FILE, vllm_steps.report, vllm_steps.MARK),
    "base_engine": Source(base_engine.FILE, base_engine.report),
    "profiles": Source(profiles.FILE, profiles.report),
}
"""By the names of their notes. The JSON of the first is OUT; the others have their names before its suffix."""


def asked(runs: Path | None) -> dict[str, Path]:
    """Return the files to report, by the names of their notes; that of --runs by the schema that its columns show."""
    if runs is not None and runs.name.endswith(base_engine.ENDING):
        return {"base_engine": runs}
    if runs is not None:
        names = columns(runs)
        # The later ones also have columns of the earlier.
        marked = (name for name, source in reversed(SOURCES.items()) if source.mark in names)
        return {next(marked, "slora"): runs}
    return {name: measured_dir() / source.file for name, source in SOURCES.items()}


def _write_json(path: Path, tree: Any) -> None:
    try:
        path.write_text(json.dumps(tree, indent=1, allow_nan=False) + "\n", encoding="utf-8")
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error.strerror}") from None
    print(f"wrote {path}")


@program(
    option(
        "--runs",
        type=Path,
        help=f"a file in the schema of {SOURCES['slora'].file} or {SOURCES['vllm'].file}, or a {base_engine.ENDING} "
        "with its meta.json (default: all measured ones)",
    ),
    option(
        "--json",
        type=Path,
        dest="out",
        metavar="OUT",
        help="write every row, measured and simulated, as JSON; without --runs the other files' as OUT with their "
        "names before the suffix",
    ),
    option(
        "--markdown",
        type=Path,
        dest="page",
        metavar="OUT",
        help="write the page there, its pictures beside it (default: docs/fidelity.md if all measured files are there)",
    ),
    JOBS,
    about="Simulate runs that others measured, print how far off we are, and write the page that says so.",
    epilog=f"The hours of {SOURCES['vllm'].file} take an hour of two cores the first time. {HELP}",
)
def main(runs: Path | None, out: Path | None, page: Path | None, jobs: int) -> None:
    """Run the comparison."""
    sections = {}
    files = asked(runs)
    for name, path in files.items():
        if runs is None and not path.exists():
            print(f"skipped: there is no {path}; set SIMLORA_MEASURED_DIR to the folder with {path.name}")
            continue
        sections[name] = SOURCES[name].report(path, jobs)
        print(sections[name].printed, flush=True)
        if out:
            own = runs or name == "slora"
            _write_json(out if own else out.with_suffix(f".{path.stem}{out.suffix}"), sections[name].tree)
    if page or (runs is None and len(sections) == len(files)):
        names = {name: path.name for name, path in files.items()}
        others = "" if runs else unused(measured_dir(), set(names.values()))
        absent = write(page or PAGE, sections, names, others)
        print(f"wrote {page or PAGE}")
        for place in absent:
            print(f"without a number: {place}")
    elif runs is None:
        print(f"{PAGE.name} stays as it is, as files are missing; --markdown OUT writes what there is")
