"""What a miss costs by the figures of the measured hours themselves: `python -m experiments.fidelity.vllm.misses`.

Of hours below saturation that have more adapters than slots, and fewer in use: what a step takes beyond what hours.py
says of its content, over the loads of the same hour as simulated. The line through the origin is the time of a miss.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from joblib import Parallel, delayed

from experiments.fidelity.vllm import hours
from experiments.fidelity.vllm.predict import MODELS, Row, overrides, read
from experiments.scenarios import scenario
from experiments.studies.command import JOBS, program
from experiments.studies.reading import measured_dir
from simlora.core.arrays import Floats
from simlora.engine.cluster.simulation import Simulation
from simlora.latency import calibration as calibrations

SLOTS = 32
"""From so many on: with fewer, all are in use now and then."""
IN_USE = 0.75
"""Share of the slots that 99 % of the steps use at most: no load evicts an adapter in use."""


def chosen(rows: Sequence[Row]) -> list[Row]:
    """Return the hours below saturation whose adapters take turns in slots of which some are idle."""
    return [
        row
        for row in rows
        if row.load == "below"
        and SLOTS <= row.counts["max_loras"] < row.counts["adapters"]
        and np.quantile([step.adapters for step in hours.drawn(row)], 0.99) < IN_USE * row.counts["max_loras"]
    ]


def misses_per_s(row: Row) -> float:
    """Return how many adapters an hour loads a second, as simulated."""
    recorder = Simulation(scenario(overrides(row))).run()
    return (recorder.adapter_loads - recorder.reloads) / row.duration_s


def excess(row: Row) -> float:
    """Return the share of a measured step that its content does not explain."""
    return -float(hours.errors([row], calibrations.load(row.calibration))[0])


def miss_s(shares: Floats, per_s: Floats) -> tuple[float, float]:
    """Return the seconds of a miss, and the root mean square of what they leave of the shares [rows]."""
    seconds = float(shares @ per_s / (per_s @ per_s))
    return seconds, float(np.sqrt(np.mean((shares - seconds * per_s) ** 2)))


@program(JOBS)
def main(jobs: int) -> None:
    """Print the time of a miss by model, and what it leaves."""
    rows = chosen(read(measured_dir() / "vllm_lora_runs.csv"))
    shares = np.array([excess(row) for row in rows])
    per_s = np.array(Parallel(n_jobs=jobs)(delayed(misses_per_s)(row) for row in rows))
    for model in MODELS.values():
        own = np.array([row.model == model for row in rows])
        seconds, rest = miss_s(shares[own], per_s[own])
        print(
            f"{model}: {own.sum()} hours, a miss takes {1000 * seconds:.1f} ms; rest {100 * rest:.1f} % of a step"
        )
