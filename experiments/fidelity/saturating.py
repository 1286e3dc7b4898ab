"""Runs below and past saturation, of rates, inter-token latencies and first tokens: as measured and as simulated.

Past saturation the first token says how long was measured and nothing else, and is not judged. Nothing was fitted to
these runs: the calibrations are composed of NVIDIA's kernels, and of what S-LoRA's engine adds, learned on an A10G and
two A100s, or of the host's share that vLLM published of 0.5.3, and of BGMV as S-LoRA's server on an A100 has it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from experiments.fidelity.cells import Run, hashed, kept, runs, sheets
from experiments.fidelity.compare import (
    Comparison,
    Figure,
    Section,
    compared,
    counted,
    fenced,
    figures_of,
    judged,
    plot,
)
from experiments.scenarios import scenario
from simlora.engine.cluster.simulation import Simulation

RATE, ITL, FIRST = FIGURES = figures_of("saturating")
HASHED = hashed(__file__)
QUEUED_S = 1.0
"""A run whose median first token takes longer has a queue: it is past saturation."""


class Row(Run):
    """One run of these files."""

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
    title, rows = sheets()[name]["title"], compared(runs(Row, name, path), _figures, jobs)
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
        plot=plot(name, title, rows, FIGURES) if rows else None,
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
