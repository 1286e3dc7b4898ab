"""Turns: what is said in conversations, and how long after their beginning."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simlora.core.arrays import Floats, Ints
from simlora.core.errors import InputError
from simlora.workload.arrivals import Gamma
from simlora.workload.lengths import Lengths

TURNS_MAX = 1000


@dataclass(frozen=True)
class Turns:
    """Turns [turns] of one conversation after the other: which one it is, when after its beginning, how long."""

    conversation: Ints
    after_s: Floats
    prompts: Ints
    outputs: Ints

    def __len__(self) -> int:
        return len(self.outputs)


@dataclass(frozen=True)
class Talk:
    """How conversations go. See Conversations, of which these are the parameters."""

    turns: Lengths
    gaps: Gamma
    first_tokens: Lengths | None
    messages: Lengths
    outputs: Lengths
    context_tokens: int | None

    def draw(self, streams: Sequence[np.random.Generator], n: int) -> Turns:
        """Return the turns of `n` conversations; with more of them, these are the same.

        Each part has a stream of its own: turns, gaps, first tokens, messages, answers.
        """
        of_turns, of_gaps, of_first, of_messages, of_outputs = streams
        counts = self.turns.draw(of_turns, n)
        if n and counts.max() > TURNS_MAX:
            raise InputError(
                f"workload.turns has drawn {counts.max():,} turns for a conversation, must be at most {TURNS_MAX:,}"
            )
        total = int(counts.sum())
        gaps_s = self.gaps.gaps_s(of_gaps, total)
        more = np.zeros(total, dtype=np.int64)
        if self.first_tokens is not None:
            more[np.cumsum(counts) - counts] = self.first_tokens.draw(of_first, n)
        outputs = self.outputs.draw(of_outputs, total)
        new = more + self.messages.draw(of_messages, total)
        return laid_out(counts, new, outputs, gaps_s, self.context_tokens)


def laid_out(counts: Ints, new: Ints, outputs: Ints, gaps_s: Floats, context_tokens: int | None) -> Turns:
    """Return the turns of conversations that have `counts` [conversations] of them, one conversation after the other.

    A turn's prompt is all that was said before it and `new` [turns] tokens; it comes a gap after the one before, and
    the first at once. A conversation ends before the turn that would have more than `context_tokens` with its answer.
    """
    said = so_far(new + outputs, counts)
    gaps_s = gaps_s.copy()
    gaps_s[(np.cumsum(counts) - counts)[counts > 0]] = 0.0
    fits = np.full(len(said), True) if context_tokens is None else said <= context_tokens
    return Turns(
        conversation=np.repeat(np.arange(len(counts)), counts)[fits],
        after_s=so_far(gaps_s, counts)[fits],
        prompts=(said - outputs)[fits],
        outputs=outputs[fits],
    )


def so_far(values: NDArray[Any], counts: Ints) -> NDArray[Any]:
    """Return running sums [values], begun anew in each of the groups of `counts` values that follow each other."""
    sums = np.concatenate([np.zeros(1, dtype=values.dtype), np.cumsum(values)])
    anew: NDArray[Any] = sums[1:] - np.repeat(sums[np.cumsum(counts) - counts], counts)
    return anew
