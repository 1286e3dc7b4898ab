"""What configurations differ in, what each did over seeds, and which of them is better than the others."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from simlora.core.errors import InputError, nearest
from simlora.metrics.slo import is_finished
from simlora.metrics.summary import PAST, TIMES
from simlora.report.comparison import ATTAINMENT, BEST, SHARES, TIE, Comparison, digits_of
from simlora.report.format import ABSENT, targets_in_words
from simlora.results.files import load_results
from simlora.sweeps.gathering import FIRST, SOURCE, gather
from simlora.sweeps.outcome import RAN
from simlora.sweeps.statistics import echoes, interval, means
from simlora.sweeps.table import DEVICE

PREFERRED = ("workload.rate_rps", "workload.arrivals.rate_rps", "speedup")
"""Of the numbers that vary, what curves are drawn over."""
COSTS = ("cost.usd_per_million_tokens", "gpu_s_per_thousand_requests")
COLUMNS = (ATTAINMENT, "ttft_s.mean", "ttft_s.p99", "tpot_s.mean", "latency_s.mean", "throughput_tps")
ASKED = ("workload", "speedup", "slo", "window", "until_s", "cluster")
"""Groups of keys that say what is asked of systems, and how much there is to serve it."""
MOST_KEYS = 6
"""That are named in a notice."""
HIGHER = ("attainment", "goodput", "satisfaction", "throughput", "hit_rate")
LOWER = ("cost.", "gpu_s_", "preemptions", "loads", "load_bytes", "aborted", "rejected")
"""Words in the names of figures of which more is better, and less; times, by their name, are better short."""


def compare(
    paths: Sequence[Path],
    x: str | None = None,
    by: Sequence[str] = (),
    figures: Sequence[str] = (),
    command: str = "",
) -> Comparison:
    """Read runs and sweeps, and return what there is to be seen of them.

    `x` is the numeric key that curves are drawn over, `by` those whose values make a line each; what is not given is
    found: whatever varies. Runs that differ in neither are averaged, as seeds are. `figures` are to be drawn, too.
    Raises InputError for what cannot be read, does not vary or is not there, and if no run has any figures.
    """
    runs = gather(paths)
    table = _with_gpu_seconds(runs.table)
    if not (table["status"] == RAN).any():
        raise InputError(
            f"none of the {len(table):,} runs has any figures; the first: {table['reason'].iloc[0]}"
        )
    _check(table, runs.keys, x, by, figures)
    vary = varying(table, runs.keys)
    axis = x or _axis(table, [key for key in vary if key not in by])
    names = tuple(by) or tuple(key for key in vary if key != axis)
    labels = zip(*(table[name] for name in names), strict=True) if names else [()] * len(table)
    places = {
        "line": [_label(names, values) for values in labels],
        "x": pd.to_numeric(table[axis]) if axis else "",
    }
    table = pd.concat([table, pd.DataFrame(places, index=table.index)], axis=1)
    runs_of_all, again = len(table), echoes(table, ["line", "x"])
    alike = _alike(table[again])
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
        targets=_targets(table),
        means={figure: _means(table, figure, lines) for figure in drawn if figure in table},
        columns=tuple(figure for figure in columns if figure in table),
        asked=tuple(figures),
        cost=cost,
        quantiles=_quantiles(table),
        lost=table[table["status"] != RAN][["line", "x", "seed", "status", "reason"]],
        notices=(
            *runs.notices,
            *_averaged(axis, names, vary),
            *_unlike(table, runs.keys, axis, names, vary),
            *_on_several(table, axis, names),
            *alike,
        ),
    )


def _check(
    table: pd.DataFrame, keys: Sequence[str], x: str | None, by: Sequence[str], figures: Sequence[str]
) -> None:
    for key in (*by, *([x] if x else [])):
        if key not in keys:
            raise InputError(f"{key!r} is no key of these runs; {nearest(key, keys)}")
    if x is not None and not _numeric(table[x]):
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
    if "cost.gpu_hours" in table:  # which also knows when they were off
        taken_s = (3600.0 * table["cost.gpu_hours"]).fillna(taken_s)
    finished = table["requests.finished"].replace(0, np.nan)
    return pd.concat([table, (1000.0 * taken_s / finished).rename(COSTS[1])], axis=1)


# What differs ---------------------------------------------------------------------------


def varying(table: pd.DataFrame, keys: Sequence[str]) -> list[str]:
    """Return the keys that tell configurations apart, no more than are needed for that.

    A system that sets others goes before those it sets, names go before numbers.
    """
    words = [key for key in keys if not _numeric(table[key])]
    order = dict.fromkeys([*(key for key in (SOURCE, *FIRST, *PREFERRED) if key in keys), *words, *keys])
    found, groups = [], pd.Series(0, table.index)
    for key in order:
        finer = pd.Series(list(zip(groups, table[key].map(_plain), strict=True)), table.index)
        codes = pd.Series(pd.factorize(finer)[0], table.index)
        if codes.max() > groups.max():
            found.append(key)
            groups = codes
    return found


def _plain(value: Any) -> str:
    """Return a value as a reader would write it, the same for 1 and 1.0, and for all that is not there."""
    if value is None or value != value:  # NaN
        return ABSENT
    return (
        digits_of(float(value))
        if isinstance(value, int | float) and not isinstance(value, bool)
        else str(value)
    )


def _numeric(column: pd.Series[Any]) -> bool:
    plain = not column.map(lambda value: isinstance(value, bool | str)).any()
    return plain and bool(pd.to_numeric(column, errors="coerce").notna().all())


def _axis(table: pd.DataFrame, vary: Sequence[str]) -> str | None:
    numbers = [key for key in vary if _numeric(table[key])]
    return next((key for key in PREFERRED if key in numbers), numbers[0] if numbers else None)


def _label(names: Sequence[str], values: Sequence[Any]) -> str:
    """Return what a line is called: names as they are, of numbers also what they are of."""
    words = [
        _plain(value) if isinstance(value, str) else f"{name.rpartition('.')[2]}={_plain(value)}"
        for name, value in zip(names, values, strict=True)
    ]
    return ", ".join(words) or "all runs"


def _averaged(axis: str | None, names: Sequence[str], vary: Sequence[str]) -> list[str]:
    others = [key for key in vary if key != axis and key not in names]
    return [f"Runs that differ in {', '.join(others)} are averaged, too."] if others else []


def _unlike(
    table: pd.DataFrame, keys: Sequence[str], axis: str | None, names: Sequence[str], vary: Sequence[str]
) -> list[str]:
    """Return what else differs of what is asked of systems, not of how they work."""
    named = {axis, *names, *vary}
    asked = [key for key in keys if key.partition(".")[0] in ASKED and key not in named and key not in FIRST]
    singles = table[table["folder"] != ""]  # of a sweep, what it does not name is not known
    others = [key for key in asked if singles[key].map(_plain).nunique() > 1]
    if not others:
        return []
    more = f" and {len(others) - MOST_KEYS} more" if len(others) > MOST_KEYS else ""
    return [
        f"These runs also differ in {', '.join(others[:MOST_KEYS])}{more}, which their names here do not say."
    ]


def _on_several(table: pd.DataFrame, axis: str | None, names: Sequence[str]) -> list[str]:
    """Return which lines ran on which models and GPUs, if these are not the same and not what is compared."""
    if DEVICE not in table or {"model", "gpu"} & {axis, *names}:
        return []
    found = table.dropna(subset=[DEVICE]).groupby(DEVICE, sort=False)["line"].unique()
    if len(found) < 2:
        return []
    words = []
    for device, lines in found.items():
        more = f" and {len(lines) - MOST_KEYS} more" if len(lines) > MOST_KEYS else ""
        words.append(f"{device} ({', '.join(lines[:MOST_KEYS])}{more})")
    return [f"Not all ran the same model on the same GPU, which may be what differs: {'; '.join(words)}."]


def _alike(again: pd.DataFrame) -> list[str]:
    """Return what is to be said of runs that are left out, as they are what another seed did."""
    if again.empty:
        return []
    return [
        f"{len(again):,} runs did the very same as the first seed of their configuration, to the last digit, and count "
        "as one with it: nothing in them is drawn, as where a trace has been read from a file. One run has no interval."
    ]


def _targets(table: pd.DataFrame) -> tuple[str, ...]:
    """Return the SLOs that were set, in words."""
    prefix = "slo.targets."
    ran = table[table["status"] == RAN]
    targets = ran[[column for column in map(str, ran.columns) if column.startswith(prefix)]].drop_duplicates()
    return tuple(
        targets_in_words(
            {str(name).removeprefix(prefix): value for name, value in row.items() if value == value}
        )
        for row in targets.to_dict("records")
    )


# What they did --------------------------------------------------------------------------


def _means(table: pd.DataFrame, figure: str, lines: Sequence[str]) -> pd.DataFrame:
    """Return the means of a figure by line and x, with marks of who is best."""
    found = means(table, figure, ["line", "x"])
    place = {line: place for place, line in enumerate(lines)}
    found = found.sort_values(
        ["x", "line"], key=lambda column: column.map(place) if column.name == "line" else column
    )
    by_seed = table.groupby(["line", "x", "seed"], sort=False)[figure].mean().dropna()
    own = {at: rows.droplevel(["line", "x"]) for at, rows in by_seed.groupby(["line", "x"], sort=False)}
    marks: dict[int, str] = {}
    for _, rivals in found.groupby("x"):
        marks |= _marks(figure, rivals, own)
    found = found.assign(mark=[marks.get(index, "") for index in found.index])
    return found.sort_values("line", key=lambda column: column.map(place), kind="stable").reset_index(
        drop=True
    )


def _marks(figure: str, rivals: pd.DataFrame, own: dict[Any, pd.Series[Any]]) -> dict[int, str]:
    """Return who is better than all others, or who cannot be told from the best; nothing if that is everybody.

    Nor is there a best time past saturation, where times say how long the run lasted.
    """
    ranked = rivals.dropna(subset=["mean"])
    sign = direction(figure)
    if sign == 0 or len(ranked) < 2:
        return {}
    seen = {index: sign * own[line, x] for index, line, x in ranked[["line", "x"]].itertuples()}
    best = seen[(sign * ranked["mean"]).idxmax()]
    unbeaten = [index for index, other in seen.items() if not better(best, other)]
    is_time = figure.partition(".")[0].endswith("_s")
    if len(unbeaten) == len(ranked) or (is_time and set(ranked.loc[unbeaten, "load"]) == {PAST}):
        return {}
    return {index: TIE if len(unbeaten) > 1 else BEST for index in unbeaten}


def direction(figure: str) -> int:
    """Return 1 for a figure of which more is better, -1 for one of which less is, 0 where that cannot be said."""
    if any(word in figure for word in HIGHER):
        return 1
    metric = figure.partition(".")[0]
    return -1 if metric.endswith("_s") or any(word in figure for word in LOWER) else 0


def better(one: pd.Series[Any], other: pd.Series[Any]) -> bool:
    """Return whether one figure is above another beyond chance, both by seed, each once: of two seeds at least."""
    differences = (one - other).dropna()
    if len(differences) > 1:
        return interval(differences)[0] > 0
    return interval(one)[0] > interval(other)[1]


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
    return requests.loc[is_finished(requests), [*TIMES]]
