"""Values of keys: as they are written, and as a table's column holds them."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import pandas as pd
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException

from simlora.config.overrides import check_overrides
from simlora.core.checks import shown
from simlora.core.errors import InputError

LARGEST = 2**63


@lru_cache(maxsize=4096)
def read(written: str) -> Any:
    """Return the value that a key gets on the command line by `written`. Raises InputError if that is none."""
    override = f"key={written}"
    check_overrides([override])
    try:
        return OverridesParser.create().parse_override(override).value()
    except HydraException:
        raise InputError(
            f"{shown(written)} is no value, must be as on the command line: 3, fcfs, [8,64] or {{a: 1}}"
        ) from None


def cell(value: Any) -> int | float | str:
    """Return a value as a table holds it: what is no number of ordinary size is text, `null` where it is empty."""
    if (isinstance(value, int) and abs(value) < LARGEST) or isinstance(value, float | str):
        return value
    return in_words(value)


def in_words(value: Any) -> str:
    """Return a value as text, the same for 3 and 3.0."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def of_one_kind(table: pd.DataFrame) -> pd.DataFrame:
    """Return a table in which a column of values of several kinds has their texts, as a file's columns must."""
    mixed = [str(name) for name in table if table[name].dtype == object and len(_kinds(table[name])) > 1]
    return table.assign(**{name: table[name].map(in_words, na_action="ignore") for name in mixed})


def _kinds(column: pd.Series[Any]) -> set[type]:
    kinds = (str, bool)
    return {next((kind for kind in kinds if isinstance(value, kind)), float) for value in column.dropna()}
