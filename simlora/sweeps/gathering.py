"""Runs from wherever they are kept, in one table: folders of runs, and tables of sweeps."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
from pandas.api.types import is_numeric_dtype

from simlora.config.changed import snake
from simlora.config.targets import KEYS, OUTPUTS, POLICIES
from simlora.core.errors import InputError
from simlora.core.trees import leaves
from simlora.latency.yaml_text import read_yaml
from simlora.metrics.saturation import UNKNOWN
from simlora.metrics.slo import TARGETS
from simlora.report.format import device_in_words, targets_in_words
from simlora.sweeps.outcome import RAN
from simlora.sweeps.sides import FACTS, SIDE, columns_of, kind_of, of_run
from simlora.sweeps.statistics import INDEPENDENT
from simlora.sweeps.table import DEVICE, TABLE, WARNING, figures, is_share, read_sweep

FIRST = ("system", "model", "gpu", *POLICIES)
"""Keys that say in a word what many others say."""
SOURCE = "source"
GPU_HOURS = "cost.gpu_hours"
NEEDED = ("makespan_s", "requests.finished", "slo.attainment")
"""Figures that every run has, or it is none of ours."""
_NOT_KEYS = {"slo", "window", "migration", "placement", "seed"}
"""Groups whose numbers may also be figures, so that only their place in a table tells."""


@dataclass(frozen=True)
class Runs:
    """A row a run: its configuration in the columns `keys`, seed, status, reason, load and figures, as in a sweep.

    `folder` is where its requests are, "" if nowhere. `targets` are the SLOs that were set; `notices` say what is not
    as one might expect.
    """

    table: pd.DataFrame
    keys: tuple[str, ...]
    notices: tuple[str, ...]


def gather(paths: Sequence[Path]) -> Runs:
    """Read folders of runs, and of sweeps or their tables. Raises InputError for what is neither."""
    singles, sweeps = [], []
    for path in dict.fromkeys(paths):
        if path.name == TABLE or (path / TABLE).exists():
            sweeps.append(_sweep(path.parent if path.name == TABLE else path))
        else:
            singles.append(_single(path))
    notices: list[str] = []
    keys = dict.fromkeys(key for _, own in sweeps for key in own)
    if singles:
        keys = dict.fromkeys([*FIRST, *keys, *(key for _, own in singles for key in own)])
    tables = [pd.DataFrame([row for row, _ in singles])] if singles else []
    tables += [table for table, _ in sweeps]
    if (singles and sweeps) or len({frozenset(own) for _, own in sweeps}) > 1:
        keys = dict.fromkeys([SOURCE, *keys])  # what one does not say may differ
    table = pd.concat(tables, ignore_index=True)
    table = table.reindex(columns=[*table.columns, *(key for key in keys if key not in table)])
    for first, again in _twice(table):
        notices.append(f"{again} is the very run that {first} is, with the same seed, and is left out")
    table = table[~_repeats(table)].reset_index(drop=True)
    notices += _warnings(table)
    return Runs(table, tuple(keys), tuple(notices))


def _single(folder: Path) -> tuple[dict[str, Any], list[str]]:
    """Return the row of a run's folder, and its keys."""
    if not folder.exists():
        raise InputError(f"{folder} does not exist, must be the folder of a run or of a sweep")
    for name in ("summary.json", "requests.parquet", "config.yaml"):
        if not (folder / name).exists():
            raise InputError(
                f"{folder} is neither the folder of a run nor of a sweep: it has no {name} and no {TABLE}"
            )
    try:
        summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
        config = read_yaml((folder / "config.yaml").read_text(encoding="utf-8"), "config.yaml")
    except (OSError, ValueError, InputError) as error:
        raise InputError(f"{folder} cannot be read as the folder of a run: {error}") from None
    if not isinstance(summary, dict) or not isinstance(config, dict):
        raise InputError(
            f"{folder} cannot be read as the folder of a run: summary.json or config.yaml is no mapping"
        )
    run = summary.get("run") or {}
    values = {key: run.get(key) for key in FIRST[:3]} | _policies(config) | dict(_configured(config))
    seeds = {str(values.pop(key)) for key in [*values] if key == "seed" or key.endswith(".seed")}
    gpus = (run.get("replicas") or 1) * (run.get("tp") or 1)
    found = dict(figures(summary))
    if missing := [name for name in NEEDED if name not in found]:
        raise InputError(f"{folder} cannot be read as the folder of a run: summary.json has no {missing[0]}")
    for name, value in found.items():
        if is_share(name) and not 0 <= value <= 1:
            raise InputError(
                f"{folder} cannot be read as the folder of a run: {name} of summary.json is {value:g}, must be a share "
                "from 0 to 1"
            )
    row = values | {
        "key": json.dumps([*values.items(), *sorted(seeds)], default=str),
        SOURCE: "runs",
        "seed": "/".join(sorted(seeds)),
        "status": RAN,
        "reason": "",
        "load": (summary.get("load") or {}).get("label", UNKNOWN),
        "folder": str(folder),
        "gpus": float(gpus),
        DEVICE: device_in_words(summary),
        WARNING: " ".join(_provenance(summary).get("warnings") or ()),
        **columns_of(
            {
                **of_run(summary, config),
                "kind": kind_of(summary),
                "system": run.get("system"),
                "changed": run.get("changed"),
            }
        ),
        **found,
    }
    return row, [*values]


def _provenance(summary: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return where a run's calibration is from."""
    return (summary.get("calibration") or {}).get("provenance") or {}


def _warnings(table: pd.DataFrame) -> Iterator[str]:
    """Yield what calibrations warn of, and of how many of the runs."""
    said = table[WARNING].fillna("") if WARNING in table else pd.Series("", table.index)
    for warning, count in said[said != ""].value_counts(sort=False).sort_index().items():
        yield f"Of {count:,} of {len(table):,} runs, {warning}"


def _policies(config: Mapping[str, Any]) -> dict[str, str]:
    """Return the policies by the names of their files: MostIdle as most_idle."""
    targets = {key: (config.get(key) or {}).get("_target_", "") for key in POLICIES}
    return {key: snake(str(target)) for key, target in targets.items()}


def _configured(tree: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield what is configured, by its dotted place, but for what is only shown; what is not plain as JSON."""
    for name, value in leaves({key: value for key, value in tree.items() if key not in OUTPUTS}):
        plain = value is None or isinstance(value, bool | int | float | str)
        yield name, value if plain else json.dumps(value, default=str)


def _sweep(folder: Path) -> tuple[pd.DataFrame, list[str]]:
    """Return the rows of a sweep, and its keys: those before the seed, and those that later sweeps brought along."""
    table = read_sweep(folder)
    needed = ("key", "seed", "status", "reason", "load", *NEEDED)
    missing = [column for column in needed if column not in table]
    if missing:
        raise InputError(f"{folder / TABLE} has no column {missing[0]}, must be a sweep's table")
    if table.empty:
        raise InputError(f"{folder / TABLE} has no rows, must be a sweep's table")
    for name in (*NEEDED, INDEPENDENT, GPU_HOURS):
        if name in table and not is_numeric_dtype(table[name]):
            raise InputError(
                f"{folder / TABLE} has other values than numbers in the column {name}, must be a sweep's table"
            )
    columns = list(map(str, table.columns))
    place = columns.index("seed")
    groups = {*KEYS, "system"} - _NOT_KEYS
    keys = [key for key in columns[:place] if key not in ("key", "source")]
    keys += [key for key in columns[place + 1 :] if key.partition(".")[0] in groups]
    table = _with_facts(table)
    if "system" not in keys and table[f"{SIDE}system"].notna().all():
        table, keys = table.assign(system=table[f"{SIDE}system"]), ["system", *keys]
    gpus = pd.Series(1.0, table.index)
    known = [key for key in ("cluster.replicas", "replica.tp") if key in keys]
    for key in known:
        gpus *= pd.to_numeric(table[key], errors="coerce")
    gpus = gpus if known else gpus * float("nan")  # as many as the system has
    table = table.drop(columns=SOURCE, errors="ignore")
    own = pd.DataFrame({SOURCE: str(folder), "folder": "", "gpus": gpus}, index=table.index)
    return pd.concat([table.assign(seed=table["seed"].astype(str)), own], axis=1), keys


def _with_facts(table: pd.DataFrame) -> pd.DataFrame:
    """Return a sweep's table with all columns that say what its rows ran on, as far as it is known.

    A table of an older simlora has none of them: it says model and GPU in one text, and targets as figures.
    """
    more = {f"{SIDE}{fact}": None for fact in FACTS if f"{SIDE}{fact}" not in table}
    table = table.assign(**more)
    if f"{SIDE}system" in more and "system" in table:
        table[f"{SIDE}system"] = table["system"].astype(str)
    if f"{SIDE}gpu" in more and DEVICE in table:
        words = table[DEVICE].str.partition(" on ")
        table[f"{SIDE}model"], table[f"{SIDE}gpu"] = words[0], words[2]
    if f"{SIDE}slo" in more:
        targets = {name: table[f"slo.targets.{name}"] for name in TARGETS if f"slo.targets.{name}" in table}
        rows = pd.DataFrame(targets, index=table.index).to_dict("records")
        set_ones = ({str(name): value for name, value in row.items() if value == value} for row in rows)
        table[f"{SIDE}slo"] = [targets_in_words(row) if row else None for row in set_ones]
    return table


def _repeats(table: pd.DataFrame) -> pd.Series[bool]:
    return table.duplicated("key")


def _twice(table: pd.DataFrame) -> list[tuple[str, str]]:
    """Return which place has the same run as which before it; of sweeps, whose rows are many, each once."""
    place = table["folder"].where(table["folder"] != "", table[SOURCE])
    first = place.groupby(table["key"]).transform("first")
    pairs = zip(first[_repeats(table)], place[_repeats(table)], strict=True)
    return list(dict.fromkeys(pairs))
