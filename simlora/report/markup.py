"""HTML that cannot forget to escape: text stays text unless it came out of `tag`."""

from __future__ import annotations

import html
import json
from collections.abc import Iterable
from typing import Any


class Html(str):
    """Markup that is already safe."""

    __slots__ = ()


EMPTY = Html("")
_VOID = {"meta", "br"}


def tag(name: str, /, *children: object, **attributes: object) -> Html:
    """Return an element; children that are not Html are escaped, and so is every attribute.

    `class_` gives the attribute class, an underscore inside a name a hyphen; None leaves one out.
    """
    shown = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{html.escape(str(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    return Html(f"<{name}{shown}>" + ("" if name in _VOID else f"{join(children)}</{name}>"))


def join(children: Iterable[object]) -> Html:
    """Return the children one after the other, escaped unless they are Html."""
    return Html("".join(c if isinstance(c, Html) else html.escape(str(c)) for c in children))


def rows(head: Iterable[object], body: Iterable[Iterable[object]], texts: int = 1) -> Html:
    """Return a table; its first `texts` columns are set left, the others right like numbers."""
    kind = ["text"] * texts
    titles = [tag("th", cell, class_=k) for cell, k in _with_kind(head, kind)]
    lines = [tag("tr", *(tag("td", cell, class_=k) for cell, k in _with_kind(row, kind))) for row in body]
    table = tag("table", tag("thead", tag("tr", *titles)), tag("tbody", *lines))
    return tag("div", table, class_="scroll")


def _with_kind(cells: Iterable[object], kind: list[str]) -> list[tuple[object, str | None]]:
    return [(cell, kind[i] if i < len(kind) else None) for i, cell in enumerate(cells)]


def embedded_json(value: Any) -> Html:
    """Return JSON that can stand inside a script element: it holds no <, > or &."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"))  # ASCII only, so no U+2028 either
    return Html(text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"))
