"""The Mooncake conversation trace, as published: which prompts begin alike, block by block."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from simlora.core.arrays import Floats, Ints
from simlora.core.trace import Trace
from simlora.workload.adapters import adapter_specs
from simlora.workload.blocks import block_hashes, check_prefixes
from simlora.workload.columns import refuse, tokens, whole_numbers
from simlora.workload.published import Published, numbered
from simlora.workload.table import Table

COLUMNS = ("timestamp", "input_length", "output_length", "hash_ids")
BLOCK_TOKENS = 512
"""Of a prompt, for each of its hash_ids; the last block may be a part."""
TENANT = 1
"""The block that tells sessions or tenants apart: the one before is the same in all prompts."""
TIME_MAX_MS = 10**15


@dataclass(frozen=True)
class Mooncake(Published):
    """Arrivals, lengths and prefixes of the trace; every session has one adapter, drawn by `popularity`.

    The trace does not name its users. Prompts with the same second block are taken for those of one session or tenant;
    a prompt of one block only is a session of its own. All sessions of the file have drawn before a window is cut out
    of it: they keep their adapters whatever is cut. KV is never shared between adapters, so that with many of them
    sessions share not even the first block.

    See Published for the window and the limits.
    Source: kvcache-ai/Mooncake, FAST25-release, conversation_trace.jsonl; Mooncake (FAST'25).
    """

    def build(self, seed: int) -> Trace:
        """Return the trace; `seed` decides which adapter each session has, and nothing else."""
        table = self._read(
            COLUMNS,
            "Mooncake's conversation trace",
            "FAST25-release/traces/conversation_trace.jsonl from kvcache-ai/Mooncake",
        )
        since_s = _since_first_s(table)
        prompts, outputs = tokens(table, "input_length", least=0), tokens(table, "output_length", least=0)
        hashes = _hashes(table, prompts)
        order, notices = self._window(table, "timestamp", since_s, prompts, outputs)
        session = numbered([own[TENANT] if len(own) > TENANT else None for own in hashes], since_s)
        return Trace(
            arrival_s=self._arrival_s(since_s[order]),
            adapter=self._drawn(seed, int(session.max()) + 1)[session[order]],
            prompt_tokens=prompts[order],
            output_tokens=outputs[order],
            max_output_tokens=outputs[order],
            adapters=adapter_specs(self.adapters, self.ranks),
            block_hashes=[hashes[i] for i in order],
            hash_block_tokens=BLOCK_TOKENS,
            source=f"Mooncake conversation trace, {table.path}",
            notices=notices,
        )


def _since_first_s(table: Table) -> Floats:
    """Return the seconds since the earliest row [rows]."""
    must = "a whole number of milliseconds, at least 0"
    times_ms = whole_numbers(table, "timestamp", must, 0, TIME_MAX_MS)
    since_s: Floats = (times_ms - times_ms.min()) / 1e3
    return since_s


def _hashes(table: Table, prompts: Ints) -> list[tuple[int, ...]]:
    """Return the rows' hashes, one for every block of their prompts."""
    hashes = block_hashes(table, "hash_ids")
    blocks = -(-prompts // BLOCK_TOKENS)
    wrong = np.array([len(each) for each in hashes]) != blocks
    must = (
        f"one whole number for each {BLOCK_TOKENS} tokens of input_length, here {blocks[np.argmax(wrong)]:,}"
    )
    refuse(table, "hash_ids", wrong, must)
    check_prefixes(table, "hash_ids", hashes)
    return hashes
