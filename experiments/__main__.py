"""All studies and measurements: `python -m experiments` lists them, `python -m experiments NAME …` runs one.

What comes after the name is for that one: `python -m experiments slora table_3 --out pictures` is
`python -m experiments.slora table_3 --out pictures`.
"""

from __future__ import annotations

import ast
import runpy
import sys
from collections.abc import Sequence
from pathlib import Path

from experiments.studies.command import ended
from experiments.studies.reading import known

FOLDER = Path(__file__).parent
RUN = ('__name__ == "__main__"', "\n@program(")
"""What a module has one of that can be run."""


def commands(folder: Path = FOLDER) -> dict[str, str]:
    """Return what each command says of itself in its first sentence, by name: `dlora`, `dlora.example`."""
    found = {}
    for path in sorted(folder.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        name = ".".join(path.relative_to(folder).with_suffix("").parts)
        if any(each in text for each in RUN) and name != "__main__":
            about = ast.get_docstring(ast.parse(text)) or ""
            found[name.removesuffix(".__main__")] = (
                about.splitlines()[0].partition(": `python")[0].rstrip(".")
            )
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """List the commands or run one; its exit status, 2 for a name that there is not."""
    given = [*(sys.argv[1:] if arguments is None else arguments)]
    return ended(lambda: _run(given))


def _run(given: list[str]) -> None:
    have = commands()
    if not given or given[0] in ("-h", "--help"):
        print(__doc__)
        for name, about in have.items():
            print(f"  {name:<27}{about}")
        return
    name = known(given[0], have, "NAME")
    sys.argv = [name, *given[1:]]
    runpy.run_module(f"experiments.{name}", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    sys.exit(main())
