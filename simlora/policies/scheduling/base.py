"""The scheduler slot: what does this replica run next, and until when does that stand?"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import NamedTuple

from simlora.core.request import Request
from simlora.policies.views import ReplicaView

NEVER = 1 << 60
"""As a number of decode steps: not before something else ends the run."""


class Decision(NamedTuple):
    """Prefill these requests, or else decode the running batch.

    A decode decision stands for `steps` steps, and an arrival ends it at the first iteration
    boundary not before the arrival, but never within its first `on_arrival` steps. A request
    that finishes, memory that runs out, a migration or a fault end it in any case.
    """

    prefill: tuple[Request, ...] = ()
    steps: int = NEVER
    on_arrival: int = NEVER


class Scheduler(ABC):
    """One instance a replica. Asked at iteration boundaries while there is anything to run."""

    @abstractmethod
    def schedule(self, view: ReplicaView) -> Decision:
        """Decide the next iteration. An empty prefill means decode; never called without work."""

    def order(self, view: ReplicaView) -> Iterable[Request]:
        """The waiting requests in the order in which they would start; by arrival, unless said otherwise."""
        return view.waiting
