"""Requests that go on at another replica, and why."""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING

from simpy import Event

from simlora.core.request import Request
from simlora.engine.admission import unservable
from simlora.engine.clock import MIGRATION
from simlora.engine.departed import Departed
from simlora.metrics.journal import Moved, Planned
from simlora.policies.migration.base import Plan

if TYPE_CHECKING:
    from simlora.engine.cluster import Cluster


class Moving:
    """Asks the migration policy, and sends requests where it says."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster, self._policy = cluster, cluster.scenario.policies.migration
        self._why: dict[int, tuple[float, str, bool]] = {}  # of the requests that are to move
        self.active = self._policy.period_s is not None

    def run(self) -> Generator[Event, None, None]:
        """Plan every period, until all requests have ended."""
        cluster, policy, period_s = self._cluster, self._policy, self._policy.period_s
        assert period_s is not None, "a migration plans that does not say when"
        clock = cluster.clock
        for moment in clock.every(period_s, MIGRATION, cluster.all_ended):
            yield moment
            decided_s = clock.now
            plan = policy.plan(cluster.overview)
            if plan.reason:
                planned = Planned(decided_s, len(plan.moves), plan.solved, plan.reason)
                cluster.recorder.journal.planned.append(planned)
            if plan.moves and policy.delay_s:
                yield clock.moment(decided_s + policy.delay_s, MIGRATION, 0)
            self._carry_out(plan, decided_s)

    def _carry_out(self, plan: Plan, decided_s: float) -> None:
        """Send those away who are still where the plan found them, are not leaving, and may be where it wants them."""
        cluster, replicas = self._cluster, self._cluster.replicas
        here = {source: set(replicas[source].requests()) for _, source, _ in plan.moves}
        sent_for: set[tuple[int, int]] = set()
        for request, source, target in plan.moves:
            replica, adapter = replicas[target], request.adapter
            placed = target in cluster.candidates(request) and not unservable(request, replica.config)
            if request not in here[source] or request.id in self._why or not placed:
                continue
            loads = adapter is not None and adapter not in replica.holdings.pool
            loads = loads and (request.adapter_id, target) not in sent_for
            sent_for.add((request.adapter_id, target))
            self._why[request.id] = decided_s, plan.reason, loads
            replicas[source].send(request, target)
            if self._policy.brings and adapter is not None:
                replica.bring(adapter)

    def forget(self, request: Request) -> None:
        """A request that may have been about to move does not."""
        self._why.pop(request.id, None)

    def arrive(self, departed: Departed, source: int, target: int) -> None:
        """A request that left one replica goes on at another."""
        cluster, request = self._cluster, departed.request
        request.migrations += 1
        decided_s, reason, loads = self._why.pop(request.id)
        self.note(departed, source, target, decided_s, loads, reason)
        cluster.take_from(source, request)
        cluster.give_to(target, request)
        cluster.replicas[target].receive(departed, source)

    def note(
        self, departed: Departed, source: int, target: int, decided_s: float, loads: bool, reason: str
    ) -> None:
        """Write down that a request moves now; target -1: to nobody yet."""
        request, now_s = departed.request, self._cluster.clock.now
        name = request.adapter.name if request.adapter is not None else ""
        self._cluster.recorder.journal.moved.append(
            Moved(now_s, decided_s, request.id, name, source, target, departed.lost_tokens, loads, reason)
        )
