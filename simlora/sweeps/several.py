"""Capacities of several configurations, side by side."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from simlora.config.own_folder import with_folder
from simlora.core.errors import InputError
from simlora.report.sides import Side, heading
from simlora.results.files import writing
from simlora.sweeps.answer import Capacity
from simlora.sweeps.differing import label_of
from simlora.sweeps.grid import grid
from simlora.sweeps.naming import system_named
from simlora.sweeps.outcome import Overrides
from simlora.sweeps.question import RATE, asked
from simlora.sweeps.search import capacity
from simlora.sweeps.sides import allowed, check, sides

FILES = ("capacities.png", "capacities.json")


@dataclass(frozen=True)
class Capacities:
    """What was found of each configuration, by its name, in the order of the grid."""

    found: Mapping[str, Capacity]

    @property
    def sides(self) -> tuple[Side, ...]:
        """What was compared: on which GPU, model, engine, SLO and calibration each configuration ran."""
        return sides({**vars(one.side), "name": name} for name, one in self.found.items())

    @property
    def table(self) -> pd.DataFrame:
        """A row a configuration: its name, the answer, the ends of its interval, and whether longer runs agree."""
        rows = [
            {"configuration": name, "value": one.value, "low": low, "high": high, "settled": one.settled}
            for name, one in self.found.items()
            for low, high in [one.interval]
        ]
        return pd.DataFrame(rows)

    def text(self) -> str:
        """Return the sides and a line a configuration."""
        width = max(map(len, self.found))
        lines = [f"{name:<{width}}  {one.words}" for name, one in self.found.items()]
        first = next(iter(self.found.values()))
        return "\n".join([heading(self.sides), "", *lines, f"within {first.question.slo}"])

    def save(self, folder: Path) -> None:
        """Write capacities.png and capacities.json into a folder, and what was found of each into 0, 1, … below.

        Raises InputError if that cannot be.
        """
        from matplotlib.figure import Figure

        from simlora.report.capacity import plot_capacities

        unit = next(iter(self.found.values())).question.unit
        picture = Figure(figsize=(7, 1.2 + 0.4 * len(self.found)), layout="constrained")
        plot_capacities(self.table, unit, picture.add_subplot())
        tree = [
            {"name": name, "folder": str(place), **one.to_dict()}
            for place, (name, one) in enumerate(self.found.items())
        ]
        for place, one in enumerate(self.found.values()):
            one.save(folder / str(place))
        with writing(folder, FILES) as draft:
            picture.savefig(draft / "capacities.png", dpi=150)
            text = json.dumps(tree, indent=1, allow_nan=False)
            (draft / "capacities.json").write_text(f"{text}\n", encoding="utf-8")


def capacities(
    overrides: Sequence[str],
    *,
    config_dir: str | Path | None = None,
    find: str = RATE,
    limits: Mapping[str, float] | None = None,
    attainment: float | None = None,
    key: str | None = None,
    start: float | None = None,
    across: str | Sequence[str] = (),
    **searched: Any,
) -> Capacities:
    """Return the capacity of every combination of the values that keys are given, as for a sweep.

    All have the same GPU, model, SLO and calibration, and one engine a system, but for what the grid itself varies and
    what `across` allows to differ, as for a sweep. Everything else is as for `capacity`. Raises InputError, before
    anything is simulated, for a grid that cannot be read and where configurations differ so; and for what one of the
    searches cannot answer, with the name of its configuration.
    """
    allow = allowed(across)
    whole = grid(with_folder(overrides, config_dir))
    rows: list[dict[str, Any]] = []
    configurations: dict[str, Overrides] = {}
    for values, own in whole.configurations():
        question = asked(own, find, key, start, limits, attainment, 1, searched.get("precision", 0.02))
        if question.key in whole.axes:
            raise InputError(f"{question.key} is what is searched for; give it one value, to begin with")
        facts = question.facts
        others = [axis for axis in whole.axes if axis != "system"]
        words = [system_named(facts["system"], facts["changed"], whole.axes)]
        words += [label_of(others, [values[axis] for axis in others])] if others else []
        name = ", ".join(words)
        rows.append({**values, **facts, "name": name})
        configurations[name] = own
    check(rows, list(whole.axes), allow)
    found = {}
    for name, own in configurations.items():
        try:
            found[name] = capacity(
                own,
                find=find,
                limits=limits,
                attainment=attainment,
                key=key,
                start=start,
                **searched,
            )
        except InputError as error:
            raise InputError(f"{name}: {error}" if len(configurations) > 1 else str(error)) from error
    return Capacities(found)
