"""Dispatch that asks every replica first, from the event loop that also begins their iterations."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from simlora.core.request import Request
from simlora.engine.clock import ANSWERS
from simlora.engine.cluster.dispatcher import Dispatcher
from simlora.engine.cluster.fleet import Fleet
from simlora.engine.handoff import Handoff
from simlora.engine.replica.replica import Replica
from simlora.engine.scenario import Scenario

FROM_ITERATION: Final = 3
"""Passes of the event loop from the end of a replica's iteration to its turn: the result is there, the task that waits
for it goes on, and yields once more."""
FROM_SLEEP: Final = 1
"""The same for a replica without requests, whose task takes its turn again and again: the fewest that it may be."""
TO_ADD: Final = 2
"""Passes that a turn takes for each request that the replica has got: from the call that adds it to its result."""


class BlockingDispatch:
    """The event loop of a server that dispatches requests and also begins the iterations of all replicas.

    Before each dispatch it calls one replica after the other, each for `front_end.per_call_s`, and waits for the
    answer. A replica answers when the iteration is over that it is in. A replica whose iteration has ended meanwhile is
    held: it begins the next one some passes of the loop later. In each pass, first the held replicas go on, in the
    order in which they have ended, and then one request is dispatched, if any waits. Requests that arrive meanwhile
    wait unassigned, first come, first served.

    Source: dLoRA's artifact (github.com/LLMServe/dLoRA-artifact), vllm/engine/engine_manager.py, `select_engine` and
    `get_engine_req_model_cnt` with DISPATCH_MIG, its proactive dispatch; passes are those of asyncio, whose tasks take
    turns, in vllm/engine/async_llm_engine.py, `run_engine_loop`. The paper does not mention that dispatch blocks.
    Differs: a pass takes no time. The router counts a request from its dispatch on, the artifact from when it is added.
    A request that comes while others are added joins the same iteration. To tell an engine which requests have
    finished takes no passes.
    """

    def __init__(self, scenario: Scenario, fleet: Fleet, dispatcher: Dispatcher) -> None:
        self._fleet, self._clock = fleet, fleet.clock
        self._call_s = scenario.calibration.coefficients.get("front_end.per_call_s", 0.0)
        self._dispatcher = dispatcher
        dispatcher.let_wait(self.arrive)
        dispatcher.on_assign += (self._assigned,)
        for replica in fleet.replicas:
            replica.wake_event.callback = partial(self._boundary, replica)
        self._busy = False  # with calls, or with what has come at this moment
        self._held: dict[int, int] = {}  # by replica, the passes until its turn, or until it begins
        self._adds: set[int] = set()  # of these, the replicas whose turn it is
        self._new = [0] * len(fleet.replicas)  # requests that a replica has got, and that no turn has added

    def arrive(self, request: Request) -> None:
        """A request arrives: it is dispatched when all replicas have answered."""
        self._fleet.unassigned.append(Handoff(request))
        if not self._busy:
            for replica in self._fleet.replicas:
                replica.interrupt()  # a boundary of this moment comes first
            self._resume_at(self._clock.now, self._go_on)

    def _boundary(self, replica: Replica) -> None:
        """An iteration is over, or a request has come to an idle replica: it goes on now, or is held."""
        if not self._busy:
            self._new[replica.id] = 0
            replica.boundary()
            return
        table = replica.table
        if table.prefill or table.batch.members:
            replica.process_output(self._clock.now)
        table.end_window()
        replica.idle = False
        self._held.setdefault(replica.id, FROM_ITERATION)

    def _assigned(self, replica: int, request: Request) -> None:
        self._new[replica] += 1
        if self._fleet.replicas[replica].idle:
            self._held[replica] = FROM_SLEEP

    def _resume_at(self, time_s: float, go_on: Callable[[], None]) -> None:
        """Let the loop go on at a time, when all else that happens then has happened."""
        self._busy = True
        self._clock.call(time_s, ANSWERS, 0, go_on)

    def _go_on(self) -> None:
        """Pass after pass, until answers are waited for or nothing is left to do."""
        self._busy = False
        while self._fleet.unassigned or self._held:
            for id in list(self._held):
                self._held[id] -= 1
                if not self._held[id]:
                    self._take_turn(id)
            if self._fleet.unassigned:
                answered_s = self._answered_s()
                if answered_s > self._clock.now:
                    self._resume_at(answered_s, self._answered)
                    return
                self._dispatch_next()

    def _take_turn(self, id: int) -> None:
        """Add the requests that a replica has got, or let it begin its next iteration when they are added."""
        new = self._new[id]
        if new and id not in self._adds:
            self._adds.add(id)
            self._held[id], self._new[id] = TO_ADD * new, 0
            return
        self._adds.discard(id)
        del self._held[id]
        replica = self._fleet.replicas[id]
        replica.record(replica.table.queue.count)
        replica.start()

    def _answered_s(self) -> float:
        """Call the replicas; return when the last one has answered."""
        time_s = self._clock.now
        for replica in self._fleet.replicas:
            if not replica.idle and replica.id not in self._held:
                replica.interrupt()
                time_s = max(time_s, replica.wake_event.time_s)
            time_s += self._call_s
        return time_s

    def _answered(self) -> None:
        """All replicas have answered."""
        if self._fleet.unassigned:  # its client may have gone
            self._dispatch_next()
        self._go_on()

    def _dispatch_next(self) -> None:
        self._dispatcher.dispatch(self._fleet.unassigned.pop(0).request)
