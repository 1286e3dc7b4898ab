"""Draws the figures that claims are about, each from those of its points that were run for the board."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from PIL import Image
from PIL.PngImagePlugin import PngInfo

from experiments.dlora import measured as artifact
from experiments.studies import draw as drawn
from experiments.studies import look, measured
from experiments.studies.command import made
from experiments.studies.draw import draw
from experiments.studies.found import Found, runs
from experiments.studies.points import Point, point, points
from experiments.studies.reading import measured_dir
from experiments.studies.running import Watch
from experiments.studies.study import Panel, Study, read, read_seeds
from simlora.sweeps.outcome import Outcome

DPI, COLOURS = 80, 64
"""Pictures are looked at on a page, and kept in the repository: below 80 kB each."""
DATA = "data"
"""The text in a PNG that tells what it was drawn from."""
DRAWN_BY = [Path(str(module.__file__)) for module in (drawn, look, measured, artifact)]
"""What decides how a picture looks, besides its data."""
Shown = Sequence[tuple[Point, Sequence[Outcome]]]
"""Points, and what became of the runs of each: one, or one a seed."""


def draw_all(folder: Path, names: Iterable[str], ran: Watch, out: Path) -> list[Path]:
    """Write these figures of a paper's folder as PNG into `out`; return their paths.

    Of a paper whose claims are means over seeds curves are means, too, and bands show the seeds.
    """
    made(out)
    beside, seeds, paths = _beside(folder, measured_dir()), read_seeds(folder), []
    for name in names:
        study = read(folder / f"{name}.yaml")
        every = list(_found(study, ran, seeds))
        paths.append(out / f"{name}.png")
        study = _only(study, [one for one, _ in every])
        kept = {panel.name for panel in study.panels}
        shown = [(one, outcomes) for one, outcomes in every if one.panel in kept]
        if not _is_of(paths[-1], data := _data(study, shown)):
            found = [Found(one, outcomes, beside.published(study, one)) for one, outcomes in shown]
            draw(study, found, paths[-1], DPI, beside.targets_s)
            _keep(paths[-1], data)
    return paths


def _data(study: Study, found: Shown) -> str:
    """Return a hash of what a picture shows and of the code that draws it: it is drawn anew when that has changed."""
    shown = [
        (one.key, one.beyond, [(each.status, *map(each.figure, study.metrics)) for each in outcomes])
        for one, outcomes in found
    ]
    measured_files = [
        measured_dir() / name for name in (*(each.FILE for each in measured.SCHEMAS), artifact.FILE)
    ]
    files = [*DRAWN_BY, *(path for path in measured_files if path.exists())]
    hashes = [hashlib.sha256(path.read_bytes()).hexdigest() for path in files]
    return hashlib.sha256("\n".join(map(repr, (study, shown, hashes))).encode()).hexdigest()


def _is_of(path: Path, data: str) -> bool:
    """Whether a picture is there, and was drawn from this."""
    if not path.exists():
        return False
    with Image.open(path) as picture:
        return picture.info.get(DATA) == data


def _keep(path: Path, data: str) -> None:
    """Write a picture with fewer colours, at half its size, and with what it was drawn from."""
    text = PngInfo()
    text.add_text(DATA, data)
    with Image.open(path) as picture:
        small = picture.convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE)
    small.save(path, optimize=True, pnginfo=text)


@lru_cache(maxsize=8)
def _beside(folder: Path, measured_runs: Path) -> measured.Beside:
    """Return what a folder's studies are drawn beside; measured runs take a fifth of a second to read."""
    return measured.beside(folder)


def _found(study: Study, ran: Watch, seeds: Sequence[int]) -> Iterator[tuple[Point, list[Outcome]]]:
    """Yield the study's points that were run, and those that a search made between its values of x; along x."""
    all_points = [*points(study), *_between(study, ran)]
    for one in all_points if study.x.categories else sorted(all_points, key=lambda one: one.x):
        there = (run.overrides for run in runs(one, seeds))
        outcomes = [ran.outcomes[overrides] for overrides in there if overrides in ran.outcomes]
        if outcomes and not one.skip:
            yield one, outcomes


def _between(study: Study, ran: Watch) -> Iterator[Point]:
    for one in ran.points.values():
        if one.study == study.name and one.x not in study.panel(one.panel).x:
            yield point(study, study.panel(one.panel), study.series_named(one.series), one.x)


def _only(study: Study, there: Sequence[Point]) -> Study:
    """Return a study without the panels, series and values of x that none of these points has."""
    panels = [replace(panel, x=x) for panel in study.panels if (x := _x(study, panel, there))]
    if study.kind == "lines":  # of a single x a reason quotes a number or two: that is no curve
        panels = [panel for panel in panels if len(panel.x) > 1] or panels
    kept = {panel.name for panel in panels}
    names = {one.series for one in there if one.panel in kept}
    return replace(study, panels=panels, series=[each for each in study.series if each.name in names])


def _x(study: Study, panel: Panel, there: Sequence[Point]) -> list[object]:
    found = {one.x for one in there if one.panel == panel.name}
    return [x for x in panel.x if x in found] if study.x.categories else sorted(found)
