"""What several sections of report.html are made of."""

from __future__ import annotations

from simlora.report.curves import ALL
from simlora.report.markup import EMPTY, Html, join, tag

TOP_REPLICAS = 16
TOP_REASONS = 20


def colour_keys(*keys: tuple[str, str]) -> list[Html]:
    return [tag("span", tag("i", class_=colour), name, class_="key") for colour, name in keys]


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
