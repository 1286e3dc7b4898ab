"""What is said of loraserve_single_request.csv: one request at a time on S-LoRA, eight A100 40 GB.

Each row is a run of one request. The calibration was fitted to two lengths of prompt of three; the others judge.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

from experiments.fidelity.cells import Run, hashed, kept, runs
from experiments.fidelity.compare import (
    Comparison,
    Figure,
    Section,
    cells,
    compared,
    fenced,
    figures_of,
    grouped,
    judged,
    plot,
    spread,
)
from experiments.loraserve.fitting import EVERY, SHAPES
from experiments.scenarios import scenario
from simlora.engine.cluster.simulation import Simulation

FIGURES = figures_of("loraserve")
TIMES = tuple(figure.column for figure in FIGURES)
HASHED = hashed(__file__)
HEAD = f"{'single requests of LoRAServe':<42} {'rows':>4} {'first token':>24} {'latency':>24}"
UNITS = f"{'':<42} {'':>4}" + f" {'median worst %, med. ms':>24}" * 2


class Row(Run):
    """One request; its model is called as we call it."""

    figures: ClassVar[Sequence[Figure]] = FIGURES
    load: ClassVar[str] = "below"

    @property
    def series(self) -> str:
        """Its model and rank."""
        return f"{self.inputs['model']}, rank {self.inputs['rank']:g}"

    @property
    def fitted(self) -> bool:
        """Whether the calibration was fitted to its length of prompt."""
        return int(self.inputs["prompt_tokens"]) % EVERY != 0


def read(path: Path) -> list[Row]:
    """Read all rows. Raises InputError, naming file, line and column, for what is not in the schema."""
    return runs(Row, "loraserve", path, {"model": SHAPES})


def figures(row: Row) -> dict[str, float]:
    """Return both times in seconds, simulated again only after what they depend on has changed."""
    return kept([*row.overrides, HASHED], lambda: simulate(row))


def simulate(row: Row) -> dict[str, float]:
    """Return the times of a run of one request."""
    requests = Simulation(scenario(row.overrides)).run().requests()
    return {name: float(requests[name].iloc[0]) for name in TIMES}


def report(path: Path, jobs: int = -1) -> Section:
    """Return what is said of the file. Raises InputError for bad input."""
    rows = compared(read(path), figures, jobs, lambda row: row.fitted)
    groups = _groups(rows)
    printed = "\n".join([HEAD, UNITS, *(_line(name, members) for name, members in groups.items())])
    return Section(
        printed=printed,
        tree={
            "runs": str(path),
            "rows": [_as_dict(one) for one in rows],
            "medians": {name: _medians(members) for name, members in groups.items()},
        },
        parts={"table": fenced(printed), "worst": _worst(rows)},
        plot=plot("loraserve", "LoRAServe's single requests, eight A100 40 GB", rows, FIGURES),
        errors=judged("LoRAServe's single requests", rows, FIGURES),
    )


def _as_dict(one: Comparison[Row]) -> dict[str, Any]:
    sides = {"simulated": dict(one.simulated), "error": one.error, "fitted": one.fitted}
    return {**one.row.inputs, **one.row.measured, **sides}


def _worst(rows: Sequence[Comparison[Row]]) -> str:
    """Say which predicted first token is furthest off."""
    held = [one for one in rows if not one.fitted]
    if not held:
        return "not there"
    one = max(held, key=lambda one: abs(one.error["ttft_s"]))
    theirs_ms, ours_ms = 1e3 * one.row.measured["ttft_s"], 1e3 * one.simulated["ttft_s"]
    what = f"{one.row.series}, {one.row.inputs['prompt_tokens']:g} tokens"
    return f"the first token of {what}: {theirs_ms:.0f} ms measured, {ours_ms:.0f} simulated"


def _groups(rows: Sequence[Comparison[Row]]) -> dict[str, list[Comparison[Row]]]:
    """Return predicted rows and fitted ones, each also by model and rank."""
    found: dict[str, list[Comparison[Row]]] = {}
    for fitted, label in ((False, "predicted"), (True, "fitted")):
        own = [one for one in rows if one.fitted is fitted]
        found |= {label: own} | grouped(own, lambda one: f"{label} {one.row.series}")  # noqa: B023
    return {name: members for name, members in found.items() if members}


def _medians(members: Sequence[Comparison[Row]]) -> dict[str, Any]:
    found: dict[str, Any] = {"rows": len(members)}
    for name in TIMES:
        off_s = spread([one.off[name] for one in members])
        found[name] = {**spread([one.error[name] for one in members]), "median_ms": 1e3 * off_s["median"]}
    return found


def _line(name: str, members: Sequence[Comparison[Row]]) -> str:
    label = name if " " not in name else f"  {name.partition(' ')[2]}"
    return f"{label:<42} {len(members):>4} {cells(_medians(members), FIGURES)}"
