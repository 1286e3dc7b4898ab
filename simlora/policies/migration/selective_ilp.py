"""When a replica is overloaded, a new placement of its requests and those of some others: a relaxed ILP, rounded."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from simlora.core.checks import choice, number, period, whole
from simlora.policies.migration.base import Migration, Plan
from simlora.policies.migration.comigration import Seconds, Solver, Terms, plan
from simlora.policies.migration.refill import Refill
from simlora.policies.views import ClusterView


class Constants(NamedTuple):
    """What `constants` sets: replicas of either kind (None: all), η, seconds in place of γ, and if copies are made."""

    most_overloaded: int
    most_underloaded: int | None
    eta_s: float
    moved_s: float | None
    refills: bool


CONSTANTS = {"paper": Constants(4, 4, 0.1, None, False), "released": Constants(1, None, 0.0, 0.05, True)}
"""The paper gives no number for K, where 4 is ours, nor for η, where 0.1 is in their code, which does not use it."""


class SelectiveIlp(Migration):
    """Every `period_s` seconds, moves requests and adapters between the most and the least loaded replicas if needed.

    The trigger is a replica whose memory is `full` while another's is not, or else a replica with at least
    `more_requests` more than the mean. The replicas whose requests are placed anew are the `most_replicas` most loaded
    above the mean (of memory in use, or of requests) and as many least loaded below it. The ILP is that of Ilp, but
    relaxed: x is continuous and y binary, each request goes where most of it is, and what a replica's memory cannot
    hold is swapped.
    `constants` paper: most_replicas 4, γ, eta_s 0.1. Released: one replica against all below the mean, no γ and no η,
    but moved_s 0.05 for every request that moves; and copies after every plan, as Refill says. Parameters that are set
    override `constants`.

    Source: dLoRA (OSDI'24) §5.2; thresholds, period, unknown_execution_s and bandwidth from its released code. In that
    code a waiting request counts as memory in use, the fullest replica is paired with the emptiest and the one with
    the most requests with the one with the fewest (`most_replicas: 1`), and no replica may get more adapters than
    before. §5.2 also reserves memory for more copies, "to maximize the burst tolerance as described" in §5.1, and does
    not say how much. With `constants` paper no plan makes any: those of §5.1 are made before the run, no plan takes one
    away, and dispatch loads more. Differs: see Ilp; the number of requests stands for the paper's queueing delay, as in
    the code. `delay_s`: the paper says milliseconds. In their runs with 8 replicas (Figure 11a) solving took 0.02 s for
    every 10 s at 8 requests per second, and 0.2 s from 20 on.
    """

    brings = True
    assumes_alike = True

    def __init__(
        self,
        constants: str = "paper",
        period_s: float = 10.0,
        delay_s: float = 0.2,
        more_requests: int = 16,
        full: float = 0.9,
        most_replicas: int | None = None,
        unknown_execution_s: float = 5.0,
        eta_s: float | None = None,
        moved_s: float | None = None,
        bandwidth_bytes_per_s: float = 32 * 2**30,
        solver: str = "highs",
        gap: float = 0.01,
        most_nodes: int = 1000,
    ) -> None:
        left = CONSTANTS[choice("migration.constants", constants, CONSTANTS)]
        self.period_s = period("migration.period_s", period_s)
        self.delay_s = number("migration.delay_s", delay_s, "seconds", least=0)
        self.more_requests = whole("migration.more_requests", more_requests, "requests", least=1)
        self.full = number("migration.full", full, "of the memory", above=0, most=1)
        self.most_overloaded, self.most_underloaded = left.most_overloaded, left.most_underloaded
        if most_replicas is not None:
            most = whole("migration.most_replicas", most_replicas, "replicas of either kind", least=1)
            self.most_overloaded = self.most_underloaded = most
        self.terms = Terms(
            relaxed=True,
            unknown_execution_s=unknown_execution_s,
            eta_s=left.eta_s if eta_s is None else eta_s,
            moved_s=left.moved_s if moved_s is None else moved_s,
            bandwidth_bytes_per_s=bandwidth_bytes_per_s,
        )
        self.solver = Solver(solver, gap, most_nodes)
        self.refill = Refill() if left.refills else None

    def plan(self, view: ClusterView) -> Plan:
        if self.refill is not None:
            self.refill.begin(view)
        used: Seconds = view.used_tokens / view.kv_token_budgets
        fullest, emptiest = int(used.argmax()), int(used.argmin())
        if used[fullest] >= self.full > used[emptiest]:
            cause = f"the memory of replica {fullest} is {used[fullest]:.0%} full, of {emptiest} {used[emptiest]:.0%}"
            return self._among(self.chosen(used), view, cause)
        counts, replicas = view.outstanding, len(view.outstanding)
        busiest = int(counts.argmax())
        more = (int(counts[busiest]) * replicas - int(counts.sum())) / replicas
        if more >= self.more_requests:
            cause = f"replica {busiest} has {counts[busiest]:,} requests, {more:,.6g} more than the mean"
            return self._among(self.chosen(counts.astype(float)), view, cause)
        return Plan()

    def _among(self, replicas: list[int], view: ClusterView, cause: str) -> Plan:
        found = plan(view, replicas, self.terms, self.solver, cause)
        if self.refill is None or not found.solved:
            return found
        return found._replace(copies=self.refill.copies(replicas, found, view))

    def chosen(self, load: Seconds) -> list[int]:
        """Return the replicas among which requests may move, ascending; of equally loaded ones the lowest ids."""
        over = sorted(np.flatnonzero(load > load.mean()).tolist(), key=lambda replica: -load[replica])
        under = sorted(np.flatnonzero(load < load.mean()).tolist(), key=lambda replica: load[replica])
        return sorted((*over[: self.most_overloaded], *under[: self.most_underloaded]))
