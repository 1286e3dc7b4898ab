"""Times the points of a plan, and keeps every sample: what was measured once is not measured again."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields
from pathlib import Path
from time import monotonic
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from profiler.points import Plan, Point
from simlora.core.errors import InputError
from simlora.core.files import whole_file

FILE = "measurements.parquet"
KEPT_EVERY_S = 10.0
IDENTITY = b"measured_on"
COLUMNS = [field.name for field in fields(Point)]


class Samples:
    """A table of one row a sample in a folder; `identity` says on what it was measured.

    Raises InputError if the folder has one that was measured on something else.
    """

    def __init__(self, folder: Path, identity: dict[str, Any]) -> None:
        self.path = folder / FILE
        self._identity = json.dumps(identity, sort_keys=True)
        self._rows: list[dict[str, Any]] = []
        self._kept_s = monotonic()
        if self.path.exists():
            try:
                table = pq.read_table(self.path)
            except (pa.ArrowInvalid, OSError) as error:
                raise InputError(
                    f"{self.path} is not a file of simlora-profile; move it away, or name another folder"
                ) from error
            other = (table.schema.metadata or {}).get(IDENTITY, b"{}").decode()
            if other != self._identity:
                raise InputError(
                    f"{self.path} was measured on {other}, not on {self._identity}; name another folder"
                )
            self._rows = table.to_pylist()

    def measured(self) -> set[tuple[Point, int]]:
        """Return the points that need no more timing, each with the round."""
        return {(_point(row), row["round"]) for row in self._rows}

    def add(self, point: Point, round: int, samples_s: Sequence[float]) -> None:
        """Keep what a point took; on disk at least every ten seconds."""
        self._rows += [point.row() | {"round": round, "seconds": seconds} for seconds in samples_s]
        if monotonic() - self._kept_s > KEPT_EVERY_S:
            self.keep()

    def keep(self) -> None:
        """Write all samples."""
        table = pa.Table.from_pylist(self._rows)
        table = table.replace_schema_metadata({IDENTITY: self._identity.encode()})
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with whole_file(self.path) as draft:
            pq.write_table(table, draft, compression="zstd")
        self._kept_s = monotonic()

    def by_point(self) -> pd.DataFrame:
        """Return a row a point: its columns, the median `seconds`, and how many `samples` that is of."""
        table = pd.DataFrame(self._rows)
        grouped = (
            table.groupby(COLUMNS, sort=False)["seconds"].agg(seconds="median", samples="size").reset_index()
        )
        return grouped


def collect(
    plan: Plan,
    samples_s: Callable[[Point], Sequence[float]],
    samples: Samples,
    seed: int,
    progress: Callable[[int, int], None],
) -> None:
    """Time all points of a plan that were not timed yet, in another order each round.

    An interrupt keeps what was measured.
    """
    measured = samples.measured()
    todo = list(_in_order(plan, seed))
    try:
        for done, (point, round) in enumerate(todo):
            progress(done, len(todo))
            if (point, round) not in measured:
                samples.add(point, round, samples_s(point))
        progress(len(todo), len(todo))
    finally:
        samples.keep()


def _in_order(plan: Plan, seed: int) -> Iterator[tuple[Point, int]]:
    for round in range(plan.rounds):
        for index in np.random.default_rng([seed, round]).permutation(len(plan.points)):
            yield plan.points[index], round


def _point(row: dict[str, Any]) -> Point:
    ranks = tuple(int(rank) for rank in row["ranks"].split())
    return Point(**{name: row[name] for name in COLUMNS if name != "ranks"}, ranks=ranks)
