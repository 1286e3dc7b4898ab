"""Finds the measured runs that a point repeats, in the files of published benchmark runs.

A run is found by what was run, not by a list of rows: system, GPU, model, ranks and all of the workload's
parameters are those of the point's settings. A study, panel or series may ask for other values with `measured`, and
for texts that match a pattern: `source: "*_cv_*"`. Each of the two modules knows a file: its rows, and a run as
they, their keys and a point's settings say it. A calibration keeps the keys of its fitted rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from experiments.dlora import measured as dlora
from experiments.fidelity import rows as slora_rows
from experiments.fidelity.vllm import predict as vllm_rows
from experiments.studies import slora_runs, vllm_runs
from experiments.studies.metrics import METRICS
from experiments.studies.points import Point
from experiments.studies.reading import measured_dir
from experiments.studies.study import Study


def was_fitted(settings: Mapping[str, Any], summary: Mapping[str, Any]) -> bool:
    """Whether coefficients were fitted to the published run of these settings. Campaign and pool do not count."""
    runs = schema(str(settings["system"]))
    wanted = runs.run(settings)
    return wanted is not None and any(runs.run_of(runs.columns_of(key)) == wanted for key in _keys(summary))


def _keys(summary: Mapping[str, Any]) -> Iterator[str]:
    provenance = summary.get("calibration", {}).get("provenance", {})
    yield from provenance.get("fitted_rows", ())
    for added in provenance.get("additions", {}).values():
        yield from added.get("fitted_rows", ())


Row = slora_rows.Row | vllm_rows.Row
SCHEMAS = (slora_runs, vllm_runs)


def schema(system: str) -> ModuleType:
    """Return the module of the file that has a system's measured runs."""
    return vllm_runs if system == "vllm" else slora_runs


def rows() -> list[Row] | None:
    """Return all measured runs, None if there is not one file of them."""
    paths = [(each, measured_dir() / each.FILE) for each in SCHEMAS]
    return [row for each, path in paths if path.exists() for row in each.read(path)] or None


def finder(settings: Mapping[str, Any], also: Mapping[str, Any]) -> Callable[[Row], bool] | None:
    """Return what says whether a row is the run of these settings, with the cells `also` in place of its own.

    None if it is no run of these. A pool that is not on record may have been any.
    """
    runs, pool = schema(str(settings["system"])), settings.get("replica.kv_token_budget")
    wanted = runs.run(settings)

    def is_its_run(row: Row) -> bool:
        held, columns = runs.run_of(row.columns), row.columns
        return (
            all(held[name] == value for name, value in (wanted or {}).items() if name not in also)
            and (pool is None or not columns[runs.POOL] or same(columns[runs.POOL], pool))
            and all(same(columns.get(name) or "", value) for name, value in also.items())
        )

    return is_its_run if wanted is not None else None


def same(cell: str, value: Any) -> bool:
    """Whether a cell has a value: the same number, or a text that matches the pattern."""
    try:
        return float(cell) == float(value)
    except (TypeError, ValueError):
        return fnmatchcase(cell, str(value))


def missing_of(studies: Iterable[Study]) -> list[str]:
    """Return the files that these studies would look into and that are not there."""
    wanted = {schema(series.system).FILE for study in studies for series in study.series}
    return sorted(str(measured_dir() / name) for name in wanted if not (measured_dir() / name).exists())


def published(study: Study, point: Point, measured: Sequence[Row] | None) -> dict[str, list[Any]]:
    """Return what was printed or measured of a point, by metric: a list, for a run may have been repeated."""
    printed = study.printed.get((point.panel, point.series, point.x))
    if printed:
        return {metric: [value] for metric, value in printed.items()}
    runs = schema(point.system)
    is_its_run = finder(point.settings, _also(study, point))
    if study.printed or measured is None or is_its_run is None:
        return {}
    found: dict[str, list[Any]] = {}
    for row in measured:
        if isinstance(row, runs.Row) and is_its_run(row):
            for metric, value in _figures(row.columns, study.metrics).items():
                found.setdefault(metric, []).append(value)
    return found


class Beside(NamedTuple):
    """What a folder's studies are drawn beside: what was published of a point, files that are missing, and targets."""

    published: Callable[[Study, Point], Mapping[str, list[Any]]]
    missing: Sequence[str]
    targets_s: Mapping[str, float] = {}


def beside(folder: Path, studies: Iterable[Study] = ()) -> Beside:
    """Return what the studies of a folder are drawn beside: of dLoRA what its artifact plots, or else measured rows."""
    if folder.resolve() == dlora.FOLDER:
        theirs = dlora.read()
        missing = [] if theirs else [str(dlora.path())]
        theirs = theirs or dlora.Measured({})
        return Beside(lambda study, point: theirs.of(point), missing, dlora.TARGETS_S)
    found = rows()
    return Beside(lambda study, point: published(study, point, found), missing_of(studies))


def _also(study: Study, point: Point) -> dict[str, Any]:
    panel, series = study.panel(point.panel), study.series_named(point.series)
    return {**study.measured, **panel.measured, **series.measured}


def _figures(columns: Mapping[str, str], metrics: Iterable[str]) -> dict[str, float]:
    """Return the metrics that a row has. A column in milliseconds says so by its name."""
    return {
        metric: float(columns[name]) / (1000 if name.endswith("_ms") else 1)
        for metric in metrics
        for name in METRICS[metric].measured
        if columns.get(name)
    }
