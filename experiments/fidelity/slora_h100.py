"""What is said of slora_h100_runs.csv: S-LoRA on an H100, which none of its coefficients was fitted to.

The calibration is composed of NVIDIA's kernels and of what S-LoRA's engine adds, learned on an A10G and two A100s.
"""

from __future__ import annotations

from pathlib import Path

from experiments.fidelity import saturating
from experiments.fidelity.cells import Cells, number, read_cells
from experiments.fidelity.saturating import Row
from experiments.fidelity.section import Section

FILE = "slora_h100_runs.csv"
MARK = "avg_unique"
"""A column that only this file has."""
RANK, PROMPT_TOKENS, POOL_TOKENS = 32, 250, 82_528
OUTPUT_TOKENS = 230
"""Of every answer. Past saturation, the runs count 198 to 224 tokens for a request that they call completed."""
INPUTS = ("adapters", "rate_per_adapter", "duration")


def read(path: Path) -> list[Row]:
    """Read all rows. Raises InputError, naming file, line and column, for what is not in the schema."""
    columns = (*INPUTS, "request_throughput", "mean_itl_ms", "median_ttft_ms", MARK)
    return [_row(cells, place) for place, cells in read_cells(path, columns)]


def _row(cells: Cells, place: str) -> Row:
    inputs = {name: number(cells, name, place) for name in INPUTS}
    rate = number(cells, "request_throughput", place) * OUTPUT_TOKENS
    measured = saturating.measured(cells, place, rate, "mean_itl_ms", "median_ttft_ms")
    saturating.check(inputs | measured, place)
    overrides = [
        *("system=slora", "gpu=h100_64g", "model=llama_2_7b", f"replica.kv_token_budget={POOL_TOKENS}"),
        *saturating.fixed_lengths(
            int(inputs["adapters"]),
            RANK,
            inputs["rate_per_adapter"],
            PROMPT_TOKENS,
            OUTPUT_TOKENS,
            inputs["duration"],
        ),
    ]
    return Row(inputs, measured, overrides)


def report(path: Path, jobs: int = -1) -> Section:
    """Return what is said of the file. Raises InputError for bad input."""
    return saturating.report(path, read(path), "slora_h100", "S-LoRA on an H100", jobs)
