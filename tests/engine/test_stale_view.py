"""A router that replicas tell now and then what they have."""

from functools import cache

import numpy as np
from numpy.typing import NDArray

from simlora.core.request import Request
from simlora.policies.routing.base import Router
from simlora.policies.views import ClusterView
from tests.engine.cases import Case, Row

ROWS = tuple(Row(t, 0, 4, 200, 200) for t in (0.0, 0.1, 0.2, 0.9, 1.0, 1.5, 2.25))
CASE = Case(rows=ROWS, replicas=3, capacity=10_000, router="most_idle")


class Listens(Router):
    """Sends everything to replica 1, and notes what it is told and what it has counted itself."""

    informed = True

    def __init__(self) -> None:
        self.heard: list[tuple[int, int, int]] = []
        self.sent: list[int] = []
        self.used_tokens: list[int] = []

    def route(self, request: Request, candidates: NDArray[np.int64], view: ClusterView) -> int:
        told = int(view.outstanding[1]), int(view.loads.all.sums[1, 0]), int(view.loads.held_tokens[1])
        self.heard.append(told)
        self.sent.append(int(view.sent.all.sums[1, 0]))
        self.used_tokens.append(int(view.used_tokens[1]))
        assert view.loads.all.uses(0)[1] == (told[0] > 0)
        assert view.now_s == request.arrival_s
        return 1


@cache
def listening(every_s: float | None, own_s: float | None = None) -> Listens:
    """A router after its run; it may have a period of its own, and the cluster one."""
    router = Listens()
    router.status_every_s = own_s
    CASE.but(status_every_s=every_s).run(router=router)
    return router


def test_status_is_that_of_the_first_arrival_of_each_interval_and_so_is_the_use_of_the_pool():
    now, late, adapter = listening(None), listening(1.0), 4  # slots
    held = [0] + [204 * n + adapter for n in range(1, 7)]
    assert now.heard == [(n, n, held[n]) for n in range(7)]
    told = [0, 0, 0, 0, 4, 4, 6]
    assert late.heard == [now.heard[n] for n in told]
    assert late.used_tokens == [now.used_tokens[n] if n else 0 for n in told]
    assert 0 < now.used_tokens[1] < now.used_tokens[4]


def test_what_the_router_has_sent_is_never_late():
    assert listening(None).sent == listening(1.0).sent == list(range(7))


def test_a_router_brings_its_own_period_unless_the_cluster_has_one():
    assert listening(None, own_s=1.0).heard == listening(1.0).heard
    assert listening(0.0, own_s=1.0).heard == listening(None).heard
