"""The board as people read it: on the terminal, as Markdown, as JSON."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from experiments.claims.evaluate import Row
from experiments.claims.verdicts import (
    CONTRADICTS,
    HOLDS,
    NEAR,
    NOT_SIMULATED,
    OFF,
    VERDICTS,
    error_shown,
    shown,
)
from experiments.studies.markdown import page, table
from experiments.studies.reading import load

WIDTH, CELL = 110, 22
SAID = load(Path(__file__).with_suffix(".yaml"))
WORST_FIRST = (OFF, NOT_SIMULATED, CONTRADICTS, NEAR, HOLDS)
AS_IT_IS = "as it is"
NOT_LOOKED_FOR = "not looked for"


def as_json(rows: Sequence[Row], notes: Sequence[str]) -> dict[str, Any]:
    """Return what the JSON file holds."""
    return {"claims": [asdict(row) for row in rows], "verdicts": counts(rows), "notes": list(notes)}


def counts(rows: Sequence[Row]) -> dict[str, int]:
    """Return how many claims have each verdict."""
    found = Counter(row.verdict for row in rows)
    return {verdict: found[verdict] for verdict in VERDICTS if found[verdict]}


def summary(rows: Sequence[Row]) -> str:
    """Return the counts in a sentence."""
    parts = ", ".join(f"{count} {verdict}" for verdict, count in counts(rows).items())
    return f"{len(rows)} claims: {parts}."


def worst_first(rows: Sequence[Row]) -> list[Row]:
    """Return the rows by verdict, the worst first, and otherwise in their order."""
    return sorted(rows, key=lambda row: WORST_FIRST.index(row.verdict))


def terminal(rows: Sequence[Row]) -> str:
    """Return a line a claim, and below it why, where it does not hold."""
    wide = max([len(row.id) for row in rows], default=2)
    head = ("id", "published", "simulated", "error")
    lines = [f"{head[0]:<{wide}}  {head[1]:>{CELL}}  {head[2]:>{CELL}}  {head[3]:>{CELL}}  verdict"]
    for row in worst_first(rows):
        texts = (shown(row.published), shown(row.simulated), error_shown(row.published, row.errors))
        cells = "  ".join(f"{textwrap.shorten(text, CELL, placeholder='…'):>{CELL}}" for text in texts)
        lines.append(f"{row.id:<{wide}}  {cells}  {row.verdict}")
        if row.reason:
            lines += textwrap.wrap(row.reason, WIDTH, initial_indent="    ", subsequent_indent="    ")
    return "\n".join([*lines, "", summary(rows)])


def markdown(rows: Sequence[Row], notes: Sequence[str], command: str, conditions: Mapping[str, str]) -> str:
    """Return the board as a page, which says what command wrote it.

    `conditions`: by claim, the unpublished conditions under which it comes out, where they were looked for.
    """
    holding = [row for row in rows if row.verdict == HOLDS]
    return page(
        Path(__file__).with_name("page.md"),
        summary=summary(rows),
        counts="\n".join(
            f"* **{count} {verdict}**: {SAID['meaning'][verdict]}." for verdict, count in counts(rows).items()
        ),
        command=command,
        fitted=sum(row.fitted > 0 for row in holding),
        holding=len(holding),
        chosen=sum(row.chosen != "" for row in holding),
        not_looked_for=NOT_LOOKED_FOR,
        notes="\n\n".join(notes),
        papers="\n\n".join(
            f"## {paper}\n\n"
            + table(
                SAID["columns"], (_cells(row, conditions) for row in worst_first(rows) if row.paper == paper)
            )
            for paper in dict.fromkeys(row.paper for row in rows)
        ),
    )


def _cells(row: Row, conditions: Mapping[str, str]) -> tuple[str, ...]:
    return (
        row.verdict if row.verdict == HOLDS else f"**{row.verdict}**",
        f"`{row.id}` {row.where}: {row.metric}",
        shown(row.published),
        shown(row.simulated),
        error_shown(row.published, row.errors),
        "; ".join(
            [*([f"{row.fitted} of {row.runs}"] if row.fitted else []), *([row.chosen] if row.chosen else [])]
        ),
        conditions.get(row.id) or (AS_IT_IS if row.verdict == HOLDS else NOT_LOOKED_FOR),
        ", ".join(_figure(row.paper, study) for study in row.studies)
        or (f"`{row.command}`" if row.command else ""),
        row.reason,
    )


def _figure(paper: str, study: str) -> str:
    """Return links to the picture, which lies beside the page, and to what it is drawn from."""
    return f"[{study}](figures/{paper}/{study}.png) ([YAML](../experiments/{paper}/{study}.yaml))"
