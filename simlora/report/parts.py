"""What sections of report.html and comparison.html are made of."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from simlora.report.curves import ALL
from simlora.report.format import ABSENT, count, digits, is_number, percent, seconds, size
from simlora.report.markup import EMPTY, Html, join, rows, tag

TOP_REPLICAS = 16
TOP_REASONS = 20


def colour_keys(*keys: tuple[str, str]) -> list[Html]:
    return [tag("span", tag("i", class_=colour), name, class_="key") for colour, name in keys]


def legend(pairs: Iterable[tuple[str, str]]) -> list[Html]:
    """Return names with their colours, which are CSS's own: `("lora-001", "#4e79a7")`."""
    return [tag("span", tag("i", style=f"background:{colour}"), name, class_="key") for name, colour in pairs]


def choice(series: str, keys: list[str], total: int) -> Html:
    """Return the selector of the replica whose `series` are drawn; nothing where there is no choice."""
    if len(keys) < 2:
        return EMPTY
    options = [
        tag("option", f"all {total} replicas together" if key == ALL else f"replica {key}", value=key)
        for key in keys
    ]
    shown = len([key for key in keys if key != ALL])
    note = f" the {shown} busiest of {total} can be chosen" if shown < total else ""
    select = tag("select", *options, data_of=series, aria_label="replica")
    return tag("p", select, tag("span", note, class_="note"))


def folded(title: str, content: Html) -> Html:
    return tag("details", tag("summary", title), content) if content else EMPTY


def chart(name: str, title: str) -> Html:
    return tag("div", class_="chart", id=name, role="img", aria_label=title)


def section(title: str, note: str, *children: Html) -> Html:
    return tag("section", tag("h2", title), tag("p", note, class_="note") if note else EMPTY, join(children))


def table(head: Iterable[object], body: Iterable[Iterable[object]], texts: int = 1) -> Html:
    """Return a table whose first `texts` columns are words, which may take several lines."""
    return tag("div", rows(head, body, texts), class_="wrap")


def more(rest: int, file: str) -> Html:
    """Return that `rest` more are in a file; nothing where none are."""
    return tag("p", f"and {count(rest)} more in {file}", class_="note") if rest > 0 else EMPTY


def facts_table(facts: Mapping[str, Any]) -> Html:
    """Return the plain values among facts, a row each; nothing where there is none."""
    plain = [(name, value) for name, value in facts.items() if not isinstance(value, dict | list)]
    return rows(["", ""], ([label(name), quantity(name, value)] for name, value in plain)) if plain else EMPTY


def without_zeros(facts: Mapping[str, Any], kept: Iterable[str] = ()) -> dict[str, Any]:
    """Return facts but those that are 0 and not among the `kept`: what a system has not got."""
    return {name: value for name, value in facts.items() if value or name in kept}


def quantity(name: str, value: Any) -> str:
    """Return a value as its name says: `load_s` a time, `load_bytes` a size, `hit_rate` a share."""
    if not is_number(value):
        return ABSENT if value is None else str(value)
    if name.endswith("bytes_per_s"):
        return f"{size(value)}/s"
    if name.endswith("per_wall_s"):
        return f"{digits(value)} /s"
    if name.endswith("_s"):
        return seconds(value)
    if name.endswith("bytes"):
        return size(value)
    if name.endswith(("_rate", "_share", "utilisation")):
        return percent(value)
    return count(value) if isinstance(value, int) else digits(value)


def label(name: str) -> str:
    """Return a key of the summary as words, without `_s`: the value says its unit."""
    return name.removesuffix("_s").replace("_", " ")
