"""Range checks for user input; their messages give the key, the value, the unit and the allowed range."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

from simlora.core.errors import InputError, nearest

LEAST_PERIOD_S = 1e-3
"""Least seconds between periodic checks. A shorter period would check several times per iteration, and be slow."""
DIGITS_MOST = 18
WHOLE_MOST = 10**DIGITS_MOST - 1
"""Digits of a whole number, which 64 bits hold; the largest that is taken where nothing else is said."""
TOO_LARGE = 10**308
"""The least whole number that a float may not hold."""

GivenFloat: TypeAlias = Any
GivenInt: TypeAlias = Any
GivenBool: TypeAlias = Any
GivenStr: TypeAlias = Any
"""Arguments as a configuration gives them: a check names the key, where compiled code would only name the type."""


def allowed(above: float | None, least: float | None, most: float | None) -> str:
    """Return the allowed range in words, such as `greater than 0 and at most 1`."""
    words = []
    if above is not None:
        words.append(f"greater than {above:g}")
    if least is not None:
        words.append(f"at least {least:,}")
    if most is not None:
        words.append(f"at most {most:,}")
    return " and ".join(words)


def shown(value: Any) -> str:
    """Return a value for a message: text in quotes and truncated, numbers plain."""
    if value is None:
        return "empty"
    text = str(value)
    text = text if len(text) <= 60 else text[:57] + "..."
    return repr(text) if isinstance(value, str) else text


def inside(value: float, above: float | None, least: float | None, most: float | None) -> bool:
    """Return whether `value` is finite and in the range."""
    return (
        (isinstance(value, int) or math.isfinite(value))  # a whole number may be too long for a float
        and (above is None or value > above)
        and (least is None or value >= least)
        and (most is None or value <= most)
    )


def number(
    key: str,
    value: Any,
    unit: str = "",
    *,
    above: float | None = None,
    least: float | None = None,
    most: float | None = None,
) -> float:
    """Return `value` as a finite float in the range. Raises InputError that names `key`."""
    if type(value) is float and inside(value, above, least, most):  # asked at each step of a live cluster
        return value
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    too_large = is_number and isinstance(value, int) and abs(value) >= TOO_LARGE
    if is_number and not too_large and inside(value, above, least, most):
        return float(value)
    kind = "" if is_number and inside(value, None, None, None) else "a finite number "
    kind = "a number of at most 308 digits " if too_large else kind
    raise InputError(f"{key} is {shown(value)}, must be {kind}{allowed(above, least, most)} {unit}".rstrip())


def whole(key: str, value: Any, unit: str = "", *, least: int | None = None, most: int | None = None) -> int:
    """Return `value` as an int in the range; 24.0e9 is whole, 0.5 is not. Raises InputError that names `key`.

    Without `most`, WHOLE_MOST is the largest.
    """
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if most is None and is_number and value > WHOLE_MOST:
        most = WHOLE_MOST
    if is_number and inside(value, None, least, most) and value == int(value):
        return int(value)
    of_unit = f" of {unit}" if unit else ""
    raise InputError(
        f"{key} is {shown(value)}, must be a whole number{of_unit}, {allowed(None, least, most)}"
    )


def period(key: str, value: Any) -> float:
    """Return a period of at least LEAST_PERIOD_S seconds. Raises InputError that names `key`."""
    return number(key, value, "seconds", least=LEAST_PERIOD_S)


def listed(key: str, value: Any, example: str) -> tuple[Any, ...]:
    """Return a non-empty list as a tuple. Raises InputError that names `key` and shows `example`."""
    if isinstance(value, Sequence) and not isinstance(value, str) and len(value):
        return tuple(value)
    raise InputError(f"{key} is {shown(value)}, must be a list with at least one entry, such as {example}")


def weights(key: str, value: Any, example: str, unit: str = "") -> tuple[float, ...]:
    """Return numbers as a tuple, each at least 0 and at least one greater; `unit` is that of each.

    Raises InputError that names `key` and shows `example`.
    """
    entries = listed(key, value, example)
    found = tuple(number(f"{key}[{i}]", entry, unit, least=0) for i, entry in enumerate(entries))
    if not any(found):
        raise InputError(f"{key} is all 0, must have at least one number greater than 0")
    return found


def choice(key: str, value: Any, known: Iterable[str]) -> str:
    """Return `value` if it is a known name. Raises InputError that names `key` and the nearest known names."""
    names = tuple(known)
    if value in names:
        return str(value)
    raise InputError(f"{key} is {value!r}; {nearest(str(value), names)}")


def switch(key: str, value: object) -> bool:
    """Return a boolean. Raises InputError for anything else."""
    if not isinstance(value, bool):
        raise InputError(f"{key} is {shown(value)}, must be true or false")
    return value


def part(key: str, value: Any, kind: type, example: str) -> None:
    """Raise InputError unless what a configuration has as `key` is of a `kind`, which a group of YAML files chooses."""
    if not isinstance(value, kind):
        group = key.replace(".", "/")
        raise InputError(f"{key} is {shown(value)}, must be chosen with {group}=<name>, such as {example}")
