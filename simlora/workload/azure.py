"""The Azure LLM inference traces of 2023 and 2024, as published."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from simlora.core.arrays import Floats
from simlora.core.checks import shown
from simlora.core.errors import InputError
from simlora.core.trace import Trace
from simlora.workload.adapters import adapter_specs
from simlora.workload.cells import Objects
from simlora.workload.columns import refuse, tokens
from simlora.workload.published import Published
from simlora.workload.table import Table

COLUMNS = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")
FILES = {2023: "AzureLLMInferenceTrace_conv.csv", 2024: "AzureLLMInferenceTrace_conv_1week.csv"}
"""Of conversations, a year; for coding there is one beside each."""


@dataclass(frozen=True)
class AzureLlm(Published):
    """Arrivals and lengths of the trace; adapters, which it does not have, drawn by `popularity`.

    That of 2024 has a week, of which `rows` says how much is read. See Published for the window and the limits.
    Source: Azure/AzurePublicDataset, AzureLLMInferenceTrace_*.csv; Splitwise (ISCA'24), DynamoLLM (HPCA'25).
    """

    year: int = 2023

    def __post_init__(self) -> None:
        if self.year not in FILES:
            raise InputError(
                f"workload.year is {shown(self.year)}, must be one of {', '.join(map(str, FILES))}"
            )
        super().__post_init__()

    def build(self, seed: int) -> Trace:
        """Return the trace; `seed` decides which adapter each request is for, and nothing else."""
        table = self._read(
            COLUMNS,
            f"the Azure LLM trace of {self.year}",
            f"{FILES[self.year]} from Azure/AzurePublicDataset",
        )
        since_s = _since_first_s(table)
        prompts, outputs = tokens(table, "ContextTokens", least=0), tokens(table, "GeneratedTokens", least=0)
        order, notices = self._window(table, "TIMESTAMP", since_s, prompts, outputs)
        arrival_s = self._arrival_s(since_s[order])
        return Trace(
            arrival_s=arrival_s,
            adapter=self._drawn(seed, len(order), arrival_s),
            prompt_tokens=prompts[order],
            output_tokens=outputs[order],
            max_output_tokens=outputs[order],
            adapters=adapter_specs(self.adapters, self.ranks),
            source=f"Azure LLM inference trace {self.year}, {table.path}",
            notices=notices,
        )


def _since_first_s(table: Table) -> Floats:
    """Return the seconds since the earliest row [rows], exact to the trace's 100 ns."""
    times = table.columns["TIMESTAMP"].mapped(_times)
    refuse(table, "TIMESTAMP", np.isnat(times), "a time such as 2023-11-16 18:15:46.6805900")
    stamps = times.astype(np.int64)
    since_s: Floats = (stamps - stamps.min()) / 1e9
    return since_s


def _times(cells: Objects) -> NDArray[np.datetime64]:
    """Return cells as times to the nanosecond, NaT for what is none."""
    times = pd.to_datetime(pd.Series(cells), format="ISO8601", errors="coerce", utc=True)
    return times.dt.tz_localize(None).to_numpy(dtype="datetime64[ns]")
