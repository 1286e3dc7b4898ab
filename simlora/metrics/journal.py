"""What policies decided, where a reader of the results may ask why: modes, thresholds, credits, plans and moves."""

from __future__ import annotations

from typing import Any, NamedTuple

import pandas as pd


class Decided(NamedTuple):
    """A number of one replica's scheduler, from that time on; `merged` is the adapter in the weights, or -1."""

    time_s: float
    replica: int
    name: str
    value: float


class Moved(NamedTuple):
    """A request that went from one replica to another.

    `decided_s` is when the plan was made that says so, `reason` what set it off. At the target `recomputed_tokens`
    have to be prefilled anew, and the adapter is `loaded` where it was not.
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


class Journal:
    """Rows in the order in which they were written."""

    __slots__ = ("decided", "moved", "planned")

    def __init__(self) -> None:
        self.decided: list[Decided] = []
        self.moved: list[Moved] = []
        self.planned: list[Planned] = []

    def decisions(self) -> pd.DataFrame:
        """Return what schedulers noted, a row a change."""
        return pd.DataFrame(self.decided, columns=list(Decided._fields))

    def moves(self) -> pd.DataFrame:
        """Return who moved, a row a move."""
        return pd.DataFrame(self.moved, columns=list(Moved._fields))

    def facts(self) -> dict[str, Any]:
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
