"""How many tokens an answer gets."""

from __future__ import annotations

import numpy as np

from simlora.core.arrays import Ints
from simlora.core.random import stream

DRAWN = 1024
"""Lengths that are drawn at a time."""


class AnswerLengths:
    """Lengths of answers that clients leave open: as often each as in a workload, or one fixed length."""

    def __init__(self, lengths: Ints, seed: int) -> None:
        """`lengths` `[answers]` in tokens, at least one of them."""
        self._lengths, self._rng = np.asarray(lengths), stream(seed, "answers")
        self.longest = int(self._lengths.max())
        self._drawn: list[int] = []

    def draw(self) -> int:
        """Return the next length."""
        if not self._drawn:
            self._drawn = self._rng.choice(self._lengths, DRAWN).tolist()
        return self._drawn.pop()
