"""Requests that the migration policy moves to another replica."""

from __future__ import annotations

from simlora.core.request import Request
from simlora.engine.clock import MIGRATION, Moment, Process
from simlora.engine.cluster.dispatcher import Dispatcher
from simlora.engine.cluster.fleet import Fleet
from simlora.engine.handoff import Handoff
from simlora.engine.parts.handoff import handing_over
from simlora.engine.replica.admission import unservable
from simlora.metrics.journal import Planned
from simlora.metrics.recorder import Recorder
from simlora.policies.migration.base import Migration, Plan
from simlora.policies.views import ClusterView


class Migrator:
    """Asks the migration policy for plans, and carries them out: requests go to other replicas."""

    def __init__(
        self, policy: Migration, fleet: Fleet, dispatcher: Dispatcher, view: ClusterView, recorder: Recorder
    ) -> None:
        self._policy, self._fleet, self._dispatcher = policy, fleet, dispatcher
        self._view, self._recorder = view, recorder
        self._moving: dict[
            int, tuple[float, bool, str]
        ] = {}  # by request: when it was planned, if it loads, why
        self.active = policy.period_s is not None

    def run(self) -> Process:
        """Plan every period, until all requests have ended."""
        clock, policy, period_s = self._fleet.clock, self._policy, self._policy.period_s
        assert period_s is not None, "a migration policy without a period does not plan"
        for moment in clock.every(period_s, MIGRATION, self._recorder.all_ended):
            yield moment
            decided_s = clock.now
            plan = policy.plan(self._view)
            if plan.reason:
                planned = Planned(decided_s, len(plan.moves), plan.solved, plan.reason)
                self._recorder.journal.planned.append(planned)
            if (plan.moves or plan.copies) and policy.delay_s:
                yield Moment(decided_s + policy.delay_s, MIGRATION, 0)
            self._carry_out(plan, decided_s)

    def _carry_out(self, plan: Plan, decided_s: float) -> None:
        """Send the planned requests that are still at their source, not leaving, and may be served by the target.

        If several of them need an adapter that is not in HBM there, the journal says of the first that it is loaded.
        """
        replicas = self._fleet.replicas
        here = {source: set(replicas[source].table.requests()) for _, source, _ in plan.moves}
        loading: set[tuple[int, int]] = set()
        for request, source, target in plan.moves:
            replica, adapter = replicas[target], request.adapter
            placed = target in self._dispatcher.candidates(request)
            if request not in here[source] or request.id in self._moving or not placed:
                continue
            if unservable(request, self._fleet.adapter_of(request, target), replica.config):
                continue
            loads = adapter is not None and adapter not in replica.kv.adapters
            loads = loads and (request.adapter_id, target) not in loading
            loading.add((request.adapter_id, target))
            self._moving[request.id] = decided_s, loads, plan.reason
            handing_over(replicas[source]).send(request, target)
            if self._policy.brings and adapter is not None:
                handing_over(replica).bring(self._fleet.adapters[target][adapter.id])
        for adapter, target in plan.copies:
            if self._fleet.open[target] and replicas[target].config.holds(adapter.rank):
                handing_over(replicas[target]).bring(self._fleet.adapters[target][adapter.id])

    def forget(self, replica: int, request: Request) -> None:
        """A request is no longer at the replica that it was to leave."""
        self._moving.pop(request.id, None)

    def arrive(self, handoff: Handoff, source: int, target: int) -> None:
        """A request that left one replica goes on at another: at `target`, or where it is routed if that has failed."""
        handoff.request.migrations += 1
        planned = self._moving.pop(handoff.request.id)
        if self._fleet.open[target]:
            self._dispatcher.transfer(handoff, source, target)
        else:
            self._dispatcher.withdraw(source, handoff.request)
            chosen = self._dispatcher.dispatch(handoff.request, handoff)
            target = -1 if chosen is None else chosen
        self._recorder.journal.moved.append(handoff.moved(source, target, self._fleet.clock.now, *planned))
