"""Reuse: how much of all prompts was there before, for a cache that never forgets."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import repeat

import numpy as np

from simlora.core.checks import whole
from simlora.core.trace import Trace


@dataclass(frozen=True)
class Reuse:
    """What is found again in whole blocks, of all that is asked: the most that any cache can find of a trace."""

    found_blocks: int
    blocks: int
    prompt_tokens: int
    block_tokens: int

    @property
    def found_tokens(self) -> int:
        return self.found_blocks * self.block_tokens

    @property
    def of_tokens(self) -> float:
        """Return the share of prompt tokens that need no prefill."""
        return self.found_tokens / self.prompt_tokens if self.prompt_tokens else 0.0

    @property
    def of_blocks(self) -> float:
        """Return the share of blocks that are found, where the last one of a prompt counts even if it is a part."""
        return self.found_blocks / self.blocks if self.blocks else 0.0


def ideal_reuse(trace: Trace, block_tokens: int | None = None) -> Reuse:
    """Return what a cache of unlimited memory finds when every request comes after all before it are done.

    KV made with one adapter is of no use to another. A request with hashes begins with the prompts that have the same
    ones; one without, of a session, with what was said in it before, of which the last token of an answer has no KV.
    A prompt's last token is always left to compute. Blocks are those of the trace; where it has no hashes they may be
    of `block_tokens`.
    """
    size = trace.hash_block_tokens
    if block_tokens is not None and not trace.has_hashes:
        size = whole("block_tokens", block_tokens, "tokens", least=1)
    return Reuse(
        found_blocks=sum(_found(trace, size)),
        blocks=int(np.sum(-(-trace.prompt_tokens // size))),
        prompt_tokens=int(trace.prompt_tokens.sum()),
        block_tokens=size,
    )


def _found(trace: Trace, size: int) -> Iterator[int]:
    """Yield how many blocks of `size` tokens are found for each request that could find any."""
    columns = (trace.adapter.tolist(), trace.prompt_tokens.tolist(), trace.output_tokens.tolist())
    hashes = trace.block_hashes if trace.block_hashes is not None else repeat(())
    sessions = trace.session if trace.session is not None else repeat(None)
    known: defaultdict[int, set[int]] = defaultdict(set)
    said: dict[tuple[int, str], int] = {}
    for adapter, prompt, output, own, session in zip(*columns, hashes, sessions, strict=False):
        most = (prompt - 1) // size
        if own:
            yield _begins(own[:most], known[adapter])
            known[adapter].update(own[: prompt // size])
        elif session is not None:
            before = said.get((adapter, session), 0)
            yield min(before, most)
            said[adapter, session] = max(before, (prompt + output - 1) // size)


def _begins(hashes: tuple[int, ...], known: set[int]) -> int:
    """Return how many hashes from the first on are known."""
    for i, value in enumerate(hashes):
        if value not in known:
            return i
    return len(hashes)
