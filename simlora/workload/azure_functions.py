"""The Azure Functions traces, as published: which function is invoked when. They have no lengths: those are drawn."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from simlora.core.arrays import Floats, Ints
from simlora.core.errors import InputError
from simlora.workload.columns import empty, refuse, seconds, whole_numbers
from simlora.workload.invocations import Invocations, Invoked
from simlora.workload.published import check_path
from simlora.workload.table import Table, check_names, read_table

WHO_2019 = ("HashOwner", "HashApp", "HashFunction", "Trigger")
MINUTES = tuple(str(minute) for minute in range(1, 1441))
COLUMNS_2021 = ("app", "func", "end_timestamp", "duration")
COUNT_MAX = 2**31 - 1


@dataclass(frozen=True)
class AzureFunctions2019(Invocations):
    """A day of the trace of 2019: how often each function is invoked in each minute; when in it, is drawn evenly.

    Source: invocations_per_function_md.anon.d*.csv; Serverless in the Wild (ATC'20).
    """

    def _invoked(self) -> Invoked:
        groups, counts = self._counts()
        covers_s = 60.0 * len(MINUTES)
        end_s = self._end_s(covers_s)
        entry, minute = np.nonzero(counts)
        from_s, until_s = np.maximum(60.0 * minute, self.start_s), np.minimum(60.0 * minute + 60, end_s)
        inside = from_s < until_s
        entry, minute, from_s, until_s = (each[inside] for each in (entry, minute, from_s, until_s))
        count = counts[entry, minute].astype(np.int64)
        part = (until_s - from_s) / 60
        count = np.where(
            part < 1, np.rint(count * part).astype(np.int64), count
        )  # a part of a minute at the ends
        return Invoked(
            groups[entry],
            count,
            from_s - self.start_s,
            until_s - self.start_s,
            max(end_s - self.start_s, 0.0),
            covers_s,
        )

    def _counts(self) -> tuple[Ints, NDArray[np.int32]]:
        """Return whose each row is [rows] and its invocations [rows, minutes].

        Raises InputError. Only then are the columns read as text, which takes far more memory.
        """
        check_path(
            self.path,
            "a day of the Azure Functions trace of 2019",
            "invocations_per_function_md.anon.d01.csv, to which AzureFunctionsDataset2019.md of "
            "Azure/AzurePublicDataset on GitHub links",
        )
        check_names(read_table(self.path, rows=1), (*WHO_2019, *MINUTES))
        types: dict[str, type] = dict.fromkeys(WHO_2019, str) | dict.fromkeys(MINUTES, np.int32)
        try:
            frame = pd.read_csv(
                self.path, dtype=types, nrows=self.rows, skipinitialspace=True, encoding="utf-8-sig"
            )
            counts = frame[list(MINUTES)].to_numpy(np.int32)
            if counts.min() >= 0:
                columns = ["HashApp", "HashFunction"][: 1 + (self.by == "function")]
                return _groups(frame[columns]), counts
        except (ValueError, OverflowError):
            pass
        table = read_table(self.path, self.rows)
        for minute in MINUTES:
            whole_numbers(table, minute, "a whole number of invocations, at least 0", 0, COUNT_MAX)
        raise InputError(f"{self.path} cannot be read as counts of invocations")


@dataclass(frozen=True)
class AzureFunctions2021(Invocations):
    """The trace of 2021: when each invocation ended and how long it took; a request comes when it began.

    Source: AzureFunctionsInvocationTraceForTwoWeeksJan2021.txt; Harvested Resources (SOSP'21).
    """

    def _invoked(self) -> Invoked:
        check_path(
            self.path,
            "the Azure Functions trace of 2021",
            "AzureFunctionsInvocationTraceForTwoWeeksJan2021.rar from Azure/AzurePublicDataset on GitHub, unpack it",
        )
        table = read_table(self.path, self.rows, foreign=True)
        check_names(table, COLUMNS_2021)
        since_s = _began_s(table)
        end_s = self._end_s(float(np.nextafter(since_s.max(), np.inf)))
        inside = np.flatnonzero((since_s >= self.start_s) & (since_s < end_s))
        arrival_s = since_s[inside] - self.start_s
        return Invoked(
            _who(table, self.by)[inside],
            np.ones(len(inside), dtype=np.int64),
            arrival_s,
            arrival_s,
            max(end_s - self.start_s, 0.0),
            float(since_s.max()),
        )


def _began_s(table: Table) -> Floats:
    """Return when each invocation began, in seconds after the first one did [rows]."""
    began_s = seconds(table, "end_timestamp") - seconds(table, "duration")
    since_s: Floats = began_s - began_s.min()
    return since_s


def _who(table: Table, by: str) -> Ints:
    """Return the function or app of each row [rows], numbered as they come; a function has a name within its app."""
    names = ["app", "func"][: 1 + (by == "function")]
    for name in names:
        refuse(table, name, empty(table, name), "the id of an app or a function")
    frame = pd.DataFrame({name: [str(cell) for cell in table.columns[name]] for name in names})
    return _groups(frame)


def _groups(keys: pd.DataFrame) -> Ints:
    """Return which rows are alike [rows], numbered from 0 as they come."""
    return keys.groupby(list(keys), sort=False, dropna=False).ngroup().to_numpy().astype(np.int64)
