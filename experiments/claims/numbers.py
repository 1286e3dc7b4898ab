"""Numbers as the board shows them."""

from __future__ import annotations

from typing import Any


def shown(value: Any) -> str:
    """Return a cell: numbers with three digits, several of them with semicolons."""
    if value is None:
        return "-"
    if isinstance(value, list):
        return "; ".join(map(shown, value))
    if isinstance(value, int | float):
        return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.3g}"
    return str(value)


def error_shown(published: Any, errors: list[float] | None) -> str:
    """Return relative errors in %; where 0 was published the error is absolute."""
    if errors is None:
        return ""
    values = published if isinstance(published, list) else [published] * len(errors)
    return "; ".join(
        f"{error:+.1%}".replace("%", " %") if value else f"{error:+.3f}"
        for value, error in zip(values, errors, strict=True)
    )
