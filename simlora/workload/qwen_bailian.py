"""The Qwen-Bailian traces, as published: chats of several turns, and which blocks of their prompts are alike."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from simlora.core.arrays import Floats, Ints
from simlora.core.trace import Trace
from simlora.workload.adapters import adapter_specs
from simlora.workload.blocks import block_hashes, of_prefixes
from simlora.workload.columns import seconds, tokens, whole_numbers
from simlora.workload.published import Published, numbered, with_one_of
from simlora.workload.table import Table

COLUMNS = (
    "chat_id",
    "parent_chat_id",
    "timestamp",
    "input_length",
    "output_length",
    "type",
    "turn",
    "hash_ids",
)
BLOCK_TOKENS = 16
"""Of a prompt, for each of its hash_ids; the last block is padded."""
ROOT = -1
"""The parent of a chat's first request."""
ID_MAX = 2**53


@dataclass(frozen=True)
class QwenBailian(Published):
    """Arrivals, lengths, chats and prefixes of a trace; every chat has one adapter, drawn by `popularity`.

    A request and its parents are one chat, down to the first or to a parent that the file lacks. All chats of the file
    have drawn before a window is cut out of it. `types` are those of its column type that are kept (text, search,
    image, file); None: all.

    Equal hash_ids are equal blocks. Whether they are of all that lies before too is not told: here a block counts as
    found only behind equal blocks, which is right either way. Hashes of more blocks than the prompt has are cut off.

    See Published for the window and the limits.
    Source: alibaba-edu/qwen-bailian-usagetraces-anon; KVCache Cache in the Wild (ATC'25).
    """

    types: Sequence[str] | None = None

    def build(self, seed: int) -> Trace:
        """Return the trace; `seed` decides which adapter each chat has, and nothing else."""
        table = self._read(
            COLUMNS,
            "a Qwen-Bailian trace",
            "qwen_traceA_blksz_16.jsonl from alibaba-edu/qwen-bailian-usagetraces-anon",
        )
        times_s = seconds(table, "timestamp")
        since_s = times_s - times_s.min()
        chat = numbered(_chats(table, since_s), since_s)
        kept = with_one_of(table, "type", self.types, "workload.types")
        table, since_s, chat = table.at(kept), since_s[kept], chat[kept]
        prompts, outputs = (tokens(table, name, least=0) for name in ("input_length", "output_length"))
        hashes, notices = _hashes(table, prompts)
        order, dropped = self._window(table, "timestamp", since_s, prompts, outputs)
        return Trace(
            arrival_s=self._arrival_s(since_s[order]),
            adapter=self._drawn(seed, int(chat.max()) + 1)[chat[order]],
            prompt_tokens=prompts[order],
            output_tokens=outputs[order],
            max_output_tokens=outputs[order],
            adapters=adapter_specs(self.adapters, self.ranks),
            session=[f"chat_{chat[i]}" for i in order],
            block_hashes=[hashes[i] for i in order],
            hash_block_tokens=BLOCK_TOKENS,
            source=f"Qwen-Bailian trace, {table.path}",
            notices=(*dropped, *notices),
        )


def _chats(table: Table, since_s: Floats) -> list[int]:
    """Return what the first request of each row's chat is called [rows]; a parent comes before its children."""
    own = whole_numbers(table, "chat_id", "a whole number, at least 0", 0, ID_MAX)
    parents = whole_numbers(
        table, "parent_chat_id", "a whole number, -1 for the first of a chat", ROOT, ID_MAX
    )
    first: dict[int, int] = {}
    for row in np.argsort(since_s, kind="stable").tolist():
        number, parent = int(own[row]), int(parents[row])
        first[number] = number if parent == ROOT else first.get(parent, parent)
    return [first[number] for number in own.tolist()]


def _hashes(table: Table, prompts: Ints) -> tuple[list[tuple[int, ...]], tuple[str, ...]]:
    """Return the rows' hashes of prefixes, no more than their prompts have blocks, and a notice if some had more."""
    hashes = block_hashes(table, "hash_ids")
    blocks = (-(-prompts // BLOCK_TOKENS)).tolist()
    more = sum(len(each) > most for each, most in zip(hashes, blocks, strict=True))
    cut = of_prefixes([each[:most] for each, most in zip(hashes, blocks, strict=True)])
    if not more:
        return cut, ()
    return cut, (
        f"{table.path}: {more:,} of {len(table):,} rows have more hash_ids than blocks of {BLOCK_TOKENS} tokens in "
        "input_length; those beyond were left out.",
    )
