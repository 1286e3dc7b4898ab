"""What is said of loraserve_single_request.csv: one request at a time on S-LoRA, eight A100 40 GB.

Each row is a run of one request. The calibration was fitted to two lengths of prompt of three; the others judge.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from experiments.fidelity.cells import Cells, number, read_cells
from experiments.fidelity.keeping import hashed, kept
from experiments.fidelity.running import in_parallel
from experiments.fidelity.scatter import Dot, Panel, Plot
from experiments.fidelity.section import Section, errors_of, fenced
from experiments.loraserve.fitting import ENGINE, GPU
from experiments.loraserve.runs import EVERY, SHAPES
from experiments.scenarios import scenario
from simlora.core.errors import InputError, nearest
from simlora.engine.cluster.simulation import Simulation

FILE = "loraserve_single_request.csv"
NUMBERS = ("tp", "rank", "prompt_tokens", "output_tokens", "ttft_s", "latency_s")
TIMES = {"ttft_s": "first token", "latency_s": "latency"}
FIGURES = hashed(__file__)
HEAD = f"{'single requests of LoRAServe':<42} {'rows':>4} {'first token':>24} {'latency':>24}"
UNITS = f"{'':<42} {'':>4}" + f" {'median worst %, med. ms':>24}" * 2


@dataclass(frozen=True)
class Row:
    """One request: its model as we call it, its numbers, and what was measured."""

    model: str
    numbers: Mapping[str, float]

    @property
    def fitted(self) -> bool:
        """Whether the calibration was fitted to its length of prompt."""
        return int(self.numbers["prompt_tokens"]) % EVERY != 0

    @property
    def overrides(self) -> list[str]:
        """The row as arguments of simlora's command line."""
        tokens = {name: int(self.numbers[name]) for name in ("prompt_tokens", "output_tokens")}
        return [
            "system=slora",
            *(f"gpu={GPU}", f"model={self.model}", f"engine={ENGINE}"),
            f"replica.tp={int(self.numbers['tp'])}",
            *("workload=synthetic", "workload.duration_s=null", "workload.requests=1", "workload.adapters=1"),
            f"workload.ranks=[{int(self.numbers['rank'])}]",
            *(f"workload/{name}=fixed" for name in tokens),
            *(f"workload.{name}.tokens={count}" for name, count in tokens.items()),
            "timeline=false",
        ]


@dataclass(frozen=True)
class Comparison:
    """One request as measured and as simulated."""

    row: Row
    simulated: Mapping[str, float]

    @property
    def error(self) -> dict[str, float]:
        """Relative errors of both times."""
        return {name: self.simulated[name] / self.row.numbers[name] - 1.0 for name in TIMES}

    def as_dict(self) -> dict[str, Any]:
        """What the JSON holds for this row."""
        return {
            "model": self.row.model,
            **self.row.numbers,
            "simulated": dict(self.simulated),
            "error": self.error,
            "fitted": self.row.fitted,
        }


def read(path: Path) -> list[Row]:
    """Read all rows. Raises InputError, naming file, line and column, for what is not in the schema."""
    return [_row(cells, place) for place, cells in read_cells(path, ("model", *NUMBERS))]


def _row(cells: Cells, place: str) -> Row:
    if cells["model"] not in SHAPES:
        raise InputError(f"{place} has model {cells['model']!r}; {nearest(cells['model'] or '', SHAPES)}")
    numbers = {name: number(cells, name, place) for name in NUMBERS}
    for name in TIMES:
        if numbers[name] <= 0.0:
            raise InputError(f"{place} has {name} = {numbers[name]:g} s, must be above 0")
    return Row(SHAPES[cells["model"]], numbers)


def figures(row: Row) -> dict[str, float]:
    """Return both times in seconds, simulated again only after what they depend on has changed."""
    return kept([*row.overrides, FIGURES], lambda: simulate(row))


def simulate(row: Row) -> dict[str, float]:
    """Return the times of a run of one request."""
    requests = Simulation(scenario(row.overrides)).run().requests()
    return {name: float(requests[name].iloc[0]) for name in TIMES}


def report(path: Path, jobs: int = -1) -> Section:
    """Return what is said of the file. Raises InputError for bad input."""
    rows = read(path)
    compared = [Comparison(*pair) for pair in zip(rows, in_parallel(figures, rows, jobs), strict=True)]
    groups = _groups(compared)
    printed = "\n".join([HEAD, UNITS, *(_line(name, members) for name, members in groups.items())])
    return Section(
        printed=printed,
        tree={
            "runs": str(path),
            "rows": [one.as_dict() for one in compared],
            "medians": {name: _medians(members) for name, members in groups.items()},
        },
        parts={"table": fenced(printed), "worst": _worst(compared)},
        plots=[plot(compared)],
        errors=[
            line
            for name, label in TIMES.items()
            for line in errors_of(
                f"LoRAServe's single requests: {label}",
                (one.error[name] for one in compared if not one.row.fitted),
            )
        ],
    )


def plot(compared: Sequence[Comparison]) -> Plot:
    """Return a panel for either time."""
    return Plot(
        "loraserve",
        "LoRAServe's single requests, eight A100 40 GB",
        [
            Panel(
                label,
                "s",
                [
                    Dot(
                        one.row.numbers[name],
                        one.simulated[name],
                        f"{one.row.model}, rank {one.row.numbers['rank']:g}",
                        one.row.fitted,
                    )
                    for one in compared
                ],
            )
            for name, label in TIMES.items()
        ],
    )


def _worst(compared: Sequence[Comparison]) -> str:
    """Say which predicted first token is furthest off."""
    held = [one for one in compared if not one.row.fitted]
    if not held:
        return "not there"
    one = max(held, key=lambda one: abs(one.error["ttft_s"]))
    what = f"{one.row.model}, rank {one.row.numbers['rank']:g}, {one.row.numbers['prompt_tokens']:g} tokens"
    times = (
        f"{1e3 * one.row.numbers['ttft_s']:.0f} ms measured, {1e3 * one.simulated['ttft_s']:.0f} simulated"
    )
    return f"the first token of {what}: {times}"


def _groups(compared: Sequence[Comparison]) -> dict[str, list[Comparison]]:
    """Return predicted rows and fitted ones, each also by model and rank."""
    found: dict[str, list[Comparison]] = {}
    for fitted, label in ((False, "predicted"), (True, "fitted")):
        own = [one for one in compared if one.row.fitted is fitted]
        found[label] = own
        for one in own:
            name = f"{label} {one.row.model}, rank {one.row.numbers['rank']:g}"
            found.setdefault(name, []).append(one)
    return {name: members for name, members in found.items() if members}


def _medians(members: Sequence[Comparison]) -> dict[str, Any]:
    found: dict[str, Any] = {"rows": len(members)}
    for name in TIMES:
        (one,) = errors_of("", (c.error[name] for c in members))
        (off,) = errors_of("", (c.simulated[name] - c.row.numbers[name] for c in members))
        found[name] = {"median": one.median, "worst": one.worst, "median_ms": 1e3 * off.median}
    return found


def _line(name: str, members: Sequence[Comparison]) -> str:
    label = name if " " not in name else f"  {name.partition(' ')[2]}"
    found = _medians(members)
    cells = [
        f"{100 * found[each]['median']:>9.1f} {100 * found[each]['worst']:>6.1f} {found[each]['median_ms']:>7.1f}"
        for each in TIMES
    ]
    return f"{label:<42} {len(members):>4} " + " ".join(cells)
