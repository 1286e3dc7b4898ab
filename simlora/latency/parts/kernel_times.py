"""The base model's kernels: what they take on a GPU, by tokens of a pass and by batch of a decode step."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from io import StringIO
from pathlib import Path

TABLE = Path(__file__).with_name("kernel_times.csv")
TOKENS = (16, 64, 128, 256, 512, 768, 1024, 1536, 2048, 4096, 8192)
BATCHES = (1, 4, 8, 16, 32, 48, 64, 96, 128, 192, 256, 384, 512)
SAME_SHAPE = {"llama_7b": "llama_2_7b", "llama_13b": "llama_2_13b"}
"""Models by one that has the same shape, and therefore the same kernels."""
APART = "+ep"
"""Ends the engine's name where each expert of a mixture is whole on one of the GPUs (expert parallelism)."""
KEY = ("gpu", "model", "tp", "engine")
COLUMNS = (
    *KEY,
    "source",
    *(f"pass_us_{tokens}" for tokens in TOKENS),
    *(f"step_us_{batch}" for batch in BATCHES),
    *(f"context_token_ns_{batch}" for batch in BATCHES),
)


@dataclass(frozen=True)
class KernelTimes:
    """One model on `tp` GPUs of a kind, with one engine's kernels, in bf16; collectives are included.

    `pass_s` is a prefill by its tokens, as one prompt; `step_s` a decode step by its batch, with empty contexts;
    `context_token_s` what a token of context adds, by batch. `source` says where they are from.
    """

    gpu: str
    model: str
    tp: int
    engine: str
    source: str
    pass_s: Mapping[int, float]
    step_s: Mapping[int, float]
    context_token_s: Mapping[int, float]

    @property
    def key(self) -> tuple[str, str, int, str]:
        """What the kernels are of."""
        return self.gpu, self.model, self.tp, self.engine


@cache
def shipped() -> dict[tuple[str, str, int, str], KernelTimes]:
    """Return the kernels that come with simlora, by GPU, model, tp and engine; reading them takes 20 ms."""
    rows = csv.DictReader(StringIO(TABLE.read_text(encoding="utf-8")))
    found = [
        KernelTimes(
            gpu=row["gpu"],
            model=row["model"],
            tp=int(row["tp"]),
            engine=row["engine"],
            source=row["source"],
            pass_s={tokens: float(row[f"pass_us_{tokens}"]) / 1e6 for tokens in TOKENS},
            step_s={batch: float(row[f"step_us_{batch}"]) / 1e6 for batch in BATCHES},
            context_token_s={batch: float(row[f"context_token_ns_{batch}"]) / 1e9 for batch in BATCHES},
        )
        for row in rows
    ]
    return {times.key: times for times in found}


def written(rows: Iterable[KernelTimes]) -> str:
    """Return the table as CSV, in the order given: microseconds to four digits, context tokens in nanoseconds."""
    text = StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(COLUMNS)
    for row in rows:
        seconds = [row.pass_s[tokens] * 1e6 for tokens in TOKENS]
        seconds += [row.step_s[batch] * 1e6 for batch in BATCHES]
        seconds += [row.context_token_s[batch] * 1e9 for batch in BATCHES]
        table.writerow([*row.key, row.source, *(f"{value:.5g}" for value in seconds)])
    return text.getvalue()
