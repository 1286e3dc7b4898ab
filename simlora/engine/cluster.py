"""The replicas, the requests that arrive, and the router between them."""

from __future__ import annotations

import gc
from array import array
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from operator import attrgetter

import numpy as np
from numpy.typing import NDArray
from simpy import Event

from simlora.core.random import stream
from simlora.core.request import Request
from simlora.engine import building
from simlora.engine.admission import reservation, unservable
from simlora.engine.clock import ARRIVAL, STORE, Clock
from simlora.engine.cores import Cores
from simlora.engine.departed import Departed
from simlora.engine.executions import Executions
from simlora.engine.loads import Loads
from simlora.engine.members import Members
from simlora.engine.moving import Moving
from simlora.engine.outages import Outages
from simlora.engine.overview import Overview
from simlora.engine.placing import Placing
from simlora.engine.replica import Replica
from simlora.engine.scaling import Scaling
from simlora.engine.scenario import Scenario
from simlora.engine.sharing import SharedGpu
from simlora.engine.slowness import Slowness
from simlora.engine.stale_overview import StaleOverview
from simlora.engine.stores import Stores
from simlora.metrics.missed import Missed
from simlora.metrics.recorder import Recorder
from simlora.metrics.tracing import Tracing

TELL_EVERY = 1024
"""Requests that end between two reports of progress."""


class Cluster:
    """Runs a scenario; `overview` is what policies see of it.

    `outstanding` `[replicas]`: requests that each replica has. `loads`: what it has to do, if the router is informed.
    """

    def __init__(self, scenario: Scenario) -> None:
        self.clock = Clock()
        self.scenario = scenario
        self.outstanding: NDArray[np.int64] = np.zeros(scenario.replicas, dtype=np.int64)
        self._router = scenario.policies.router
        informed, most = self._router.informed, scenario.until_missed
        self.loads = Loads(scenario.replicas, scenario.replica.max_num_seqs) if informed else None
        self.recorder = Recorder(
            scenario.trace,
            scenario.replicas,
            scenario.timeline,
            scenario.replica.own_region,
            scenario.replica.prefix_caching,
            reservation(scenario.replica).grows,
            Tracing(lambda: self.clock.now) if scenario.tracing else None,
            None if most is None else Missed(scenario.trace, most, self.clock.stop),
        )
        self.adapters = building.adapters(scenario)
        self._outputs = array("q", scenario.trace.output_tokens.astype(np.int64).tobytes())
        self.latencies = [building.latency_models(scenario, kind) for kind in scenario.kinds]
        self._kind_of, self._mixed = scenario.kind_of, bool(scenario.replica_groups)
        self.stores: Stores | None = None
        if scenario.adapter_pool == "distributed":
            self.stores = Stores(
                self.adapters,
                scenario.hosts,
                scenario.host_of,
                scenario.network,
                scenario.storage,
                scenario.host_memory_bytes,
                self.recorder,
                self.at,
            )
        self._cores: list[Cores] = []  # of every host, where they assist
        if scenario.policies.assists:
            self._cores = [Cores(scenario.host_cores) for _ in range(scenario.hosts)]
        self.members, self.executions = Members(scenario.replicas), Executions()
        self._slowness, self.moving = Slowness(self), Moving(self)
        self.replicas = [self._replica(id) for id in range(scenario.replicas)]
        self.pools = [replica.holdings.pool for replica in self.replicas]
        self._outages, self.scaling = Outages(self), Scaling(self)
        self._scales = self.scaling.active
        if scenario.engines_per_gpu > 1:
            for first in range(0, scenario.replicas, scenario.engines_per_gpu):
                gpu = SharedGpu()
                for replica in self.replicas[first : first + scenario.engines_per_gpu]:
                    replica.share(gpu)
        self._front_end_s = scenario.calibration.coefficients.get("front_end.per_request_s", 0.0)
        self._most = scenario.max_outstanding
        self._progress: Callable[[int], None] = lambda ended: None
        self._everywhere: NDArray[np.int64] = np.arange(scenario.replicas, dtype=np.int64)
        self.overview, every_s = Overview(self, stream(scenario.seed, "router")), scenario.status_every_s
        self._stale = StaleOverview(self, self.overview, every_s) if every_s is not None else None
        self.placing = Placing(scenario, self.adapters, self.stores, self.recorder.journal)
        self._plans, self._asked = self.placing.plans, self.placing.asked
        self.scaling.begin()
        for id, homes in self.placing.begin(self.overview).items():
            for home in homes[self.members.open[homes]].tolist():
                self.replicas[home].incoming.preload(self.adapters[id])

    def _replica(self, id: int) -> Replica:
        """Return a new replica with nothing in its memory."""
        scenario = self.scenario
        replica = Replica(
            id,
            self.clock,
            scenario,
            self.latencies[self._kind_of[id]],
            self._outputs,
            self.recorder,
            self._left,
            self.moving.arrive,
            self._cores[scenario.host_of(id)] if self._cores else None,
            self.loads.waiting if self.loads is not None else None,
            self.adapters,
            self.stores,
        )
        self._slowness.afflict(replica)
        return replica

    def run(self, progress: Callable[[int], None] = lambda ended: None) -> Recorder:
        """Simulate until every request has ended, `until_s` or `until_missed`, telling `progress` how many have.

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
            self.clock.process(self.placing.plan_again(self.clock, self.overview, self.all_ended))
        if self._scales:
            self.clock.process(self.scaling.run())
        if self.moving.active:
            self.clock.process(self.moving.run())
        with _no_garbage_collection():
            self.clock.run(self.scenario.until_s)
        whole = self.all_ended()
        if not whole:
            for replica in self.replicas:
                replica.settle()
        self.scaling.settle(self.recorder.last_s if whole else self.clock.now)
        may_stop = self.scenario.until_s is not None or self.scenario.until_missed is not None
        assert whole or may_stop, "a request neither ended nor runs"
        return self.recorder

    def all_ended(self) -> bool:
        """Whether there is nothing more to do."""
        return self.recorder.ended == len(self.scenario.trace)

    def at(self, time_s: float, does: Callable[[], None]) -> None:
        """Let something happen at that time: a copy reach a host's memory, a replica that is off be emptied."""
        moment = self.clock.moment(time_s, STORE, 0)
        assert moment.callbacks is not None, "nothing has happened yet"
        moment.callbacks.append(lambda _: does())

    # Requests, from their arrival to their end ------------------------------------------

    def _arrive(self) -> Generator[Event, None, None]:
        for request in building.requests(self.scenario, self.adapters, self._front_end_s):
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
        chosen = self._choose(request)
        if chosen is not None:
            self.replicas[chosen].submit(request)

    def _choose(self, request: Request, token_s: float | None = None) -> int | None:
        """Ask the router; return who gets a request, or None: nobody does now, or ever.

        `token_s` is when it had its last token, if it has any, for it to keep while it waits for somebody.
        """
        candidates = self.candidates(request)
        if not len(candidates):
            if not self.members.wait(Departed(request, token_s)):
                self.recorder.reject(request, -1, self.clock.now, "no replica is left")
            return None
        if self._stale is not None:
            self._stale.ask(self._router.informed)
        chosen = self._router.route(request, candidates, self._stale or self.overview)
        assert 0 <= chosen < len(self.replicas), f"{type(self._router).__name__} chose replica {chosen}"
        reason = unservable(request, self.replicas[chosen].config)
        if reason:
            self.recorder.reject(request, chosen, self.clock.now, reason)
            return None
        self.give_to(chosen, request)
        return chosen

    def candidates(self, request: Request) -> NDArray[np.int64]:
        """The replicas that may serve a request, as the placement says; if they have all failed, whoever has not."""
        serves = self.placing.serves
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

    def give_to(self, replica: int, request: Request) -> None:
        """From now on a replica has a request."""
        self.outstanding[replica] += 1
        if self.loads is not None:
            self.loads.arrive(replica, request)

    def take_from(self, replica: int, request: Request) -> None:
        """From now on a replica does not have a request that it had."""
        self.outstanding[replica] -= 1
        if self.loads is not None:
            self.loads.leave(replica, request)

    def _left(self, replica: int, request: Request) -> None:
        """A request has ended at a replica."""
        self.take_from(replica, request)
        self.moving.forget(request)
        if request.first_token_s >= 0.0:
            self.executions.add(request, self.clock.now)
            if self._plans and request.adapter is not None:
                self._asked[request.adapter.id] += self._outputs[request.id]
        if self._scales:
            self.scaling.leaves(replica, request)
        if self.recorder.ended % TELL_EVERY == 0:
            self._progress(self.recorder.ended)

    # Replicas that come and go, and who has none meanwhile ------------------------------

    def start(self, ids: Iterable[int]) -> None:
        """Let replicas run that take requests."""
        for id in ids:
            if self.members.open[id]:
                self.clock.process(self.replicas[id].live())

    def replace(self, id: int) -> list[Departed]:
        """Put an empty replica in the place of one that fails, for its host to come back with; return what that had."""
        failed = self.replicas[id]
        lost = failed.fail()
        self.replicas[id] = self._replica(id)
        self.replicas[id].follows(failed)
        self.pools[id] = self.replicas[id].holdings.pool
        del failed
        if self.scenario.replica.prefix_caching:
            gc.collect()  # its tree and what it tells refer to each other
        return lost

    def house(self) -> None:
        """Somebody takes requests again: those who waited for that go there."""
        for departed in self.members.take_homeless():
            self.send(departed)

    def give_up_waiting(self) -> None:
        """Somebody is gone for good: who waits waits in vain if nobody is expected."""
        if not self.members.is_expected:
            self.house()

    def send(self, departed: Departed) -> int | None:
        """A request without a replica goes on at whoever the router chooses; return who that is, None if nobody."""
        chosen = self._choose(departed.request, departed.token_s)
        if chosen is not None:
            self.replicas[chosen].receive(departed, -1)
        return chosen


@contextmanager
def _no_garbage_collection() -> Iterator[None]:
    """Only a replica with cached KV is a cycle, see `replace`; looking for more took a quarter of a large run."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
