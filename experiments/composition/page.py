"""docs/composition.md: the search, what it found, how it is judged, and what each of its slots does."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from experiments.composition.frontier import MISTAKES, NEARLY, RIVALS, WRONG, Alone, neighbours
from experiments.composition.frontier import SEEDS as ELSEWHERE_SEEDS
from experiments.composition.judging import (
    FINALISTS,
    NAME,
    SEEDS,
    WORTH,
    Found,
    ahead,
    cell_of,
    elsewhere,
    overall,
    rival_of,
)
from experiments.composition.search import AT_ONCE, BEHIND, BETTER, ROUNDS, Search
from experiments.cross_table.capacities import PRECISION, Ratios, Reading, Span, span
from experiments.cross_table.compared import Row
from experiments.cross_table.page import number, percent, spanned, used
from experiments.cross_table.slots import Part
from experiments.cross_table.tuning import SHORT
from experiments.cross_table.world import HELD_OUT, TRAINING, System
from experiments.studies.markdown import lines, page, table

ASKED = 1.10
"""How far ahead of the best published system the composition is asked to be."""
PROGRESS, AHEAD = "figures/composition/search.png", "figures/composition/ahead.png"


@dataclass(frozen=True)
class Study:
    """All that the page tells.

    `text`: the system as it is published; `oracle`: the capacity if every adapter were on the GPU from the start, by
    workload.
    """

    search: Search
    found: Found
    text: str
    rows: Sequence[Row]
    published: Sequence[System]
    ablation: Mapping[str, Sequence[Part]]
    oracle: Mapping[str, Span]
    alone: Mapping[str, Alone]
    others: Mapping[str, Ratios]
    seeds: int

    def of(self, part: str) -> list[Row]:
        """Return the rows of the training workloads, or of the held-out ones."""
        return [row for row in self.rows if row.workload.part == part]

    @property
    def titles(self) -> dict[str, str]:
        """The titles of the workloads, by name."""
        return {row.workload.name: row.workload.title for row in self.rows}

    def ahead(self, part: str) -> Ratios:
        """Return what the composition carries of the best published system's capacity, by workload and seed."""
        return ahead(self.of(part), self.published)


def markdown(study: Study) -> str:
    """Return the page."""
    search, rows = study.search, [*study.of(HELD_OUT), *study.of(TRAINING)]
    held_out, training = study.ahead(HELD_OUT), study.ahead(TRAINING)
    titles = study.titles
    beside, better, gain = neighbours(search)
    left_out = ", ".join(study.found.left_out)
    return page(
        Path(__file__).with_name("page.md"),
        verdict="\n".join(verdict(held_out, titles)),
        against_one=against_one(study),
        told_wrong=told_wrong(held_out, study.ablation),
        ahead_picture=AHEAD,
        progress_picture=PROGRESS,
        system=study.text.rstrip(),
        name=NAME,
        found=study.found,
        tried=len(search.tried),
        left_out=left_out and f", without its own {left_out}",
        worth=100 * WORTH,
        seeds=study.seeds,
        carried=lines(_carried(study, row) for row in rows),
        held_out=spanned(overall(held_out)),
        training=spanned(overall(training)),
        other_held_out=spanned(elsewhere(held_out)),
        other_training=spanned(elsewhere(training)),
        singles=_listed(f"{system.title}: {spanned(mean)}" for system, mean in singles(study)),
        near=lines(_near(study, row) for row in rows),
        alone=_listed(
            f"{titles[name]}: {number(one.most_rps)} against {number(one.published_rps)} requests/s, "
            f"{percent(one.most_rps / one.published_rps - 1.0)} more (trial {one.number})"
            for name, one in study.alone.items()
        ),
        neighbours=beside,
        centre=search.centre,
        better=better,
        gain=percent(gain),
        nearly=100 * NEARLY,
        rivals=RIVALS,
        elsewhere_seeds=len(ELSEWHERE_SEEDS),
        elsewhere=_listed(
            f"{about}: **{spanned(overall(ratios))}** ("
            + "; ".join(f"{titles[name]} {spanned(span(one.values()))}" for name, one in ratios.items())
            + ")"
            for about, ratios in study.others.items()
        ),
        ablation=_ablation(study),
        at_once=AT_ONCE,
        refused=sum(bool(one.refused) for one in search.tried) or "none",
        left_off=sum(one.left_off and not one.refused for one in search.tried),
        published=len(search.begun),
        begun=", ".join(search.begun),
        proposed=search.proposed,
        more=100 * BETTER,
        rounds=ROUNDS,
        behind=100 * BEHIND,
        precision=100 * PRECISION,
        short=100 * SHORT,
        finalists=FINALISTS,
        other_seeds=len(SEEDS),
        scores=", ".join(
            f"trial {one} {number(math.exp(score))}" for one, score in study.found.finalists.items()
        ),
    )


def _listed(items: Iterable[str]) -> str:
    return "\n".join(f"* {item}" for item in items)


def verdict(held_out: Ratios, titles: Mapping[str, str]) -> list[str]:
    """Return the answer: where the composition is as far ahead as it is asked to be, and where it is not."""
    spans = {titles[name]: span(by_seed.values()) for name, by_seed in held_out.items()}
    won = [title for title, one in spans.items() if one.mean >= ASKED and not one.low <= 1.0]
    some = [title for title, one in spans.items() if one.low > 1.0 and one.mean < ASKED]
    lost = [title for title, one in spans.items() if one.high < 1.0 or one.mean == 0.0]
    close = [title for title, one in spans.items() if one.high < ASKED or one.mean == 0.0]
    level = [title for title in spans if title not in (*won, *some, *lost)]
    each = "each of them" if len(won) == len(spans) else f"{len(won)} of the {len(spans)}, not on each"
    return [
        f"**Over the {len(spans)} held-out workloads it carries {spanned(overall(held_out))} times what the best "
        f"published system of each does. It carries 10 % more on {each}.**",
        "",
        f"* ahead beyond doubt, and by 10 % or more on average: {', '.join(won) or 'nowhere'}",
        f"* ahead by less, beyond doubt: {', '.join(some) or 'nowhere'}",
        f"* not to be told apart: {', '.join(level) or 'nowhere'}",
        f"* behind, beyond doubt: {', '.join(lost) or 'nowhere'}",
        f"* less than 10 % ahead, beyond doubt: {', '.join(close) or 'nowhere'}",
    ]


def against_one(study: Study) -> str:
    """Return the answer against the published system that carries most over all held-out workloads."""
    compared = singles(study)
    if not compared:
        return "No published system carries anything of every one of these workloads."
    system, ratio = compared[0]
    return (
        f"**It carries {spanned(ratio)} times what {system.title} does, of the published systems the one that carries "
        "most over all of these workloads.**"
    )


def told_wrong(held_out: Ratios, ablation: Mapping[str, Sequence[Part]]) -> str:
    """Return what it carries if its scheduler is told wrong what a pass takes; nothing if it does not ask.

    `held_out`: what it carries of the best published system's capacity, by workload and seed.
    """
    told = {mistake: _with_exchange(held_out, ablation, WRONG.format(mistake)) for mistake in MISTAKES}
    if not all(told.values()):
        return ""
    long, short = (spanned(overall(told[mistake])) for mistake in MISTAKES)
    return (
        f"**Its scheduler knows here what a pass takes. Told a tenth too short, the composition carries {short} times "
        f"what the best published system does; told a tenth too long, {long} times.** An error of the same size in "
        "every pass equals another target: with `scheduler.pass_s` at the target divided by 1.1, the composition is "
        "the second of these systems, and passes that are told a tenth too short then make it the one above."
    )


def _with_exchange(held_out: Ratios, ablation: Mapping[str, Sequence[Part]], slot: str) -> Ratios:
    """Return the same with one slot exchanged; nothing where that was not measured on every workload."""
    found = {}
    for name, by_seed in held_out.items():
        part = next((one for one in ablation[name] if one.exchange.slot == slot and one.by_seed), None)
        if part is None:
            return {}
        found[name] = {
            seed: Reading(*(mine * theirs for mine, theirs in zip(one, part.by_seed[seed], strict=True)))
            for seed, one in by_seed.items()
        }
    return found


def _carried(study: Study, row: Row) -> list[str]:
    own, rival = cell_of(row, NAME), rival_of(row, study.published)
    ratios = study.ahead(row.workload.part)[row.workload.name]
    return [
        "held out" if row.workload.part == HELD_OUT else "training",
        row.workload.title,
        spanned(own.capacity),
        spanned(rival.capacity),
        rival.system.title,
        spanned(span(ratios.values())),
        spanned(study.oracle.get(row.workload.name)),
        used(own.use),
        percent(own.use.given_up_share),
    ]


def singles(study: Study) -> list[tuple[System, Span]]:
    """Return what the composition carries of each published system's capacity over held-out workloads, the best first.

    Systems that carry nothing on one of them are left out.
    """
    rows = study.of(HELD_OUT)
    found = [
        (system, overall(ahead(rows, [system])))
        for system in study.published
        if all(cell_of(row, system.name).capacity.mean > 0.0 for row in rows)
    ]
    return sorted(found, key=lambda pair: pair[1].mean)


def _near(study: Study, row: Row) -> list[str]:
    rival = rival_of(row, study.published)
    bound, most = row.bound.served_rps, row.bound.most_rps
    return [
        row.workload.title,
        number(bound) + (" (links)" if row.bound.link_rps < row.bound.gpu_rps else f" [{number(most)}]"),
        percent(rival.capacity.mean / bound),
        percent(cell_of(row, NAME).capacity.mean / bound),
        percent(bound / rival.capacity.mean - 1.0) + f" [{percent(most / rival.capacity.mean - 1.0)}]",
    ]


def _ablation(study: Study) -> str:
    """Return a table: a line a slot, a column a workload."""
    rows = study.of(HELD_OUT)
    by_slot: dict[str, dict[str, Part]] = {}
    for row in rows:
        for part in study.ablation[row.workload.name]:
            by_slot.setdefault(part.exchange.slot, {})[row.workload.name] = part
    found = []
    for slot, parts in by_slot.items():
        first = next(iter(parts.values())).exchange
        cells = [_kept(parts.get(row.workload.name)) for row in rows]
        found.append([f"**{slot}**: {first.had} → {first.has}", *cells])
    return table(["slot", *(row.workload.title for row in rows)], found)


def _kept(part: Part | None) -> str:
    if part is None:
        return ""
    return "refused" if part.exchange.refused else spanned(part.kept)
