"""What was decided, and what failed, where a reader may ask why: modes, thresholds, credits, plans, moves, failures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, get_type_hints

import pandas as pd

MERGED, CREDIT = "merged", "credit"
"""Names of numbers that are an adapter's."""


class Decided(NamedTuple):
    """A number of one replica's scheduler, from that time on.

    `adapter` is whose number it is, "" if nobody's or the base model's. `merged` is the id of the adapter in the
    weights, or -1.
    """

    time_s: float
    replica: int
    name: str
    adapter: str
    value: float


class Moved(NamedTuple):
    """A request that went from one replica to another.

    `decided_s` is when the plan was made that says so, `reason` what set it off. At the target `recomputed_tokens` that
    had been prefilled are prefilled anew; the first of those whom one plan moves there has the adapter `loaded`, if it
    was not there when the plan was carried out.
    """

    time_s: float
    decided_s: float
    request_id: int
    adapter: str
    source: int
    target: int
    recomputed_tokens: int
    loaded: bool
    reason: str


class Planned(NamedTuple):
    """A plan that a migration made; an unsolved one left everything where it was."""

    time_s: float
    moves: int
    solved: bool
    reason: str


class Replanned(NamedTuple):
    """A plan that a placement made anew: what it asks of hosts that the one before it did not.

    An adapter that a host is to serve from now on is `assigned`, one that it is no longer to serve `given_up`, each
    once for every such host. `size_bytes` are those of the assigned ones that their hosts do not hold yet; 0 where
    every host holds all.
    """

    time_s: float
    assigned: int
    given_up: int
    size_bytes: int


class Failed(NamedTuple):
    """A host that failed, and was back at `until_s`; inf: never.

    `requests` were there and went on elsewhere. Of those, `restarted` had been prefilled, if only in part: that many
    `recomputed_tokens` of them are prefilled anew. Of `lost_adapters` adapters no other host had a copy.
    """

    time_s: float
    host: int
    until_s: float
    requests: int
    restarted: int
    recomputed_tokens: int
    lost_adapters: int


class Scaled(NamedTuple):
    """The number of replicas changed that are wanted.

    From then on so many are `on`: they are `serving`, or `booting`; others are `draining`, they do what they have and
    go.
    """

    time_s: float
    on: int
    serving: int
    booting: int
    draining: int
    reason: str


class Journal:
    """Rows in the order in which they were written."""

    __slots__ = ("_noted", "decided", "failed", "moved", "planned", "replanned", "scaled")

    def __init__(self) -> None:
        self._noted: dict[tuple[int, str], float] = {}
        self.decided: list[Decided] = []
        self.moved: list[Moved] = []
        self.planned: list[Planned] = []
        self.replanned: list[Replanned] = []
        self.failed: list[Failed] = []
        self.scaled: list[Scaled] = []

    def note(self, time_s: float, replica: int, name: str, value: float) -> None:
        """Write a scheduler's number down, unless it is what it was; `credit:a` is the credit of adapter a."""
        if self._noted.get((replica, name)) != value:
            self._noted[replica, name] = value
            kind, _, adapter = name.partition(":")
            self.decided.append(Decided(time_s, replica, kind, adapter, value))

    def switch(self, time_s: float, replica: int, adapter: str, id: int) -> None:
        """Write down which adapter is merged from now on; none has the name "" and the id -1."""
        self.decided.append(Decided(time_s, replica, MERGED, adapter, float(id)))

    def decisions(self) -> pd.DataFrame:
        """Return what schedulers noted, a row a change."""
        return _table(self.decided, Decided)

    def moves(self) -> pd.DataFrame:
        """Return who moved, a row a move."""
        return _table(self.moved, Moved)

    def plans(self) -> pd.DataFrame:
        """Return what was planned and why, a row a plan."""
        return _table(self.planned, Planned)

    def placements(self) -> pd.DataFrame:
        """Return what a placement planned anew, a row a plan."""
        return _table(self.replanned, Replanned)

    def scalings(self) -> pd.DataFrame:
        """Return how the number of replicas changed, a row a change."""
        return _table(self.scaled, Scaled)

    def placement_facts(self) -> dict[str, int]:
        """Return what the summary says of a placement that plans anew."""
        plans = self.replanned
        return {
            "plans": len(plans),
            "changes": sum(plan.assigned + plan.given_up > 0 for plan in plans),
            "adapters_assigned": sum(plan.assigned for plan in plans),
            "adapters_given_up": sum(plan.given_up for plan in plans),
            "assigned_bytes": sum(plan.size_bytes for plan in plans),
        }

    def failure_facts(self, makespan_s: float) -> dict[str, Any]:
        """Return what the summary says of hosts that failed before then; `downtime_s` is of all of them together."""
        failed = [failed for failed in self.failed if failed.time_s <= makespan_s]
        return {
            "failures": len(failed),
            "hosts": len({failed.host for failed in failed}),
            "downtime_s": sum(min(failed.until_s, makespan_s) - failed.time_s for failed in failed),
            "requests": sum(failed.requests for failed in failed),
            "restarted": sum(failed.restarted for failed in failed),
            "recomputed_tokens": sum(failed.recomputed_tokens for failed in failed),
            "lost_adapters": sum(failed.lost_adapters for failed in failed),
            "each": [failed._asdict() for failed in failed],
        }

    def migration_facts(self) -> dict[str, int]:
        """Return what the summary says of migration."""
        plans = self.planned
        return {
            "plans": len(plans),
            "unsolved": sum(not plan.solved for plan in plans),
            "planned_moves": sum(plan.moves for plan in plans),
            "moves": len(self.moved),
            "recomputed_tokens": sum(move.recomputed_tokens for move in self.moved),
            "adapters_loaded": sum(move.loaded for move in self.moved),
        }


def _table(rows: Sequence[tuple[Any, ...]], row: type[tuple[Any, ...]]) -> pd.DataFrame:
    """Return rows with the types of their fields, whether there are any or not."""
    types = get_type_hints(row)
    return pd.DataFrame(rows, columns=list(types)).astype(types)
