"""How pictures look: colours, frames, and files of the same bytes for the same data."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot as plt
from matplotlib.figure import Figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLOURS = ("#2b6cd4", "#d08700", "#0e8f7e", "#b0417d", "#6b6f76", "#7a5ac8", "#6b3f1d")
"""Blue, amber, teal, plum, grey, violet, brown: told apart with the common kinds of colour blindness."""
INK, GRID = "#1b1d21", "#e2e3e1"
DPI = 150


def save(figure: Figure, path: Path) -> None:
    """Write a figure as PNG, and say where it is."""
    write(figure, path)
    print(path)


def write(figure: Figure, path: Path, dpi: int = DPI) -> None:
    """Write a figure as PNG, of the same bytes for the same data: without the version of what drew it."""
    figure.savefig(path, dpi=dpi, metadata={"Software": None})
    plt.close(figure)


def plain(ax: Axes, axis: Literal["both", "x", "y"] = "y", **look: Any) -> None:
    """Leave of a plot's frame left and bottom, with lines of a grid across an axis, behind what is drawn."""
    ax.spines[["top", "right"]].set_visible(False)
    ax.grid(axis=axis, color=GRID, **look)
    ax.set_axisbelow(True)
