"""A router that replicas tell now and then what they have."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from simlora.core.errors import InputError
from simlora.core.request import Request
from simlora.engine.cluster.simulation import Simulation
from simlora.policies.routing.base import Router
from simlora.policies.routing.scored import Scored
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


def heard(every_s: float | None) -> list[tuple[int, int, int]]:
    return listening(every_s).heard


def listening(every_s: float | None, own_s: float | None = None) -> Listens:
    router = Listens()
    router.status_every_s = own_s
    scenario = CASE.scenario()
    policies = replace(scenario.policies, router=router)
    cluster = replace(scenario.cluster, status_every_s=every_s)
    Simulation(replace(scenario, policies=policies, cluster=cluster)).run()
    return router


def test_status_is_that_of_the_first_arrival_of_each_interval() -> None:
    adapter = 4  # slots
    held = [0] + [204 * n + adapter for n in range(1, 7)]
    assert heard(None) == [(n, n, held[n]) for n in range(7)]
    assert [told[0] for told in heard(1.0)] == [0, 0, 0, 0, 4, 4, 6]
    assert heard(1.0)[4] == (4, 4, held[4])


def test_what_the_router_has_sent_is_never_late() -> None:
    assert listening(None).sent == listening(1.0).sent == list(range(7))


def test_the_use_of_the_pool_is_that_of_the_report() -> None:
    now, late = listening(None).used_tokens, listening(1.0).used_tokens
    assert late == [0, 0, 0, 0, now[4], now[4], now[6]]
    assert 0 < now[1] < now[4]


def test_until_the_next_status_routers_send_all_requests_to_the_same_replica() -> None:
    scenario = CASE.scenario()
    reporting = replace(scenario, cluster=replace(scenario.cluster, status_every_s=1.0))
    found = Simulation(reporting).run().requests()
    assert found.replica.tolist()[:4] == [0, 0, 0, 0]
    assert found.replica.tolist()[4:6] == [1, 1]


def test_a_router_brings_its_own_period_unless_the_cluster_has_one() -> None:
    assert listening(None, own_s=1.0).heard == heard(1.0)
    assert listening(0.0, own_s=1.0).heard == heard(None)


def test_a_period_is_not_below_nothing() -> None:
    with pytest.raises(InputError, match=r"cluster\.status_every_s is -1, must be"):
        replace(CASE.scenario().cluster, status_every_s=-1)
    with pytest.raises(InputError, match=r"router\.status_every_s is 0, must be"):
        Scored(status_every_s=0)
