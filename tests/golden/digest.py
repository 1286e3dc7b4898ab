"""Write digests.json anew, and say which digests changed: `python -m tests.golden.digest`.

Digests change only with a change that is meant to alter results; the counts beside them show what occurred.
"""

import json
from pathlib import Path
from typing import Any

import simlora
from simlora.config.names import RENAMED
from tests.golden.cases import cases
from tests.golden.hashing import counts, differing, digests

FILE = Path(__file__).with_name("digests.json")
Golden = dict[str, dict[str, Any]]


def computed(overrides: tuple[str, ...]) -> dict[str, Any]:
    """Return the digests of one simulation by table, and the counts of what occurred in it."""
    result = simlora.simulate([*overrides, "report=false"])
    return {"digests": digests(result, RENAMED), "counts": counts(result)}


def read() -> Golden:
    """Return what digests.json holds, by the name of the case."""
    return json.loads(FILE.read_text(encoding="utf-8")) if FILE.exists() else {}


def write(golden: Golden) -> None:
    """Write digests.json, one line per case."""
    lines = [f"{json.dumps(name)}: {json.dumps(golden[name], sort_keys=True)}" for name in sorted(golden)]
    FILE.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


def changes(before: Golden, after: Golden) -> list[str]:
    """Return one line per case that was added, removed or has other digests, with the tables that differ."""
    lines = []
    for name in sorted({*before, *after}):
        if name not in after:
            lines.append(f"{name}: removed")
        elif name not in before:
            lines.append(f"{name}: added")
        elif tables := differing(before[name]["digests"], after[name]["digests"]):
            lines.append(f"{name}: changed in {', '.join(tables)}")
    return lines


def main() -> None:
    """Compute all digests, write them, and print what changed."""
    before = read()
    after = {case.name: computed(case.overrides) for case in cases()}
    write(after)
    found = changes(before, after)
    print("\n".join(found) or "no digest changed")
    print(f"{len(found)} of {len(after)} cases differ from the file as it was")


if __name__ == "__main__":
    main()
