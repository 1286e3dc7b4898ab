"""The Azure LLM inference trace of 2023, as published."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from simlora.core.checks import number, whole
from simlora.core.errors import InputError
from simlora.core.random import stream
from simlora.core.trace import BASE_MODEL, Trace
from simlora.workload.adapters import ADAPTERS_MAX, adapter_specs, check_ranks
from simlora.workload.columns import refuse, tokens
from simlora.workload.file import in_order
from simlora.workload.popularity import Popularity
from simlora.workload.table import Table, check_names, read_table

COLUMNS = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")


@dataclass(frozen=True)
class AzureLlm:
    """Arrivals and lengths of the trace; adapters, which it does not have, drawn by `popularity`.

    `start_s` and `duration_s` cut a window out of the trace, in seconds after its first row; the run's clock
    starts with the window. `speedup` then divides every arrival: 2 is twice the rate and half the time, same
    lengths. Longer requests than `prompt_tokens_max` or `output_tokens_max` are dropped (LoRAServe: 1024, 256),
    and so are rows without a prompt or an answer; a notice says how many.
    Source: Azure/AzurePublicDataset, AzureLLMInferenceTrace_*.csv; Splitwise (ISCA'24).
    """

    path: str
    popularity: Popularity
    adapters: int = 100
    ranks: Sequence[int] = (8,)
    start_s: float = 0.0
    duration_s: float | None = None
    speedup: float = 1.0
    prompt_tokens_max: int | None = None
    output_tokens_max: int | None = None

    def __post_init__(self) -> None:
        whole("workload.adapters", self.adapters, "adapters", least=0, most=ADAPTERS_MAX)
        check_ranks(self.ranks)
        if self.adapters:
            self.popularity.check("workload.popularity", int(self.adapters))
        number("workload.start_s", self.start_s, "seconds", least=0)
        if self.duration_s is not None:
            number("workload.duration_s", self.duration_s, "seconds", above=0)
        number("workload.speedup", self.speedup, above=0)
        for key in ("prompt_tokens_max", "output_tokens_max"):
            if getattr(self, key) is not None:
                whole(f"workload.{key}", getattr(self, key), "tokens", least=1)

    def build(self, seed: int) -> Trace:
        """Return the trace; `seed` decides which adapter each request is for, and nothing else."""
        table = self._read()
        since_s = _since_first_s(table)
        prompts, outputs = tokens(table, "ContextTokens", least=0), tokens(table, "GeneratedTokens", least=0)
        order, notices = in_order(table, "TIMESTAMP", since_s)
        end_s = np.inf if self.duration_s is None else self.start_s + self.duration_s
        window = (since_s >= self.start_s) & (since_s < end_s)
        kept, dropped = self._filter(table.path, window, prompts, outputs)
        order = order[kept[order]]
        if not len(order):
            raise InputError(
                f"{table.path} has no requests left after workload.start_s, workload.duration_s and the token "
                f"limits; it covers {since_s.max():,.0f} seconds"
            )
        n, adapters = len(order), int(self.adapters)
        base = np.full(n, BASE_MODEL, dtype=np.int64)
        return Trace(
            arrival_s=(since_s[order] - self.start_s) / self.speedup,
            adapter=self.popularity.draw(stream(seed, "adapters"), adapters, n) if adapters else base,
            prompt_tokens=prompts[order],
            output_tokens=outputs[order],
            max_output_tokens=outputs[order],
            adapters=adapter_specs(adapters, check_ranks(self.ranks)),
            source=f"Azure LLM inference trace 2023, {table.path}",
            notices=(*notices, *dropped),
        )

    def _read(self) -> Table:
        if not self.path:
            raise InputError("workload.path is not set, must be the Azure LLM trace of 2023 as published")
        if not Path(self.path).expanduser().exists():
            raise InputError(
                f"{self.path} does not exist; get AzureLLMInferenceTrace_conv.csv from Azure/AzurePublicDataset on "
                "GitHub, save it under that name, and set SIMLORA_TRACE_DIR to its folder or workload.path to the file"
            )
        table = read_table(self.path)
        check_names(table, COLUMNS)
        return table

    def _filter(
        self,
        path: str,
        window: NDArray[np.bool_],
        prompts: NDArray[np.int64],
        outputs: NDArray[np.int64],
    ) -> tuple[NDArray[np.bool_], tuple[str, ...]]:
        """Return which rows stay [rows], and notices about those inside the window that do not."""
        nothing = (prompts == 0) | (outputs == 0)
        long = np.zeros_like(nothing)
        if self.prompt_tokens_max is not None:
            long |= prompts > self.prompt_tokens_max
        if self.output_tokens_max is not None:
            long |= outputs > self.output_tokens_max
        notices = []
        for dropped, why in (
            (window & nothing, "have no prompt or no output tokens"),
            (window & ~nothing & long, "exceed workload.prompt_tokens_max or workload.output_tokens_max"),
        ):
            if dropped.any():
                notices.append(f"{path}: {dropped.sum():,} of {window.sum():,} rows {why} and were dropped.")
        return window & ~nothing & ~long, tuple(notices)


def _since_first_s(table: Table) -> NDArray[np.float64]:
    """Return the seconds since the earliest row [rows], exact to the trace's 100 ns."""
    times = pd.to_datetime(pd.Series(table.columns["TIMESTAMP"]), format="ISO8601", errors="coerce", utc=True)
    must = "a time such as 2023-11-16 18:15:46.6805900"
    refuse(table, "TIMESTAMP", times.isna().to_numpy(dtype=bool), must)
    stamps = times.dt.tz_localize(None).to_numpy(dtype="datetime64[ns]").astype(np.int64)
    since_s: NDArray[np.float64] = (stamps - stamps.min()) / 1e9
    return since_s
