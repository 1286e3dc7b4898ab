"""The best replica for every request and its adapter, among all replicas: dLoRA's ILP, as printed."""

from __future__ import annotations

from simlora.core.checks import number, period
from simlora.policies.migration.base import Migration, Plan
from simlora.policies.migration.comigration import Solver, Terms, plan
from simlora.policies.views import ClusterView


class Ilp(Migration):
    """Every `period_s` seconds, places all requests of all replicas, running or waiting, anew.

    The objective is the time of the replica with the longest work. A replica's work is the sum of its requests' mean
    execution times by adapter, times γ for those that move, plus the swapping to the host (`host_memory_bytes`, None:
    unlimited) at `bandwidth_bytes_per_s`, plus `eta_s` for every adapter. x^G, x^H and y are binary; solving takes
    exponential time, as the paper says, and stops within `gap` of the optimum or after `most_nodes`. `delay_s` is the
    simulated time that the cluster waits for the plan, however long the solver really takes.

    Source: dLoRA (OSDI'24) §5.2. Differs: of the many equally good plans, the one made has only the moves that shorten
    the longest work (Comigration.needed). Where the paper is silent: γ is 1 at a request's own replica, and elsewhere
    (L + the prefill of its context + the load of its adapter, if it is not there) / L. L is `unknown_execution_s` until
    a request of the adapter has finished, as in their code; for the base model it is the mean over all requests. A
    request takes the memory of its context even while it waits.
    """

    brings = True
    assumes_alike = True

    def __init__(
        self,
        period_s: float = 10.0,
        delay_s: float = 0.2,
        unknown_execution_s: float = 5.0,
        eta_s: float = 0.1,
        bandwidth_bytes_per_s: float = 32 * 2**30,
        host_memory_bytes: float | None = None,
        solver: str = "highs",
        gap: float = 0.01,
        most_nodes: int = 100,
    ) -> None:
        self.period_s = period("migration.period_s", period_s)
        self.delay_s = number("migration.delay_s", delay_s, "seconds", least=0)
        self.terms = Terms(
            relaxed=False,
            unknown_execution_s=unknown_execution_s,
            eta_s=eta_s,
            moved_s=None,
            bandwidth_bytes_per_s=bandwidth_bytes_per_s,
            host_memory_bytes=host_memory_bytes,
        )
        self.solver = Solver(solver, gap, most_nodes)

    def plan(self, view: ClusterView) -> Plan:
        replicas = range(len(view.outstanding))
        return plan(view, replicas, self.terms, self.solver, f"every {self.period_s:g} s")
