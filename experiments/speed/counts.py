"""Count what a plain S-LoRA request makes the simulator do: calls, and branch lines for mechanisms it has not got.

Figures do not depend on the machine. A call is a Python function that is entered, or a generator that is resumed, in
simlora. A branch line is a source line that decides (`if`, `while`, `and`, `or`, the `if` of comprehensions),
counted once an execution, in the rooms that run during a simulation. It asks for an absent mechanism if one of its
conditions that was evaluated names one of `mechanisms.py`, and was never decided otherwise during the run.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path

import simlora
from experiments.scenarios import scenario
from experiments.speed.counting import Counting
from experiments.speed.figures import Figures, Line, figures
from experiments.speed.scenarios import Speed
from experiments.studies.command import command, option, writable
from simlora.core.checks import whole
from simlora.engine.cluster.simulation import Simulation

ROOT = Path(simlora.__file__).parent
ROOMS = ("core", "engine", "latency", "memory", "metrics", "policies")
"""Where branch lines are counted."""
REQUESTS = 2_000
EPILOG = (
    "'one-sided, unclassified' are conditions that were always decided alike and name no mechanism of the table: "
    "some are of the workload (every request uses an adapter), others may ask for a mechanism by a name that the table "
    "does not know. Loops over hooks that no part defines are counted apart: 'loops whose body never ran'."
)


def count(requests: int = REQUESTS, replicas: int = 1) -> Figures:
    """Simulate plain S-LoRA and return what each request makes it do; building the scenario is not counted."""
    simulation = Simulation(scenario(Speed("counted", replicas, requests).overrides()))
    counting = Counting([ROOT], [ROOT / room for room in ROOMS])
    return figures(counting.count(simulation.run), requests, f"{ROOT}/")


def table(found: Figures) -> str:
    """Return the figures as text."""
    unclassified, loops = found.unclassified, found.empty_loops
    rows = [
        _row("calls", found.calls),
        _row("  from one file into another", found.between_files),
        _row("branch lines", found.branch_lines),
        _row("  that ask for absent mechanisms", sum(found.absent.values())),
        *(_row(f"    {name}", times) for name, times in found.absent.items()),
        _row("  that name one and are decided both ways", found.both_ways),
        _row("one-sided, unclassified", sum(unclassified.values())),
        *_places(unclassified),
        _row("loops whose body never ran", sum(loops.values())),
        *_places(loops),
    ]
    return "\n".join(rows)


def listing(found: Figures) -> str:
    """Return a table of calls by file, and one of all branch lines, as text."""
    files = [_row(f"  {file}", times) for file, times in found.by_file.items() if times >= 0.01]
    lines = [_listed(line) for line in found.lines]
    head = "branch lines: executions, those for an absent mechanism, place, mechanism, text"
    return "\n".join(["calls by file", *files, "", head, *lines])


def _listed(line: Line) -> str:
    absent = f"{line.absent:8.2f}" if line.mechanism else " " * 8
    kind = line.mechanism or ("one-sided" if line.unclassified else "")
    return f"{line.executions:8.2f}{absent}  {f'{line.file}:{line.line}':<36}{kind:<31}{line.text}"


@command(
    option("--requests", type=int, default=REQUESTS, metavar="N", help=f"default: {REQUESTS}"),
    option("--replicas", type=int, default=1, metavar="N", help="default: 1"),
    option("--lines", action="store_true", help="print every file and every branch line, too"),
    option("--json", type=Path, metavar="OUT", dest="out", help="write the figures as JSON"),
    epilog=EPILOG,
)
def main(requests: int, replicas: int, lines: bool, out: Path | None) -> None:
    """Count and print."""
    whole("--requests", requests, "requests", least=1)
    whole("--replicas", replicas, "replicas", least=1)
    if out:
        writable(out, "--json")
    found = count(requests, replicas)
    print(f"Plain S-LoRA, {requests:,} requests, replicas: {replicas}; figures are per request\n")
    print(table(found))
    if lines:
        print(f"\n{listing(found)}")
    if out:
        figures_of = {"requests": requests, "replicas": replicas, **found.json()}
        out.write_text(json.dumps(figures_of, indent=1) + "\n", encoding="utf-8")


def _row(name: str, times: float) -> str:
    return f"{name:<50}{times:10.2f}"


def _places(found: Mapping[str, float]) -> list[str]:
    """Return a row for each place."""
    return [f"  {times:8.2f}  {place}" for place, times in found.items()]


if __name__ == "__main__":
    sys.exit(main())
