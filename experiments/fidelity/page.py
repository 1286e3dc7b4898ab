"""The page: what was found of every measured file, the worst first, with its notes and pictures."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from experiments.fidelity.notes import filled, note
from experiments.fidelity.scatter import draw
from experiments.fidelity.section import Section
from experiments.studies import markdown
from experiments.studies.markdown import percent
from simlora.core.errors import InputError

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
