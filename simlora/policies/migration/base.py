"""The migration slot: what moves when replicas drift apart?"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import NamedTuple

from simlora.core.request import Request
from simlora.policies.views import ClusterView


class Move(NamedTuple):
    """A request of one replica goes on at another."""

    request: Request
    source: int
    target: int


class Plan(NamedTuple):
    """What moves, each request once, and why: what set it off, and how a solver ended if one was asked.

    Both are written to the results. A plan without a `reason` is not: there was no cause to look.
    `solved` is False for one whose solver found nothing to go by, so that everything stays.
    """

    moves: tuple[Move, ...] = ()
    reason: str = ""
    solved: bool = True


class Migration(ABC):
    """One instance a cluster, asked every `period_s` seconds; None: never.

    What it decides takes `delay_s` to decide: requests leave after that time, at the end of the iteration that their
    replica is in then; those that have ended by then do not. A request keeps the tokens it has, and has its KV
    computed anew where it goes, together with its prompt. With `brings` its adapter is sent for at once. One that
    `assumes_alike` cannot tell replicas on different GPUs apart.
    """

    period_s: float | None = None
    delay_s: float = 0.0
    brings = False
    assumes_alike = False

    @abstractmethod
    def plan(self, view: ClusterView) -> Plan:
        """Return what moves now."""
