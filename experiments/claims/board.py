"""The board as people read it: on the terminal, as Markdown, as JSON."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Sequence
from typing import Any

from experiments.claims.evaluate import Row
from experiments.claims.verdicts import HOLDS, VERDICTS

WIDTH, CELL = 110, 22


def as_json(rows: Sequence[Row], notes: Sequence[str]) -> dict[str, Any]:
    """Return what the JSON file holds."""
    return {"claims": [row.as_dict() for row in rows], "verdicts": counts(rows), "notes": list(notes)}


def counts(rows: Sequence[Row]) -> dict[str, int]:
    """Return how many claims have each verdict."""
    found = Counter(row.verdict for row in rows)
    return {verdict: found[verdict] for verdict in VERDICTS if found[verdict]}


def summary(rows: Sequence[Row]) -> str:
    """Return the counts in a sentence."""
    parts = ", ".join(f"{count} {verdict}" for verdict, count in counts(rows).items())
    return f"{len(rows)} claims: {parts}."


def terminal(rows: Sequence[Row]) -> str:
    """Return a line a claim, and below it why, where it does not hold."""
    wide = max([len(row.id) for row in rows], default=2)
    lines = [f"{'id':<{wide}}  {'published':>{CELL}}  {'simulated':>{CELL}}  {'verdict':<18} {'seconds':>7}"]
    for row in rows:
        cells = (
            textwrap.shorten(shown(value), CELL, placeholder="…") for value in (row.published, row.simulated)
        )
        numbers = "  ".join(f"{cell:>{CELL}}" for cell in cells)
        lines.append(f"{row.id:<{wide}}  {numbers}  {row.verdict:<18} {row.seconds:>7.1f}")
        if row.verdict != HOLDS:
            lines += textwrap.wrap(row.reason, WIDTH, initial_indent="    ", subsequent_indent="    ")
    return "\n".join([*lines, "", summary(rows)])


def markdown(rows: Sequence[Row], notes: Sequence[str]) -> str:
    """Return the board as a page."""
    lines = [
        "# What the papers claim, and what simlora says",
        "",
        "Made by `python -m experiments.claims --markdown docs/claims.md`. A value or a ratio holds within 10 % and is "
        "near within 25 %; an order or a trend holds when all of its comparisons come out, and is near at three "
        "quarters of them. What each claim compares stands in `experiments/<paper>/claims.yaml`.",
        "",
        summary(rows),
        "",
        *[line for note in notes for line in (note, "")],
    ]
    for paper in dict.fromkeys(row.paper for row in rows):
        lines += [f"## {paper}", "", "| claim | where | metric | published | simulated | verdict | s |"]
        lines += ["|---|---|---|---|---|---|---|"]
        own = [row for row in rows if row.paper == paper]
        for row in own:
            cells = (row.id, row.where, row.metric, shown(row.published), shown(row.simulated), row.verdict)
            lines.append(f"| {' | '.join(map(_cell, cells))} | {row.seconds:.1f} |")
        open_rows = [row for row in own if row.verdict != HOLDS]
        if open_rows:
            lines += ["", f"Why, where a claim of {paper} does not hold:", ""]
            lines += [f"- **{row.id}** ({row.verdict}): {row.reason}" for row in open_rows]
        lines.append("")
    return "\n".join(lines)


def shown(value: Any) -> str:
    """Return a cell: numbers with three digits, several of them with semicolons."""
    if value is None:
        return "-"
    if isinstance(value, list):
        return "; ".join(map(shown, value))
    if isinstance(value, int | float):
        return f"{value:.4g}" if abs(value) >= 1000 else f"{value:.3g}"
    return str(value)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
