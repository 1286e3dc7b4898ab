"""What-ifs that no paper could run: `python -m experiments.what_if [crossing tenants …] [--seeds 5] [--out DIR]`."""

from __future__ import annotations

import argparse
import csv
import sys
import textwrap
from collections.abc import Mapping, Sequence
from math import isnan
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from experiments.claims.spots import seeded
from experiments.studies.command import chosen, ended, made
from experiments.studies.draw import COLOURS, GRID, INK, save
from experiments.studies.metrics import METRICS
from experiments.studies.points import Point, points
from experiments.studies.running import run_all
from experiments.studies.study import Study, read_all
from simlora.api.cache import HELP
from simlora.core.checks import whole
from simlora.sweeps.outcome import Outcome, Overrides
from simlora.sweeps.statistics import interval

FOLDER = Path(__file__).parent
WIDE, HIGH = 4.2, 3.0
"""Inches of one plot."""


class Found(NamedTuple):
    """A metric at one point: the mean over seeds, and the ends of its 95 % interval."""

    mean: float
    low: float
    high: float

    def __str__(self) -> str:
        if isnan(self.low):
            return f"{self.mean:.4g}"
        return f"{self.mean:.4g} ± {(self.high - self.low) / 2:.2g}"


Gathered = Mapping[tuple[str, str, Any, str], Found]
"""By panel, series, x and metric."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Simulate, draw and print what-ifs; 0 when done, 2 for bad input, 130 when interrupted."""
    studies = read_all(FOLDER)
    parser = argparse.ArgumentParser(
        prog="python -m experiments.what_if",
        description="Simulate what no paper could run, over several seeds; draw it, and print it with intervals.",
        epilog="\n".join(
            ["studies:", *(f"  {name:<13}{study.title}" for name, study in studies.items()), "", HELP]
        ),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("studies", nargs="*", metavar="STUDY", help="of those below (default: all)")
    parser.add_argument("--seeds", type=int, default=5, help="runs of each point (default: 5)")
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("outputs") / "what_if",
        help="where PNG and CSV go (default: outputs/what_if)",
    )
    parser.add_argument("--jobs", type=int, default=-1, help="processes (default: one a core)")
    options = parser.parse_args(arguments)

    def answer() -> None:
        whole("--seeds", options.seeds, "runs", least=1)
        _answer(chosen(studies, options.studies), range(options.seeds), made(options.out), options.jobs)

    return ended(answer)


def _answer(studies: Sequence[Study], seeds: Sequence[int], out: Path, jobs: int) -> None:
    wanted = [point for study in studies for point in points(study) if not point.skip]
    outcomes = run_all([seeded(point, seed) for point in wanted for seed in seeds], jobs)
    for study in studies:
        own = [point for point in wanted if point.study == study.name]
        for point in own:
            for complaint in {outcomes[seeded(point, seed).overrides].reason for seed in seeds} - {""}:
                print(f"  not simulated: {point.series}, {point.x}: {complaint}")
        found = gather(study, own, outcomes, seeds)
        draw(study, found, out / f"{study.name}.png")
        write_csv(out / f"{study.name}.csv", study, found)
        print(f"\n{study.name}: {study.title} -> {out / study.name}.png, .csv")
        for line in textwrap.wrap(study.note, 106):
            print(f"  {line}")
        for metric in study.metrics:
            print(table(study, found, metric))


def gather(
    study: Study, own: Sequence[Point], outcomes: Mapping[Overrides, Outcome], seeds: Sequence[int]
) -> Gathered:
    """Return the mean and the interval over seeds of every metric of every point that was simulated."""
    found = {}
    for point in own:
        for metric in study.metrics:
            values = [outcomes[seeded(point, seed).overrides].figure(metric) for seed in seeds]
            had = [value for value in values if value is not None]
            if had:
                found[point.panel, point.series, point.x, metric] = Found(fmean(had), *interval(had))
    return found


def table(study: Study, found: Gathered, metric: str) -> str:
    """Return a metric as aligned text, a line a panel and series, a column a value of x."""
    drawn = METRICS[metric].drawn
    head = ["", *(str(x) for x in _every_x(study))]
    rows = [head]
    for panel in study.panels:
        for series in study.series:
            cells = [found.get((panel.name, series.name, x, metric)) for x in _every_x(study)]
            if any(cells):
                name = series.title if len(study.panels) == 1 else f"{panel.title}: {series.title}"
                shown = [
                    "" if cell is None else str(Found(*(drawn * part for part in cell))) for cell in cells
                ]
                rows.append([name, *shown])
    widths = [max(len(row[column]) for row in rows) for column in range(len(head))]
    lines = [
        "  "
        + "  ".join(
            cell.rjust(width) if i else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    ]
    return "\n".join([f"  {METRICS[metric].label} over {study.x.label}", *(line.rstrip() for line in lines)])


def write_csv(path: Path, study: Study, found: Gathered) -> None:
    """Write a row a point and metric: mean, low, high."""
    with path.open("w", encoding="utf-8", newline="") as file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow(["panel", "series", study.x.key, "metric", "mean", "low", "high"])
        for (panel, series, x, metric), cell in found.items():
            rows.writerow([panel, series, x, metric, *("" if isnan(part) else part for part in cell)])


def draw(study: Study, found: Gathered, path: Path) -> None:
    """Draw metrics below each other and panels beside each other; of one panel, metrics beside each other.

    Bars are 95 % intervals.
    """
    from matplotlib import pyplot as plt

    cells = [(metric, panel) for metric in study.metrics for panel in study.panels]
    columns = len(study.panels) if len(study.panels) > 1 else len(study.metrics)
    rows = len(cells) // columns
    figure, axes = plt.subplots(
        rows, columns, figsize=(1.2 + WIDE * columns, 1.1 + HIGH * rows), squeeze=False, layout="constrained"
    )
    for ax, (metric, panel) in zip(axes.flat, cells, strict=True):
        for place, series in enumerate(study.series):
            _curve(ax, study, found, panel.name, series.name, metric, place)
        _axes(ax, study, metric)
        ax.set_title(panel.title if len(study.panels) > 1 else "", fontsize=10)
    curves: dict[str, Any] = {}
    for ax in axes.flat:
        curves |= {label: curve for curve, label in zip(*ax.get_legend_handles_labels(), strict=True)}
    style = {
        "loc": "outside lower center",
        "ncols": min(len(curves), 2 + columns),
        "frameon": False,
        "fontsize": 9,
    }
    figure.legend(curves.values(), curves.keys(), **style)
    only = f": {study.panels[0].title}" if len(study.panels) == 1 else ""
    figure.suptitle(f"{study.title}{only}", color=INK, fontsize=12)
    save(figure, path)


def _axes(ax: Any, study: Study, metric: str) -> None:
    ax.set_ylabel(METRICS[metric].label)
    ax.set_xlabel(study.x.label)
    if metric in study.logarithmic:
        ax.set_yscale("log")
    elif metric.endswith("attainment"):
        ax.set_ylim(-0.03, 1.03)
    else:
        ax.set_ylim(bottom=0)
    if study.x.categories:
        ax.set_xticks(range(len(_every_x(study))), [str(x).replace("_", "\n") for x in _every_x(study)])
    elif study.x.scale == "log":
        ax.set_xscale("log")
    ax.grid(color=GRID, linewidth=0.7)
    ax.spines[["top", "right"]].set_visible(False)


def _curve(ax: Any, study: Study, found: Gathered, panel: str, series: str, metric: str, place: int) -> None:
    own = [
        (x, found[panel, series, x, metric]) for x in _every_x(study) if (panel, series, x, metric) in found
    ]
    if not own:
        return
    factor = METRICS[metric].drawn
    at = [list(_every_x(study)).index(x) if study.x.categories else x for x, _ in own]
    mean = [factor * cell.mean for _, cell in own]
    errors = [
        [0.0 if isnan(cell.low) else factor * (cell.mean - cell.low) for _, cell in own],
        [0.0 if isnan(cell.low) else factor * (cell.high - cell.mean) for _, cell in own],
    ]
    if metric in study.logarithmic:  # an interval may reach below 0, where there is no logarithm
        errors[0] = [min(below, 0.95 * value) for below, value in zip(errors[0], mean, strict=True)]
    title = study.series_named(series).title
    ax.errorbar(
        at,
        mean,
        yerr=errors,
        color=COLOURS[place % len(COLOURS)],
        marker="os^Dv<>"[place % 7],
        markersize=4.5,
        linewidth=1.5,
        capsize=2.5,
        label=title,
        linestyle="none" if study.x.categories else "-",
    )


def _every_x(study: Study) -> Sequence[Any]:
    return list(dict.fromkeys(x for panel in study.panels for x in panel.x))


if __name__ == "__main__":
    sys.exit(main())
