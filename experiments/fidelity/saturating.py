"""Runs below and past saturation, of rates, inter-token latencies and first tokens: as measured and as simulated.

Past saturation the first token says how long was measured and nothing else, and is not judged.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from experiments.fidelity.cells import Cells, number
from experiments.fidelity.keeping import hashed, kept
from experiments.fidelity.running import in_parallel
from experiments.fidelity.scatter import Dot, Panel, Plot
from experiments.fidelity.section import Section, errors_of, fenced
from experiments.scenarios import scenario
from simlora.core.errors import InputError
from simlora.engine.cluster.simulation import Simulation

RATE, ITL, FIRST = "output_tokens_per_s", "itl_s", "ttft_s"
FIGURES = {RATE: "tokens/s", ITL: "inter-token latency", FIRST: "median first token"}
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
        return self.measured[FIRST] > QUEUED_S

    @property
    def judged(self) -> list[str]:
        """The figures that it is judged by."""
        return [name for name in FIGURES if name != FIRST or not self.past]


@dataclass(frozen=True)
class Comparison:
    """One run as measured and as simulated."""

    row: Row
    simulated: Mapping[str, float]

    @property
    def error(self) -> dict[str, float]:
        """Relative errors of the figures that the run is judged by."""
        return {name: self.simulated[name] / self.row.measured[name] - 1.0 for name in self.row.judged}

    def as_dict(self) -> dict[str, Any]:
        """What the JSON holds for this row."""
        return {
            **self.row.inputs,
            "past_saturation": self.row.past,
            "measured": dict(self.row.measured),
            "simulated": dict(self.simulated),
            "error": self.error,
        }


def measured(cells: Cells, place: str, rate: float, itl_ms: str, ttft_ms: str) -> dict[str, float]:
    """Return the figures that a line has, two of them in columns of milliseconds."""
    return {
        RATE: rate,
        ITL: number(cells, itl_ms, place) / 1e3,
        FIRST: number(cells, ttft_ms, place) / 1e3,
    }


def check(values: Mapping[str, float], place: str) -> None:
    """Raise InputError for the first value that is not above 0."""
    for name, value in values.items():
        if value <= 0:
            raise InputError(f"{place} has {name} = {value:g}, must be above 0")


def fixed_lengths(
    adapters: int, rank: int, rate_rps: float, prompt_tokens: int, output_tokens: int, duration_s: float
) -> list[str]:
    """Return the overrides of a workload of Poisson arrivals of equally popular adapters, for as long as is measured.

    `rate_rps` is that of each adapter.
    """
    return [
        *("workload=synthetic", f"workload.duration_s={duration_s}", f"workload.adapters={adapters}"),
        *("workload/arrivals=poisson", "workload/popularity=uniform", f"workload.ranks=[{rank}]"),
        f"workload.arrivals.rate_rps={adapters * rate_rps}",
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
        RATE: float(done["output_tokens"].sum() / run.until_s),
        ITL: float(each_s.mean()),
        FIRST: float(done["ttft_s"].median()),
    }


def report(path: Path, rows: Sequence[Row], name: str, title: str, jobs: int) -> Section:
    """Return what is said of a file, in the section of this `name`, once its rows are simulated."""
    compared = [Comparison(*pair) for pair in zip(rows, in_parallel(_figures, rows, jobs), strict=True)]
    groups = {
        "all": compared,
        "below saturation": [one for one in compared if not one.row.past],
        "past it": [one for one in compared if one.row.past],
    }
    lines = [
        f"{f'{title}: median, bias, worst':<44}" + "".join(f" {label:>26}" for label in FIGURES.values())
    ]
    lines += [_line(group, members) for group, members in groups.items() if members]
    printed = "\n".join(lines)
    return Section(
        printed=printed,
        tree={
            "runs": str(path),
            "rows": [one.as_dict() for one in compared],
            "medians": {
                group: {key: float(np.median(np.abs(errors))) for key, errors in _errors(members).items()}
                for group, members in groups.items()
            },
        },
        parts={"table": fenced(printed)},
        plots=[Plot(name, title, [_panel(key, compared) for key in FIGURES])] if compared else [],
        errors=[
            line
            for group, members in groups.items()
            if group != "all"
            for key, errors in _errors(members).items()
            for line in errors_of(f"{title}, {group}: {FIGURES[key]}", errors)
        ],
    )


def _figures(row: Row) -> dict[str, float]:
    return kept([*row.overrides, HASHED], lambda: simulate(row.overrides))


def _errors(members: Sequence[Comparison]) -> dict[str, list[float]]:
    """Return the errors of the runs that are judged by a figure, by figure."""
    found = {key: [one.error[key] for one in members if key in one.error] for key in FIGURES}
    return {key: errors for key, errors in found.items() if errors}


def _panel(key: str, compared: Sequence[Comparison]) -> Panel:
    dots = [
        Dot(one.row.measured[key], one.simulated[key], "past saturation" if one.row.past else "below", False)
        for one in compared
        if key in one.error
    ]
    return Panel(FIGURES[key].capitalize(), "tokens/s" if key == RATE else "s", dots)


def _line(group: str, members: Sequence[Comparison]) -> str:
    cells = (
        f"{100 * np.median(np.abs(errors)):.1f} %, {100 * np.median(errors):+.1f} %, {100 * np.abs(errors).max():.0f} %"
        for errors in map(np.array, _errors(members).values())
    )
    return f"{f'{group}, {len(members)} runs':<44}" + "".join(f" {cell:>26}" for cell in cells)
