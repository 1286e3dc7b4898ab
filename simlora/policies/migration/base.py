"""The migration slot: which requests move when the loads of replicas diverge."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import NamedTuple

from simlora.core.adapter import Adapter
from simlora.core.request import Request
from simlora.policies.views import ClusterView


class Move(NamedTuple):
    """The move of a request from one replica to another."""

    request: Request
    source: int
    target: int


class Copy(NamedTuple):
    """One more copy of an adapter."""

    adapter: Adapter
    replica: int


class Plan(NamedTuple):
    """The moves, each request at most once, and the reason: the trigger and, with a solver, how it ended.

    Both are written to the results, except for a plan without a `reason`, which had no trigger. `solved` is False if
    the solver found no placement, so that nothing moves. `copies` are loaded for requests to come, by a policy that
    `brings` adapters, where there is room for them.
    """

    moves: tuple[Move, ...] = ()
    reason: str = ""
    solved: bool = True
    copies: tuple[Copy, ...] = ()


class Migration(ABC):
    """Plans moves of requests between replicas; one instance per cluster. Called every `period_s` seconds; None: never.

    A plan takes `delay_s` to compute. After that time each request leaves at the end of its replica's current
    iteration; requests that have ended by then do not move. A request keeps its generated tokens, and its KV is
    recomputed at the target together with its prompt. With `brings` the target loads its adapter at once. With
    `assumes_alike` the policy treats all replicas alike, even on different GPUs.
    """

    period_s: float | None = None
    delay_s: float = 0.0
    brings = False
    assumes_alike = False

    @abstractmethod
    def plan(self, view: ClusterView) -> Plan:
        """Return the moves to make now."""
