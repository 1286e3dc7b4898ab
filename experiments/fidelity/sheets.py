"""Files of runs that are read as sheets.yaml says: inputs, what was measured, and the overrides that simulate them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

import pandas as pd

from experiments.fidelity.cells import numbers, positive
from experiments.studies.reading import load as read_sheet

SHEETS = Path(__file__).with_suffix(".yaml")


@dataclass(frozen=True)
class Run:
    """One run: its inputs, what was measured, and the overrides that simulate it."""

    inputs: Mapping[str, Any]
    measured: Mapping[str, float]
    overrides: Sequence[str]


AnyRun = TypeVar("AnyRun", bound=Run)


@cache
def sheets() -> dict[str, Any]:
    """Return sheets.yaml as it is."""
    return read_sheet(SHEETS)


def runs(
    kind: type[AnyRun], name: str, path: Path, names: Mapping[str, Mapping[str, str]] | None = None
) -> list[AnyRun]:
    """Read all runs by a sheet; `names` are columns of names, each with a table of theirs and ours.

    Raises InputError, naming file, line and column, for what is not in the schema.
    """
    sheet, names = sheets()[name], names or {}
    table = numbers(path, sheet["columns"], names)
    inputs, measured = table[[*names, *sheet["inputs"]]], _computed(table, sheet["measured"])
    positive(pd.concat([table[sheet["inputs"]], measured], axis=1))
    values = table.join(_computed(table, sheet.get("values", {})))
    templates = list(chain.from_iterable(sheet["overrides"]))
    parts = (part.to_dict("records") for part in (inputs, measured, values))
    return [
        kind(own, theirs, [template.format_map(value) for template in templates])
        for own, theirs, value in zip(*parts, strict=True)
    ]


def _computed(table: pd.DataFrame, terms: Mapping[str, str]) -> pd.DataFrame:
    found = {name: table.eval(term, engine="python") for name, term in terms.items()}
    return pd.DataFrame(found, index=table.index)
