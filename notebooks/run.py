"""Execute the notebooks and keep what they show: `python -m notebooks.run [NAME ...]`.

Each is a script in jupytext's percent format, which people read and change, and an .ipynb of the same name, which this
writes, with pictures. tests/test_notebooks.py holds the two together.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import jupytext
import nbformat
from nbclient import NotebookClient
from nbformat import NotebookNode

FOLDER = Path(__file__).parent
NAMES = ("first_run", "three_requests", "slo_attainment", "own_trace", "own_policy", "capacity_plan")
"""In the order in which to read them."""
LIMIT_S = 600
KERNEL = {"display_name": "Python 3", "language": "python", "name": "python3"}


def main(arguments: Sequence[str] | None = None) -> None:
    """Execute these notebooks, or all, and write their .ipynb."""
    parser = argparse.ArgumentParser(
        prog="python -m notebooks.run",
        description="Execute notebooks/NAME.py cell by cell, and write what it shows beside it as NAME.ipynb.",
        epilog="The first cell that fails ends it, and its .ipynb stays as it was. Exit status: 0 done, 1 a cell "
        "failed, 2 bad input.",
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(NAMES)} (default: all)")
    names = parser.parse_args(arguments).names
    if unknown := [name for name in names if name not in NAMES]:
        parser.error(f"there is no notebook {unknown[0]!r}; choose one of {', '.join(NAMES)}")
    for name in names or NAMES:
        started = time.perf_counter()
        notebook = scripted(name)
        with tempfile.TemporaryDirectory() as folder:
            execute(notebook, Path(folder))
        nbformat.write(notebook, paired(name))
        print(f"{name}: {time.perf_counter() - started:.0f} s, {paired(name).stat().st_size / 1e3:.0f} kB")


def paired(name: str) -> Path:
    """Return the place of a notebook's .ipynb."""
    return FOLDER / f"{name}.ipynb"


def scripted(name: str) -> NotebookNode:
    """Return the notebook that a script is; its cells are numbered, so that the file is the same each time."""
    notebook = jupytext.read(FOLDER / f"{name}.py")
    notebook.metadata = nbformat.from_dict({"kernelspec": KERNEL, "language_info": {"name": "python"}})
    for number, cell in enumerate(notebook.cells):
        cell.id = f"cell-{number}"
    return notebook


def execute(notebook: NotebookNode, folder: Path) -> None:
    """Run all cells in a folder, and leave their outputs in the notebook. Raises CellExecutionError at the first error.

    Jupyter's own files go there too.
    """
    with _at_home(folder):
        NotebookClient(
            notebook,
            timeout=LIMIT_S,
            kernel_name="python3",
            record_timing=False,
            coalesce_streams=True,
            extra_arguments=["--log-level=ERROR"],
            resources={"metadata": {"path": str(folder)}},
        ).execute()
    notebook.metadata = nbformat.from_dict({"kernelspec": KERNEL, "language_info": {"name": "python"}})


@contextmanager
def _at_home(folder: Path) -> Iterator[None]:
    own = {"IPYTHONDIR": str(folder / ".ipython"), "JUPYTER_RUNTIME_DIR": str(folder / ".jupyter")}
    own["JUPYTER_PLATFORM_DIRS"] = "1"  # or jupyter_core warns that it will be so one day
    before = {name: os.environ.get(name) for name in own}
    os.environ.update(own)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


if __name__ == "__main__":
    main()
