"""Hours that ran in less KV memory than their row says: `python -m experiments.fidelity.vllm.pools [LINE …]`.

The rows' `kv_tokens` are the pools that a server of their configuration reported once, not those of each hour's own
server. vLLM (V1, Worker.determine_available_memory) takes from its share of the GPU all that is in use on the device
when it starts, by any process, and gives the rest to KV. So a server that starts beside something else has a smaller
pool, and keeps it. A full pool holds 364 to 371 tokens per running request, whatever its size, and tokens per second
times inter-token latency is the number of running requests: the memory that was missing follows from the row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from experiments.fidelity.compare import Comparison
from experiments.fidelity.vllm.predict import FIGURES, Row, overrides, read
from experiments.fidelity.vllm.report import figures, fitted
from experiments.scenarios import scenario
from experiments.studies.command import option, program
from experiments.studies.reading import measured_dir
from simlora.core.errors import InputError

TOKENS_EACH = 368
"""Tokens of KV that a running request holds: the median of hours whose pool was full, 364 to 371."""
LINES = (90, 123, 429, 430, 431)
"""Hours past saturation that hold 37 to 71 % of what their pool would."""


@dataclass(frozen=True)
class Pool:
    """What an hour's own figures say of its memory: `missing_bytes` of the pool of its row, and what KV is left."""

    row: Row
    running: float
    missing_bytes: float
    kv_tokens: int

    @property
    def smaller(self) -> Row:
        """The same hour in the memory that its figures leave; its requests stay the same."""
        return replace(self.row, kv_tokens=self.kv_tokens)


def pool(row: Row) -> Pool:
    """Return the pool that a row's figures imply. Raises InputError for a row without a pool of its own."""
    if row.kv_tokens is None:
        raise InputError(f"{row.place} has no kv_tokens, which its figures could be compared with")
    measured = row.measured
    running = measured["output_tokens_per_s"] * measured["itl_mean_ms"] / 1000
    held = round(running * TOKENS_EACH)
    token_bytes = scenario(overrides(row)).model.kv_bytes_per_token
    return Pool(row, running, (row.kv_tokens - held) * float(token_bytes), held)


def line(found: Pool) -> str:
    """Say what was missing, and how far off the hour is with the pool of its row and with that of its figures."""
    row = found.row
    errors = [Comparison(each, figures(each), fitted(row)).error for each in (row, found.smaller)]
    labels = {figure.name: figure.label.removeprefix("output ") for figure in FIGURES}
    given, own = (
        ", ".join(f"{label} {100 * error[name]:+.1f} %" for name, label in labels.items()) for error in errors
    )
    return (
        f"line {row.line}: {found.running:.0f} run, {found.missing_bytes / 1e9:.1f} GB of {row.kv_tokens:,} tokens "
        f"missing: {given}; with {found.kv_tokens:,} tokens {own}"
    )


@program(option("lines", nargs="*", type=int, metavar="LINE", default=LINES, help="lines of the file"))
def main(lines: Sequence[int]) -> None:
    """Print a line for each of the rows."""
    rows = {row.line: row for row in read(measured_dir() / "vllm_lora_runs.csv")}
    for number in lines:
        if number not in rows:
            raise InputError(f"vllm_lora_runs.csv has no line {number}")
        print(line(pool(rows[number])), flush=True)
