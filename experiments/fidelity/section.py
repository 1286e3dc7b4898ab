"""What is said of one measured file: on the terminal, on the page, in the JSON, and in pictures."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from experiments.fidelity.scatter import Plot

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)


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
    plot: Plot | None = None
    errors: Sequence[Errors] = ()

    @property
    def picture(self) -> Plot | None:
        """The plot, if it shows anything."""
        return self.plot if self.plot and self.plot.panels else None


def errors_of(figure: str, errors: Iterable[float]) -> list[Errors]:
    """Return the line of one figure, none if it was not measured."""
    sizes = list(errors)
    return [Errors(figure, len(sizes), **spread(sizes))] if sizes else []


def spread(errors: ArrayLike, unit: str = "") -> dict[str, float]:
    """Return the median and the worst of absolute errors, under keys that end with the unit."""
    sizes = np.abs(errors)
    return {f"median{unit}": float(np.median(sizes)), f"worst{unit}": float(sizes.max())}


def grouped(members: Iterable[T], key: Callable[[T], K]) -> dict[K, list[T]]:
    """Return the members that have a key in common, by it, in the order in which the keys appear."""
    found: dict[K, list[T]] = {}
    for one in members:
        found.setdefault(key(one), []).append(one)
    return found


def fenced(text: str) -> str:
    """Return text as it is, for Markdown."""
    return f"```\n{text}\n```"
