"""One run: the fleet, and what acts on it, wired together."""

from __future__ import annotations

import gc
from array import array
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import ClassVar

import numpy as np

from simlora.core.errors import InputError
from simlora.core.request import Request
from simlora.engine import building
from simlora.engine.assembly import Assembly, MoreParts, Surroundings, no_parts, preload, problems
from simlora.engine.clock import Clock
from simlora.engine.cluster.adapter_store import AdapterStore, FetchingLink
from simlora.engine.cluster.autoscaling import Autoscaling
from simlora.engine.cluster.cluster_view import ClusterView, StaleClusterView
from simlora.engine.cluster.dispatcher import Dispatcher
from simlora.engine.cluster.fault_injector import FaultInjector
from simlora.engine.cluster.fleet import Fleet
from simlora.engine.cluster.latency_history import LatencyHistory
from simlora.engine.cluster.load_tracker import LoadTracker
from simlora.engine.cluster.migration import Migrator
from simlora.engine.cluster.placement import PlacementPlanner
from simlora.engine.parts.cpu_assist import HostCores
from simlora.engine.parts.gpu_sharing import SharedGpu
from simlora.engine.replica.admission import reservation
from simlora.engine.replica.ending import finalize
from simlora.engine.replica.model_runner import ModelRunner
from simlora.engine.replica.replica import Replica
from simlora.engine.scenario import Scenario
from simlora.latency.models import LatencyModels
from simlora.metrics.missed import Missed
from simlora.metrics.recorder import Recorder
from simlora.metrics.tracing import Tracing


class Simulation:
    """Runs a scenario; `view` is what policies see of it.

    `loads` are the sums over requests that an informed router reads. `store` is there if hosts hold different adapters.
    """

    driven: ClassVar[bool] = False
    """Whether requests are submitted from outside, instead of those of the trace."""

    def __init__(
        self,
        scenario: Scenario,
        runner: Callable[[LatencyModels], ModelRunner] = ModelRunner,
        parts: MoreParts = no_parts,
    ) -> None:
        """Raise InputError for a scenario whose mechanisms do not go together.

        `runner` makes what runs each replica's iterations: by default the latency models answer. `parts` makes parts
        of the caller's own for each replica.
        """
        check(scenario)
        self._runner, self._parts = runner, parts
        self.scenario, self.clock = scenario, Clock()
        self.recorder = recorder = self._recorder()
        cluster = scenario.cluster
        self.fleet = fleet = Fleet(cluster.replicas, self.clock)
        self.adapters = adapters = building.adapters(scenario)
        outputs = b"" if self.driven else scenario.trace.output_tokens.astype(np.int64).tobytes()
        self._outputs = array("q", outputs)
        self._latencies = [building.latency_models(scenario, kind) for kind in scenario.kinds]
        hosts = range(cluster.hosts if scenario.policies.assists else 0)
        self._cores = [HostCores(cluster.host_cores) for _ in hosts]
        engines = cluster.engines_per_gpu
        self._gpus = [SharedGpu() for _ in range(0, cluster.replicas if engines > 1 else 0, engines)]
        distributed, informed = cluster.adapter_pool == "distributed", scenario.policies.router.informed
        self.store = AdapterStore(cluster, adapters, recorder, self.clock) if distributed else None
        self.placement = PlacementPlanner(scenario, adapters, self._outputs, self.store, recorder)
        self.loads = LoadTracker(cluster.replicas, scenario.replica.max_num_seqs) if informed else None
        self.history = LatencyHistory(self.clock, _asks_for_executions(scenario))
        self.view = view = ClusterView(
            scenario, fleet, self._latencies, self.placement, self.loads, self.history
        )
        every_s = cluster.status_every_s
        self._stale = None if every_s is None else StaleClusterView(view, every_s)
        self.dispatcher = dispatcher = Dispatcher(scenario, fleet, self._stale or view, recorder)
        self.migrator = Migrator(scenario.policies.migration, fleet, dispatcher, view, recorder)
        self.autoscaling = Autoscaling(scenario.scaling, fleet, dispatcher, view, recorder)
        self.faults = FaultInjector(cluster, fleet, dispatcher, self.store, recorder.journal)
        fleet.build(self._replica)
        self._begin()
        self._listen()

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

    def _begin(self) -> None:
        """Switch some replicas on, and place the adapters."""
        fleet = self.fleet
        if self.autoscaling.active:
            self.autoscaling.begin()
        for id, replicas in self.placement.begin(self.view).items():
            for replica in replicas[fleet.open[replicas]].tolist():
                preload(fleet.replicas[replica], self.adapters[id])

    def _listen(self) -> None:
        """Have the dispatcher call the mechanisms that this run has, and no others; the order counts."""
        scenario, dispatcher = self.scenario, self.dispatcher
        placement, scaling = self.placement, self.autoscaling
        if placement.replans or placement.serves:
            dispatcher.narrow += (placement.among,)
        if scaling.active or scenario.cluster.failures:
            dispatcher.narrow += (self.fleet.open_among,)
        if scenario.cluster.replica_groups:
            dispatcher.narrow += (dispatcher.large_enough,)
        if self._stale is not None:
            dispatcher.before_route += (self._stale.refresh,)
        if self.loads is not None:
            dispatcher.on_assign += (self.loads.arrive,)
            dispatcher.on_withdraw += (self.loads.leave,)
        if self.migrator.active:
            dispatcher.on_withdraw += (self.migrator.forget,)
        dispatcher.on_end = dispatcher.on_withdraw  # a request that ends leaves its replica, too
        if self.history.asks_for_executions:
            dispatcher.on_end += (self.history.add_execution,)
        if placement.replans:
            dispatcher.on_arrive += (placement.count_prompt,)
            dispatcher.on_end += (placement.count_output,)
        if scaling.active:
            dispatcher.on_arrive += (scaling.arrive,)
            dispatcher.on_overflow += (self.history.add_ttft,)
            dispatcher.on_end += (self.history.add_ttft, scaling.leave)
            self.faults.on_fail += (scaling.fail,)

    def _replica(self, id: int) -> Replica:
        """Return a new replica with nothing in its memory."""
        scenario, store, loads = self.scenario, self.store, self.loads
        around = Surroundings(
            on_end=self.dispatcher.end,
            on_move=self.migrator.arrive,
            queue=None if loads is None else (loads.waiting.add, loads.waiting.take),
            cores=self._cores[scenario.cluster.host_of(id)] if self._cores else None,
            gpu=self._gpus[id // scenario.cluster.engines_per_gpu] if self._gpus else None,
            link=None if store is None else partial(FetchingLink, store, id),
            runner=self._runner,
            parts=self._parts,
        )
        latency = self._latencies[scenario.kind_of[id]]
        replica = Assembly(
            id, self.clock, scenario, latency, self.adapters, self._outputs, self.recorder, around
        ).replica()
        self.faults.afflict(replica)
        return replica

    def run(self, progress: Callable[[int], None] = lambda ended: None) -> Recorder:
        """Simulate until every request has ended, `until_s` or `until_missed`, telling `progress` how many have.

        An interrupt leaves the recorder with what was finished; the rest is unfinished.
        """
        self.dispatcher.progress = progress
        self._start(building.requests(self.scenario, self.adapters, self.front_end_s))
        self._advance(self.scenario.until_s)
        return self._end()

    @property
    def front_end_s(self) -> float:
        """Seconds between a request's arrival and its place in a replica's queue."""
        return self.scenario.calibration.coefficients.get("front_end.per_request_s", 0.0)

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
        collects = gc.isenabled()
        gc.disable()  # looking for cycles took a quarter of a large run, and finds only what Fleet.replace frees
        try:
            self.clock.run(until_s)
        finally:
            if collects:
                gc.enable()

    def _end(self) -> Recorder:
        """Count what is under way, and return what was recorded."""
        scenario, complete = self.scenario, self.recorder.all_ended()
        if not complete:
            for replica in self.fleet.replicas:
                finalize(replica)
        self.autoscaling.finalize(self.recorder.last_s if complete else self.clock.now)
        may_stop = scenario.until_s is not None or scenario.until_missed is not None
        assert complete or may_stop, "a request neither ended nor runs"
        return self.recorder


def _asks_for_executions(scenario: Scenario) -> bool:
    """Whether a policy may ask for execution times: all may that are asked again and again, of routers the informed."""
    policies = scenario.policies
    periodic = (policies.placement, policies.migration, scenario.scaling.autoscaler)
    return policies.router.informed or any(policy.period_s is not None for policy in periodic)


def check(scenario: Scenario) -> None:
    """Raise InputError for the first thing that a mechanism of the scenario cannot stand beside."""
    for sources in (problems, AdapterStore.requires, Autoscaling.requires, _alike):
        for problem in sources(scenario):
            raise InputError(problem)


def _alike(scenario: Scenario) -> Iterator[str]:
    """Yield which policies count on replicas that are alike, where they are not."""
    for slot in ("placement", "migration"):
        if scenario.cluster.replica_groups and getattr(scenario.policies, slot).assumes_alike:
            yield f"cluster.replica_groups needs another {slot}: this one takes all replicas for alike"
