"""docs/cross_table.md: the cross-table as people read it, and its picture."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from matplotlib import pyplot as plt

from experiments.cross_table.capacities import LEAST, PRECISION, Span, Use
from experiments.cross_table.compared import SHARE, Cell, Row
from experiments.cross_table.slots import Part
from experiments.cross_table.tuning import SHORT, told
from experiments.cross_table.world import TRAINING, System, World
from experiments.studies.look import INK, save
from experiments.studies.markdown import lines, page, table

COLUMN_INCHES, ROW_INCHES = 0.92, 0.34
PALE = 0.55
"""Of the best, above which a cell is dark enough for white letters."""


def draw(rows: Sequence[Row], systems: Sequence[System], path: Path) -> None:
    """Draw a line a system, those that carry most on average first, and a column a workload."""
    shares = {
        system.name: [
            row.against_best(cell).mean for row in rows for cell in row.cells if cell.system == system
        ]
        for system in systems
    }
    order = sorted(systems, key=lambda one: -sum(shares[one.name]))
    figure, ax = plt.subplots(
        figsize=(3.4 + COLUMN_INCHES * len(rows), 1.6 + ROW_INCHES * len(order)), layout="constrained"
    )
    ax.imshow([shares[one.name] for one in order], cmap="Blues", vmin=0.0, vmax=1.0, aspect="auto")
    for line, system in enumerate(order):
        for column, share in enumerate(shares[system.name]):
            colour = "white" if share > PALE else INK
            weight = "bold" if share >= 1.0 else "normal"
            ax.text(
                column,
                line,
                f"{share:.2f}",
                ha="center",
                va="center",
                color=colour,
                fontsize=9,
                weight=weight,
            )
    titles = [row.workload.title.replace(", ", ",\n").replace(" ", "\n", 1) for row in rows]
    ax.set_xticks(range(len(rows)), titles, fontsize=8)
    ax.set_yticks(range(len(order)), [one.title for one in order], fontsize=9)
    ax.tick_params(length=0, top=True, labeltop=True, bottom=False, labelbottom=False)
    ax.spines[:].set_visible(False)
    figure.suptitle(
        "Capacity within the SLO, as a share of the best system's on each workload", color=INK, fontsize=11
    )
    save(figure, path)


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
    return page(
        Path(__file__).with_name("page.md"),
        hardware=", ".join(f"`{key}={value}`" for key, value in world.same.items() if value is not None),
        precision=100 * PRECISION,
        seeds=seeds,
        least=100 * LEAST,
        share=100 * SHARE,
        training="; ".join(workload.title for workload in world.of(TRAINING)),
        short=100 * SHORT,
        tuned="\n".join(_tuned(world, rows[0])) or "* nothing",
        picture=PICTURE,
        tells=100 * TELLS,
        winners=lines(_winner(row, reasons.get(row.workload.name, ())) for row in rows),
        sections="\n\n".join(map(_section, rows)),
    )


def _tuned(world: World, row: Row) -> Iterator[str]:
    """Yield what the systems were tuned to."""
    for cell in sorted(row.cells, key=lambda cell: cell.system.title):
        before = world.systems[cell.system.name]
        if before.free and (changed := told(cell.system, before)):
            yield f"* {cell.system.title}: {changed}"


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


def _section(row: Row) -> str:
    workload, bound = row.workload, row.bound
    links = "" if bound.link_rps > bound.gpu_rps else f", of the links {number(bound.link_rps)}"
    about = (
        f"{workload.about[0].upper()}{workload.about[1:]} ({workload.paper}). Compared at {row.rate_rps:g} requests/s. "
        f"The bound of the GPUs is {number(bound.gpu_rps)} requests/s{links}; {number(bound.cheapest_rps)} if the 5 % "
        "of the requests that cost most were never served."
    )
    return f"## {workload.title}\n\n{about}\n\n{table(COLUMNS, (_cells(row, cell) for cell in row.cells))}"


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
