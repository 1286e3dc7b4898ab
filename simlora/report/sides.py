"""The sides of a comparison: what configurations run on and are judged by."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from simlora.report.format import ABSENT

CONDITIONS = ("gpu", "model", "engine", "slo", "calibration")
"""What has to be the same on all sides, unless a difference in it is asked for."""
NAMED_MOST = 6
"""Configurations of a side that are named."""


@dataclass(frozen=True)
class Side:
    """What some of the configurations that are compared have in common: their `names`, and the CONDITIONS in words.

    A condition that is not known, as of the table of an older simlora, is ABSENT.
    """

    names: tuple[str, ...]
    gpu: str
    model: str
    engine: str
    slo: str
    calibration: str

    @property
    def name(self) -> str:
        """The names, the first of them where they are many."""
        return named(self.names)

    @property
    def conditions(self) -> str:
        """The conditions that are known, in a line."""
        words = [
            "" if self.model == ABSENT else f"{self.model} on {self.gpu}",
            "" if self.engine == ABSENT else f"steps of {self.engine}",
            "" if self.slo == ABSENT else f"SLO {self.slo}",
            "" if self.calibration == ABSENT else f"calibration {self.calibration}",
        ]
        return ", ".join(word for word in words if word) or "GPU, model, SLO and calibration are not known"

    def text(self) -> str:
        """Return the side in a line."""
        return f"{self.name}: {self.conditions}"


def heading(sides: Sequence[Side]) -> str:
    """Return the sides, a line each."""
    return "\n".join(side.text() for side in sides)


def named(names: Sequence[str]) -> str:
    """Return names in words, the first of them where they are many."""
    more = len(names) - NAMED_MOST
    return "; ".join(names[:NAMED_MOST]) + (f" and {more} more" if more > 0 else "")
