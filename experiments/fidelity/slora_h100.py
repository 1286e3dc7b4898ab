"""What is said of slora_h100_runs.csv: S-LoRA on an H100, which none of its coefficients was fitted to.

The calibration is composed of NVIDIA's kernels and of what S-LoRA's engine adds, learned on an A10G and two A100s.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from experiments.fidelity.cells import Cells, number, read_cells
from experiments.fidelity.keeping import hashed, kept
from experiments.fidelity.running import in_parallel
from experiments.fidelity.scatter import Dot, Panel, Plot
from experiments.fidelity.section import Section, errors_of, fenced
from experiments.scenarios import scenario
from simlora.core.errors import InputError
from simlora.engine.cluster.simulation import Simulation

FILE = "slora_h100_runs.csv"
MARK = "avg_unique"
"""A column that only this file has."""
RANK, PROMPT_TOKENS, POOL_TOKENS = 32, 250, 82_528
OUTPUT_TOKENS = 230
"""Of every answer. Past saturation, the runs count 198 to 224 tokens for a request that they call completed."""
INPUTS = ("adapters", "rate_per_adapter", "duration")
FIGURES = {"throughput_rps": "throughput", "itl_s": "inter-token latency", "ttft_s": "median first token"}
QUEUED_S = 1.0
"""A run whose median first token takes longer has a queue: it is past saturation."""
HASHED = hashed(__file__)


@dataclass(frozen=True)
class Row:
    """One run: its inputs and what was measured."""

    inputs: Mapping[str, float]
    measured: Mapping[str, float]

    @property
    def past(self) -> bool:
        """Whether it is past saturation, where first tokens say how long was measured and nothing else."""
        return self.measured["ttft_s"] > QUEUED_S

    @property
    def name(self) -> str:
        """Its adapters and their rate."""
        return f"{self.inputs['adapters']:.0f} adapters × {self.inputs['rate_per_adapter']:g}/s"

    @property
    def overrides(self) -> list[str]:
        """The row as arguments of simlora's command line."""
        adapters, duration_s = int(self.inputs["adapters"]), self.inputs["duration"]
        return [
            *("system=slora", "gpu=h100_64g", "model=llama_2_7b", f"replica.kv_token_budget={POOL_TOKENS}"),
            *("workload=synthetic", f"workload.duration_s={duration_s}", f"workload.adapters={adapters}"),
            *("workload/arrivals=poisson", "workload/popularity=uniform"),
            f"workload.arrivals.rate_rps={adapters * self.inputs['rate_per_adapter']}",
            f"workload.ranks=[{RANK}]",
            *("workload/prompt_tokens=fixed", f"workload.prompt_tokens.tokens={PROMPT_TOKENS}"),
            *("workload/output_tokens=fixed", f"workload.output_tokens.tokens={OUTPUT_TOKENS}"),
            *(f"until_s={duration_s}", "timeline=false"),
        ]


@dataclass(frozen=True)
class Comparison:
    """One run as measured and as simulated."""

    row: Row
    simulated: Mapping[str, float]

    @property
    def error(self) -> dict[str, float]:
        """Relative errors of the figures that the run is judged by."""
        judged = [name for name in FIGURES if name != "ttft_s" or not self.row.past]
        return {name: self.simulated[name] / self.row.measured[name] - 1.0 for name in judged}

    def as_dict(self) -> dict[str, Any]:
        """What the JSON holds for this row."""
        return {
            **self.row.inputs,
            "past_saturation": self.row.past,
            "measured": dict(self.row.measured),
            "simulated": dict(self.simulated),
            "error": self.error,
        }


def read(path: Path) -> list[Row]:
    """Read all rows. Raises InputError, naming file, line and column, for what is not in the schema."""
    columns = (*INPUTS, "request_throughput", "mean_itl_ms", "median_ttft_ms", MARK)
    return [_row(cells, place) for place, cells in read_cells(path, columns)]


def _row(cells: Cells, place: str) -> Row:
    inputs = {name: number(cells, name, place) for name in INPUTS}
    measured = {
        "throughput_rps": number(cells, "request_throughput", place),
        "itl_s": number(cells, "mean_itl_ms", place) / 1e3,
        "ttft_s": number(cells, "median_ttft_ms", place) / 1e3,
    }
    for name, value in (inputs | measured).items():
        if value <= 0:
            raise InputError(f"{place} has {name} = {value:g}, must be above 0")
    return Row(inputs, measured)


def simulate(row: Row) -> dict[str, float]:
    """Return the figures of a run: over requests that end within it."""
    requests = Simulation(scenario(row.overrides)).run().requests()
    done = requests[requests["status"] == "finished"]
    each_s = (done["latency_s"] - done["ttft_s"]) / (done["output_tokens"] - 1)
    return {
        "throughput_rps": len(done) / row.inputs["duration"],
        "itl_s": float(each_s.mean()),
        "ttft_s": float(done["ttft_s"].median()),
    }


def report(path: Path, jobs: int = -1) -> Section:
    """Return what is said of the file. Raises InputError for bad input."""
    rows = read(path)
    found = in_parallel(_figures, rows, jobs)
    compared = [Comparison(*pair) for pair in zip(rows, found, strict=True)]
    groups = {
        "below saturation": [one for one in compared if not one.row.past],
        "past it": [one for one in compared if one.row.past],
    }
    lines = [_head(), *(_line(one) for one in compared)]
    lines += [_medians_line(name, members) for name, members in groups.items() if members]
    printed = "\n".join(lines)
    return Section(
        printed=printed,
        tree={
            "runs": str(path),
            "rows": [one.as_dict() for one in compared],
            "medians": {name: _medians(members) for name, members in groups.items()},
        },
        parts={"table": fenced(printed)},
        plots=[Plot("slora_h100", "S-LoRA on an H100", _panels(compared))] if compared else [],
        errors=[
            line
            for name, members in groups.items()
            for key, label in FIGURES.items()
            for line in errors_of(
                f"S-LoRA on an H100, {name}: {label}",
                [one.error[key] for one in members if key in one.error],
            )
        ],
    )


def _figures(row: Row) -> dict[str, float]:
    return kept([*row.overrides, HASHED], lambda: simulate(row))


def _panels(compared: Sequence[Comparison]) -> list[Panel]:
    units = {"throughput_rps": "requests/s", "itl_s": "s", "ttft_s": "s"}
    return [
        Panel(
            label.capitalize(),
            units[key],
            [
                Dot(
                    one.row.measured[key],
                    one.simulated[key],
                    "past saturation" if one.row.past else "below",
                    False,
                )
                for one in compared
                if key in one.error
            ],
        )
        for key, label in FIGURES.items()
    ]


def _medians(members: Sequence[Comparison]) -> dict[str, float]:
    return {
        key: float(np.median([abs(one.error[key]) for one in members]))
        for key in FIGURES
        if members and key in members[0].error
    }


def _head() -> str:
    return f"{'S-LoRA on an H100: measured, error':<32}" + "".join(
        f" {label:>24}" for label in FIGURES.values()
    )


def _line(one: Comparison) -> str:
    scales = {"throughput_rps": (1, "/s"), "itl_s": (1e3, " ms"), "ttft_s": (1e3, " ms")}
    cells = (
        f"{one.row.measured[key] * scale:.1f}{unit}, {100 * one.error[key]:+.1f} %"
        if key in one.error
        else "past saturation"
        for key, (scale, unit) in scales.items()
    )
    return f"{one.row.name:<32}" + "".join(f" {cell:>24}" for cell in cells)


def _medians_line(name: str, members: Sequence[Comparison]) -> str:
    medians = _medians(members)
    cells = (f"{100 * medians[key]:.1f} %" if key in medians else "" for key in FIGURES)
    return f"{f'median, {name}, {len(members)} runs':<32}" + "".join(f" {cell:>24}" for cell in cells)
