"""One run: the fleet, and what acts on it, wired together."""

from __future__ import annotations

import gc
from array import array
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import numpy as np

from simlora.engine import building
from simlora.engine.admission import reservation
from simlora.engine.clock import Clock
from simlora.engine.cluster.adapter_store import AdapterStore
from simlora.engine.cluster.autoscaling import Autoscaling
from simlora.engine.cluster.cluster_view import ClusterView, StaleClusterView
from simlora.engine.cluster.dispatcher import Dispatcher
from simlora.engine.cluster.fault_injector import FaultInjector
from simlora.engine.cluster.fleet import Fleet
from simlora.engine.cluster.latency_history import LatencyHistory
from simlora.engine.cluster.load_tracker import LoadTracker
from simlora.engine.cluster.migration import Migrator
from simlora.engine.cluster.placement import PlacementPlanner
from simlora.engine.cores import Cores
from simlora.engine.replica import Replica
from simlora.engine.scenario import Scenario
from simlora.engine.sharing import SharedGpu
from simlora.metrics.missed import Missed
from simlora.metrics.recorder import Recorder
from simlora.metrics.tracing import Tracing

T = TypeVar("T")


class Simulation:
    """Runs a scenario; `view` is what policies see of it.

    `loads` are the sums over requests that an informed router reads. `store` is there if hosts hold different adapters.
    """

    def __init__(self, scenario: Scenario) -> None:
        self.scenario, self.clock = scenario, Clock()
        self.recorder = recorder = _recorder(scenario, self.clock)
        self.fleet = fleet = Fleet(scenario.replicas, self.clock)
        self.adapters = adapters = building.adapters(scenario)
        self._outputs = array("q", scenario.trace.output_tokens.astype(np.int64).tobytes())
        self._latencies = [building.latency_models(scenario, kind) for kind in scenario.kinds]
        hosts = range(scenario.hosts if scenario.policies.assists else 0)
        self._cores = [Cores(scenario.host_cores) for _ in hosts]
        self.store: AdapterStore | None = None
        if scenario.adapter_pool == "distributed":
            self.store = AdapterStore(scenario, adapters, recorder, self.clock.call_at)
        self.placement = PlacementPlanner(scenario, adapters, self._outputs, self.store, recorder)
        self.loads: LoadTracker | None = None
        if scenario.policies.router.informed:
            self.loads = LoadTracker(scenario.replicas, scenario.replica.max_num_seqs)
        self.history = LatencyHistory(self.clock, _asks_for_executions(scenario))
        self.view = view = ClusterView(
            scenario, fleet, self._latencies, self.placement, self.loads, self.history
        )
        every_s = scenario.status_every_s
        self._stale = None if every_s is None else StaleClusterView(view, every_s)
        self.dispatcher = dispatcher = Dispatcher(scenario, fleet, self._stale or view, recorder)
        self.migrator = Migrator(scenario.policies.migration, fleet, dispatcher, view, recorder)
        self.autoscaling = Autoscaling(
            scenario.scaling, fleet, adapters, view, recorder, dispatcher.dispatch_pending
        )
        on_fail = _if(self.autoscaling.active, self.autoscaling.fail)
        self.faults = FaultInjector(scenario, fleet, dispatcher, self.store, recorder.journal, on_fail)
        fleet.build(self._replica)
        self._begin()
        self._listen()

    def _begin(self) -> None:
        """Let replicas share GPUs, switch some on, and place the adapters."""
        scenario, fleet = self.scenario, self.fleet
        if scenario.engines_per_gpu > 1:
            for first in range(0, scenario.replicas, scenario.engines_per_gpu):
                gpu = SharedGpu()
                for replica in fleet.replicas[first : first + scenario.engines_per_gpu]:
                    replica.share(gpu)
        self.autoscaling.begin()
        for id, homes in self.placement.begin(self.view).items():
            for home in homes[fleet.open[homes]].tolist():
                fleet.replicas[home].incoming.preload(self.adapters[id])

    def _listen(self) -> None:
        """Have the dispatcher call the mechanisms that this run has, in this order, and no others."""
        scenario, dispatcher, placement = self.scenario, self.dispatcher, self.placement
        replans, scales = placement.replans, self.autoscaling.active
        dispatcher.narrow = (
            *_if(replans or bool(placement.serves), placement.among),
            *_if(scales or bool(scenario.failures), self.fleet.open_among),
            *_if(bool(scenario.replica_groups), dispatcher.large_enough),
        )
        dispatcher.on_arrive = (*_if(replans, placement.count_prompt), *_if(scales, self.autoscaling.arrive))
        dispatcher.on_overflow = _if(scales, self.history.add_ttft)
        if self.loads is not None:
            dispatcher.on_assign, dispatcher.on_withdraw = (self.loads.arrive,), (self.loads.leave,)
        if self._stale is not None:
            dispatcher.before_route = (self._stale.refresh,)
        dispatcher.on_withdraw += _if(self.migrator.active, self.migrator.forget)
        dispatcher.on_end = (
            *dispatcher.on_withdraw,
            *_if(self.history.asks_for_executions, self.history.add_execution),
            *_if(replans, placement.count_output),
            *_if(scales, self.history.add_ttft),
            *_if(scales, self.autoscaling.leave),
        )
        configs = {replica.config for replica in self.fleet.replicas}
        dispatcher.all_servable = building.all_servable(scenario, self.adapters, configs)

    def _replica(self, id: int) -> Replica:
        """Return a new replica with nothing in its memory."""
        replica = Replica(
            id,
            self.clock,
            self.scenario,
            self._latencies[self.scenario.kind_of[id]],
            self._outputs,
            self.recorder,
            self.dispatcher.release,
            self.migrator.arrive,
            self._cores[self.scenario.host_of(id)] if self._cores else None,
            self.loads.waiting if self.loads is not None else None,
            self.adapters,
            self.store,
        )
        self.faults.afflict(replica)
        return replica

    def run(self, progress: Callable[[int], None] = lambda ended: None) -> Recorder:
        """Simulate until every request has ended, `until_s` or `until_missed`, telling `progress` how many have.

        An interrupt leaves the recorder with what was finished; the rest is unfinished.
        """
        scenario, process = self.scenario, self.clock.process
        self.dispatcher.progress = progress
        self.fleet.start(range(scenario.replicas))
        front_end_s = scenario.calibration.coefficients.get("front_end.per_request_s", 0.0)
        process(self.dispatcher.arrivals(building.requests(scenario, self.adapters, front_end_s)))
        self.faults.start()
        if self.placement.replans:
            process(self.placement.run(self.clock, self.view))
        if self.autoscaling.active:
            process(self.autoscaling.run())
        if self.migrator.active:
            process(self.migrator.run())
        with _no_garbage_collection():
            self.clock.run(scenario.until_s)
        complete = self.recorder.all_ended()
        if not complete:
            for replica in self.fleet.replicas:
                replica.finalize()
        self.autoscaling.finalize(self.recorder.last_s if complete else self.clock.now)
        may_stop = scenario.until_s is not None or scenario.until_missed is not None
        assert complete or may_stop, "a request neither ended nor runs"
        return self.recorder


def _if(there: bool, listener: T) -> tuple[T, ...]:
    """Return a tuple of a listener, empty where a run lacks its mechanism."""
    return (listener,) if there else ()


def _asks_for_executions(scenario: Scenario) -> bool:
    """Whether a policy may ask for execution times: all may that are asked again and again, of routers the informed."""
    policies = scenario.policies
    periodic = (policies.placement, policies.migration, scenario.scaling.autoscaler)
    return policies.router.informed or any(policy.period_s is not None for policy in periodic)


def _recorder(scenario: Scenario, clock: Clock) -> Recorder:
    most = scenario.until_missed
    return Recorder(
        scenario.trace,
        scenario.replicas,
        scenario.timeline,
        scenario.replica.own_region,
        scenario.replica.prefix_caching,
        reservation(scenario.replica).grows,
        Tracing(lambda: clock.now) if scenario.tracing else None,
        None if most is None else Missed(scenario.trace, most, clock.stop),
    )


@contextmanager
def _no_garbage_collection() -> Iterator[None]:
    """Only a replica with cached KV is a cycle, see `Fleet.replace`; looking for more took a quarter of a large run."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
