"""What is said of vllm_v0_runs.csv: vLLM 0.5 (V0 engine) with LoRA on an H100, which nothing was fitted to.

The calibration is composed of NVIDIA's kernels, of the host's share that vLLM published of 0.5.3, and of BGMV as
S-LoRA's server on an A100 has it.
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

FILE = "vllm_v0_runs.csv"
MARK = "gpu_blocks"
"""A column that only this file has."""
PROMPT_TOKENS, OUTPUT_TOKENS, BLOCK = 250, 231, 16
NUMBERS = ("max_loras", "max_lora_rank", "max_num_seqs", "successful", "duration_s", MARK)
FIGURES = {"output_tokens_per_s": "tokens/s", "itl_s": "inter-token latency", "ttft_s": "median first token"}
QUEUED_S = 1.0
"""A run whose median first token takes longer has a queue: it is past saturation."""
HASHED = hashed(__file__)


@dataclass(frozen=True)
class Row:
    """One run: its group, its inputs and what was measured; `rate_rps` is of each of the `adapters`."""

    group: str
    inputs: Mapping[str, float]
    measured: Mapping[str, float]

    @property
    def past(self) -> bool:
        """Whether it is past saturation, where first tokens say how long was measured and nothing else."""
        return self.measured["ttft_s"] > QUEUED_S

    @property
    def overrides(self) -> list[str]:
        """The row as arguments of simlora's command line."""
        own = {
            name: int(value) for name, value in self.inputs.items() if name not in ("duration_s", "rate_rps")
        }
        rank, blocks, duration_s = own["max_lora_rank"], own[MARK], self.inputs["duration_s"]
        return [
            *("system=vllm", "engine=vllm_v0", "scheduler=prefill_first", "kernel=bgmv"),
            *("gpu=h100_64g", "model=llama_2_7b", f"replica.kv_token_budget={blocks * BLOCK}"),
            *(f"replica.max_loras={own['max_loras']}", f"replica.max_lora_rank={rank}"),
            *(f"replica.max_num_seqs={own['max_num_seqs']}", f"replica.max_cpu_loras={own['adapters']}"),
            *(
                "workload=synthetic",
                f"workload.duration_s={duration_s}",
                f"workload.adapters={own['adapters']}",
            ),
            *("workload/arrivals=poisson", "workload/popularity=uniform", f"workload.ranks=[{rank}]"),
            f"workload.arrivals.rate_rps={own['adapters'] * self.inputs['rate_rps']}",
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
            "group": self.row.group,
            **self.row.inputs,
            "past_saturation": self.row.past,
            "measured": dict(self.row.measured),
            "simulated": dict(self.simulated),
            "error": self.error,
        }


def read(path: Path) -> list[Row]:
    """Read all rows. Raises InputError, naming file, line and column, for what is not in the schema."""
    columns = (
        *NUMBERS,
        "group",
        "max_cpu_loras",
        "adapter_rates",
        "rate_by_lora",
        "out_tps",
        "itl_mean",
        "ttft_med",
    )
    return [_row(cells, place) for place, cells in read_cells(path, columns)]


def _row(cells: Cells, place: str) -> Row:
    inputs = {name: number(cells, name, place) for name in NUMBERS}
    # Every adapter is in host memory; without a number of its own there are as many as slots.
    inputs["adapters"] = number(cells, "max_cpu_loras" if cells["max_cpu_loras"] else "max_loras", place)
    inputs["rate_rps"] = number(cells, "adapter_rates" if cells["adapter_rates"] else "rate_by_lora", place)
    measured = {
        "output_tokens_per_s": number(cells, "out_tps", place),
        "itl_s": number(cells, "itl_mean", place) / 1e3,
        "ttft_s": number(cells, "ttft_med", place) / 1e3,
    }
    for name, value in (inputs | measured).items():
        if value <= 0:
            raise InputError(f"{place} has {name} = {value:g}, must be above 0")
    return Row(cells["group"], inputs, measured)


def simulate(row: Row) -> dict[str, float]:
    """Return the figures of a run: over requests that end within it."""
    requests = Simulation(scenario(row.overrides)).run().requests()
    done = requests[requests["status"] == "finished"]
    each_s = (done["latency_s"] - done["ttft_s"]) / (done["output_tokens"] - 1)
    return {
        "output_tokens_per_s": float(done["output_tokens"].sum() / row.inputs["duration_s"]),
        "itl_s": float(each_s.mean()),
        "ttft_s": float(done["ttft_s"].median()),
    }


def report(path: Path, jobs: int = -1) -> Section:
    """Return what is said of the file. Raises InputError for bad input."""
    rows = read(path)
    compared = [Comparison(*pair) for pair in zip(rows, in_parallel(_figures, rows, jobs), strict=True)]
    groups = {
        "all": compared,
        "below saturation": [one for one in compared if not one.row.past],
        "past it": [one for one in compared if one.row.past],
    }
    lines = [
        f"{'vLLM 0.5 on an H100: median, bias, worst':<42}"
        + "".join(f" {label:>30}" for label in FIGURES.values())
    ]
    lines += [_line(name, members) for name, members in groups.items() if members]
    printed = "\n".join(lines)
    return Section(
        printed=printed,
        tree={
            "runs": str(path),
            "rows": [one.as_dict() for one in compared],
            "medians": {
                name: {key: float(np.median(np.abs(errors))) for key, errors in _errors(members).items()}
                for name, members in groups.items()
            },
        },
        parts={"table": fenced(printed)},
        plots=[Plot("vllm_v0", "vLLM 0.5 with LoRA on an H100", _panels(compared))] if compared else [],
        errors=[
            line
            for name, members in groups.items()
            for key, errors in _errors(members).items()
            for line in errors_of(f"vLLM 0.5 on an H100, {name}: {FIGURES[key]}", errors)
        ],
    )


def _figures(row: Row) -> dict[str, float]:
    return kept([*row.overrides, HASHED], lambda: simulate(row))


def _errors(members: Sequence[Comparison]) -> dict[str, list[float]]:
    """Return the errors of the runs that are judged by a figure, by figure."""
    found = {key: [one.error[key] for one in members if key in one.error] for key in FIGURES}
    return {key: errors for key, errors in found.items() if errors}


def _panels(compared: Sequence[Comparison]) -> list[Panel]:
    units = {"output_tokens_per_s": "tokens/s", "itl_s": "s", "ttft_s": "s"}
    panels = []
    for key, label in FIGURES.items():
        judged = [one for one in compared if key in one.error]
        kinds = ["past saturation" if one.row.past else "below" for one in judged]
        pairs = [(one.row.measured[key], one.simulated[key]) for one in judged]
        dots = [Dot(*pair, kind, False) for pair, kind in zip(pairs, kinds, strict=True)]
        panels.append(Panel(label.capitalize(), units[key], dots))
    return panels


def _line(name: str, members: Sequence[Comparison]) -> str:
    cells = (
        f"{100 * np.median(np.abs(errors)):.1f} %, {100 * np.median(errors):+.1f} %, {100 * np.abs(errors).max():.0f} %"
        for errors in map(np.array, _errors(members).values())
    )
    return f"{f'{name}, {len(members)} runs':<42}" + "".join(f" {cell:>30}" for cell in cells)
