"""How many tokens an answer gets."""

from __future__ import annotations

import numpy as np

from simlora.core.arrays import Ints
from simlora.core.random import stream

DRAWN = 1024
"""Lengths that are drawn at a time."""


class AnswerLengths:
    """Lengths of answers that clients leave open: as often each as in a workload, in its order, or one fixed length."""

    def __init__(self, lengths: Ints, seed: int, in_order: bool = False) -> None:
        """`lengths` `[answers]` in tokens, at least one of them. After the last one `in_order` begins again."""
        self._lengths, self._rng, self._in_order = np.asarray(lengths), stream(seed, "answers"), in_order
        self.longest = int(self._lengths.max())
        self._drawn: list[int] = []

    def draw(self) -> int:
        """Return the next length."""
        if not self._drawn:
            taken = self._lengths[::-1] if self._in_order else self._rng.choice(self._lengths, DRAWN)
            self._drawn = taken.tolist()
        return self._drawn.pop()
