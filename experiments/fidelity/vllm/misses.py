"""What a load and a listed adapter cost, by the measured hours: `python -m experiments.fidelity.vllm.misses`.

Of hours whose adapters take turns in slots of which some are idle (hours.takes_turns): what a step takes beyond what
hours.py says of the base model and of LoRA's kernels, over loads and over listed adapters. Both are found together, by
non-negative least squares, and the lists once more with the load that was measured. The hours of the plan fitted the
calibrations; the others did not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import inf

import numpy as np
from joblib import Parallel, delayed
from scipy.optimize import nnls

from experiments.fidelity.vllm import hours
from experiments.fidelity.vllm.predict import MODELS, Row, read
from experiments.studies.command import JOBS, program
from experiments.studies.reading import measured_dir
from simlora.core.arrays import Floats
from simlora.latency import calibration as calibrations

NO_LOADS: Mapping[str, float] = {
    "adapter_load.latency_s": 0.0,
    "adapter_load.disk_latency_s": 0.0,
    "adapter_load.bytes_per_s": inf,
}
UNIT = {**NO_LOADS, "adapter_load.latency_s": 1.0}


def terms(row: Row) -> tuple[float, float, float, float]:
    """Return of an hour: loads a second, lists a second, what loads are known to take, and what a step leaves.

    The last two are shares of the hour, the last one without loads and lists.
    """
    known = calibrations.load(row.calibration)
    bare = replace(known, coefficients={**known.coefficients, hours.LISTS: 0.0, **NO_LOADS})
    lists = hours.added_s(hours.drawn(row), row, hours.LISTS) / hours.token_s(row)
    loads = hours.loading(row, known.coefficients)
    return hours.loading(row, UNIT), lists, loads, -float(hours.errors([row], bare)[0])


def both_s(loads: Floats, lists: Floats, left: Floats) -> tuple[float, float]:
    """Return the seconds of a load and of a listed adapter that leave the least of `left` [rows]."""
    scale = np.array([loads.max(), lists.max()])
    found, _ = nnls(np.column_stack([loads, lists]) / scale, left)
    load_s, list_s = (found / scale).tolist()
    return load_s, list_s


def alone_s(of: Floats, left: Floats) -> tuple[float, float]:
    """Return the slope of the line through the origin, and the root mean square of what it leaves of `left` [rows]."""
    each = float(of @ left / (of @ of))
    return each, float(np.sqrt(np.mean((left - each * of) ** 2)))


def chosen(rows: Sequence[Row], jobs: int) -> list[Row]:
    """Return the hours whose adapters take turns."""
    turns = Parallel(n_jobs=jobs)(delayed(hours.takes_turns)(row) for row in rows)
    return [row for row, own in zip(rows, turns, strict=True) if own]


@program(JOBS)
def main(jobs: int) -> None:
    """Print the time of a load and of a listed adapter by model, and what they leave."""
    rows = chosen(read(measured_dir() / "vllm_lora_runs.csv"), jobs)
    found = np.array(Parallel(n_jobs=jobs)(delayed(terms)(row) for row in rows))
    for model in MODELS.values():
        loads, lists, known, left = found[[row.model == model for row in rows]].T
        load_s, list_s = both_s(loads, lists, left)
        each_s, rest = alone_s(lists, left - known)
        alone, without = alone_s(loads, left)
        print(
            f"{model}: {len(left)} hours. Together: a load {1000 * load_s:.1f} ms, a listed adapter "
            f"{1e6 * list_s:.3f} µs. With the load as measured: {1e6 * each_s:.3f} µs, rest {100 * rest:.1f} % of a "
            f"step. Loads alone: {1000 * alone:.1f} ms, rest {100 * without:.1f} %"
        )
