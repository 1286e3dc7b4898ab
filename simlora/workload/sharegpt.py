"""ShareGPT's conversations, as published, or their lengths."""

from __future__ import annotations

from dataclasses import dataclass

from simlora.core.arrays import Floats
from simlora.core.errors import InputError
from simlora.workload.columns import seconds, tokens
from simlora.workload.published import check_path
from simlora.workload.table import Table, check_names, read_table
from simlora.workload.transcripts import Said, Transcripts

COLUMNS = ("id", "conversations")
LENGTHS = ("input_tokens", "output_tokens")
OPTIONAL = ("arrival_s",)


@dataclass(frozen=True)
class ShareGpt(Transcripts):
    """Conversations of ShareGPT: a list of {id, conversations: [{from, value}]} as JSON, or an object a line.

    A table with the columns LENGTHS has one turn a row and needs no estimate of tokens. Where it has `arrival_s` too,
    `arrivals` null takes these. The published file has split long conversations: their parts count as conversations.

    See Transcripts for what is made up. Source: anon8231489123/ShareGPT_Vicuna_unfiltered,
    ShareGPT_V3_unfiltered_cleaned_split.json.
    """

    def _table(self) -> Table:
        check_path(
            self.path,
            "the ShareGPT conversations",
            "ShareGPT_V3_unfiltered_cleaned_split.json from anon8231489123/ShareGPT_Vicuna_unfiltered on Hugging Face",
        )
        table = read_table(self.path, self.rows, foreign=True)
        if LENGTHS[0] in table.columns:
            check_names(table, LENGTHS, OPTIONAL)
        elif COLUMNS[1] not in table.columns:
            raise InputError(
                f"{table.path} has no column {COLUMNS[1]}, must have {', '.join(COLUMNS)}, or {', '.join(LENGTHS)}"
            )
        return table

    def _said(self, table: Table) -> Said:
        if LENGTHS[0] not in table.columns:
            return self._in_tokens(table, COLUMNS[1], "from", "value")
        new, outputs = (tokens(table, name).tolist() for name in LENGTHS)
        return Said([1] * len(table), new, outputs)

    def _begin_s(self, table: Table, seed: int) -> Floats:
        if self.arrivals is None and OPTIONAL[0] in table.columns:
            return seconds(table, OPTIONAL[0])
        return super()._begin_s(table, seed)
