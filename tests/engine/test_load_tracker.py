"""What a router is told of replicas equals sums over the requests, at every arrival."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from numpy.typing import NDArray

from simlora.core.request import Request
from simlora.engine.cluster.simulation import Simulation
from simlora.policies.loads import SUMS
from simlora.policies.routing.base import Router
from simlora.policies.views import ClusterView, LoadView
from tests.engine.cases import LOADERS, Case, Row, divided, family
from tests.examples import share


class Audit(Router):
    """Sends requests round, and takes every sum again from the requests themselves."""

    informed = True
    simulation: Simulation

    def __init__(self, first: int = 0) -> None:
        self.asked, self.first = 0, first

    def route(self, request: Request, candidates: NDArray[np.int64], view: ClusterView) -> int:
        if self.asked >= self.first:
            self.audit(candidates, view)
        self.asked += 1
        return int(candidates[self.asked % len(candidates)])

    def audit(self, candidates: NDArray[np.int64], view: ClusterView) -> None:
        for replica in candidates.tolist():
            present = view.requests_of(replica)
            waiting = list(self.simulation.fleet.replicas[replica].table.queue)
            self.check(view.loads.all, replica, present, int(view.max_num_seqs[replica]))
            self.check(view.loads.waiting, replica, waiting, int(view.max_num_seqs[replica]))
            adapters = {r.adapter.id: r.adapter.kv_tokens for r in present if r.adapter is not None}
            held = sum(r.prompt_tokens + r.max_output_tokens for r in present) + sum(adapters.values())
            assert view.loads.held_tokens[replica] == held
            assert view.outstanding[replica] == len(present)
        for adapter in self.simulation.adapters:
            caches = self.simulation.fleet.caches
            holders = {replica for replica, cache in enumerate(caches) if adapter in cache}
            assert view.holders(adapter) == holders
            assert set(np.flatnonzero(view.resident(adapter))) == holders

    @staticmethod
    def check(load: LoadView, replica: int, requests: list[Request], batch_size: int) -> None:
        lora = [r for r in requests if r.adapter is not None]
        expected = {
            "requests": len(requests),
            "prompt_tokens": sum(r.prompt_tokens for r in requests),
            "lora_requests": len(lora),
            "lora_tokens": sum(r.prompt_tokens for r in lora),
            "rank_sum": sum(r.rank for r in lora),
            "token_rank_sum": sum(r.rank * r.prompt_tokens for r in lora),
        }
        assert dict(zip(SUMS, load.sums[replica].tolist(), strict=True)) == expected
        assert load.max_rank[replica] == max((r.rank for r in lora), default=0)
        assert load.adapters[replica] == len({r.adapter.id for r in lora})
        counts = Counter(r.adapter for r in requests)
        assert load.full_batches[replica] == sum(count // batch_size for count in counts.values())
        assert all(load.requests_for(adapter)[replica] == count for adapter, count in counts.items())
        for r in lora:
            assert load.uses(r.adapter.id)[replica]


@given(family(loaders=tuple(LOADERS), engines_per_gpu=(1, 2)) | divided(loaders=tuple(LOADERS)))
@share(1 / 3)
def test_loads_are_the_sums_over_the_requests_that_a_replica_has(case):
    """Preempted, given up, moved or waiting for their weights."""
    audit = Audit()
    simulation = audit.simulation = Simulation(case.but(migrates_every_s=0.125).scenario(router=audit))
    simulation.run()
    for load in (simulation.view.loads.all, simulation.view.loads.waiting):
        assert not load.sums.any(), "all requests have left"
        assert not load.adapters.any()
        assert not load.max_rank.any()
        assert not load.full_batches.any()
    assert not simulation.view.loads.held_tokens.any()


@pytest.mark.parametrize("first", [0, 1, 5])
def test_of_a_replica_that_was_replaced_a_router_sees_what_the_new_one_has(first):
    """The router asks from its `first` request on; the host of replica 0 fails and comes back before the fourth."""
    rows = tuple(Row(float(i), i % 3, 4, 20, 20) for i in range(9))
    case, audit = Case(rows=rows, replicas=2, failures=((0, 2.5, 2.75), (0, 5.5, 5.75))), Audit(first)
    simulation = audit.simulation = Simulation(case.scenario(router=audit))
    simulation.run()
    assert audit.asked >= len(rows)
