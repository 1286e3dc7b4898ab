"""Measured against simulated: rows of any file, by the figures of figures.yaml, and what is said of many of them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
from joblib import Parallel, delayed
from numpy.typing import ArrayLike

from experiments.fidelity.scatter import Dot, Panel, Plot
from experiments.studies.reading import load as read_sheet

SHEET = Path(__file__).with_name("figures.yaml")


class Figure(NamedTuple):
    """What both sides have in a `column`, and how it is called: also by `short` in the JSON, by `heading` in pictures.

    `widths` are those of its printed cells: median, worst, and the median in its own unit. Errors are `relative`, or in
    that unit; those of a time are both, and in the JSON the latter end with `suffix`. `band`: the error that a picture
    shades. `below`: rows past saturation are not judged by it.
    """

    column: str
    label: str
    unit: str
    widths: str = ""
    short: str = ""
    heading: str = ""
    suffix: str = ""
    band: float = 0.1
    relative: bool = True
    below: bool = False

    @property
    def name(self) -> str:
        """What its errors are called."""
        return self.short or self.column


def figures_of(file: str) -> tuple[Figure, ...]:
    """Return what rows of a measured file are compared by, from figures.yaml."""
    return tuple(Figure(column, **how) for column, how in read_sheet(SHEET)[file].items())


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


def section(
    path: Path,
    lines: Iterable[str],
    rows: Sequence[Mapping[str, Any]],
    medians: Mapping[str, Any],
    parts: Mapping[str, str] | None = None,
    plot: Plot | None = None,
    errors: Sequence[Errors] = (),
    **more: Any,
) -> Section:
    """Return what is said of a file: printed lines, which are the table too, and in the JSON rows, medians and more."""
    printed = "\n".join(lines)
    tree = {"runs": str(path), "rows": rows, "medians": medians, **more}
    return Section(printed, tree, {"table": fenced(printed), **(parts or {})}, plot, errors)


R = TypeVar("R")
EVERY_S = 10.0
"""Between two lines of progress on stderr; what takes less says nothing."""


def in_parallel(
    simulate: Callable[[R], dict[str, float]], rows: Sequence[R], jobs: int = -1
) -> list[dict[str, float]]:
    """Return the figures of all rows, in their order. `jobs`: processes, -1 is one a core."""
    found: list[dict[str, float]] = []
    said_s = monotonic()
    for figures in Parallel(n_jobs=jobs, return_as="generator")(delayed(simulate)(row) for row in rows):
        found.append(figures)
        if monotonic() - said_s > EVERY_S:
            print(f"{len(found)} of {len(rows)} rows", file=sys.stderr, flush=True)
            said_s = monotonic()
    return found


AnyRow = TypeVar("AnyRow")
"""A measured run: its `figures`, what was `measured` by column, its `load`, and the `series` that shares its colour."""


@dataclass(frozen=True)
class Comparison(Generic[AnyRow]):
    """One row as measured and as simulated; `fitted`: coefficients were fitted to it."""

    row: AnyRow
    simulated: Mapping[str, float]
    fitted: bool = False

    @property
    def pairs(self) -> dict[Figure, tuple[float, float]]:
        """What was measured and what was simulated, where both are; 0 has no relative error, and is left out."""
        found = {
            figure: (self.row.measured[figure.column], self.simulated[figure.column])
            for figure in self.row.figures
            if figure.column in self.row.measured and figure.column in self.simulated
        }
        return {figure: pair for figure, pair in found.items() if pair[0] > 0.0 or not figure.relative}

    @property
    def error(self) -> dict[str, float]:
        """Signed errors, relative ones but for figures that are shares."""
        return {
            figure.name: simulated / measured - 1.0 if figure.relative else simulated - measured
            for figure, (measured, simulated) in self.pairs.items()
        }

    @property
    def off(self) -> dict[str, float]:
        """Signed errors of times, in their own unit."""
        pairs = self.pairs.items()
        return {figure.name: simulated - measured for figure, (measured, simulated) in pairs if figure.suffix}

    @property
    def sides(self) -> dict[str, Any]:
        """What the JSON holds of any row: both sides and the errors."""
        sides = {"measured": dict(self.row.measured), "simulated": dict(self.simulated)}
        return {**sides, "error": self.error}


Comparisons = Sequence[Comparison[Any]]


def compared(
    rows: Sequence[AnyRow],
    simulate: Callable[[AnyRow], dict[str, float]],
    jobs: int,
    fitted: Callable[[AnyRow], bool] = lambda row: False,
) -> list[Comparison[AnyRow]]:
    """Return all rows as measured and as simulated."""
    simulated = in_parallel(simulate, rows, jobs)
    return [Comparison(row, found, fitted(row)) for row, found in zip(rows, simulated, strict=True)]


def counted(members: Comparisons, figure: Figure) -> list[Comparison[Any]]:
    """Return the rows that a figure is judged by."""
    own = [one for one in members if figure.name in one.error]
    return [one for one in own if one.row.load == "below"] if figure.below else own


def medians(members: Comparisons, figures: Sequence[Figure]) -> dict[str, Any]:
    """Return the median and the worst absolute error of each figure, of times also in their own unit."""
    result: dict[str, Any] = {"rows": len(members)}
    for figure in figures:
        own = counted(members, figure)
        if own:
            result[figure.name] = spread([one.error[figure.name] for one in own])
        if own and figure.suffix:
            result[figure.name] |= spread([one.off[figure.name] for one in own], figure.suffix)
    return result


def cells(found: Mapping[str, Any], figures: Sequence[Figure]) -> str:
    """Return the printed cells of medians, in per cent where they are relative; what was not measured is blank."""
    texts = []
    for figure in figures:
        factor = 100 if figure.relative else 1
        keys = (("median", factor), ("worst", factor), (f"median{figure.suffix}", 1))
        for (key, times), width in zip(keys, figure.widths.split(), strict=False):
            blank = " " * int(width.split(".")[0])
            texts.append(f"{times * found[figure.name][key]:{width}f}" if figure.name in found else blank)
    return " ".join(texts)


def line(name: str, found: Mapping[str, Any], figures: Sequence[Figure], wide: int, digits: int) -> str:
    """Return the printed line of a group: what belongs to another one is indented and named without that."""
    label = name if " " not in name else f"  {name.partition(' ')[2]}"
    return f"{label:<{wide}} {found['rows']:>{digits}} {cells(found, figures)}"


def furthest(members: Comparisons, names: Sequence[str], count: int) -> list[Comparison[Any]]:
    """Return the predicted rows that are furthest off in any of these figures, the worst first."""

    def off(one: Comparison[Any]) -> float:
        return max(abs(one.error.get(name, 0.0)) for name in names)

    return sorted((one for one in members if not one.fitted), key=off, reverse=True)[:count]


def judged(title: str, members: Comparisons, figures: Iterable[Figure]) -> list[Errors]:
    """Return a line a figure: how far off predicted rows are."""
    predicted = [one for one in members if not one.fitted]
    return [
        line
        for figure in figures
        for line in errors_of(
            f"{title}: {figure.label}", (one.error[figure.name] for one in counted(predicted, figure))
        )
    ]


def plot(name: str, title: str, members: Comparisons, figures: Sequence[Figure]) -> Plot:
    """Return a panel a figure, a dot a row."""
    panels = [
        Panel(
            figure.heading or figure.label,
            figure.unit,
            [Dot(*one.pairs[figure], one.row.series, one.fitted) for one in counted(members, figure)],
            figure.band,
            figure.relative,
        )
        for figure in figures
    ]
    return Plot(name, title, panels)
