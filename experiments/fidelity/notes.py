"""The prose of the page, in `notes/`: Markdown in which `${place|form}` stands for what the command has found.

A place is the name of a part (a table, the plots), or a path into the section's JSON: `medians/predicted/rows`. Of a
list, `max_loras=8,adapters=320` is the one row with these values. The form is Python's: `.1%`, `+.0f`.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Mapping
from itertools import groupby
from pathlib import Path
from typing import Any

NOTES = Path(__file__).with_name("notes")
PLACE = re.compile(r"\$\{([^}|]+)(?:\|([^}]*))?\}")
ABSENT = "n/a"
WIDTH = 120
FENCE, ITEM = "```", "* "
AS_IT_IS = ("#", "|", "!", "<")
"""How lines begin that are no prose: headings, tables, pictures, remarks."""


def note(name: str) -> str:
    """Return the text of a note."""
    return (NOTES / f"{name}.md").read_text(encoding="utf-8").strip()


def filled(text: str, parts: Mapping[str, str], tree: Mapping[str, Any]) -> tuple[str, list[str]]:
    """Return the text with its places filled, and the places that neither parts nor tree have."""
    absent: list[str] = []

    def one(match: re.Match[str]) -> str:
        place, form = match[1], match[2] or ""
        if place in parts:
            return parts[place]
        try:
            return format(found(tree, place), form).replace("%", " %")
        except (LookupError, ValueError, TypeError):
            absent.append(place)
            return ABSENT

    return rewrapped(PLACE.sub(one, text)), absent


def rewrapped(text: str) -> str:
    """Return Markdown whose paragraphs and items are broken anew, as numbers have taken the room of their places."""
    lines: list[str] = []
    for prose, block in groupby(_marked(text), key=lambda line: line[0]):
        own = [line for _, line in block]
        lines += _paragraphs(own) if prose else own
    return "\n".join(lines)


def _marked(text: str) -> Iterator[tuple[bool, str]]:
    """Yield every line, and whether it is prose."""
    fenced = False
    for line in text.split("\n"):
        fence = line.startswith(FENCE)
        fenced ^= fence
        yield bool(line) and not (fence or fenced or line.startswith(AS_IT_IS)), line


def _paragraphs(lines: list[str]) -> Iterator[str]:
    """Yield lines of prose, broken anew: one paragraph, or items."""
    text = "\n".join(line.strip() if not line.startswith(ITEM) else f"\0{line}" for line in lines)
    for part in filter(None, text.split("\0")):
        indent = "  " if part.startswith(ITEM) else ""
        yield from textwrap.wrap(
            part, WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
        )


def found(tree: Any, place: str) -> Any:
    """Return what stands at a place of the tree. Raises LookupError if nothing does, or more than one row."""
    for step in place.split("/"):
        tree = _row(tree, step) if isinstance(tree, list) else tree[step]
    return tree


def _row(rows: list[Any], step: str) -> Any:
    wanted = dict(each.split("=", 1) for each in step.split(","))
    hits = [row for row in rows if all(str(row.get(name)) == value for name, value in wanted.items())]
    if len(hits) != 1:
        raise LookupError(f"{len(hits)} rows have {step}")
    return hits[0]
