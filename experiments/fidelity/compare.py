"""Measured against simulated: the rows of any file, each with some figures, and what is said of many of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from experiments.fidelity.figures import Figure
from experiments.fidelity.running import in_parallel
from experiments.fidelity.scatter import Dot, Panel, Plot
from experiments.fidelity.section import Errors, errors_of, spread


class Row(Protocol):
    """A measured run of any file."""

    @property
    def measured(self) -> Mapping[str, float]:
        """What was measured, by column."""

    @property
    def figures(self) -> Sequence[Figure]:
        """What it is compared by."""

    @property
    def series(self) -> str:
        """What it shares its colour in pictures with."""

    @property
    def load(self) -> str:
        """Where it was: `below` or past saturation, or between the two."""


AnyRow = TypeVar("AnyRow", bound=Row)


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
