"""Records of decisions and failures: merged adapters, thresholds, credits, plans, moves, failures, scalings."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple, get_type_hints

import pandas as pd

from simlora.core.total import total

MERGED, CREDIT = "merged", "credit"
"""Names of numbers that belong to an adapter."""


class Decided(NamedTuple):
    """A number of one replica's scheduler, valid from `time_s` on.

    `adapter` is the adapter that the number belongs to, "" for none and for the base model. The number `merged` is the
    id of the merged adapter, or -1.
    """

    time_s: float
    replica: int
    name: str
    adapter: str
    value: float


class Moved(NamedTuple):
    """A request that moved from one replica to another.

    `decided_s` is when the move was planned, `reason` what triggered the plan. `recomputed_tokens` had been prefilled
    and are prefilled again at the target. `loaded`: the adapter was not at the target when the plan was carried out,
    and this request is the first with that adapter that the plan moves there.
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
    """A plan of the migration policy; one that is not `solved` moves nothing."""

    time_s: float
    moves: int
    solved: bool
    reason: str


class Replanned(NamedTuple):
    """A new plan of the placement, as its difference from the previous plan.

    An adapter is `assigned` to a host that is to serve it from now on, and `given_up` by one that no longer does; both
    count once per host. `size_bytes` are those of assigned adapters that their hosts do not hold yet; 0 if every host
    holds all adapters.
    """

    time_s: float
    assigned: int
    given_up: int
    size_bytes: int


class Failed(NamedTuple):
    """A host that failed at `time_s` and came back at `until_s`; inf: never.

    It had `requests`, which continued elsewhere. Of those, `restarted` had been prefilled at least in part, and
    `recomputed_tokens` of their tokens are prefilled again. `lost_adapters` had no copy on another host.
    """

    time_s: float
    host: int
    until_s: float
    requests: int
    restarted: int
    recomputed_tokens: int
    lost_adapters: int


class Scaled(NamedTuple):
    """A change in the number of replicas; the counts hold from `time_s` on.

    `on` replicas are either `serving` or `booting`. Others are `draining`: they complete their requests and are then
    switched off.
    """

    time_s: float
    on: int
    serving: int
    booting: int
    draining: int
    reason: str


class Journal:
    """Rows of decisions, moves, plans, failures and scalings, in the order in which they were written."""

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
        """Record a scheduler's number if it has changed; `credit:a` is the credit of adapter a."""
        if self._noted.get((replica, name)) != value:
            self._noted[replica, name] = value
            kind, _, adapter = name.partition(":")
            self.decided.append(Decided(time_s, replica, kind, adapter, value))

    def switch(self, time_s: float, replica: int, adapter: str, id: int) -> None:
        """Record the adapter that is merged from now on; for none the name is "" and the id -1."""
        self.decided.append(Decided(time_s, replica, MERGED, adapter, float(id)))

    def forget(self) -> None:
        """Drop all rows."""
        for rows in (self.decided, self.moved, self.planned, self.replanned, self.failed, self.scaled):
            rows.clear()

    def end_failure(self, host: int, time_s: float) -> None:
        """The last failure of a host, if there was one, is over, at the latest."""
        for at in reversed(range(len(self.failed))):
            failed = self.failed[at]
            if failed.host == host:
                self.failed[at] = failed._replace(until_s=min(failed.until_s, time_s))
                return

    def sort_decisions(self) -> None:
        """Have the schedulers' numbers in order of time, and of replica, if they were not written so."""
        self.decided.sort(key=lambda decided: (decided.time_s, decided.replica))

    def decisions(self) -> pd.DataFrame:
        """Return the schedulers' numbers, one row per change."""
        return _table(self.decided, Decided)

    def moves(self) -> pd.DataFrame:
        """Return the moves of requests, one row per move."""
        return _table(self.moved, Moved)

    def plans(self) -> pd.DataFrame:
        """Return the migration plans and their reasons, one row per plan."""
        return _table(self.planned, Planned)

    def placements(self) -> pd.DataFrame:
        """Return the placement's new plans, one row per plan."""
        return _table(self.replanned, Replanned)

    def scalings(self) -> pd.DataFrame:
        """Return the changes in the number of replicas, one row per change."""
        return _table(self.scaled, Scaled)

    def placement_facts(self) -> dict[str, int]:
        """Return the summary's figures of a placement that plans anew."""
        plans = self.replanned
        return {
            "plans": len(plans),
            "changes": sum(plan.assigned + plan.given_up > 0 for plan in plans),
            "adapters_assigned": sum(plan.assigned for plan in plans),
            "adapters_given_up": sum(plan.given_up for plan in plans),
            "assigned_bytes": sum(plan.size_bytes for plan in plans),
        }

    def failure_facts(self, makespan_s: float) -> dict[str, Any]:
        """Return the summary's figures of hosts that failed by `makespan_s`; `downtime_s` is summed over them."""
        failed = [failed for failed in self.failed if failed.time_s <= makespan_s]
        return {
            "failures": len(failed),
            "hosts": len({failed.host for failed in failed}),
            "downtime_s": total(min(failed.until_s, makespan_s) - failed.time_s for failed in failed),
            "requests": sum(failed.requests for failed in failed),
            "restarted": sum(failed.restarted for failed in failed),
            "recomputed_tokens": sum(failed.recomputed_tokens for failed in failed),
            "lost_adapters": sum(failed.lost_adapters for failed in failed),
            "each": [failed._asdict() for failed in failed],
        }

    def migration_facts(self) -> dict[str, int]:
        """Return the summary's figures of migration."""
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
    """Return a table of rows with the types of their fields, even without any rows."""
    return _typed(rows, row) if rows else _empty(row).copy()


def _typed(rows: Sequence[tuple[Any, ...]], row: type[tuple[Any, ...]]) -> pd.DataFrame:
    types = get_type_hints(row)
    return pd.DataFrame(rows, columns=list(types)).astype(types)


@cache
def _empty(row: type[tuple[Any, ...]]) -> pd.DataFrame:
    """Return the table without rows, which is copied: to make the five of a run takes as long as 400 requests."""
    return _typed((), row)
