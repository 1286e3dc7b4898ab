"""What rows of measured files are compared by: figures.yaml."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from experiments.studies.reading import load as read_sheet

SHEET = Path(__file__).with_suffix(".yaml")


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
