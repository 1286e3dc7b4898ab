"""A sweep: a grid of runs in one table."""

from __future__ import annotations

import functools
import json
import shlex
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from pandas.api.types import is_numeric_dtype

from simlora.api.cache import Cache, open_cache, settled
from simlora.api.inputs import hash_of
from simlora.api.progress import bar
from simlora.config.own_folder import with_folder
from simlora.core.checks import whole
from simlora.core.errors import InputError, nearest
from simlora.core.files import expanded
from simlora.core.locks import locked
from simlora.core.trees import leaves
from simlora.metrics.saturation import LOADS
from simlora.report.format import device_in_words
from simlora.report.sides import Side, heading
from simlora.results.files import cannot_write, writing
from simlora.sweeps import statistics
from simlora.sweeps.backends import LOKY
from simlora.sweeps.backends import backend as spread
from simlora.sweeps.grid import Cell, Grid, grid
from simlora.sweeps.naming import names_of, system_named
from simlora.sweeps.outcome import RAN, STATUSES, Outcome, Overrides
from simlora.sweeps.running import each_run
from simlora.sweeps.sides import FACTS, SIDE, allowed, check, columns_of, facts_in, kind_of, sides
from simlora.sweeps.values import cell as kept
from simlora.sweeps.values import of_one_kind, read

if TYPE_CHECKING:
    from matplotlib.axes import Axes

TABLE = "sweep.parquet"
LOCK = ".sweep.lock"
"""A sweep that writes the table holds it: sweeps into one folder add their rows in turn."""
DEVICE = "device"
"""What was simulated on what, in words: llama_7b on a10g."""
WARNING = "warning"
"""What a run's calibration was not measured for, and the error to expect; empty where there is nothing to say."""
EVERY_S = 20.0
"""Seconds between two writes of the table while runs go on."""
RUN = "overrides"
"""The overrides of a run, as a shell reads them; runs that have the same are of the same configuration."""
TEXTS = ("key", "source", RUN, "status", "reason", DEVICE, WARNING, *(f"{SIDE}{fact}" for fact in FACTS))
"""Columns that are text in every row that has them."""
WORDS = {"load": LOADS, "status": STATUSES}
"""Columns that have one of these words in every row that has them."""
SHARES = ("attainment", "satisfaction", "hit_rate", "given_up_share", "merged_share", "hbm_share")
"""Last words of the places of figures that are shares."""
NO_FIGURES = ("command", "run", "workload", "versions", "seed", "calibration", "complete")
"""Sections of summary.json that say what was run, and nothing of what came out."""


@dataclass(frozen=True)
class Sweep:
    """A table, a run a row: `key`, what was set, `seed`, `overrides`, `status`, `reason`, `load`, `device`, figures.

    Figures are the numbers of summary.json by their dotted place, such as `ttft_s.p95`. `key` is the hash of the
    configuration, of the files that it names and of simlora's own. `axes` are the columns that were varied. `status` is
    ran, does not fit, not simulated (the configuration was refused) or failed (an error, or a file that it reads has
    changed since the sweep began), with a `reason` but for the first. `warning`: what its calibration warns of.
    Columns that begin with `side.` say what a row ran on and was judged by: gpu, model, engine, slo, calibration, its
    kind, the system, and as JSON what was changed of that.

    `stale`: how many rows of earlier sweeps stand in the same file, and have read a file as it no longer is.
    """

    table: pd.DataFrame
    axes: Sequence[str]
    stale: int = 0

    @property
    def sides(self) -> tuple[Side, ...]:
        """What was compared: on which GPU, model, engine, SLO and calibration each configuration ran."""
        rows = self.table.to_dict("records")
        names = names_of(self.table, self.axes)
        return sides(facts_in(row) | {"name": name} for name, row in zip(names, rows, strict=True))

    @property
    def heading(self) -> str:
        """The sides, a line each."""
        return heading(self.sides)

    def aggregate(self, figure: str, by: Sequence[str] | None = None) -> pd.DataFrame:
        """Return a figure over seeds with its 95 % interval, for each combination of what was varied.

        Its `estimate` is the mean over seeds, of a percentile such as `ttft_s.p99` the median.
        """
        return statistics.aggregate(self.table, figure, self.axes if by is None else by)

    def paired(self, figure: str, between: str, base: Any) -> pd.DataFrame:
        """Return how a figure differs from what it is where `between` is `base`, with the same random numbers."""
        others = [axis for axis in self.axes if axis != between]
        return statistics.paired(self.table, figure, between, base, others)

    def text(self, figure: str, against: str | None = None) -> str:
        """Return a figure over seeds as aligned text, or with `against`, such as "system=slora", what differs."""
        if against is None:
            table = self.aggregate(figure)
            title = f"{figure}: {statistics.summary_of(figure)} over seeds, 95 % interval"
        else:
            axis, _, written = against.partition("=")
            if axis not in self.axes:
                raise InputError(f"{against!r} is no value of what was varied; {nearest(axis, self.axes)}")
            table = self.paired(figure, axis, read(written))
            title = f"{figure}: difference from {against}, seed by seed, 95 % interval"
        cells = table.astype(object).map(
            lambda value: f"{value:.4g}" if isinstance(value, float) else str(value)
        )
        return f"{title}\n{self._with_names(cells.replace('nan', '')).to_string(index=False)}"

    def plot(self, figure: str, x: str, ax: Axes | None = None) -> Axes:
        """Draw a figure over seeds with intervals over one of the axes, a line for each combination of the others."""
        from simlora.report.sweeps import plot_sweep

        means = self._with_names(self.aggregate(figure))
        return plot_sweep(means, figure, x, [axis for axis in self.axes if axis != x], ax)

    def _with_names(self, table: pd.DataFrame) -> pd.DataFrame:
        """Return a table whose systems are called by what was changed of them, too."""
        if "system" not in table:
            return table
        called = dict(zip(self.table["system"], names_of(self.table, self.axes), strict=True))
        return table.assign(system=table["system"].map(called))


def sweep(
    overrides: Sequence[str] = (),
    *,
    config_dir: str | Path | None = None,
    seeds: int = 1,
    out: Path | str | None = None,
    jobs: int = -1,
    backend: str = LOKY,
    address: str | None = None,
    progress: bool = False,
    across: str | Sequence[str] = (),
) -> Sweep:
    """Simulate every combination of the values that keys are given, with every seed, and return one table.

    `overrides` are written as for `simlora -m`: ["system=slora,dlora", "workload.rate_rps=range(1,9)"]. Seeds go on
    from the configuration's, and are the same random numbers in every cell. Runs are spread over `jobs` processes (-1:
    one a core) of this machine, or with `backend` ray or dask over the workers of a cluster, at `address`. Each is kept
    as it ends, and not run again until something it depends on changes: a sweep that was killed goes on where it was,
    and what a worker that died had begun is begun again. A run that is refused or fails is a row with its reason.

    `config_dir` is a folder of your own configurations.

    With `out`, a folder, the table is `sweep.parquet` there, to which later sweeps add their rows.

    All runs have the same GPU, model, SLO and calibration, and one engine a system, but for what the grid itself varies
    (`gpu=`, `slo.ttft_s=1,2`) and for what `across` allows to differ: of gpu, model, engine, slo and calibration. A
    system that brings a GPU of its own has not asked for that.

    Raises InputError for a grid that cannot be read, where runs differ so, and if every run of it is refused.
    """
    if jobs != -1:
        whole("jobs", jobs, "processes", least=1)
    asked = grid(with_folder(overrides, config_dir), seeds)
    allow = allowed(across)
    cells = {cell.overrides: cell for cell in asked.cells()}
    _check_sides(asked, cells.values(), allow)
    table = Table(list(asked.axes), list(cells), expanded(out) if out is not None else None)
    with spread(backend, address), bar(len(cells), "runs", progress) as tell:
        runs = each_run(list(cells), jobs, table.cache, keep_going=True)
        for done, (run, outcome) in enumerate(runs, start=1):
            table.add(cells[run], outcome)
            tell(done)
    return table.finished()


def _check_sides(asked: Grid, cells: Iterable[Cell], across: frozenset[str]) -> None:
    """Raise InputError where runs differ in a condition that was not asked to differ."""
    rows = []
    for cell in cells:
        name = system_named(cell.facts["system"], cell.facts["changed"], asked.axes)
        rows.append({**cell.values, **cell.facts, "name": name})
    check(rows, list(asked.axes), across)


class Table:
    """The rows of a sweep as they come, and where they are written."""

    def __init__(self, axes: Sequence[str], order: Sequence[Overrides], folder: Path | None) -> None:
        self.axes = axes
        self.cache = open_cache()
        self._folder = folder
        self._rows: dict[str, dict[str, Any]] = {}
        self._order = {overrides: place for place, overrides in enumerate(order)}
        if folder is not None:
            _earlier(
                folder, self.cache
            )  # raises for a table that is none of ours before anything is simulated
        self._written_s = time.monotonic()
        self._before = pd.DataFrame()

    def add(self, cell: Cell, outcome: Outcome) -> None:
        """Take a run; now and then, write the table."""
        row = row_of(self.cache, cell, outcome)
        self._rows[row["key"]] = row | {"order": self._order[cell.overrides]}
        if self._folder is not None and time.monotonic() - self._written_s > EVERY_S:
            self._write()

    def finished(self) -> Sweep:
        """Return the sweep, in the order of its grid, having written it. Raises InputError if nothing ran."""
        own = self._own()
        if not (own["status"] == RAN).any():
            first = own.iloc[0]
            raise InputError(
                f"none of the {len(own):,} runs could be simulated; the first: {first['reason']}"
            )
        if self._folder is not None:
            self._write()
        return Sweep(own, self.axes, _stale(self.cache, self._before))

    def _own(self) -> pd.DataFrame:
        rows = sorted(self._rows.values(), key=lambda row: row["order"])
        return of_one_kind(pd.DataFrame(rows).drop(columns="order"))

    def _write(self) -> None:
        assert self._folder is not None
        own = self._own()
        with _alone(self._folder), writing(self._folder, (TABLE,)) as draft:
            before = _earlier(self._folder, self.cache)
            if len(before):  # what was run again, as it is now or as a file was that it reads
                again = before["key"].isin(own["key"])
                again |= before[RUN].isin(own[RUN]) if RUN in before else False
                before = before[~again]
            table = pd.concat([before, own], ignore_index=True) if len(before) else own
            of_one_kind(table).to_parquet(draft / TABLE, index=False)
        self._before = before
        self._written_s = time.monotonic()


def read_sweep(folder: Path | str) -> pd.DataFrame:
    """Return the table of a sweep's folder. Raises InputError if there is none, or one that no sweep can have."""
    path = Path(folder) / TABLE
    if not path.exists():
        raise InputError(f"there is no {path}; must be the folder of a sweep")
    try:
        table = pd.read_parquet(path)
    except (OSError, ValueError) as error:
        raise InputError(f"{path} cannot be read, must be a sweep's table: {error}") from None
    _check(path, table)
    return table


def _check(path: Path, table: pd.DataFrame) -> None:
    """Raise InputError for the first column of values that no sweep has."""
    must = "must be a sweep's table"
    if not table.columns.is_unique:
        raise InputError(f"{path} has two columns of one name, {must}")
    for name in map(str, table.columns):
        column = table[name].dropna()
        if name in ("key", "seed", "status") and len(column) < len(table):
            raise InputError(f"{path} has a row without a {name}, {must}")
        if name in WORDS:
            known, fits = ", ".join(WORDS[name]), set(map(str, column)) <= {*WORDS[name]}
        elif name == f"{SIDE}changed":
            known, fits = "JSON of a mapping", all(map(_is_mapping, column))
        elif name in TEXTS:
            known, fits = "text", set(map(type, column)) <= {str}
        elif is_numeric_dtype(column) and is_share(name):
            known, fits = "shares from 0 to 1", bool(column.between(0, 1).all())
        elif is_numeric_dtype(column):
            known, fits = "finite numbers", not np.isinf(column).any()
        else:
            known, fits = "text or numbers", set(map(type, column)) <= {str, bool, int, float}
        if not fits:
            raise InputError(f"{path} has other values than {known} in the column {name}, {must}")


def _is_mapping(text: Any) -> bool:
    """Whether a text is JSON of a mapping."""
    try:
        return isinstance(json.loads(text), dict)
    except (TypeError, ValueError, RecursionError):
        return False


def is_share(figure: str) -> bool:
    """Whether a figure is a share of requests, adapters or tokens."""
    return figure.rpartition(".")[2] in SHARES


def row_of(cache: Cache, cell: Cell, outcome: Outcome) -> dict[str, Any]:
    """Return the row of one run."""
    found: dict[str, Any] = {"key": outcome.key, "source": cache.source}
    found |= {key: kept(value) for key, value in cell.values.items()}
    found |= {"seed": cell.seed, RUN: shlex.join(settled(cell.overrides))}
    found |= {"status": outcome.status, "reason": outcome.reason}
    ran = outcome.status == RAN
    found |= {
        "load": outcome.summary["load"]["label"] if ran else None,
        DEVICE: device_in_words(outcome.summary) if ran else None,
        WARNING: " ".join(outcome.warnings) if ran else None,
    }
    found |= columns_of({**cell.facts, "kind": kind_of(outcome.summary) if ran else None})
    return found | {"seconds": outcome.seconds, **dict(figures(outcome.summary))}


def figures(summary: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """Yield every number of a summary with its dotted place, but for what is counted by replica."""
    for name, value in leaves({key: value for key, value in summary.items() if key not in NO_FIGURES}):
        if isinstance(value, int | float) and not isinstance(value, bool):
            yield name, float(value)


def _earlier(folder: Path, cache: Cache) -> pd.DataFrame:
    """Return the rows that are there, of simlora as it is now."""
    if not (folder / TABLE).exists():
        return pd.DataFrame()
    table = read_sweep(folder)
    for column in ("key", "source", "seed", "status"):
        if column not in table:
            raise InputError(
                f"{folder / TABLE} has no column {column}, must be a sweep's table; choose another folder"
            )
    return table[table["source"] == cache.source]


def _stale(cache: Cache, table: pd.DataFrame) -> int:
    """Return how many runs would be kept under another key by now: a file that their overrides name has changed."""
    if RUN not in table:
        return 0
    hashed = functools.cache(hash_of)  # once each: all rows may name the same long trace
    runs = [shlex.split(str(overrides)) for overrides in table[RUN].fillna("")]
    keys = [cache.path(run, {name: hashed(name) for name in cache.names(run)}).stem for run in runs]
    return int((table["key"] != keys).sum())


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Keep other sweeps from writing the table. Raises InputError for a folder that cannot be written."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with locked(folder / LOCK):
            yield
    except OSError as error:
        raise cannot_write(folder, error) from error
