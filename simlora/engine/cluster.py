"""The replicas, the requests that arrive, and the router between them."""

from __future__ import annotations

import gc
from array import array
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import repeat
from operator import attrgetter
from typing import cast

import numpy as np
from numpy.typing import NDArray
from simpy import Event

from simlora.core.adapter import Adapter
from simlora.core.random import stream
from simlora.core.request import Request
from simlora.engine.admission import reservation, unservable
from simlora.engine.clock import ARRIVAL, MIGRATION, STORE, Clock
from simlora.engine.host import Host
from simlora.engine.loads import Loads
from simlora.engine.members import Members
from simlora.engine.outages import Outages
from simlora.engine.placing import Placing
from simlora.engine.replica import Replica
from simlora.engine.scaling import Scaling
from simlora.engine.scenario import Kind, Scenario
from simlora.engine.sharing import SharedGpu
from simlora.engine.slowness import Slowness
from simlora.engine.status import Status
from simlora.engine.stores import Stores
from simlora.latency.collectives import folded
from simlora.latency.cpu_lora import CpuLora
from simlora.latency.iteration import HostTime, IterationModel
from simlora.latency.kernels import Kernel
from simlora.latency.mixed import MixedIterations, MixedKernels
from simlora.latency.models import LatencyModels
from simlora.latency.transfer import AdapterLoad, Merge
from simlora.metrics.journal import Moved, Planned
from simlora.metrics.recorder import Recorder
from simlora.metrics.tracing import Tracing
from simlora.policies.migration.base import Plan
from simlora.policies.views import ClusterView

CHUNK = 1 << 15
"""Requests taken out of the trace at a time: Python objects for a whole trace take gigabytes."""

TELL_EVERY = 1024
"""Requests that end between two reports of progress."""


class Cluster:
    """Runs a scenario; the router and the placement see it as their view."""

    def __init__(self, scenario: Scenario) -> None:
        self.clock = Clock()
        self.scenario = scenario
        self.outstanding: NDArray[np.int64] = np.zeros(scenario.replicas, dtype=np.int64)
        self.max_batch_size = scenario.replica.max_batch_size
        self._loads = (
            Loads(scenario.replicas, self.max_batch_size) if scenario.policies.router.informed else None
        )
        budgets = [scenario.config_of(id).kv_token_budget for id in range(scenario.replicas)]
        self.kv_token_budgets: NDArray[np.int64] = np.array(budgets, dtype=np.int64)
        self.rng = stream(scenario.seed, "router")
        self.recorder = Recorder(
            scenario.trace,
            scenario.replicas,
            scenario.timeline,
            scenario.replica.own_region,
            scenario.replica.prefix_caching,
            reservation(scenario.replica).grows,
            Tracing(lambda: self.clock.now) if scenario.tracing else None,
        )
        self.adapters = _adapters(scenario)
        self._outputs = array("q", scenario.trace.output_tokens.astype(np.int64).tobytes())
        self._latencies = [_latency_models(scenario, kind) for kind in scenario.kinds]
        self._kind_of, self._mixed = scenario.kind_of, bool(scenario.others)
        hosts = [Host(scenario.host_cores) for _ in range(scenario.hosts)]
        self.stores: Stores | None = None
        if scenario.adapter_pool == "distributed":
            self.stores = Stores(
                self.adapters,
                len(hosts),
                scenario.replicas_per_host,
                scenario.network,
                scenario.storage,
                scenario.host_memory_bytes,
                self.recorder,
                self.at,
            )
        self._hosts = hosts if scenario.policies.loader().assists else None
        self.members, self._slowness = Members(scenario.replicas), Slowness(self)
        self.replicas = [self._replica(id) for id in range(scenario.replicas)]
        self._outages, self.scaling = Outages(self), Scaling(self)
        self._scales = self.scaling.active
        if scenario.engines_per_gpu > 1:
            for first in range(0, scenario.replicas, scenario.engines_per_gpu):
                gpu = SharedGpu()
                for replica in self.replicas[first : first + scenario.engines_per_gpu]:
                    replica.share(gpu)
        self.iteration, self.kernel = _as_seen(self._latencies, self._kind_of)
        self._front_end_s = scenario.calibration.coefficients.get("front_end.per_request_s", 0.0)
        self._most = scenario.max_outstanding
        self._executed: dict[int, tuple[float, int]] = {}  # seconds and requests that have ended, by adapter
        self._executed_s, self._execution_count = 0.0, 0
        self._why: dict[int, tuple[float, str, bool]] = {}  # of the requests that are to move
        self.kv_bytes_per_token = scenario.model.kv_bytes_per_token
        self._progress: Callable[[int], None] = lambda ended: None
        self._router = scenario.policies.router
        self._everywhere: NDArray[np.int64] = np.arange(scenario.replicas, dtype=np.int64)
        every_s = scenario.status_every_s
        self._status = Status(self, every_s) if every_s is not None else None
        self._placing = Placing(scenario, self.adapters, self.stores, self.recorder.journal)
        self._plans, self._asked = self._placing.plans, self._placing.asked
        self.scaling.begin()
        preloads = self._placing.begin(self)
        self._pools = [replica.holdings.pool for replica in self.replicas]
        for id, homes in preloads.items():
            for home in homes[self.members.open[homes]].tolist():
                self.replicas[home].holdings.preload(self.adapters[id])

    def _replica(self, id: int) -> Replica:
        """Return a new replica with nothing in its memory."""
        scenario = self.scenario
        replica = Replica(
            id,
            self.clock,
            scenario,
            self._latencies[self._kind_of[id]],
            self._outputs,
            self.recorder,
            self._left,
            self._moved,
            self._hosts[id // scenario.replicas_per_host] if self._hosts is not None else None,
            self._loads.waiting if self._loads else None,
            self.adapters,
            self.stores,
        )
        self._slowness.afflict(replica)
        return replica

    @property
    def now_s(self) -> float:
        """The time."""
        return self.clock.now

    @property
    def history(self) -> NDArray[np.float64] | None:
        """Mean requests per second of every adapter, as known from the days before."""
        return self.scenario.trace.history

    @property
    def asked_tokens(self) -> NDArray[np.int64]:
        """Tokens of every adapter so far: prompts that arrived, and what requests that ended generated `[adapters]`."""
        assert self._plans, "a placement asks what was asked for that does not plan again"
        return np.array(self._asked, dtype=np.int64)

    def shares(self, adapter: Adapter | None, candidates: NDArray[np.int64]) -> NDArray[np.float64] | None:
        """What share of an adapter's requests the placement gives to each candidate; None: it does not say."""
        return self._placing.shares(adapter, candidates)

    @property
    def alive(self) -> NDArray[np.bool_]:
        """Which replicas take requests: they have not failed, and are switched on `[replicas]`."""
        return self.members.open

    @property
    def on(self) -> int:
        """Replicas that take requests, or will when they have booted."""
        return self.scaling.on

    @property
    def homeless(self) -> int:
        """Requests that wait for a replica to take any."""
        return self.members.homeless

    @property
    def waits_s(self) -> NDArray[np.float64]:
        """How long each of those has waited that waits for its first prefill now `[waiting]`."""
        return self.scaling.waits_s

    def first_tokens_s(self, window_s: float) -> NDArray[np.float64]:
        """TTFT of the requests that ended in the last `window_s` seconds, inf where there was none `[ended]`."""
        return self.scaling.first_tokens_s(window_s)

    @property
    def loads(self) -> Loads:
        """What every replica has to do."""
        assert self._loads is not None, "a router asks for loads that does not say it is informed"
        return self._loads

    def run(self, progress: Callable[[int], None] = lambda ended: None) -> Recorder:
        """Simulate until every request has ended, or until `until_s`, telling `progress` how many have.

        An interrupt leaves the recorder with what was finished; the rest is unfinished.
        """
        self._progress, began = progress, attrgetter("at_s")
        self.start(range(len(self.replicas)))
        self.clock.process(self._arrive())
        for failure in sorted(self.scenario.failures, key=began):
            self.clock.process(self._outages.happen(failure))
        for straggler in sorted(self.scenario.stragglers, key=began):
            self.clock.process(self._slowness.straggle(straggler))
        for slow in sorted(self.scenario.slow_links, key=began):
            self.clock.process(self._slowness.choke(slow))
        if self._plans:
            self.clock.process(self._placing.plan_again(self.clock, self, self.all_ended))
        if self._scales:
            self.clock.process(self.scaling.run())
        if self.scenario.policies.migration.period_s is not None:
            self.clock.process(self._migrate(self.scenario.policies.migration.period_s))
        with _no_garbage_collection():
            self.clock.run(self.scenario.until_s)
        if self.scenario.until_s is not None:
            for replica in self.replicas:
                replica.settle()
        whole = self.all_ended()
        self.scaling.settle(self.recorder.last_s if whole else self.clock.now)
        assert whole or self.scenario.until_s is not None, "a request neither ended nor runs"
        return self.recorder

    def start(self, ids: Iterable[int]) -> None:
        """Let replicas run that take requests."""
        for id in ids:
            if self.members.open[id]:
                self.clock.process(self.replicas[id].live())

    def house(self) -> None:
        """Somebody takes requests again: those who waited for that go there."""
        for request, token_s in self.members.take_homeless():
            self.send(request, token_s)

    def give_up_waiting(self) -> None:
        """Somebody is gone for good: who waits waits in vain if nobody is expected."""
        if not self.members.is_expected:
            self.house()

    def all_ended(self) -> bool:
        """Whether there is nothing more to do."""
        return self.recorder.ended == len(self.scenario.trace)

    def _arrive(self) -> Generator[Event, None, None]:
        for request in _requests(self.scenario, self.adapters, self._front_end_s):
            yield self.clock.moment(request.arrival_s, ARRIVAL, request.id)
            self._route(request)

    def _route(self, request: Request) -> None:
        if self._plans and request.adapter is not None:
            self._asked[request.adapter.id] += request.prompt_tokens
        if self._scales:
            self.scaling.arrives(request)
        # As many came before as its number says.
        if self._most is not None and request.id - self.recorder.ended == self._most:
            reason = f"cluster.max_outstanding, {self._most} requests, were there already"
            self.recorder.reject(request, -1, self.clock.now, reason)
            if self._scales:
                self.scaling.leaves(-1, request)
            return
        chosen = self._choose(request, None)
        if chosen is not None:
            self.replicas[chosen].submit(request)

    def _choose(self, request: Request, token_s: float | None) -> int | None:
        """Ask the router; return who gets a request, or None: nobody does now, or ever."""
        candidates = self._candidates(request)
        if not len(candidates):
            if not self.members.wait(request, token_s):
                self.recorder.reject(request, -1, self.clock.now, "no replica is left")
            return None
        view: ClusterView = self
        if self._status is not None:
            self._status.ask(self._router.informed)
            view = self._status
        chosen = self._router.route(request, candidates, view)
        assert 0 <= chosen < len(self.replicas), f"{type(self._router).__name__} chose replica {chosen}"
        reason = unservable(request, self.replicas[chosen].config)
        if reason:
            self.recorder.reject(request, chosen, self.clock.now, reason)
            return None
        self.outstanding[chosen] += 1
        if self._loads is not None:
            self._loads.arrive(chosen, request)
        return chosen

    def _candidates(self, request: Request) -> NDArray[np.int64]:
        """The replicas that may serve a request, as the placement says; if they have all failed, whoever has not."""
        serves = self._placing.serves
        found = self._everywhere
        if serves and request.adapter is not None:
            found = serves.get(request.adapter.id, found)
        if not self.members.all_open:
            found = self.members.among(found)
        return self._large_enough(found, request) if self._mixed else found

    def _large_enough(self, replicas: NDArray[np.int64], request: Request) -> NDArray[np.int64]:
        """Those of some replicas whose kind could serve a request; all of them if none could."""
        could = np.array([not unservable(request, kind.replica) for kind in self.scenario.kinds])
        found = replicas[could[self._kind_of[replicas]]]
        return found if len(found) else replicas

    # Failures ---------------------------------------------------------------------------

    def replace(self, id: int) -> list[tuple[Request, float | None, int]]:
        """Put an empty replica in the place of one that fails, for its host to come back with; return what that had.

        Each request comes with when it had its last token, if it has any, and how many tokens were prefilled in vain.
        """
        failed = self.replicas[id]
        lost = failed.fail()
        self.replicas[id] = self._replica(id)
        self.replicas[id].follows(failed)
        self._pools[id] = self.replicas[id].holdings.pool
        return lost

    def loses(self, request: Request, replica: int) -> None:
        """A request is no longer at a replica, which has failed."""
        self._why.pop(request.id, None)
        self.outstanding[replica] -= 1
        if self._loads is not None:
            self._loads.leave(replica, request)

    def send(self, request: Request, token_s: float | None) -> int | None:
        """A request without a replica goes on at whoever the router chooses; return who that is, None if nobody."""
        chosen = self._choose(request, token_s)
        if chosen is not None:
            self.replicas[chosen].receive(request, -1, token_s)
        return chosen

    def requests_of(self, replica: int) -> list[Request]:
        """Requests that a replica has, running or waiting, in order of arrival."""
        return sorted(self.replicas[replica].requests(), key=lambda request: (request.arrival_s, request.id))

    def context_tokens(self, request: Request, replica: int) -> int:
        """Prompt and the tokens that one of a replica's requests has so far."""
        return self.replicas[replica].context_tokens(request)

    def resident(self, adapter: Adapter) -> NDArray[np.bool_]:
        """Which replicas have an adapter in HBM, or on its way there."""
        return np.array([pool.holds(adapter.id) for pool in self._pools], dtype=np.bool_)

    def load_s(self, adapter: Adapter) -> float:
        """Seconds that it takes to load an adapter from host memory, of replicas that differ the longest."""
        return max(
            models.load.load_s(adapter.size_bytes // kind.replica.tp)
            for models, kind in zip(self._latencies, self.scenario.kinds, strict=True)
        )

    def execution_s(self, adapter: Adapter | None = None) -> float | None:
        """Mean seconds from start to end of the requests that have finished; None without any."""
        if adapter is None:
            return self._executed_s / self._execution_count if self._execution_count else None
        seconds, count = self._executed.get(adapter.id, (0.0, 0))
        return seconds / count if count else None

    @property
    def used_tokens(self) -> NDArray[np.int64]:
        """Token slots of the replicas' pools that cannot be evicted."""
        return np.array([replica.used_tokens for replica in self.replicas], dtype=np.int64)

    def _count_execution(self, request: Request) -> None:
        seconds = self.clock.now - request.admitted_s
        self._executed_s += seconds
        self._execution_count += 1
        if request.adapter is not None:
            before_s, count = self._executed.get(request.adapter.id, (0.0, 0))
            self._executed[request.adapter.id] = before_s + seconds, count + 1

    def at(self, time_s: float, does: Callable[[], None]) -> None:
        """Let something happen at a host at that time."""
        moment = self.clock.moment(time_s, STORE, 0)
        assert moment.callbacks is not None, "nothing has happened yet"
        moment.callbacks.append(lambda _: does())

    def _migrate(self, period_s: float) -> Generator[Event, None, None]:
        migration, clock = self.scenario.policies.migration, self.clock
        tick = 0
        while not self.all_ended():
            tick = max(tick, int(clock.now // period_s)) + 1
            yield clock.moment(tick * period_s, MIGRATION, 0)
            decided_s = clock.now
            plan = migration.plan(self)
            if plan.reason:
                planned = Planned(decided_s, len(plan.moves), plan.solved, plan.reason)
                self.recorder.journal.planned.append(planned)
            if plan.moves and migration.delay_s:
                yield clock.moment(decided_s + migration.delay_s, MIGRATION, 0)
            self._carry_out(plan, decided_s, migration.brings)

    def _carry_out(self, plan: Plan, decided_s: float, brings: bool) -> None:
        """Send those away who are still where the plan found them, are not leaving, and may be where it wants them."""
        here = {source: set(self.replicas[source].requests()) for _, source, _ in plan.moves}
        sent_for: set[tuple[int, int]] = set()
        for request, source, target in plan.moves:
            replica, adapter = self.replicas[target], request.adapter
            placed = target in self._candidates(request) and not unservable(request, replica.config)
            if request not in here[source] or request.id in self._why or not placed:
                continue
            loads = adapter is not None and adapter not in replica.holdings.pool
            loads = loads and (request.adapter_id, target) not in sent_for
            sent_for.add((request.adapter_id, target))
            self._why[request.id] = decided_s, plan.reason, loads
            self.replicas[source].send(request, target)
            if brings and adapter is not None:
                replica.bring(adapter)

    def _moved(
        self, request: Request, source: int, target: int, token_s: float | None, lost_tokens: int
    ) -> None:
        """A request that left one replica goes on at another; its last token was then, if it has any.

        So many tokens that were prefilled have to be prefilled anew.
        """
        request.migrations += 1
        decided_s, reason, loads = self._why.pop(request.id)
        name = request.adapter.name if request.adapter is not None else ""
        self.recorder.journal.moved.append(
            Moved(self.clock.now, decided_s, request.id, name, source, target, lost_tokens, loads, reason)
        )
        self.outstanding[source] -= 1
        self.outstanding[target] += 1
        if self._loads is not None:
            self._loads.leave(source, request)
            self._loads.arrive(target, request)
        self.replicas[target].receive(request, source, token_s)

    def _left(self, replica: int, request: Request) -> None:
        self.outstanding[replica] -= 1
        self._why.pop(request.id, None)
        if request.first_token_s >= 0.0:
            self._count_execution(request)
            if self._plans and request.adapter is not None:
                self._asked[request.adapter.id] += self._outputs[request.id]
        if self._loads is not None:
            self._loads.leave(replica, request)
        if self._scales:
            self.scaling.leaves(replica, request)
        if self.recorder.ended % TELL_EVERY == 0:
            self._progress(self.recorder.ended)


def _latency_models(scenario: Scenario, kind: Kind) -> LatencyModels:
    """Return how long things take on replicas of a kind."""
    config, own = kind.replica, kind.calibration
    calibration = folded(own, scenario.model, config.target_modules, config.lora_communication)
    assists, merges = scenario.policies.loader().assists, scenario.policies.scheduler().merges
    return LatencyModels(
        iteration=IterationModel(calibration),
        kernel=scenario.policies.kernel(calibration),
        load=AdapterLoad(own),
        merge=Merge(own) if merges else None,
        flush_s=own.need("adapter_load.flush_s") if config.adapter_memory == "contiguous" else 0.0,
        host=HostTime(own) if scenario.engines_per_gpu > 1 else None,
        cpu_lora=CpuLora(calibration, scenario.model.layers) if assists else None,
        passed_over_s=calibration.coefficients.get("scheduler.per_passed_request_s", 0.0),
    )


def _as_seen(models: Sequence[LatencyModels], kind_of: NDArray[np.int64]) -> tuple[IterationModel, Kernel]:
    """Return what a router is told of iterations and kernels: of replicas that differ those of each."""
    if len(models) == 1:
        return models[0].iteration, models[0].kernel
    iterations = MixedIterations([each.iteration for each in models], kind_of)
    return iterations, cast(Kernel, MixedKernels([each.kernel for each in models], kind_of))


def _adapters(scenario: Scenario) -> tuple[Adapter, ...]:
    config, model = scenario.replica, scenario.model
    adapters = tuple(
        model.adapter(id, spec.name, spec.rank, config.target_modules)
        for id, spec in enumerate(scenario.trace.adapters)
    )
    if config.full_copies:
        size_bytes = model.weight_bytes
        slots = -(-size_bytes // model.kv_bytes_per_token)
        return tuple(replace(adapter, size_bytes=size_bytes, kv_tokens=slots) for adapter in adapters)
    if config.adapter_tokens is not None:
        return tuple(replace(adapter, kv_tokens=config.adapter_tokens) for adapter in adapters)
    if config.adapter_memory != "slots":
        return adapters
    assert config.max_adapters is not None, "slots are counted by max_adapters"
    slot_tokens = config.adapter_region_tokens // config.max_adapters
    return tuple(replace(adapter, kv_tokens=slot_tokens) for adapter in adapters)


def _requests(scenario: Scenario, adapters: tuple[Adapter, ...], later_s: float) -> Iterator[Request]:
    """Make the requests of a trace as they are needed, each that much later."""
    trace = scenario.trace
    sessions = trace.session if trace.session is not None else repeat(None)
    hashes = trace.block_hashes if trace.block_hashes is not None else repeat(())
    extras = zip(sessions, hashes, strict=False)
    served = (*adapters, None)  # index -1 is the base model
    for start in range(0, len(trace), CHUNK):
        part = slice(start, start + CHUNK)
        columns = zip(
            (trace.arrival_s[part] + later_s).tolist(),
            trace.adapter[part].tolist(),
            trace.prompt_tokens[part].tolist(),
            trace.max_output_tokens[part].tolist(),
            strict=True,
        )
        for id, (arrival_s, adapter, prompt, cap) in enumerate(columns, start):
            session, blocks = next(extras)
            yield Request(id, served[adapter], arrival_s, prompt, cap, session, blocks)


@contextmanager
def _no_garbage_collection() -> Iterator[None]:
    """The engine makes no cycles; looking for them took a quarter of a large run."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
