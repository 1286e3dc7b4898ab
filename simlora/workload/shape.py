"""The shape of a day: how the rate of requests rises and falls over it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from simlora.core import libm
from simlora.core.arrays import Floats
from simlora.core.checks import shown, weights
from simlora.core.errors import InputError
from simlora.core.files import expanded
from simlora.workload.chunks import reader_of
from simlora.workload.columns import refuse, whole_numbers
from simlora.workload.table import check_names, read_table

SLOTS_A_DAY = 36
"""Those of the file of dLoRA's artifact, 40 minutes each."""
COLUMNS = ("slot_40min", "day", "invocations")
DIURNAL = ((-0.0551, -0.0726), (-0.0143, -0.0078))
"""Cosine and sine of 24 hours, and of 12: `python -m experiments.dlora.shape` fits them to that file."""
MINUTES_A_DAY = 24 * 60
SLOTS_MAX = 10_000_000
"""In a run. More would be slots of microseconds, or a mistake."""


@dataclass(frozen=True)
class Shape:
    """Rates relative to each other, of slots [slots] of equal length that are `days` long together, then again.

    Midnight is where the first slot begins.
    """

    slots: Floats
    days: float = 1.0

    def elapsed(self, duration_s: float, day_s: float | None, key: str) -> tuple[Floats, Floats]:
        """Return moments from 0 to `duration_s`, and what a clock shows then that goes as the rate does.

        On average over the run that clock goes right: both begin at 0 and end at duration_s. A day lasts `day_s`;
        with None the whole shape is stretched over the run, once. Raises InputError, naming `key`, for a run in which
        nothing happens.
        """
        period_s = duration_s if day_s is None else self.days * day_s
        slot_s = period_s / len(self.slots)
        if day_s is not None and duration_s / slot_s > SLOTS_MAX:
            raise InputError(
                f"workload.day_s is {day_s:g} seconds, of which workload.duration_s, {duration_s:g} seconds, has more "
                f"than {SLOTS_MAX:,} slots of {key}; lengthen the day"
            )
        used = max(1, int(np.ceil(duration_s / slot_s - 1e-9)))
        edges_s = np.append(slot_s * np.arange(used), duration_s)
        passed = np.concatenate([[0.0], np.cumsum(np.resize(self.slots, used) * np.diff(edges_s))])
        if not passed[-1]:
            raise InputError(f"{key} is 0 for all of workload.duration_s, which is {duration_s:g} seconds")
        return edges_s, passed / passed[-1] * duration_s


FLAT = Shape(np.ones(1))


def as_shape(value: Any, key: str) -> Shape:
    """Return a shape by what a configuration says: nothing, `diurnal`, numbers over a day, or a file.

    Raises InputError that names `key`.
    """
    if value is None:
        return FLAT
    if value == "diurnal":
        return diurnal()
    if isinstance(value, str):
        if reader_of(value) is None:
            raise InputError(
                f"{key} is {shown(value)}, must be diurnal, numbers over a day such as [1,3,2], or a file such as "
                "maf1_invocations_40min.csv"
            )
        return read_shape(value)
    return Shape(np.array(weights(key, value, "[1,3,2], or diurnal, or a file"), dtype=np.float64))


def diurnal() -> Shape:
    """Return a smooth day like those of Azure Functions 2019, minute by minute; its mean is 1.

    Least at 2:30, -10 %, and most at 16:45 UTC, +9 %. The trace's own slots are 3 % off it (root mean square).
    """
    bends = harmonics(MINUTES_A_DAY, MINUTES_A_DAY, len(DIURNAL))
    return Shape(1 + (bends * np.array(DIURNAL).ravel()).sum(axis=1))


def harmonics(slots: int, slots_a_day: int, count: int) -> Floats:
    """Return the means over slots [slots, 2 * count] of cosine and sine of 24 hours, of 12, ..., the `count`-th."""
    turns = 2 * np.pi * np.arange(1, count + 1) / slots_a_day
    edges = np.outer(np.arange(slots + 1), turns)
    return np.stack([np.diff(libm.sin(edges), axis=0), -np.diff(libm.cos(edges), axis=0)], axis=2).reshape(
        slots, 2 * count
    ) / np.repeat(turns, 2)


def read_shape(path: str) -> Shape:
    """Return the shape in maf1_invocations_40min.csv, its three days one after the other, as they were.

    Source: totals per 40 minutes of the Azure Functions trace of 2019, in dLoRA's artifact. Raises InputError.
    """
    if not expanded(path).exists():
        raise InputError(
            f"{path} does not exist; it is to have one row for every 40 minutes of some days, with the columns "
            f"{', '.join(COLUMNS)}"
        )
    table = read_table(path)
    check_names(table, COLUMNS)
    place = whole_numbers(table, "slot_40min", "a whole number, at least 0", 0, SLOTS_MAX)
    refuse(table, "slot_40min", place != np.arange(len(table)), "the rows' number, from 0: one row a slot")
    must = "a whole number of invocations, at least 0"
    invocations = whole_numbers(table, "invocations", must, 0, 10**15)
    if not invocations.any():
        raise InputError(f"{path} has no invocations, must have some")
    return Shape(invocations.astype(np.float64), len(table) / SLOTS_A_DAY)
