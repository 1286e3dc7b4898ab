"""Files of runs that sheets.yaml describes: S-LoRA on an H100, vLLM's V0, and LoRAServe's single requests.

Of runs below and past saturation rates, inter-token latencies and first tokens are compared. Past saturation the first
token says how long was measured and nothing else, and is not judged. Nothing was fitted to these runs: the calibrations
are composed of NVIDIA's kernels, and of what S-LoRA's engine adds, learned on an A10G and two A100s, or of the host's
share that vLLM published of 0.5.3, and of BGMV as S-LoRA's server on an A100 has it.

LoRAServe's are one request at a time on S-LoRA, eight A100 40 GB. Each row is a run of one request. The calibration was
fitted to two lengths of prompt of three; the others judge.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from experiments.fidelity import compare
from experiments.fidelity.cells import Run, hashed, kept, runs, sheets
from experiments.fidelity.compare import (
    Comparison,
    Figure,
    Section,
    compared,
    figures_of,
    grouped,
    judged,
    spread,
)
from experiments.loraserve.fitting import EVERY, SHAPES
from experiments.scenarios import scenario
from simlora.engine.cluster.simulation import Simulation

RATE, ITL, FIRST = FIGURES = figures_of("saturating")
TIMES = figures_of("loraserve")
HASHED = hashed(__file__)
QUEUED_S = 1.0
"""A run whose median first token takes longer has a queue: it is past saturation."""
BELOW, PAST = "below saturation", "past it"
SINGLE = (
    f"{'single requests of LoRAServe':<42} {'rows':>4} {'first token':>24} {'latency':>24}",
    f"{'':<42} {'':>4}" + f" {'median worst %, med. ms':>24}" * 2,
)


class Row(Run):
    """One run of many requests."""

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
        BELOW: [one for one in rows if not one.row.past],
        PAST: [one for one in rows if one.row.past],
    }
    head = f"{f'{title}: median, bias, worst':<44}" + "".join(f" {figure.label:>26}" for figure in FIGURES)
    medians = {
        group: {key: float(np.median(np.abs(errors))) for key, errors in _errors(members).items()}
        for group, members in groups.items()
    }
    return compare.section(
        path,
        [head, *(_line(group, members) for group, members in groups.items() if members)],
        [{**one.row.inputs, "past_saturation": one.row.past, **one.sides} for one in rows],
        medians,
        plot=compare.plot(name, title, rows, FIGURES) if rows else None,
        errors=[
            line for group in (BELOW, PAST) for line in judged(f"{title}, {group}", groups[group], FIGURES)
        ],
    )


def _figures(row: Row) -> dict[str, float]:
    return kept([*row.overrides, HASHED], lambda: simulate(row.overrides))


def _errors(members: Sequence[Comparison[Row]]) -> dict[str, list[float]]:
    """Return the errors of the runs that are judged by a figure, by figure."""
    found = {key.name: [one.error[key.name] for one in compare.counted(members, key)] for key in FIGURES}
    return {key: errors for key, errors in found.items() if errors}


def _line(group: str, members: Sequence[Comparison[Row]]) -> str:
    cells = (
        f"{100 * np.median(np.abs(errors)):.1f} %, {100 * np.median(errors):+.1f} %, {100 * np.abs(errors).max():.0f} %"
        for errors in _errors(members).values()
    )
    return f"{f'{group}, {len(members)} runs':<44}" + "".join(f" {cell:>26}" for cell in cells)


class Single(Run):
    """One request; its model is called as we call it."""

    figures: ClassVar[Sequence[Figure]] = TIMES
    load: ClassVar[str] = "below"

    @property
    def series(self) -> str:
        """Its model and rank."""
        return f"{self.inputs['model']}, rank {self.inputs['rank']:g}"

    @property
    def fitted(self) -> bool:
        """Whether the calibration was fitted to its length of prompt."""
        return int(self.inputs["prompt_tokens"]) % EVERY != 0


def singles(path: Path) -> list[Single]:
    """Read all single requests. Raises InputError, naming file, line and column, for what is not in the schema."""
    return runs(Single, "loraserve", path, {"model": SHAPES})


def single_times(row: Single) -> dict[str, float]:
    """Return the times of a run of one request, in seconds."""
    requests = Simulation(scenario(row.overrides)).run().requests()
    return {figure.column: float(requests[figure.column].iloc[0]) for figure in TIMES}


def report_singles(path: Path, jobs: int = -1) -> Section:
    """Return what is said of the single requests. Raises InputError for bad input."""
    rows = compared(singles(path), _kept_times, jobs, lambda row: row.fitted)
    groups: dict[str, list[Comparison[Single]]] = {}
    for fitted, label in ((False, "predicted"), (True, "fitted")):
        own = [one for one in rows if one.fitted is fitted]
        by_series = grouped(own, lambda one: one.row.series)
        groups |= {label: own} | {f"{label} {series}": members for series, members in by_series.items()}
    medians = {name: _medians(members) for name, members in groups.items() if members}
    sides = [
        {
            **one.row.inputs,
            **one.row.measured,
            "simulated": dict(one.simulated),
            "error": one.error,
            "fitted": one.fitted,
        }
        for one in rows
    ]
    return compare.section(
        path,
        [*SINGLE, *(compare.line(name, found, TIMES, 42, 4) for name, found in medians.items())],
        sides,
        medians,
        parts={"worst": _worst(rows)},
        plot=compare.plot("loraserve", "LoRAServe's single requests, eight A100 40 GB", rows, TIMES),
        errors=judged("LoRAServe's single requests", rows, TIMES),
    )


def _kept_times(row: Single) -> dict[str, float]:
    return kept([*row.overrides, HASHED], lambda: single_times(row))


def _worst(rows: Sequence[Comparison[Single]]) -> str:
    """Say which predicted first token is furthest off."""
    held = [one for one in rows if not one.fitted]
    if not held:
        return "not there"
    one = max(held, key=lambda one: abs(one.error["ttft_s"]))
    theirs_ms, ours_ms = 1e3 * one.row.measured["ttft_s"], 1e3 * one.simulated["ttft_s"]
    what = f"{one.row.series}, {one.row.inputs['prompt_tokens']:g} tokens"
    return f"the first token of {what}: {theirs_ms:.0f} ms measured, {ours_ms:.0f} simulated"


def _medians(members: Sequence[Comparison[Single]]) -> dict[str, Any]:
    found: dict[str, Any] = {"rows": len(members)}
    for name in (figure.column for figure in TIMES):
        off_s = spread([one.off[name] for one in members])
        found[name] = {**spread([one.error[name] for one in members]), "median_ms": 1e3 * off_s["median"]}
    return found
