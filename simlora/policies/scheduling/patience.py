"""When a waiting request can no longer meet its first-token target."""

from __future__ import annotations

from collections.abc import Container
from itertools import takewhile
from math import inf

from mypy_extensions import mypyc_attr

from simlora.core.checks import GivenFloat, number
from simlora.core.request import Request
from simlora.policies.views import ReplicaView

REASON = "too old to meet its first-token target"


@mypyc_attr(allow_interpreted_subclasses=True)
class Patience:
    """Finds late requests, which have waited `slo_s - margin_s` without a token. A prefill takes up to `margin_s`."""

    def __init__(self, slo_s: GivenFloat, margin_s: GivenFloat) -> None:
        self.seconds = number("scheduler.slo_s", slo_s, "seconds", above=0) - number(
            "scheduler.margin_s", margin_s, "seconds", least=0, most=slo_s
        )

    def late(self, view: ReplicaView) -> dict[int, Request]:
        """Return the late waiting requests, by id. Relies on the queue's order of arrival."""
        old = takewhile(lambda request: request.arrival_s + self.seconds <= view.now_s, view.waiting)
        return {request.id: request for request in old if self._ends_s(request) <= view.now_s}

    def next_s(self, view: ReplicaView, late: Container[int]) -> float:
        """Return when the next waiting request that is not late becomes late; inf if none will."""
        for request in view.waiting:
            if request.id not in late and request.first_token_s < 0.0:
                return self._ends_s(request)
        return inf

    def _ends_s(self, request: Request) -> float:
        """Return when a request becomes late; inf for a request preempted after its first token."""
        return inf if request.first_token_s >= 0.0 else request.arrival_s + self.seconds
