"""The nouns of a study, and how they are read from its YAML."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from experiments.studies.metrics import METRICS
from experiments.studies.reading import check, known, listed, load
from simlora.core.errors import InputError

EXPERIMENTS = Path(__file__).resolve().parents[1]
Settings = Mapping[str, Any]
"""Overrides as on the command line: `{gpu: a10g, workload.rate_rps: 2}`."""
NO_STUDIES = ("claims", "unknowns", "provenance")
"""Files of a paper's folder that are something else."""
OOM = "OOM"
"""What is printed where the model did not fit the GPU's memory."""


@dataclass(frozen=True)
class Axis:
    """What is varied: the key that each value of x sets.

    `categories`: x is a name, at equal distances. `apart`: curves that would cover each other are drawn beside each
    other. `written`: what the key is set to where that is not x itself, with `{x}` in the place of x.
    """

    key: str
    label: str
    values: Sequence[Any]
    scale: str
    categories: bool
    apart: bool
    written: str = ""

    def value(self, x: Any) -> Any:
        """Return what the key is set to."""
        return self.written.replace("{x}", str(x)) if self.written else x


@dataclass(frozen=True)
class Panel:
    """One plot: its own settings and values of x. `measured` overrides what a measured row must have."""

    name: str
    title: str
    settings: Settings
    x: Sequence[Any]
    measured: Settings


@dataclass(frozen=True)
class Series:
    """One curve: a system and its settings."""

    name: str
    title: str
    system: str
    settings: Settings
    measured: Settings


@dataclass(frozen=True)
class Rule:
    """Of the points that match `where` (panel, series, x): settings, why they are not simulated, or beyond what
    measurements they are, so that what they say is extrapolated.
    """

    where: Mapping[str, Sequence[Any]]
    settings: Settings
    skip: str
    beyond: str

    def matches(self, panel: str, series: str, x: Any) -> bool:
        """Whether the rule is about this point."""
        point = {"panel": panel, "series": series, "x": x}
        return all(point[name] in values for name, values in self.where.items())


@dataclass(frozen=True)
class Study:
    """One figure or table. `printed[panel, series, x]` are the numbers in the paper, by metric."""

    name: str
    title: str
    source: str
    note: str
    kind: str
    x: Axis
    metrics: Sequence[str]
    logarithmic: Sequence[str]
    settings: Settings
    panels: Sequence[Panel]
    series: Sequence[Series]
    rules: Sequence[Rule]
    measured: Settings
    printed: Mapping[tuple[str, str, Any], Mapping[str, Any]]

    def panel(self, name: str, place: str = "") -> Panel:
        """Return the panel of that name. Raises InputError, beginning with `place`, with the nearest ones."""
        known(name, [panel.name for panel in self.panels], f"{place or self.name}: panel")
        return next(panel for panel in self.panels if panel.name == name)

    def series_named(self, name: str, place: str = "") -> Series:
        """Return the series of that name. Raises InputError, beginning with `place`, with the nearest ones."""
        known(name, [series.name for series in self.series], f"{place or self.name}: series")
        return next(series for series in self.series if series.name == name)


def read(path: Path) -> Study:
    """Read a study. Raises InputError, naming file and key, for what it does not say right."""
    tree = check(
        load(path),
        str(path),
        ("title", "source", "x", "metrics", "panels", "series"),
        ("note", "kind", "logarithmic", "set", "rules", "measured", "printed"),
    )
    metrics = [known(name, METRICS, f"{path}: metric") for name in listed(tree["metrics"])]
    axis = _axis(tree["x"], f"{path}: x")
    panels = [_panel(name, entry, axis, f"{path}: panel {name}") for name, entry in tree["panels"].items()]
    series = [_series(name, entry, f"{path}: series {name}") for name, entry in tree["series"].items()]
    return Study(
        name=path.stem,
        title=tree["title"],
        source=tree["source"],
        note=tree.get("note", ""),
        kind=known(tree.get("kind", "lines"), ("lines", "bars"), f"{path}: kind"),
        x=axis,
        metrics=metrics,
        logarithmic=[known(name, metrics, f"{path}: logarithmic") for name in tree.get("logarithmic", ())],
        settings=tree.get("set", {}),
        panels=panels,
        series=series,
        rules=[
            _rule(entry, panels, series, f"{path}: rule {number}")
            for number, entry in enumerate(tree.get("rules") or (), 1)
        ],
        measured=tree.get("measured", {}),
        printed=_printed(tree.get("printed", {}), metrics, panels, series, f"{path}: printed"),
    )


def read_all(folder: Path) -> dict[str, Study]:
    """Read the studies of a paper's folder, by name."""
    return {path.stem: read(path) for path in sorted(files(folder), key=_in_order)}


def papers(file: str, folder: Path = EXPERIMENTS) -> dict[str, Path]:
    """Return the folders of papers that have this file, by the paper's name."""
    return {path.parent.name: path.parent for path in sorted(folder.glob(f"*/{file}"))}


def read_seeds(folder: Path) -> list[int]:
    """Return the seeds over which a paper's claims are judged; none: each run has that of its settings."""
    path = folder / "claims.yaml"
    return (
        listed(check(load(path), str(path), ("claims",), ("seeds",)).get("seeds", []))
        if path.exists()
        else []
    )


def files(folder: Path) -> list[Path]:
    """Return the files of a paper's folder that are studies."""
    return [path for path in folder.glob("*.yaml") if path.stem not in NO_STUDIES]


def _in_order(path: Path) -> tuple[str, int]:
    kind, _, number = path.stem.rpartition("_")
    return (kind, int(number)) if number.isdigit() else (path.stem, 0)


def _axis(tree: Any, place: str) -> Axis:
    entry = check(tree, place, ("key", "label"), ("values", "scale", "categories", "apart", "written"))
    scale = known(entry.get("scale", "linear"), ("linear", "log"), f"{place}.scale")
    values = tuple(listed(entry.get("values", ())))
    flags = (bool(entry.get(name, False)) for name in ("categories", "apart"))
    return Axis(entry["key"], entry["label"], values, scale, *flags, entry.get("written", ""))


def _panel(name: str, tree: Any, axis: Axis, place: str) -> Panel:
    entry = check(tree, place, ("title",), ("set", "x", "measured"))
    x = tuple(listed(entry.get("x", axis.values)))
    if not x:
        raise InputError(f"{place} has no x, and x has no values for all panels")
    return Panel(name, entry["title"], entry.get("set", {}), x, entry.get("measured", {}))


def _series(name: str, tree: Any, place: str) -> Series:
    entry = check(tree, place, ("title", "system"), ("set", "measured"))
    return Series(name, entry["title"], entry["system"], entry.get("set", {}), entry.get("measured", {}))


def _rule(tree: Any, panels: Sequence[Panel], series: Sequence[Series], place: str) -> Rule:
    entry = check(tree, place, ("where",), ("set", "skip", "beyond", "source"))
    where = check(entry["where"], f"{place}.where", (), ("panel", "series", "x"))
    values = {name: listed(value) for name, value in where.items()}
    for name in values.get("panel", ()):
        known(name, [panel.name for panel in panels], f"{place}.where.panel")
    for name in values.get("series", ()):
        known(name, [one.name for one in series], f"{place}.where.series")
    for value in values.get("x", ()):
        known(value, {x for panel in panels for x in panel.x}, f"{place}.where.x")
    if len({"set", "skip", "beyond"} & entry.keys()) != 1:
        raise InputError(f"{place} must have either set, skip or beyond")
    return Rule(values, entry.get("set", {}), entry.get("skip", ""), entry.get("beyond", ""))


def _printed(
    tree: Mapping[str, Any],
    metrics: Sequence[str],
    panels: Sequence[Panel],
    series: Sequence[Series],
    place: str,
) -> dict[tuple[str, str, Any], dict[str, Any]]:
    """Return what is printed as panel -> series -> x -> value, or the values of all metrics in a list."""
    by_name = {panel.name: panel for panel in panels}
    found = {}
    for panel_name, by_series in tree.items():
        panel = by_name[known(panel_name, by_name, f"{place}: panel")]
        for name, by_x in by_series.items():
            known(name, [one.name for one in series], f"{place}: series")
            for x, values in by_x.items():
                known(x, panel.x, f"{place}: x of {panel_name}, {name}")
                values = listed(values)
                if len(values) not in (1, len(metrics)):
                    raise InputError(f"{place} of {panel_name}, {name}, {x} has {len(values)} values")
                found[panel_name, name, x] = dict(zip(metrics, values, strict=False))
    return found
