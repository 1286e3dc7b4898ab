"""A promise that a policy makes by filling a slot."""

from __future__ import annotations


class Broken(AssertionError):
    """A policy has broken a promise; the message says which."""


def promise(kept: bool, says: str) -> None:
    """Raise Broken, with what the policy did, unless a promise is kept."""
    if not kept:
        raise Broken(says)
