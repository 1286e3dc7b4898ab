"""All studies and measurements: `python -m experiments` lists them, `python -m experiments NAME …` runs one.

A paper's studies are run by its name: `python -m experiments slora table_3 --out pictures`. What else a folder has can
be said in two words: `python -m experiments loraserve rates` is `python -m experiments.loraserve.rates`.
"""

from __future__ import annotations

import ast
import runpy
import sys
from collections.abc import Sequence
from pathlib import Path

from experiments.studies import simulating
from experiments.studies.command import ended
from experiments.studies.reading import known

FOLDER = Path(__file__).parent
RUN = ('__name__ == "__main__"', "\n@program(")
"""What a module has one of that can be run."""
STUDIES = ("caraserve", "dlora", "fastlibra", "loraserve", "slora", "vllm", "what_if")
"""Folders of studies."""


def commands(folder: Path = FOLDER) -> dict[str, str]:
    """Return what each command says of itself in its first sentence, by name: `dlora`, `dlora.replicas`."""
    found = {}
    for path in sorted(folder.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        name = ".".join(path.relative_to(folder).with_suffix("").parts)
        name = name.removesuffix(".__main__").removesuffix(".__init__")
        if name in STUDIES or (any(each in text for each in RUN) and name != "__main__"):
            about = ast.get_docstring(ast.parse(text)) or ""
            found[name] = about.splitlines()[0].partition(": `python")[0].rstrip(".")
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """List the commands or run one; its exit status, 2 for a name that there is not."""
    given = [*(sys.argv[1:] if arguments is None else arguments)]
    return ended(lambda: _run(given))


def _run(given: list[str]) -> int | None:
    have = commands()
    if not given or given[0] in ("-h", "--help"):
        print(__doc__)
        for name, about in have.items():
            print(f"  {name:<27}{about}")
        return None
    if ".".join(given[:2]) in have:
        given = [".".join(given[:2]), *given[2:]]
    name = known(given[0], have, "NAME")
    if name in STUDIES:
        return simulating.main(FOLDER / name, given[1:])
    sys.argv = [name, *given[1:]]
    runpy.run_module(f"experiments.{name}", run_name="__main__", alter_sys=True)
    return None


if __name__ == "__main__":
    sys.exit(main())
