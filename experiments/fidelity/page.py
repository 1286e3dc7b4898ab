"""The page: what was found of every measured file, the worst first, with its notes and pictures.

The notes, in `notes/`, are Markdown in which `${place|form}` stands for what the command has found. A place is the name
of a part (a table, the plots), or a path into the section's JSON: `medians/predicted/rows`. Of a list,
`max_loras=8,adapters=320` is the one row with these values. The form is Python's: `.1%`, `+.0f`.
"""

from __future__ import annotations

import os
import re
import textwrap
from collections.abc import Iterator, Mapping
from itertools import groupby
from pathlib import Path
from typing import Any

from experiments.fidelity import base_engine, profiles
from experiments.fidelity.compare import Section
from experiments.fidelity.scatter import draw
from experiments.studies import markdown
from experiments.studies.markdown import percent
from simlora.core.errors import InputError

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


REASONS = {
    "profiles/agullo_compute_overhead_llama2-7b.csv": "throughput of Llama-2-7B under a vLLM for which there is no "
    "calibration; of the same authors' two models with one, `vllm_lora_runs.csv` has whole runs",
    "profiles/vidur_llama2-7b_h100_mlp.csv": "no calibration is made of it, as sums of kernels have no host in them; "
    "`python -m experiments.profiles.compare` holds operators that are scaled from an A100 against it",
}
SAYS = "README.md"
"""What says what the files are is not data."""


def unused(folder: Path, compared: set[str]) -> str:
    """Return a line of Markdown for each file that is neither compared nor one of the profiles that are."""
    own = compared | {f"{profiles.FILE}/{name}" for name in profiles.files()}
    found = [
        path
        for path in _files(folder)
        if path not in own and not path.endswith(SAYS) and not path.startswith(f"{base_engine.FILE}/")
    ]
    return (
        "\n".join(f"* `{path}`: {REASONS.get(path, 'this command does not know it')}." for path in found)
        or "None."
    )


def _files(folder: Path) -> Iterator[str]:
    found = (Path(place) / name for place, _, names in os.walk(folder, followlinks=True) for name in names)
    for path in sorted(found):
        yield path.relative_to(folder).as_posix()


PAGE = Path(__file__).resolve().parents[2] / "docs" / "fidelity.md"
FIGURES = Path("figures") / "fidelity"
"""Beside the page."""
MADE = "<!-- Made by `python -m experiments.fidelity`. Its prose: experiments/fidelity/notes/*.md -->"


def write(
    page: Path, sections: Mapping[str, Section], files: Mapping[str, str], others: str = ""
) -> list[str]:
    """Write the page and its pictures; return what its notes ask for and these files do not have.

    `sections` by the names of their notes, `files` what each is about, `others` the list of files that nothing is
    compared with, empty where that is not asked. Raises InputError if they cannot be written.
    """
    try:
        (page.parent / FIGURES).mkdir(parents=True, exist_ok=True)
        for section in sections.values():
            if plot := section.picture:
                draw(plot, page.parent / FIGURES / f"{plot.name}.png")
        text, absent = written(sections, files, others)
        draft = page.with_name(f".{page.name}.writing")
        draft.write_text(text, encoding="utf-8")
        draft.replace(page)
    except OSError as error:
        raise InputError(f"{page} cannot be written: {error.strerror}") from None
    return absent


def written(
    sections: Mapping[str, Section], files: Mapping[str, str], others: str = ""
) -> tuple[str, list[str]]:
    """Return the text of the page, and the places that its notes name and that are not there."""
    parts, absent = [MADE], []
    whole = {"overview": overview(sections, files), "others": others}
    for name in ("head", *files, *(["others"] if others else [])):
        if name in files and name not in sections:
            parts.append(f"*Without `{files[name]}`, which was not there.*")
            continue
        section = sections.get(name)
        own = whole if section is None else {**section.parts, "plots": linked(section)}
        text, missing = filled(note(name), own, section.tree if section else {})
        parts.append(text)
        absent += [f"notes/{name}.md: {place}" for place in missing]
    return "\n\n".join(parts) + "\n", absent


def overview(sections: Mapping[str, Section], files: Mapping[str, str]) -> str:
    """Return a line a figure of every file, the worst median first; predicted rows only."""
    lines = [(errors, files[name]) for name, section in sections.items() for errors in section.errors]
    rows = [
        [errors.figure, f"`{file}`", str(errors.rows), percent(errors.median), percent(errors.worst, 0)]
        for errors, file in sorted(lines, key=lambda line: -line[0].median)
    ]
    return markdown.table(["predicted", "measured in", "rows", "median error", "worst"], rows, numbers=True)


def linked(section: Section) -> str:
    """Return the link to a section's picture."""
    plot = section.picture
    return f"![{plot.title}: measured and simulated]({(FIGURES / plot.name).as_posix()}.png)" if plot else ""
