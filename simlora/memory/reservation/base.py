"""What every rule of reservation is asked, in token slots."""

from __future__ import annotations

from abc import ABC, abstractmethod

UNLIMITED = 1 << 60
"""More decode steps than any run takes."""


class Reservation(ABC):
    """What the KV of running requests takes out of a pool of `capacity` token slots."""

    __slots__ = ("capacity",)
    grows = False
    """Whether what a request takes grows with the steps that it runs."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity

    @abstractmethod
    def begin(self, step: int) -> None:
        """Start a trial with nobody but the running requests."""

    @abstractmethod
    def fits(self, context: int, to_come: int, beside_tokens: int) -> bool:
        """Whether a candidate fits beside the running requests and the candidates before it.

        `context` is what it holds once prefilled (prompt and first token, less what it shares), `to_come` the tokens
        it may still produce after that one, `beside_tokens` the adapters of all of them and the KV they share.
        """

    def retry_steps(self) -> int:
        """Decode steps before which the candidate just refused cannot fit, unless somebody leaves."""
        return UNLIMITED

    @abstractmethod
    def add(self, id: int, context: int, to_come: int, step: int) -> None:
        """Charge an admitted request."""

    @abstractmethod
    def remove(self, id: int, step: int) -> None:
        """Give back what a request took."""

    @abstractmethod
    def held_tokens(self, id: int, step: int) -> int:
        """Token slots that a request takes at this step."""

    @abstractmethod
    def used_tokens(self, step: int) -> int:
        """Token slots taken by KV at this step."""

    def peak_tokens(self, step: int) -> int:
        """The most token slots that KV will take as far as this rule knows, if nobody joins."""
        return self.used_tokens(step)

    @abstractmethod
    def steps_until_full(self, free_tokens: int, step: int, most: int = UNLIMITED) -> int:
        """How many decode steps until KV takes more than the `free_tokens` that are left now.

        From `most` on any number may be said: nobody asks for more.
        """
