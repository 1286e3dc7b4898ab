"""A trace as others have published it: the window that is cut out of it, and the adapters that it does not have."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from simlora.core.arrays import Floats, Ints
from simlora.core.checks import listed, number, shown, whole
from simlora.core.errors import InputError, nearest
from simlora.core.files import expanded
from simlora.core.random import stream
from simlora.workload.adapters import base_model, check_adapters
from simlora.workload.columns import names
from simlora.workload.file import in_order
from simlora.workload.popularity import Popularity, check_popularity
from simlora.workload.table import Table, check_names, read_table


@dataclass(frozen=True)
class Published:
    """What readers of published traces share.

    `start_s` and `duration_s` cut a window out of the trace, in seconds after its first row; the run's clock
    starts with the window. `speedup` then divides every arrival: 2 is twice the rate and half the time, same
    lengths. Longer requests than `prompt_tokens_max` or `output_tokens_max` are dropped (LoRAServe: 1024, 256),
    and so are rows without a prompt or an answer; a notice says how many. `adapters` 0 is the base model alone.
    Of a large file no more than the first `rows` are read.
    """

    path: str
    popularity: Popularity
    adapters: int = 100
    ranks: Sequence[int] = (8,)
    start_s: float = 0.0
    duration_s: float | None = None
    speedup: float = 1.0
    prompt_tokens_max: int | None = None
    output_tokens_max: int | None = None
    rows: int | None = None

    def __post_init__(self) -> None:
        check_adapters(self.adapters, self.ranks, least=0)
        if self.adapters:
            check_popularity(self.popularity, int(self.adapters))
        number("workload.start_s", self.start_s, "seconds", least=0)
        if self.duration_s is not None:
            number("workload.duration_s", self.duration_s, "seconds", above=0)
        number("workload.speedup", self.speedup, above=0)
        if self.rows is not None:
            whole("workload.rows", self.rows, "rows", least=1)
        for key in ("prompt_tokens_max", "output_tokens_max"):
            if getattr(self, key) is not None:
                whole(f"workload.{key}", getattr(self, key), "tokens", least=1)

    def _read(self, columns: Sequence[str], trace: str, source: str, optional: Sequence[str] = ()) -> Table:
        """Return the file's table. Where there is none, the InputError says which `trace` it is to be, and whence."""
        check_path(self.path, trace, f"{source} on GitHub")
        table = read_table(self.path, self.rows)
        check_names(table, columns, optional)
        return table

    def _window(
        self,
        table: Table,
        time: str,
        since_s: Floats,
        prompts: Ints,
        outputs: Ints,
    ) -> tuple[Ints, tuple[str, ...]]:
        """Return the rows that stay, in order of arrival [requests], and notices about the others.

        `since_s` [rows] are seconds after the first row, as the column `time` says. Raises InputError for none.
        """
        by_time, notices = in_order(table, time, since_s)
        order = np.arange(len(table))[by_time]
        end_s = np.inf if self.duration_s is None else self.start_s + self.duration_s
        inside = (since_s >= self.start_s) & (since_s < end_s)
        nothing = (prompts == 0) | (outputs == 0)
        long = np.zeros_like(nothing)
        if self.prompt_tokens_max is not None:
            long |= prompts > self.prompt_tokens_max
        if self.output_tokens_max is not None:
            long |= outputs > self.output_tokens_max
        for dropped, why in (
            (inside & nothing, "have no prompt or no output tokens"),
            (inside & ~nothing & long, "exceed workload.prompt_tokens_max or workload.output_tokens_max"),
        ):
            if dropped.any():
                sentence = f"{table.path}: {dropped.sum():,} of {inside.sum():,} rows {why} and were dropped."
                notices = (*notices, sentence)
        kept = inside & ~nothing & ~long
        if not kept.any():
            raise InputError(
                f"{table.path} has no requests left after workload.start_s, workload.duration_s and the token "
                f"limits; it covers {since_s.max():,.0f} seconds"
            )
        return order[kept[order]], notices

    def _arrival_s(self, since_s: Floats) -> Floats:
        """Return on the run's clock what the trace's says."""
        return (since_s - self.start_s) / self.speedup

    def _drawn(self, seed: int, n: int, arrival_s: Floats | None = None) -> Ints:
        """Return `n` adapters [n], drawn with the run's seed: for requests that come at `arrival_s`, if that is given.

        The run then ends with the last of them; without, those that draw are taken to be spread evenly over it.
        """
        if not self.adapters:
            return base_model(n)
        rng, adapters = stream(seed, "adapters"), int(self.adapters)
        if arrival_s is None or not arrival_s[-1]:
            return self.popularity.draw(rng, adapters, n)
        return self.popularity.draw_at(rng, adapters, arrival_s / arrival_s[-1])


def check_path(path: str, trace: str, source: str) -> None:
    """Raise InputError, which says which `trace` it is to be and whence it comes, unless there is such a file."""
    if not path:
        raise InputError(f"workload.path is not set, must be {trace} as published")
    if not expanded(path).exists():
        raise InputError(
            f"{path} does not exist; get {source}, save it under that name, and set "
            "SIMLORA_TRACE_DIR to its folder or workload.path to the file"
        )


def with_one_of(table: Table, name: str, wanted: Sequence[str] | None, key: str) -> Ints:
    """Return the rows whose column is one of those `wanted` [rows]; None: all. `key` is where they are set.

    Raises InputError for one that no row has.
    """
    if wanted is None:
        return np.arange(len(table))
    cells = np.array([cell or "" for cell in names(table, name)], dtype=object)
    for value in listed(key, wanted, "[a,b]"):
        if value not in cells:
            raise InputError(
                f"{key} has {shown(value)}, which no row of {table.path} has; {nearest(str(value), set(cells))}"
            )
    return np.flatnonzero(np.isin(cells, list(wanted)))


def numbered(sessions: Sequence[object], since_s: Floats) -> Ints:
    """Return the number of each row's session [rows], from 0 in the order in which they come; None is one by itself."""
    numbers: dict[object, int] = {}
    found = np.empty(len(sessions), dtype=np.int64)
    for row in np.argsort(since_s, kind="stable").tolist():
        name = ("alone", row) if sessions[row] is None else sessions[row]
        found[row] = numbers.setdefault(name, len(numbers))
    return found
