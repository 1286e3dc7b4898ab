"""Migrations, routers and placements that do what a test says."""

from collections.abc import Callable
from typing import Any

from numpy.typing import NDArray

from simlora.core.request import Request
from simlora.policies.migration.base import Migration, Move, Plan
from simlora.policies.placement.base import Placed, Placement
from simlora.policies.routing.base import Router
from simlora.policies.views import ClusterView


class Routed(Router):
    """Sends requests where a function of the request, the candidates and the view says."""

    informed = False

    def __init__(self, chosen: Callable[[Request, NDArray[Any], ClusterView], int]) -> None:
        self._chosen = chosen

    def route(self, request: Request, candidates: NDArray[Any], view: ClusterView) -> int:
        return self._chosen(request, candidates, view)


TO_THE_FIRST = Routed(lambda request, candidates, view: 0)
IN_TURN = Routed(lambda request, candidates, view: request.id % 2)
"""Deals requests out to two replicas."""


class Planned(Migration):
    """Asks a function at every look until so many `plans` have moved something; `only`: at one look alone."""

    def __init__(
        self,
        asked: Callable[[ClusterView], Plan],
        period_s: float,
        delay_s: float = 0.0,
        brings: bool = False,
        only: bool = False,
        plans: int = 1,
    ) -> None:
        self.period_s: float = period_s
        self.delay_s, self.brings = delay_s, brings
        self._asked, self._only, self._left = asked, only, plans
        self.looks: list[float] = []

    def plan(self, view: ClusterView) -> Plan:
        self.looks.append(view.now_s)
        plan = self._asked(view) if self._left else Plan()
        self._left -= self._left > 0 and (self._only or bool(plan.moves))
        return plan


def moves(id: int, period_s: float, **more: object) -> Planned:
    """Sends one request from replica 0 to 1, at every look that finds it at 0."""

    def asked(view: ClusterView) -> Plan:
        found = tuple(Move(request, 0, 1) for request in view.requests_of(0) if request.id == id)
        return Plan(found, "two there, none here" if found else "")

    return Planned(asked, period_s, plans=99, **more)  # type: ignore[arg-type]


def looking(seen: list[Any], at: Callable[[ClusterView], Any], period_s: float) -> Planned:
    """Moves nothing, and keeps what it sees at every look."""
    return Planned(lambda view: seen.append(at(view)) or Plan(), period_s)


class Fixed(Placement):
    """What it is told to say."""

    def __init__(self, **placed: dict[int, NDArray[Any]]) -> None:
        self.placed = Placed(**placed)

    def place(self, adapters: object, view: ClusterView) -> Placed:
        return self.placed
