"""The cross-table as a picture: what share of the best system's capacity every system carries."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from matplotlib import pyplot as plt

from experiments.cross_table.compared import Row
from experiments.cross_table.world import System
from experiments.studies.draw import INK, save

COLUMN_INCHES, ROW_INCHES = 0.92, 0.34
PALE = 0.55
"""Of the best, above which a cell is dark enough for white letters."""


def draw(rows: Sequence[Row], systems: Sequence[System], path: Path) -> None:
    """Draw a line a system, those that carry most on average first, and a column a workload."""
    shares = {
        system.name: [
            row.against_best(cell).mean for row in rows for cell in row.cells if cell.system == system
        ]
        for system in systems
    }
    order = sorted(systems, key=lambda one: -sum(shares[one.name]))
    figure, ax = plt.subplots(
        figsize=(3.4 + COLUMN_INCHES * len(rows), 1.6 + ROW_INCHES * len(order)), layout="constrained"
    )
    ax.imshow([shares[one.name] for one in order], cmap="Blues", vmin=0.0, vmax=1.0, aspect="auto")
    for line, system in enumerate(order):
        for column, share in enumerate(shares[system.name]):
            colour = "white" if share > PALE else INK
            weight = "bold" if share >= 1.0 else "normal"
            ax.text(
                column,
                line,
                f"{share:.2f}",
                ha="center",
                va="center",
                color=colour,
                fontsize=9,
                weight=weight,
            )
    titles = [row.workload.title.replace(", ", ",\n").replace(" ", "\n", 1) for row in rows]
    ax.set_xticks(range(len(rows)), titles, fontsize=8)
    ax.set_yticks(range(len(order)), [one.title for one in order], fontsize=9)
    ax.tick_params(length=0, top=True, labeltop=True, bottom=False, labelbottom=False)
    ax.spines[:].set_visible(False)
    figure.suptitle(
        "Capacity within the SLO, as a share of the best system's on each workload", color=INK, fontsize=11
    )
    save(figure, path)
