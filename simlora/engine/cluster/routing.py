"""A router at work: what it sees, and which replica it chooses."""

from __future__ import annotations

from collections.abc import Callable
from operator import index
from typing import Any

from simlora.core.request import Request
from simlora.engine.cluster.fleet import Ids
from simlora.policies.routing.base import Router
from simlora.policies.views import ClusterView


class Routing:
    """Asks the `router`, which reads the `view`; `refresh` is called before each decision, if there are reports."""

    __slots__ = ("_replicas", "_route", "_router", "_view", "refresh")

    def __init__(
        self, router: Router, view: ClusterView, replicas: int, refresh: Callable[[], None] | None = None
    ) -> None:
        self._router, self._view, self._replicas, self.refresh = router, view, replicas, refresh
        self._route: Callable[[Request, Ids, ClusterView], Any] = router.route

    def choose(self, request: Request, candidates: Ids) -> int:
        """Return the replica for a request, of those that may serve it."""
        if self.refresh is not None:
            self.refresh()
        found = self._route(request, candidates, self._view)
        try:
            chosen = index(found)  # it may be one of numpy's numbers
        except TypeError:
            raise TypeError(
                f"{type(self._router).__name__} chose {found!r}, must be a replica's id"
            ) from None
        assert 0 <= chosen < self._replicas, f"{type(self._router).__name__} chose replica {chosen}"
        return chosen


def is_blind(router: Router) -> bool:
    """Whether a router says that it is blind where it says how it routes: a subclass may route otherwise."""
    routes = next((kind for kind in type(router).__mro__ if "route" in vars(kind)), Router)
    return router.blind and bool(vars(routes).get("blind", False))
