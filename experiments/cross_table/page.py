"""docs/cross_table.md: the cross-table as people read it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from experiments.cross_table.capacities import LEAST, PRECISION, Span, Use
from experiments.cross_table.compared import SHARE, Cell, Row
from experiments.cross_table.tuning import SHORT, told
from experiments.cross_table.why import Part
from experiments.cross_table.world import TRAINING, World
from experiments.studies import markdown as tables

COMMAND = "python -m experiments.cross_table"
PICTURE = "figures/cross_table/capacity.png"
TELLS = 0.02
"""A slot that changes the winner's capacity by less is not named as a reason."""
COLUMNS = (
    "system",
    "capacity (requests/s)",
    "of the best's",
    "USD a million output tokens",
    "GPUs; HBM; links in use",
    "given up",
    "SLO attainment",
    "mean TTFT (s)",
    "P95 of TTFT (s)",
    "mean TPOT (ms)",
    "prompt tokens found",
)


def markdown(world: World, rows: Sequence[Row], reasons: Mapping[str, Sequence[Part]], seeds: int) -> str:
    """Return the page."""
    hardware = ", ".join(f"`{key}={value}`" for key, value in world.same.items() if value is not None)
    lines = [
        "# All systems on all papers' workloads",
        "",
        f"Written by `{COMMAND}`; do not edit it. What is the same for all: {hardware}. **Capacity** is the highest "
        f"rate at which 95 % of the requests meet both targets, found to {100 * PRECISION:g} % for each of {seeds} "
        "seeds. A seed is the same requests for every system; where a workload lasts for a fixed time, at one and the "
        "same rate only, so that what lies between two rates is less sure there. 0 is less than "
        f"{100 * LEAST:g} % of where the search starts. Brackets are 95 % intervals over seeds, of ratios seed "
        "by seed; they take in what lies between the rate that met the SLO and the one that missed it. *Beyond doubt* "
        "is what such an interval says of one comparison; of twenty that are level one seems not to be. Dollars (the "
        "rent of the GPUs over the output tokens that they make), how much of GPUs, their memory and the links to "
        "their hosts is in use on average until the last request ends, and how many requests were never served, are "
        f"at that rate too. All other columns are at one rate for all, {100 * SHARE:.0f} % of the best capacity. "
        "`experiments/cross_table/world.yaml` has the workloads and systems.",
        "",
        "The **bound** is what no policy can exceed for long that serves all requests and merges no adapters: at that "
        "rate GPUs, or their links, have no time left, if batches are as large as memory allows, no adapter is slowed "
        "down by another's rank, and every token that was computed once is found again "
        "(`experiments/cross_table/bound.py`). A run of some minutes can exceed it by some per cent, as it begins "
        "empty, and what is in flight at its last arrival is computed after it.",
        "",
        "**simlora** is what a search composed of the other systems' policies ([compositions](composition.md)) for "
        f"the training workloads: {'; '.join(workload.title for workload in world.of(TRAINING))}. Nothing of it is "
        "tuned here.",
        "",
        "What this does not compare: kernels and engines. Every system has the same iteration times and the same LoRA "
        "kernel here, so one whose gain is a faster kernel does not show it. Requests declare how long their answers "
        "will be, and all systems believe it. KV comes from a host as fast as adapters do, 4 GB/s, as no paper says "
        "how fast: computing it again takes half as long, and a faster link would change who wins. The calibration is "
        "derived from others' measurements ([calibrations](calibrations.md)), and no one measurement has these systems "
        "side by side: nothing real stands behind this table but its parts ([fidelity](fidelity.md)).",
        "",
        *_tuned(world, rows[0]),
        f"![Capacity of every system as a share of the best]({PICTURE})",
        "",
        "## Who wins where, and why",
        "",
        "*Not to be told from it*: systems whose capacity is not lower beyond doubt. *Why*: what the winner carries "
        f"with one slot as S-LoRA has it, where that changes it by {100 * TELLS:.0f} % or more, beyond doubt.",
        "",
        tables.table(
            ["workload", "ahead", "capacity", "of the bound", "not to be told from it", "why"],
            (_winner(row, reasons.get(row.workload.name, ())) for row in rows),
        ),
        "",
    ]
    for row in rows:
        lines += _section(row)
    return "\n".join(lines)


def _tuned(world: World, row: Row) -> list[str]:
    """Return what the systems were tuned to."""
    free = {name: system for name, system in world.systems.items() if system.free}
    values = [
        f"* {cell.system.title}: {changed}"
        for cell in sorted(row.cells, key=lambda cell: cell.system.title)
        if cell.system.name in free
        for changed in (told(cell.system, free[cell.system.name]),)
        if changed
    ]
    if not free:
        return []
    return [
        "What a system leaves free is tuned, one key after the other and from its own value on down and up until one "
        "carries less, to what carries most on the training workloads (one seed that is none of these, runs of "
        f"{100 * SHORT:.0f} % of the length), over the same values as [compositions](composition.md) may have. Other "
        "than before:",
        "",
        *(values or ["* nothing"]),
        "",
    ]


def _winner(row: Row, parts: Sequence[Part]) -> list[str]:
    others = ", ".join(cell.system.title for cell in row.level if cell is not row.best)
    return [
        row.workload.title,
        row.best.system.title,
        spanned(row.best.capacity),
        percent(row.best.capacity.mean / row.bound.served_rps),
        "" if math.isnan(row.best.capacity.low) else others or "none",
        why(parts) if parts else "it has S-LoRA's slots",
    ]


def why(parts: Sequence[Part]) -> str:
    """Return in words what each slot does for a system."""
    telling = [f"{named(part)}: {spanned(part.kept)}" for part in parts if _tells(part.kept)]
    refused = [named(part) for part in parts if part.exchange.refused]
    alone = "; ".join(telling) or "no slot alone changes it"
    return f"{alone}; cannot be run alone: {', '.join(refused)}" if refused else alone


def named(part: Part) -> str:
    """Return which slot it is about, what it had and what it has."""
    return f"{part.exchange.slot} ({part.exchange.had} for {part.exchange.has})"


def _tells(kept: Span) -> bool:
    """Whether a slot changes what a system carries; of one seed, by the mean alone."""
    if math.isnan(kept.mean) or abs(kept.mean - 1.0) < TELLS:
        return False
    return math.isnan(kept.low) or kept.high < 1.0 or kept.low > 1.0


def _section(row: Row) -> list[str]:
    workload, bound = row.workload, row.bound
    links = "" if bound.link_rps > bound.gpu_rps else f", of the links {number(bound.link_rps)}"
    return [
        f"## {workload.title}",
        "",
        f"{workload.about[0].upper()}{workload.about[1:]} ({workload.paper}). Compared at {row.rate_rps:g} requests/s. "
        f"The bound of the GPUs is {number(bound.gpu_rps)} requests/s{links}; {number(bound.cheapest_rps)} if the 5 % "
        "of the requests that cost most were never served.",
        "",
        tables.table(COLUMNS, (_cells(row, cell) for cell in row.cells)),
        "",
    ]


def _cells(row: Row, cell: Cell) -> list[str]:
    if cell.refused:
        return [cell.system.title, f"refused: {cell.refused}", *[""] * (len(COLUMNS) - 2)]
    figures = cell.figures
    return [
        cell.system.title,
        spanned(cell.capacity),
        "" if cell is row.best else spanned(row.against_best(cell)),
        number(cell.use.usd_per_million),
        used(cell.use),
        percent(cell.use.given_up_share),
        spanned(figures.get("slo.attainment")),
        spanned(figures.get("ttft_s.mean")),
        spanned(figures.get("ttft_s.p95")),
        spanned(figures.get("tpot_s.mean"), 1000.0),
        spanned(figures.get("kv.hit_rate"), 100.0, " %"),
    ]


def spanned(found: Span | None, factor: float = 1.0, unit: str = "") -> str:
    """Return a mean and its interval: `37.2 [36.1, 38.4]`."""
    if found is None:
        return ""
    mean = f"{number(factor * found.mean)}{unit}"
    if math.isnan(found.low):
        return mean
    return f"{mean} [{number(factor * found.low)}, {number(factor * found.high)}]"


def used(use: Use) -> str:
    """Return the shares of GPUs, HBM and links in per cent: `98; 71; 12 %`; nothing if they are not known."""
    shares = (use.gpu_share, use.hbm_share, use.link_share)
    return "" if any(map(math.isnan, shares)) else f"{'; '.join(f'{100 * share:.0f}' for share in shares)} %"


def percent(share: float) -> str:
    """Return a share in per cent."""
    return "" if math.isnan(share) else f"{100 * share:.3g} %"


def number(value: float) -> str:
    """Return a number to three significant digits: 0.123, 37.2, 1,230; an empty text for NaN."""
    if math.isnan(value):
        return ""
    rounded = float(f"{value:.3g}")
    return f"{rounded:,.0f}" if 1000 <= abs(rounded) < math.inf else f"{rounded:g}"
