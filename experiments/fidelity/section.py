"""What is said of one measured file: on the terminal, on the page, in the JSON, and in pictures."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from experiments.fidelity.scatter import Plot


@dataclass(frozen=True)
class Errors:
    """How far off one figure is on rows that nothing was fitted to: absolute relative errors."""

    figure: str
    rows: int
    median: float
    worst: float


@dataclass(frozen=True)
class Section:
    """`parts` are what a note may include by name, `tree` what it may take numbers from, and what the JSON holds."""

    printed: str
    tree: Mapping[str, Any]
    parts: Mapping[str, str]
    plots: Sequence[Plot] = ()
    errors: Sequence[Errors] = ()

    @property
    def pictures(self) -> list[Plot]:
        """The plots that show anything."""
        return [plot for plot in self.plots if plot.panels]


def errors_of(figure: str, errors: Iterable[float]) -> list[Errors]:
    """Return the line of one figure, none if it was not measured."""
    sizes = np.abs(list(errors))
    return [Errors(figure, len(sizes), float(np.median(sizes)), float(sizes.max()))] if len(sizes) else []


def fenced(text: str) -> str:
    """Return text as it is, for Markdown."""
    return f"```\n{text}\n```"
