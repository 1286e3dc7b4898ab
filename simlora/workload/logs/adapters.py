"""The adapter of each row of a log, and the rank of each adapter."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from simlora.core.adapter import RANK_MAX
from simlora.core.arrays import Ints
from simlora.core.checks import shown
from simlora.core.errors import InputError, nearest
from simlora.core.trace import BASE_MODEL, AdapterSpec
from simlora.workload.cells import objects
from simlora.workload.columns import labels, nameless
from simlora.workload.logs.counts import counts
from simlora.workload.logs.faults import SHOWN, Fault, capped, of_rows
from simlora.workload.logs.guessing import Source
from simlora.workload.logs.wishes import Wishes
from simlora.workload.table import Table, read_table


def adapters(
    table: Table, sources: dict[str, Source], wishes: Wishes, faults: list[Fault], notices: list[str]
) -> tuple[Ints, tuple[AdapterSpec, ...]]:
    """Return each row's adapter [rows] and the adapters."""
    nothing = np.full(len(table), BASE_MODEL, dtype=np.int64)
    if "adapter" not in sources:
        notices.append(
            "no column names an adapter or a model: every request is for the base model (--map adapter=COLUMN)"
        )
        return nothing, ()
    if not len(table):
        return nothing, ()
    name = sources["adapter"].column
    odd = table.columns[name].mapped(nameless)
    if odd.any():
        faults += of_rows(table, name, odd, "a name")
        return nothing, ()
    codes, found = labels(table, name)
    if "model" in name.lower():
        faults += of_rows(table, name, codes < 0, "a model's name; or --failed drop, where it failed")
    for base in wishes.base_models:
        if base not in found:
            faults.append(Fault("--base-model", shown(base), f"a model of the log; {nearest(base, found)}"))
    used = [each for each in found if each not in wishes.base_models]
    if len(published := [each for each in used if "/" in each]) < len(used):
        notices += [
            f"{shown(each)} counts as an adapter; if it is the base model: --base-model {each}"
            for each in published[:SHOWN]
        ]
    numbered = {each: at for at, each in enumerate(used)}
    renamed = np.array([*(numbered.get(each, BASE_MODEL) for each in found), BASE_MODEL], dtype=np.int64)
    adapter: Ints = renamed[codes]
    ranks = _ranks(table, sources, wishes, adapter, used, faults, notices)
    return adapter, tuple(AdapterSpec(each, ranks.get(each, 1)) for each in used)


def _ranks(
    table: Table,
    sources: dict[str, Source],
    wishes: Wishes,
    adapter: Ints,
    used: Sequence[str],
    faults: list[Fault],
    notices: list[str],
) -> dict[str, int]:
    """Return the rank of each adapter."""
    name = sources["adapter"].column
    if wishes.rank is not None:
        return dict.fromkeys(used, wishes.rank)
    if wishes.ranks is not None:
        ranks = _ranks_of_file(wishes.ranks, used, wishes.base_models, faults, notices)
    elif "rank" in sources:
        return _ranks_of_column(table, sources["rank"].column, adapter, used, faults)
    elif used:
        examples = ", ".join(map(shown, used[:3])) + (", ..." if len(used) > 3 else "")
        how = "a rank each: --ranks FILE (a CSV with adapter,rank), or --rank 16 for all; --base-model NAME has none"
        faults.append(Fault(name, f"every one of {len(used):,} adapters without a rank: {examples}", how))
        return {}
    else:
        return {}
    if not ranks:
        return {}  # a fault of that file, which has been said
    unknown = []
    for at, each in enumerate(used):
        if each not in ranks:
            rows = table.rows[adapter == at]
            must = f"an adapter of {wishes.ranks}; {nearest(each, ranks)}"
            unknown.append(Fault(name, shown(each), must, int(rows[0]), len(rows) - 1))
    faults += capped(unknown, "adapters")
    return ranks


def _ranks_of_file(
    path: str, used: Sequence[str], base: Sequence[str], faults: list[Fault], notices: list[str]
) -> dict[str, int]:
    """Return what a CSV of adapters and ranks says; a notice is of those that no request is for."""
    try:
        table = read_table(path)
    except InputError as error:
        faults.append(Fault("--ranks", str(error), "a CSV with the columns adapter and rank"))
        return {}
    if {"adapter", "rank"} - set(table.columns):
        has = f"{path} with the columns {', '.join(table.columns)}"
        faults.append(Fault("--ranks", has, "a CSV with the columns adapter and rank"))
        return {}
    names = objects([None if cell is None else str(cell).strip() for cell in table.columns["adapter"]])
    if not len(table):
        faults.append(Fault("--ranks", f"{path} has no rows", "a row for each adapter"))
        return {}
    own: list[Fault] = []
    ranks = counts(table, "rank", f"a whole number from 1 to {RANK_MAX:,}", RANK_MAX, own)
    wrong: list[tuple[int, str, str]] = []
    found: dict[str, int] = {}
    known, unasked = {*used}, dict[str, None]()
    for row, each, rank in zip(table.rows.tolist(), names.tolist(), ranks.tolist(), strict=True):
        if each in base:
            wrong.append((row, shown(each), "no base model: it has no rank"))
        elif each not in known:
            unasked[str(each)] = None
        elif found.setdefault(each, rank) != rank:
            wrong.append((row, f"{shown(each)} again, of rank {rank}", f"of one rank, here {found[each]}"))
    if unasked:
        some = ", ".join([*map(shown, [*unasked][:SHOWN]), *(["..."] if len(unasked) > SHOWN else [])])
        notices.append(f"{path} has {len(unasked):,} adapters that no request is for: {some}")
    faults += capped([Fault(f"{path}: adapter", there, must, row) for row, there, must in wrong], "rows")
    faults += [Fault(f"{path}: {each.column}", each.there, each.must, each.row, each.more) for each in own]
    return found


def _ranks_of_column(
    table: Table, name: str, adapter: Ints, used: Sequence[str], faults: list[Fault]
) -> dict[str, int]:
    """Return the rank that an adapter has in its first row; another one in a later row is a fault."""
    among = adapter != BASE_MODEL
    ranks = counts(table, name, f"a whole number from 1 to {RANK_MAX:,}", RANK_MAX, faults, among)
    rows = np.flatnonzero(among)[::-1]
    first = np.zeros(len(used) + 1, dtype=np.int64)
    first[adapter[rows]] = rows  # the last that is written is the first row
    other = among & (ranks != ranks[first[adapter]]) & (ranks > 0)
    faults += of_rows(
        table,
        name,
        other,
        lambda at: f"{ranks[first[adapter[at]]]}, as {shown(used[adapter[at]])} has in its first row",
    )
    return {each: int(ranks[first[at]]) for at, each in enumerate(used)}
