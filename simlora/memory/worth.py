"""What a cached item is worth, and how much of that time takes away."""

from __future__ import annotations

from typing import Generic, TypeVar

from mypy_extensions import mypyc_attr

from simlora.core.errors import not_defined

T = TypeVar("T")


@mypyc_attr(allow_interpreted_subclasses=True)
class Worth(Generic[T]):
    """`key` is worth on a scale on which time lowers the worth of all items used long ago by the same amount.

    A recently used item is worth less than its key by `fade`, which decreases over time and is 0 to `most_fade`.
    """

    def __init__(self, most_fade: float = 0.0) -> None:
        self.most_fade = most_fade

    def key(self, thing: T) -> float:
        """Return the most that an item is ever worth, if it is not used again."""
        raise not_defined(self, "key")

    def fade(self, thing: T, now_s: float) -> float:
        """Return what to subtract from the key now; not asked if `most_fade` is 0."""
        return 0.0
