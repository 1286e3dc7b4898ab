"""The LMSYS-Chat-1M conversations, as published: people with 25 models."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from simlora.core.arrays import Ints
from simlora.core.checks import shown
from simlora.core.errors import InputError
from simlora.core.trace import AdapterSpec
from simlora.workload.adapters import check_ranks
from simlora.workload.columns import empty, names, refuse
from simlora.workload.published import check_path
from simlora.workload.table import Table, check_names, read_table
from simlora.workload.transcripts import Said, Transcripts

COLUMNS = ("conversation_id", "model", "conversation")
BY = ("conversation", "model")


@dataclass(frozen=True)
class Lmsys(Transcripts):
    """Conversations of LMSYS-Chat-1M, from one of its Parquet files or as JSONL.

    `adapter_by` says what has an adapter: every conversation draws one, or every model that people talked to is one, so
    that popularity is the file's own; adapter i by name then has ranks[i mod len], and `adapters` is not used.

    See Transcripts for what is made up. Source: lmsys/lmsys-chat-1m; LMSYS-Chat-1M (ICLR'24).
    """

    adapter_by: str = "conversation"

    def __post_init__(self) -> None:
        if self.adapter_by not in BY:
            raise InputError(
                f"workload.adapter_by is {shown(self.adapter_by)}, must be one of {', '.join(BY)}"
            )
        super().__post_init__()

    def _table(self) -> Table:
        check_path(
            self.path,
            "a file of LMSYS-Chat-1M",
            "one of data/train-*.parquet from lmsys/lmsys-chat-1m on Hugging Face, where you accept its licence",
        )
        table = read_table(self.path, self.rows, only=COLUMNS)
        check_names(table, COLUMNS)
        return table

    def _said(self, table: Table) -> Said:
        return self._in_tokens(table, "conversation", "role", "content")

    def _adapters(self, table: Table, seed: int) -> tuple[Ints, tuple[AdapterSpec, ...]]:
        if self.adapter_by != "model":
            return super()._adapters(table, seed)
        refuse(table, "model", empty(table, "model"), "the name of a model")
        found, index = np.unique(np.array(names(table, "model"), dtype=str), return_inverse=True)
        ranks = check_ranks(self.ranks)
        specs = tuple(AdapterSpec(str(name), ranks[i % len(ranks)]) for i, name in enumerate(found))
        return index.astype(np.int64), specs
