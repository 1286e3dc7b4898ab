"""One run: the fleet, and what acts on it, wired together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property, partial
from itertools import islice, takewhile
from math import inf
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from simlora.core.adapter import Adapter
from simlora.core.garbage import without_collecting
from simlora.core.interrupts import held_back
from simlora.core.request import Request
from simlora.engine import building
from simlora.engine.assembly import Assembly, preload, shared_gpus
from simlora.engine.clock import Clock
from simlora.engine.cluster.adapter_store import AdapterStore, FetchingLink
from simlora.engine.cluster.autoscaling import Autoscaling
from simlora.engine.cluster.blocking_dispatch import BlockingDispatch
from simlora.engine.cluster.cluster_view import ClusterView, LatencyHistory, asks_for_executions, routing
from simlora.engine.cluster.disaggregation import disaggregated
from simlora.engine.cluster.dispatcher import Dispatcher, large_enough
from simlora.engine.cluster.fault_injector import FaultInjector
from simlora.engine.cluster.fleet import Fleet
from simlora.engine.cluster.front_end import FrontEnd
from simlora.engine.cluster.independent import independent
from simlora.engine.cluster.kv_tiers import KvTiers
from simlora.engine.cluster.load_tracker import LoadTracker
from simlora.engine.cluster.migration import Migrator
from simlora.engine.cluster.outcome import Outcome, outcome
from simlora.engine.cluster.placement import PlacementPlanner
from simlora.engine.cluster.turns import Turns
from simlora.engine.cluster.workers import Workers, can_fork
from simlora.engine.parts.cpu_assist import HostCores
from simlora.engine.replica.admission import reservation
from simlora.engine.replica.ending import finalize
from simlora.engine.replica.host_link import HostLink
from simlora.engine.replica.model_runner import ModelRunner
from simlora.engine.replica.replica import Replica
from simlora.engine.requirements import check
from simlora.engine.scenario import Scenario
from simlora.latency.models import LatencyModels
from simlora.metrics.missed import Missed
from simlora.metrics.recorder import Recorder
from simlora.metrics.tracing import Tracing

SLICE = 1 << 16
"""The most requests of a slice of time for which replicas are advanced in turn."""
SLICE_A_REPLICA = 512
"""The same for each replica: an interrupt waits for the end of a slice."""
DRAIN = 1.0625
"""How many times as late each slice ends as the one before, when no more requests come."""


class Simulation:
    """Runs a scenario; `view` is what policies see of it.

    `loads` are the sums over requests that an informed router reads. `store` is there if hosts hold different adapters.
    """

    driven: ClassVar[bool] = False
    """Whether requests are submitted from outside, instead of those of the trace."""

    def __init__(
        self, scenario: Scenario, runner: Callable[[LatencyModels], ModelRunner] = ModelRunner
    ) -> None:
        """Raise InputError for a scenario whose mechanisms do not go together.

        `runner` makes what runs each replica's iterations: by default the latency models answer.
        """
        check(scenario)
        self._runner = runner
        self._outcomes: list[Outcome] = []  # if the replicas were advanced in turns
        cluster, policies = scenario.cluster, scenario.policies
        self.scenario, self.clock = scenario, Clock(scenario.cluster.replicas)
        self.recorder = recorder = self._recorder()
        self.adapters = adapters = list(building.adapters(scenario))
        self.fleet = fleet = Fleet(self.clock, self._adapters_by_replica(), scenario.highest_ranks)
        self._outputs = self._true_outputs()
        latencies = [building.latency_models(scenario, kind) for kind in scenario.kinds]
        distributed = cluster.adapter_pool == "distributed"
        informed = any(router.informed for router in scenario.routers)
        self.store = AdapterStore(cluster, adapters, recorder, self.clock) if distributed else None
        self.kv_tiers = KvTiers(scenario)
        self.placement = PlacementPlanner(scenario, adapters, self._outputs, recorder)
        self.loads = LoadTracker(self._batch_sizes()) if informed else None
        self.history = LatencyHistory(self.clock, asks_for_executions(scenario))
        seen = partial(ClusterView, scenario, fleet, latencies, self.placement, self.loads, self.history)
        self.view = view = seen()
        routes = routing(policies.router, cluster, view, seen)
        self.dispatcher = dispatcher = Dispatcher(scenario, fleet, routes, recorder)
        self.apart = None if len(scenario.routers) == 1 else disaggregated(scenario, fleet, dispatcher, seen)
        self.migrator = Migrator(policies.migration, fleet, dispatcher, view, recorder)
        self.autoscaling = Autoscaling(scenario.scaling, fleet, dispatcher, view, recorder)
        self.faults = FaultInjector(cluster, fleet, dispatcher, recorder.journal)
        self._build(latencies, runner)
        self._begin()
        self._listen()

    def _true_outputs(self) -> Sequence[int]:
        """Return the output lengths by request: the trace's own column, as numbers of Python."""
        return self.scenario.trace.output_tokens.data

    def _adapters_by_replica(self) -> list[list[Adapter]]:
        """Return the adapters of each replica, by id: the same list where they have the same sizes."""
        scenario, by_kind = self.scenario, [self.adapters]
        for kind in scenario.cluster.replica_groups:
            found = list(building.adapters(scenario, kind.replica))
            by_kind.append(next((known for known in by_kind if known == found), found))
        return [by_kind[kind] for kind in scenario.kind_of.tolist()]

    def _batch_sizes(self) -> list[int]:
        """Return how many requests each replica may run together."""
        sizes = [kind.replica.max_num_seqs for kind in self.scenario.kinds]
        return [sizes[kind] for kind in self.scenario.kind_of.tolist()]

    def _recorder(self) -> Recorder:
        scenario, clock, until_missed = self.scenario, self.clock, self.scenario.until_missed
        return Recorder(
            scenario.trace,
            scenario.cluster.replicas,
            scenario.timeline,
            scenario.replica.own_region,
            scenario.replica.prefix_caching,
            reservation(scenario.replica).grows,
            Tracing(lambda: clock.now) if scenario.tracing else None,
            None if until_missed is None else Missed(scenario.trace, until_missed, clock.stop),
            self.driven,
        )

    def _build(
        self, latencies: Sequence[LatencyModels], runner: Callable[[LatencyModels], ModelRunner]
    ) -> None:
        """Have the fleet make its replicas, with the CPU cores and GPUs that several of them share."""
        scenario, cluster, store, loads = self.scenario, self.scenario.cluster, self.store, self.loads
        assists, self.gpus = scenario.policies.assists, shared_gpus(cluster)
        cores = [HostCores(cluster.host_cores) for _ in range(cluster.hosts)] if assists else []

        def replica(id: int) -> Replica:
            made = Assembly(
                id=id,
                clock=self.clock,
                scenario=scenario,
                latency=latencies[scenario.kind_of[id]],
                adapters=self.fleet.adapters[id],
                outputs=self._outputs,
                recorder=self.recorder,
                on_end=self.dispatcher.end,
                on_move=self.migrator.arrive,
                on_queue=None if loads is None else (loads.waiting.add, loads.waiting.take),
                cores=cores[cluster.host_of(id)] if assists else None,
                gpu=self.gpus[id] if self.gpus else None,
                transfers=None if self.apart is None else self.apart.transfers,
                stores=self.kv_tiers.of(id),
                make_link=HostLink if store is None else partial(FetchingLink, store, id),
                make_runner=runner,
            ).replica()
            self.faults.slow_down(made)
            return made

        self.fleet.build(replica)

    def _begin(self) -> None:
        """Switch some replicas on, and place the adapters."""
        fleet = self.fleet
        if self.autoscaling.active:
            self.autoscaling.begin()
        preloads = self.placement.begin(self.view)
        if self.store is not None:
            self.store.begin(self.placement.hosts)
        for id, replicas in preloads.items():
            for replica in replicas[fleet.open[replicas]].tolist():
                preload(fleet.replicas[replica], fleet.adapters[replica][id])

    def _listen(self) -> None:
        """Have the mechanisms that this run has called when something happens, and no others; the order counts."""
        cluster, dispatcher = self.scenario.cluster, self.dispatcher
        placement, scaling, history = self.placement, self.autoscaling, self.history
        if placement.replans or placement.serves:
            dispatcher.narrow += (placement.among,)
        if scaling.active or cluster.may_fail:
            dispatcher.narrow += (self.fleet.open_among,)
        large = (self.fleet.that_hold, partial(large_enough, self.scenario, self.fleet))
        if cluster.replica_groups and cluster.mixes:  # the other pool helps only with what it has room for
            dispatcher.narrow += large
        if self.apart is not None:
            dispatcher.narrow += (self.apart.among,)
            self.faults.on_slow_links += (self.apart.slow_down,)
        if cluster.replica_groups and not cluster.mixes:
            dispatcher.narrow += large
        if self.scenario.policies.router.asks:
            BlockingDispatch(self.scenario, self.fleet, dispatcher)
        if self.loads is not None:
            dispatcher.on_assign += (self.loads.arrive,)
            dispatcher.on_withdraw += (self.loads.leave,)
        if self.migrator.active:
            dispatcher.on_arrive += (placement.count_request,)
            dispatcher.on_withdraw += (self.migrator.forget,)
        dispatcher.on_end += dispatcher.on_withdraw  # a request that ends leaves its replica, too
        if history.asks_for_executions:
            dispatcher.on_end += (history.add_execution,)
        if placement.replans:
            dispatcher.on_arrive += (placement.count_prompt,)
            dispatcher.on_end += (placement.count_output,)
        if scaling.active:
            dispatcher.on_arrive += (scaling.arrive,)
            dispatcher.on_unassigned += (scaling.activate,)
            dispatcher.on_overflow += (history.add_ttft,)
            dispatcher.on_end += (history.add_ttft, scaling.leave)
            self.faults.on_fail += (scaling.fail,)
            self.faults.on_recover += (scaling.recover,)
        self.faults.on_fail += (self.kv_tiers.fail,)
        if self.store is not None:
            placement.on_plan, self.faults.lose_adapters = self.store.serve, self.store.fail
            self.faults.on_slow_links += (self.store.slow_down,)

    def run(self, progress: Callable[[int], None] = lambda ended: None, cores: int = 1) -> Recorder:
        """Simulate until every request has ended, `until_s` or `until_missed`; `progress` gets how many have ended.

        Independent replicas are simulated one after the other, on so many `cores` of this machine; the result is the
        same. With several, `fleet` stays as it was before the run: ask for `outcomes`. An interrupt leaves the recorder
        with what was finished; the rest is unfinished.
        """
        assert not self.scenario.clients.react, "clients that react need a ClientSimulation"
        replicas = self.fleet.replicas
        listens = bool(self.recorder.on_boundary) or self.dispatcher.has_listeners
        if listens or self._runner is not ModelRunner or not independent(self.scenario, replicas):
            self.dispatcher.progress = progress
            self._start(self._of_trace())
            self._advance(self.scenario.until_s)
            return self._end()
        with held_back(1) as let_through:
            if cores > 1 and can_fork():
                workers = min(cores, len(replicas))
                turns: Turns | Workers = Workers(self.clock, self.recorder, replicas, self._of_trace, workers)
            else:
                turns = Turns(self.clock, replicas)
            try:
                self._play_in_turns(turns, progress, let_through)
                self._settle(turns, finalizes=not self.recorder.all_ended())
            except KeyboardInterrupt:
                if not self._outcomes:
                    self._settle(turns, finalizes=False)
                raise
            finally:
                turns.close()
        return self._ended()

    def _of_trace(self, ids: NDArray[np.int64] | None = None, replica: int = 0) -> Iterator[Request]:
        """Make the requests of the trace, or those with some ids, which go to that replica."""
        return building.requests(self.scenario, self.fleet.adapters[replica], self._entered_s, ids)

    def _play_in_turns(
        self, turns: Turns | Workers, progress: Callable[[int], None], let_through: Callable[[], None]
    ) -> None:
        """Dispatch the requests of a slice of time and advance each replica, until all slices are over.

        An interrupt is `let_through` when all replicas have reached the end of a slice.
        """
        requests, recorder, until_s = self._of_trace(), self.recorder, self.scenario.until_s
        if until_s is not None:
            requests = takewhile(lambda request: request.arrival_s < until_s, requests)
        size = min(SLICE_A_REPLICA * len(self.fleet.replicas), SLICE)
        self.dispatcher.give = turns.give
        some, later = list(islice(requests, size)), list(islice(requests, size))
        while later:
            self._advance_turns(turns, some, later[0].arrival_s)
            some, later = later, list(islice(requests, size))
            progress(recorder.ended)
            let_through()
        last_s = inf if until_s is None else until_s
        end_s = some[-1].arrival_s if some else last_s
        while some or turns.busy:
            end_s = max(end_s + 1.0, end_s * DRAIN)
            if end_s >= last_s:
                break
            self._advance_turns(turns, some, end_s)
            some = []
            progress(recorder.ended)
            let_through()
        self._advance_turns(turns, some, until_s)

    def _advance_turns(self, turns: Turns | Workers, some: Sequence[Request], end_s: float | None) -> None:
        """Dispatch some requests, and advance the replicas to a time not before the last of them; None: to the end."""
        with without_collecting():
            for request in some:
                self.clock.now = request.arrival_s
                self.dispatcher.arrive(request)
            turns.advance(end_s)

    def _settle(self, turns: Turns | Workers, finalizes: bool) -> None:
        """Take over what the replicas have done in turns."""
        self._outcomes = turns.end(finalizes)
        self.recorder.journal.sort_decisions()
        if self.scenario.until_s is None and self.recorder.all_ended():
            self.clock.now = self.recorder.last_s
        self.clock.now = max(self.clock.now, self.recorder.last_s)

    def outcomes(self) -> list[Outcome]:
        """Return what each replica has done."""
        return self._outcomes or list(map(outcome, self.fleet.replicas))

    @cached_property
    def _entered_s(self) -> NDArray[np.float64]:
        """When the front end lets each request of the trace into the queue."""
        return FrontEnd(self.scenario).enter_all(self.scenario.trace)

    def _start(self, requests: Iterable[Request]) -> None:
        """Start the replicas, the arrival of these requests, and whatever acts on them."""
        process = self.clock.process
        self.fleet.start(range(self.scenario.cluster.replicas))
        self.dispatcher.play(requests)
        self.faults.start()
        if self.placement.replans:
            process(self.placement.run(self.clock, self.view))
        if self.autoscaling.active:
            process(self.autoscaling.run())
        if self.migrator.active:
            process(self.migrator.run())

    def _advance(self, until_s: float | None) -> None:
        """Process events before that time; None: all."""
        with without_collecting():
            self.clock.run(until_s)

    def _end(self) -> Recorder:
        """Count what is under way, and return what was recorded."""
        if not self.recorder.all_ended():
            for replica in self.fleet.replicas:
                finalize(replica)
        return self._ended()

    def _ended(self) -> Recorder:
        scenario, complete = self.scenario, self.recorder.all_ended()
        self.autoscaling.finalize(self.recorder.last_s if complete else self.clock.now)
        may_stop = scenario.until_s is not None or scenario.until_missed is not None
        assert complete or may_stop, "a request neither ended nor runs"
        return self.recorder
