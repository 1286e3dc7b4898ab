"""What is asked of a plan: all that it has, or some of it by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

from simlora.core.errors import InputError, nearest

T = TypeVar("T")


def planned(names: Sequence[str], plans: Mapping[str, T]) -> list[T]:
    """Return what is planned under these names, all if there are none. Raises InputError with the nearest names."""
    for name in names:
        if name not in plans:
            raise InputError(f"there is no plan for {name!r}; {nearest(name, plans)}")
    return [plans[name] for name in names or plans]
