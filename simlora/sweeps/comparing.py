"""Reads runs and sweeps, and gathers what there is to be seen of them side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from simlora.core.errors import InputError, nearest
from simlora.metrics.slo import ATTAINMENT, is_finished
from simlora.metrics.summary import TIMES
from simlora.report.compared import SHARES, Comparison
from simlora.report.format import digits_of
from simlora.results.files import load_results
from simlora.sweeps.differing import (
    alike,
    averaged,
    axis_of,
    is_numeric,
    label_of,
    unlike,
    varying,
)
from simlora.sweeps.gathering import GPU_HOURS, SOURCE, gather
from simlora.sweeps.naming import names_of
from simlora.sweeps.outcome import RAN
from simlora.sweeps.sides import SIDE, allowed, asks, check, facts_in, sides
from simlora.sweeps.statistics import echoes
from simlora.sweeps.winners import marked

COSTS = ("cost.usd_per_million_tokens", "gpu_s_per_thousand_requests")
COLUMNS = (ATTAINMENT, "ttft_s.mean", "ttft_s.p99", "tpot_s.mean", "latency_s.mean", "throughput_tps")


def compare(
    paths: Sequence[Path],
    x: str | None = None,
    by: Sequence[str] = (),
    figures: Sequence[str] = (),
    command: str = "",
    across: str | Sequence[str] = (),
) -> Comparison:
    """Read runs and sweeps, and return what there is to be seen of them.

    `x` is the numeric key that curves are drawn over, `by` those whose values make a line each; what is not given is
    found: whatever varies. Runs that differ in neither are averaged, as seeds are. `figures` are to be drawn, too.

    All have the same GPU, model, SLO and calibration, and one engine a system, but for what `x` and `by` name, what
    the grid of a sweep varies, and what `across` allows to differ: of gpu, model, engine, slo and calibration.

    Raises InputError for what cannot be read, does not vary or is not there, where runs differ so, and if no run has
    any figures.
    """
    allow = allowed(across)
    runs = gather(paths)
    table = _with_gpu_seconds(runs.table)
    if not (table["status"] == RAN).any():
        raise InputError(
            f"none of the {len(table):,} runs has any figures; the first: {table['reason'].iloc[0]}"
        )
    _check(table, runs.keys, x, by, figures)
    vary = varying(table, runs.keys)
    axis = x or axis_of(table, [key for key in vary if key not in by])
    if "system" in table and table[f"{SIDE}system"].notna().all():
        table = table.assign(system=names_of(table, (*by, *([axis] if axis else []))))
        vary = varying(table, runs.keys)
    names = tuple(by) or tuple(key for key in vary if key != axis)
    places = {"line": _lines(table, names), "x": pd.to_numeric(table[axis]) if axis else ""}
    table = pd.concat([table, pd.DataFrame(places, index=table.index)], axis=1)
    rows = table.to_dict("records")
    asked = _asked(table, runs.keys, (*by, *([x] if x else [])))
    of_asked = ({key: row[key] for key in asked} for row in rows)
    check(
        [
            own | facts_in(row) | {"name": row["folder"] or row["line"]}
            for own, row in zip(of_asked, rows, strict=True)
        ],
        asked,
        allow,
    )
    runs_of_all, again = len(table), echoes(table, ["line", "x"])
    left_out = alike(table[again])
    table = table[~again].reset_index(drop=True)
    lines = tuple(dict.fromkeys(table["line"]))
    ran = table[table["status"] == RAN]
    known = [name for name in COSTS if name in ran and ran[name].notna().any()]
    cost = next((name for name in known if ran[name].notna().all()), known[0] if known else None)
    columns = dict.fromkeys([*COLUMNS, *([cost] if cost else []), *figures])
    drawn = dict.fromkeys([*columns, *(f"{metric}.{end}" for metric in TIMES for end in ("p50", "p99"))])
    return Comparison(
        sources=tuple(map(str, dict.fromkeys(paths))),
        command=command,
        x=axis,
        by=names,
        lines=lines,
        runs=runs_of_all,
        sides=sides(facts_in(row) | {"name": _full_name(row, names)} for row in rows),
        means={figure: marked(table, figure, lines) for figure in drawn if figure in table},
        columns=tuple(figure for figure in columns if figure in table),
        asked=tuple(figures),
        cost=cost,
        quantiles=_quantiles(table),
        lost=table[table["status"] != RAN][["line", "x", "seed", "status", "reason"]],
        notices=(
            *runs.notices,
            *averaged(axis, names, vary),
            *unlike(table, runs.keys, axis, names, vary),
            *left_out,
        ),
    )


def _check(
    table: pd.DataFrame, keys: Sequence[str], x: str | None, by: Sequence[str], figures: Sequence[str]
) -> None:
    for key in (*by, *([x] if x else [])):
        if key not in keys:
            raise InputError(f"{key!r} is no key of these runs; {nearest(key, keys)}")
    if x is not None and not is_numeric(table[x]):
        raise InputError(f"--x {x} is not a number in every run, must be one to draw curves over it")
    known = [
        str(column) for column in table if column not in keys and pd.api.types.is_numeric_dtype(table[column])
    ]
    for figure in figures:
        if figure not in known:
            raise InputError(f"{figure!r} is no figure of these runs; {nearest(figure, known)}")


def _with_gpu_seconds(table: pd.DataFrame) -> pd.DataFrame:
    """Return the table with what a thousand requests took, where it is known how many GPUs there were."""
    taken_s = table["gpus"] * table["makespan_s"]
    if GPU_HOURS in table:  # which also knows when they were off
        taken_s = (3600.0 * table[GPU_HOURS]).fillna(taken_s)
    finished = table["requests.finished"].replace(0, np.nan)
    return pd.concat([table, (1000.0 * taken_s / finished).rename(COSTS[1])], axis=1)


def _lines(table: pd.DataFrame, names: Sequence[str]) -> list[str]:
    """Return the line of each run: by the values of `names`; by its system where nothing varies."""
    if not names and "system" in table and table["system"].nunique() == 1:
        return table["system"].astype(str).tolist()
    labels = zip(*(table[name] for name in names), strict=True) if names else [()] * len(table)
    return [label_of(names, values) for values in labels]


def _full_name(row: Mapping[Any, Any], names: Sequence[str]) -> str:
    """Return what a run's line is called, with its system where the line does not say it."""
    system, line = row.get("system"), str(row["line"])
    return f"{system}, {line}" if names and "system" not in names and isinstance(system, str) else line


def _asked(table: pd.DataFrame, keys: Sequence[str], named: Sequence[str]) -> list[str]:
    """Return the keys by which a difference in GPU, model, engine, SLO or calibration is asked for.

    They are those `named` as an axis or a line, and what the grid of one sweep varies. A difference between folders
    may have gone unseen.
    """
    grids = table[table["folder"] == ""].groupby(SOURCE, sort=False)
    varied = (key for key in keys if asks(key) and (grids[key].nunique() > 1).any())
    return list(dict.fromkeys([*(key for key in named if asks(key)), *varied]))


def _quantiles(table: pd.DataFrame) -> dict[str, dict[str, dict[str, NDArray[np.float64]]]]:
    """Return the times of finished requests at SHARES, by x, metric and line, of the runs whose requests are kept."""
    found: dict[str, dict[str, dict[str, NDArray[np.float64]]]] = {}
    kept = table[table["folder"] != ""].sort_values("x", kind="stable")
    for (x, line), own in kept.groupby(["x", "line"], sort=False):
        done = pd.concat([_finished(Path(folder)) for folder in own["folder"]])
        for metric in TIMES:
            values = done[metric].dropna().to_numpy(dtype=np.float64)
            if len(values):
                at = found.setdefault(digits_of(x), {}).setdefault(metric, {})
                at[str(line)] = np.quantile(values, SHARES)
    return found


def _finished(folder: Path) -> pd.DataFrame:
    """Return the times of a run's requests that finished, of those that its figures are of."""
    requests = load_results(folder).counted
    done = requests[is_finished(requests)]
    return pd.DataFrame({metric: done[metric] for metric in TIMES})
