"""Schedulers that choose the batch of every iteration anew, and pause the running requests that are left out."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from itertools import islice, takewhile
from math import inf
from typing import ClassVar

from mypy_extensions import mypyc_attr

from simlora.core.adapter import Adapter
from simlora.core.errors import not_defined
from simlora.core.request import Request, arrival_order
from simlora.policies.scheduling.base import NEVER, Action, Note, Pause, Resume, Scheduler, SchedulerOutput
from simlora.policies.views import ReplicaView


@mypyc_attr(allow_interpreted_subclasses=True)
class Picking(Scheduler):
    """Runs the requests that `pick` returns, at most max_num_seqs, with the adapter merged that it returns.

    Picked requests that wait are prefilled, as far as they fit, in the iteration in which the others decode. A running
    request that is not picked is paused, and keeps its KV until other requests need the memory.
    Source: dLoRA (OSDI'24) §4.2, whose batch B_next is picked anew for every iteration; vLLM 0.1, on which it is built,
    puts prompts and decodes into one iteration.
    """

    merges: ClassVar[bool] = True
    pauses: ClassVar[bool] = True

    @abstractmethod
    def pick(self, view: ReplicaView) -> tuple[list[Request], Adapter | None]:
        """Return the requests of the next iterations, in order of arrival, and the adapter to merge, if any."""
        raise not_defined(self, "pick")

    def steps(self) -> int:
        """Return the decode steps for which the pick holds, if no request arrives or ends."""
        return NEVER

    def notes(self) -> tuple[Note, ...]:
        """Return the notes on the last decision."""
        return ()

    def schedule(self, view: ReplicaView) -> SchedulerOutput:
        picked, merged = self.pick(view)
        was = view.merged
        if merged is was and len(picked) == view.running and not (view.waiting.count or view.paused):
            return SchedulerOutput(steps=self.steps(), on_arrival=0, actions=self.notes())
        running, paused = set(view.members), set(view.paused)
        beside: list[Request] = []
        fresh: list[Request] = []
        actions: list[Action] = []
        for request in picked:
            if request in running:
                beside.append(request)
            elif request in paused:
                beside.append(request)
                actions.append(Resume(request))
            else:
                fresh.append(request)
        if len(beside) - len(actions) < len(running):
            named = set(picked)
            actions = [*(Pause(request) for request in view.members if request not in named), *actions]
        prefill: tuple[Request, ...] = ()
        steps = self.steps()
        if fresh:
            trial = view.trial(beside)
            prefill = tuple(takewhile(trial.admit, fresh))
            if trial.refusal is not None:
                # After a pause or resume the batch differs, so the trial's answer no longer applies.
                steps = 1 if actions else min(steps, trial.retry_steps())
        return SchedulerOutput(
            prefill=prefill,
            steps=steps,
            on_arrival=0,
            decode=len(prefill) > 0,
            unmerge=was is not None and was is not merged,
            merge=merged if was is not merged else None,
            actions=(*actions, *self.notes()),
        )


def admitted(view: ReplicaView) -> list[Request]:
    """Return the running and paused requests, in order of arrival."""
    return in_order([*view.members, *view.paused])


def first(here: list[Request], waiting: Iterable[Request], most: int) -> list[Request]:
    """Return the first `most` requests of both queues, each in order of arrival; `here` itself if it has them all."""
    if not waiting and len(here) <= most:
        return here
    found = in_order([*here[:most], *islice(waiting, most)])
    del found[most:]
    return found


def in_order(requests: list[Request]) -> list[Request]:
    """Put requests in order of arrival, as they are most of the time, and return them."""
    last_s, last_id = -inf, -1
    for request in requests:
        if request.arrival_s < last_s or (request.arrival_s == last_s and request.id < last_id):
            requests.sort(key=arrival_order)
            break
        last_s, last_id = request.arrival_s, request.id
    return requests


def counted(requests: list[Request]) -> dict[int, int]:
    """Return the number of requests by adapter id."""
    found: dict[int, int] = {}
    for request in requests:
        id = request.adapter_id
        found[id] = found.get(id, 0) + 1
    return found
