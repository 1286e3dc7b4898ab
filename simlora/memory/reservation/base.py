"""The interface of the reservation rules, in token slots."""

from __future__ import annotations

from abc import abstractmethod
from typing import Final

from simlora.core.errors import not_defined
from simlora.core.request import Request

UNLIMITED: Final = 1 << 60
"""More decode steps than any simulation takes."""


class Reservation:
    """Charges the KV of running requests to a pool of `capacity` token slots."""

    __slots__ = ("capacity",)
    grows = False
    """Whether a request's slots grow with its decode steps."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity

    @abstractmethod
    def begin(self, step: int) -> None:
        """Start a trial with only the running requests."""
        raise not_defined(self, "begin")

    @abstractmethod
    def fits(self, context: int, to_come: int, beside_tokens: int) -> bool:
        """Return whether a candidate fits beside the running requests and the earlier candidates.

        `context` is its slots once prefilled (prompt and first token, minus shared KV), `to_come` the tokens that it
        may still produce after the first, `beside_tokens` the slots of all adapters in use and of shared KV.
        """
        raise not_defined(self, "fits")

    def retry_steps(self) -> int:
        """Return the decode steps for which the candidate just refused cannot fit, unless a request leaves."""
        return UNLIMITED

    @abstractmethod
    def add(self, request: Request, context: int, to_come: int, step: int) -> None:
        """Charge an admitted request; rules keep what they need of it in its `held_offset` and `held_until`."""
        raise not_defined(self, "add")

    def advance(self, request: Request, tokens: int, step: int) -> None:
        """A running request has so many tokens more at this step than its steps account for.

        A rule that charges by the declared output counts them already.
        """

    @abstractmethod
    def remove(self, request: Request, step: int) -> None:
        """Release the slots of a request."""
        raise not_defined(self, "remove")

    @abstractmethod
    def held_tokens(self, request: Request, step: int) -> int:
        """Return the token slots that a request takes at this step."""
        raise not_defined(self, "held_tokens")

    @abstractmethod
    def used_tokens(self, step: int) -> int:
        """Return the token slots taken by KV at this step."""
        raise not_defined(self, "used_tokens")

    def peak_tokens(self, step: int) -> int:
        """Return the most token slots that KV will take, as far as this rule knows, if no request joins."""
        return self.used_tokens(step)

    @abstractmethod
    def steps_until_full(self, free_tokens: int, step: int, most: int = UNLIMITED) -> int:
        """Return the decode steps until KV takes more than the `free_tokens` that are free now.

        A result of `most` or more only means "not within `most` steps".
        """
        raise not_defined(self, "steps_until_full")
