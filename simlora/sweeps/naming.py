"""What the configurations of a table are called: by their system, and by what was changed of it."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Any

import pandas as pd

from simlora.report.format import with_changes
from simlora.sweeps.sides import SIDE


def system_named(system: str, changed: Mapping[str, Any], told: Collection[str] = ()) -> str:
    """Return what a changed system is called, without changes by keys that are `told` beside the name."""
    keys = {key.lstrip("+~").removesuffix("._target_") for key in told}
    return with_changes(system, {key: value for key, value in changed.items() if key not in keys})


def names_of(table: pd.DataFrame, told: Collection[str]) -> list[str]:
    """Return what the system of each row of a table is called."""
    changes = [json.loads(text) if isinstance(text, str) else {} for text in table[f"{SIDE}changed"]]
    systems = table[f"{SIDE}system"]
    return [system_named(system, own, told) for system, own in zip(systems, changes, strict=True)]
