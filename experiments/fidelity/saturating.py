"""Runs below and past saturation, of rates, inter-token latencies and first tokens: as measured and as simulated.

Past saturation the first token says how long was measured and nothing else, and is not judged. Which files these are,
and how each is read, stands in saturating.yaml. Nothing was fitted to them: the calibrations are composed of NVIDIA's
kernels, of what S-LoRA's engine adds, learned on an A10G and two A100s, or of the host's share that vLLM published of
0.5.3, and of BGMV as S-LoRA's server on an A100 has it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from experiments.fidelity.cells import Cells, above_zero, number, read_cells
from experiments.fidelity.compare import Comparison, compared, counted, judged, plot
from experiments.fidelity.figures import Figure, figures_of
from experiments.fidelity.keeping import hashed, kept
from experiments.fidelity.section import Section, fenced
from experiments.scenarios import scenario
from simlora.engine.cluster.simulation import Simulation

SHEETS = Path(__file__).with_suffix(".yaml")
RATE, ITL, FIRST = FIGURES = figures_of("saturating")
HASHED = hashed(__file__)
QUEUED_S = 1.0
"""A run whose median first token takes longer has a queue: it is past saturation."""


@dataclass(frozen=True)
class Row:
    """One run: its inputs, what was measured, and the overrides that simulate it."""

    inputs: Mapping[str, float]
    measured: Mapping[str, float]
    overrides: Sequence[str]

    @property
    def past(self) -> bool:
        """Whether it is past saturation."""
        return self.measured[FIRST.name] > QUEUED_S

    @property
    def load(self) -> str:
        """Where it is."""
        return "past saturation" if self.past else "below"

    @property
    def series(self) -> str:
        """Its colour says where it is."""
        return self.load

    @property
    def figures(self) -> Sequence[Figure]:
        """The figures that it is judged by."""
        return [figure for figure in FIGURES if figure != FIRST or not self.past]


@cache
def sheets() -> dict[str, Any]:
    """Return saturating.yaml as it is."""
    return dict(yaml.safe_load(SHEETS.read_text(encoding="utf-8")))


def read(name: str, path: Path) -> list[Row]:
    """Read all rows by a sheet. Raises InputError, naming file, line and column, for what is not in the schema."""
    sheet = sheets()[name]
    columns = [column for own in sheet["inputs"].values() for column in own]
    columns += [entry["column"] for entry in sheet["measured"].values()]
    return [_row(sheet, cells, place) for place, cells in read_cells(path, [*columns, sheet["mark"]])]


def _row(sheet: Mapping[str, Any], cells: Cells, place: str) -> Row:
    def value(entry: Mapping[str, Any]) -> float:
        return number(cells, entry["column"], place) * entry.get("times", 1) / entry.get("per", 1)

    columns = {
        name: next((each for each in own if cells[each]), own[-1]) for name, own in sheet["inputs"].items()
    }
    inputs = {name: number(cells, column, place) for name, column in columns.items()}
    measured = {name: value(entry) for name, entry in sheet["measured"].items()}
    above_zero(inputs | measured, place)
    values = inputs | {"kv_tokens": value(sheet["kv_tokens"])} if "kv_tokens" in sheet else inputs
    workload = {name: inputs.get(entry, entry) for name, entry in sheet["workload"].items()}
    overrides = [each.format_map(values) for each in sheet["overrides"]]
    return Row(inputs, measured, [*overrides, *_fixed_lengths(**workload)])


def _fixed_lengths(
    adapters: float, rank: float, rate_rps: float, prompt_tokens: int, output_tokens: int, duration_s: float
) -> list[str]:
    """Return the overrides of a workload of Poisson arrivals of equally popular adapters, for as long as is measured.

    `rate_rps` is that of each adapter.
    """
    return [
        *("workload=synthetic", f"workload.duration_s={duration_s}", f"workload.adapters={int(adapters)}"),
        *("workload/arrivals=poisson", "workload/popularity=uniform", f"workload.ranks=[{int(rank)}]"),
        f"workload.arrivals.rate_rps={int(adapters) * rate_rps}",
        *("workload/prompt_tokens=fixed", f"workload.prompt_tokens.tokens={prompt_tokens}"),
        *("workload/output_tokens=fixed", f"workload.output_tokens.tokens={output_tokens}"),
        *(f"until_s={duration_s}", "timeline=false"),
    ]


def simulate(overrides: Sequence[str]) -> dict[str, float]:
    """Return the figures of a run: over requests that end within it."""
    run = scenario(overrides)
    requests = Simulation(run).run().requests()
    done = requests[requests["status"] == "finished"]
    each_s = (done["latency_s"] - done["ttft_s"]) / (done["output_tokens"] - 1)
    return {
        RATE.name: float(done["output_tokens"].sum() / run.until_s),
        ITL.name: float(each_s.mean()),
        FIRST.name: float(done["ttft_s"].median()),
    }


def report(name: str, path: Path, jobs: int = -1) -> Section:
    """Return what is said of a file, by the sheet of this `name`. Raises InputError for bad input."""
    title, rows = sheets()[name]["title"], compared(read(name, path), _figures, jobs)
    groups = {
        "all": rows,
        "below saturation": [one for one in rows if not one.row.past],
        "past it": [one for one in rows if one.row.past],
    }
    head = f"{f'{title}: median, bias, worst':<44}" + "".join(f" {figure.label:>26}" for figure in FIGURES)
    lines = [_line(group, members) for group, members in groups.items() if members]
    printed = "\n".join([head, *lines])
    medians = {
        group: {key: float(np.median(np.abs(errors))) for key, errors in _errors(members).items()}
        for group, members in groups.items()
    }
    return Section(
        printed=printed,
        tree={"runs": str(path), "rows": [_as_dict(one) for one in rows], "medians": medians},
        parts={"table": fenced(printed)},
        plots=[plot(name, title, rows, FIGURES)] if rows else [],
        errors=[
            line
            for group in ("below saturation", "past it")
            for line in judged(f"{title}, {group}", groups[group], FIGURES)
        ],
    )


def _figures(row: Row) -> dict[str, float]:
    return kept([*row.overrides, HASHED], lambda: simulate(row.overrides))


def _as_dict(one: Comparison[Row]) -> dict[str, Any]:
    return {**one.row.inputs, "past_saturation": one.row.past, **one.sides}


def _errors(members: Sequence[Comparison[Row]]) -> dict[str, list[float]]:
    """Return the errors of the runs that are judged by a figure, by figure."""
    found = {key.name: [one.error[key.name] for one in counted(members, key)] for key in FIGURES}
    return {key: errors for key, errors in found.items() if errors}


def _line(group: str, members: Sequence[Comparison[Row]]) -> str:
    cells = (
        f"{100 * np.median(np.abs(errors)):.1f} %, {100 * np.median(errors):+.1f} %, {100 * np.abs(errors).max():.0f} %"
        for errors in _errors(members).values()
    )
    return f"{f'{group}, {len(members)} runs':<44}" + "".join(f" {cell:>26}" for cell in cells)
