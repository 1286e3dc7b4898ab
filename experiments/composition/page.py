"""docs/composition.md: the search, what it found, how it is judged, and what each of its slots does."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from experiments.composition.frontier import NEARLY, RIVALS, Alone, Elsewhere, neighbours
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
from experiments.cross_table.capacities import PRECISION, Reading, Span, span, times
from experiments.cross_table.compared import Row
from experiments.cross_table.page import number, percent, spanned, used
from experiments.cross_table.tuning import SHORT
from experiments.cross_table.why import Part
from experiments.cross_table.world import HELD_OUT, TRAINING, System

COMMAND = "python -m experiments.composition"
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
    others: Sequence[Elsewhere]
    seeds: int

    def of(self, part: str) -> list[Row]:
        """Return the rows of the training workloads, or of the held-out ones."""
        return [row for row in self.rows if row.workload.part == part]

    def ahead(self, part: str) -> dict[str, dict[int, Reading]]:
        """Return what the composition carries of the best published system's capacity, by workload and seed."""
        return ahead(self.of(part), self.published)


def markdown(study: Study) -> str:
    """Return the page."""
    tried, begun = study.search.tried, study.search.begun
    refused, left_off = (
        sum(bool(one.refused) for one in tried),
        sum(one.left_off and not one.refused for one in tried),
    )
    held_out = study.ahead(HELD_OUT)
    return "\n".join(
        [
            "# A system that no paper has",
            "",
            f"Written by `{COMMAND}`; do not edit it. World, SLO, workloads and rivals are those of "
            "[the cross-table](cross_table.md): what the rivals leave free is tuned to the training workloads too, "
            "with one seed on short runs; unlike the composition's finalists, their best values are not searched again "
            "with other seeds.",
            "",
            *verdict(held_out, overall(held_out), study.rows, study.published),
            "",
            against_one(study),
            "",
            f"![Ahead of the best published system on each workload]({AHEAD})",
            "",
            "## What was found",
            "",
            "```yaml",
            study.text.rstrip(),
            "```",
            "",
            f"`simlora system={NAME} gpu=a100_80g model=llama_2_7b` runs it. "
            f"It was trial {study.found.number} of {len(tried)}"
            + (f", without its own {', '.join(study.found.left_out)}" if study.found.left_out else "")
            + f": slots that together add less than {100 * WORTH:g} % are as S-LoRA has them.",
            "",
            "## On every workload",
            "",
            "Capacity in requests/s within the SLO, with 95 % intervals over "
            f"{study.seeds} seeds; the ratio is taken seed by seed. The best published system is chosen by workload, "
            "with the same seeds, in its own favour. *All adapters on the GPU*: the composition if no adapter ever "
            "had to be loaded, which bounds what loading and caching adapters better could still add. *In use*: how "
            "much of GPUs, their memory and the links to their hosts it uses at its capacity, on average until the "
            "last request ends. *Given up*: requests that it never serves there.",
            "",
            "| | workload | the composition | best published | | ahead | all adapters on the GPU | in use | given up |",
            "|---|---|---|---|---|---|---|---|---|",
            *(_row(study, row) for part in (HELD_OUT, TRAINING) for row in study.of(part)),
            "",
            "Over workloads (geometric mean): "
            f"**{spanned(overall(held_out))} on held-out ones**, {spanned(overall(study.ahead(TRAINING)))} on training "
            "ones: intervals over seeds, which say how sure that is of these workloads. Over workloads instead, which "
            "says what to expect of others, as far as these are independent of each other (some are of one paper, and "
            f"each paper has one in training too): {spanned(elsewhere(held_out))} and "
            f"{spanned(elsewhere(study.ahead(TRAINING)))}. Against one system for all held-out workloads, instead of "
            "the best on each:",
            "",
            *(f"* {system.title}: {spanned(mean)}" for system, mean in singles(study)),
            "",
            *frontier(study),
            "## What each slot does",
            "",
            "The composition with one slot as S-LoRA has it, or with a published policy instead of one of no paper: "
            "what it still carries of the held-out workloads. scheduler=chunked_slo knows what a pass takes as exactly "
            "as the simulator itself, which no engine does: two lines are of one that is told wrong.",
            "",
            *ablation(study),
            "",
            "## How it was searched",
            "",
            f"Over `experiments/composition/space.yaml`, {len(tried)} compositions, {AT_ONCE} at a time; simlora "
            f"refused {refused or 'none'} of them. The policies under `own` there are of no paper. "
            "They were written with an eye on training workloads (`experiments/cross_table/world.yaml` says which), "
            "scheduler=chunked_slo after a search without it had been judged on the held-out ones, and had not come "
            f"out ahead. The first {len(begun)} are the slots of the published systems "
            f"({', '.join(begun)}); then the best of these with one slot changed at a time; then, until there are "
            f"{study.search.proposed}, what Optuna's TPE proposes; at last the best of all with one slot or value "
            "changed at a time, then with all of these changes at once that were for the better, and again around the "
            f"best until none is by {100 * BETTER:g} %, {ROUNDS} times at most. {left_off} were left off, as they "
            f"would have been {100 * BEHIND:g} % behind the best so far even if they had carried as much as that on "
            "the workloads that were left. The score is the geometric mean of the "
            f"capacities on the training workloads, found to {100 * PRECISION:g} % with one seed, on runs of "
            f"{100 * SHORT:.0f} % of their length. "
            f"The {FINALISTS} best were searched again, on all of it, finer and with {len(SEEDS)} other seeds: "
            + ", ".join(f"trial {one} {_rps(score)}" for one, score in study.found.finalists.items())
            + " requests/s. All trials are in [composition.csv](composition.csv).",
            "",
            f"![The best capacity after each trial]({PROGRESS})",
            "",
        ]
    )


def verdict(
    held_out: Mapping[str, Mapping[int, Reading]],
    mean: Span,
    rows: Sequence[Row],
    published: Sequence[System],
) -> list[str]:
    """Return the answer: where the composition is as far ahead as it is asked to be, and where it is not."""
    spans = {name: span(by_seed.values()) for name, by_seed in held_out.items()}
    titles = {row.workload.name: row.workload.title for row in rows}
    won = [titles[name] for name, one in spans.items() if one.mean >= ASKED and not one.low <= 1.0]
    some = [titles[name] for name, one in spans.items() if one.low > 1.0 and one.mean < ASKED]
    lost = [titles[name] for name, one in spans.items() if one.high < 1.0 or one.mean == 0.0]
    close = [titles[name] for name, one in spans.items() if one.high < ASKED or one.mean == 0.0]
    clear = {*won, *some, *lost}
    level = [titles[name] for name in spans if titles[name] not in clear]
    return [
        f"**Over the {len(spans)} held-out workloads it carries {spanned(mean)} times what the best published system "
        "does.**",
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


def _row(study: Study, row: Row) -> str:
    own = cell_of(row, NAME)
    rival = rival_of(row, study.published)
    part = "held out" if row.workload.part == HELD_OUT else "training"
    ratios = study.ahead(row.workload.part)[row.workload.name]
    oracle = study.oracle.get(row.workload.name)
    cells = [
        part,
        row.workload.title,
        spanned(own.capacity),
        spanned(rival.capacity),
        rival.system.title,
        spanned(span(ratios.values())),
        spanned(oracle),
        used(own.use),
        percent(own.use.given_up_share),
    ]
    return f"| {' | '.join(cells)} |"


def singles(study: Study) -> list[tuple[System, Span]]:
    """Return what the composition carries of each published system's capacity over held-out workloads, the best first.

    Systems that carry nothing on one of them are left out.
    """
    rows = study.of(HELD_OUT)
    found = []
    for system in study.published:
        if all(cell_of(row, system.name).capacity.mean > 0.0 for row in rows):
            ratios = {
                row.workload.name: times(cell_of(row, NAME).carried, cell_of(row, system.name).carried)
                for row in rows
            }
            found.append((system, overall(ratios)))
    return sorted(found, key=lambda pair: pair[1].mean)


def frontier(study: Study) -> list[str]:
    """Return the section that says how much anybody could still be ahead."""
    one_slot, better, gain = neighbours(study.search)
    rows = [row for part in (HELD_OUT, TRAINING) for row in study.of(part)]
    titles = {row.workload.name: row.workload.title for row in rows}
    return [
        "## How near the frontier that is",
        "",
        "*The bound* is what no policy can exceed for long that serves all requests and merges none of their adapters "
        "([the cross-table](cross_table.md) says what it leaves out); *at most ahead* is how far it is from the best "
        "published system: where that is little, no system that serves all can be far ahead. In brackets the same "
        "if the 5 % that cost most were never served, and it were known which. It is loose where what is computed once "
        "cannot all be kept, as of conversations.",
        "",
        "| workload | bound | the best published has of it | the composition | at most ahead |",
        "|---|---|---|---|---|",
        *(_near(study, row) for row in rows),
        "",
        f"Of all {len(study.search.tried)} compositions, the one that carries most of a training workload *alone*, "
        "against the best published system, tuned (short runs, one seed, as the search saw them; the best of so many "
        "is partly luck):",
        "",
        *(
            f"* {titles[name]}: {number(one.most_rps)} against {number(one.published_rps)} requests/s, "
            f"{percent(one.most_rps / one.published_rps - 1.0)} more (trial {one.number})"
            for name, one in study.alone.items()
        ),
        "",
        f"Of {one_slot} compositions that differ from trial {study.search.centre} in one slot or value, "
        f"{better} carry more on average over the training workloads, at most {percent(gain)}.",
        "",
        "In other worlds, on the held-out workloads, against the best published system there, of those that carry at "
        f"least {100 * NEARLY:.0f} % of the best one's capacity here: of all of them with one seed, of the best "
        f"{RIVALS} there with {len(ELSEWHERE_SEEDS)}:",
        "",
        *(_elsewhere(one, titles) for one in study.others),
        "",
    ]


def _near(study: Study, row: Row) -> str:
    rival = rival_of(row, study.published)
    bound, most = row.bound.served_rps, row.bound.most_rps
    cells = [
        row.workload.title,
        number(bound) + (" (links)" if row.bound.link_rps < row.bound.gpu_rps else f" [{number(most)}]"),
        percent(rival.capacity.mean / bound),
        percent(cell_of(row, NAME).capacity.mean / bound),
        percent(bound / rival.capacity.mean - 1.0) + f" [{percent(most / rival.capacity.mean - 1.0)}]",
    ]
    return f"| {' | '.join(cells)} |"


def _elsewhere(one: Elsewhere, titles: Mapping[str, str]) -> str:
    each = "; ".join(
        f"{titles[name]} {spanned(span(by_seed.values()))}" for name, by_seed in one.ratios.items()
    )
    return f"* {one.about}: **{spanned(one.overall)}** ({each})"


def ablation(study: Study) -> list[str]:
    """Return a table: a line a slot, a column a workload."""
    rows = study.of(HELD_OUT)
    slots = list(
        dict.fromkeys(part.exchange.slot for row in rows for part in study.ablation[row.workload.name])
    )
    lines = [f"| slot | {' | '.join(row.workload.title for row in rows)} |", f"|{'---|' * (len(rows) + 1)}"]
    for slot in slots:
        cells, told = [], ""
        for row in rows:
            part = next((one for one in study.ablation[row.workload.name] if one.exchange.slot == slot), None)
            told = told or (f"{part.exchange.had} → {part.exchange.has}" if part else "")
            cells.append(("refused" if part.exchange.refused else spanned(part.kept)) if part else "")
        lines.append(f"| **{slot}**: {told} | {' | '.join(cells)} |")
    return lines


def _rps(score: float) -> str:
    return number(math.exp(score))
