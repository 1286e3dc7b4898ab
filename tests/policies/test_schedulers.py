"""Fcfs and Lcfs on hand-made views."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from simlora.core.request import Request
from simlora.policies.scheduling.base import NEVER, SchedulerOutput
from simlora.policies.scheduling.fcfs import Fcfs
from simlora.policies.scheduling.lcfs import Lcfs
from tests.policies.hand import Queue

OLD, MIDDLE, NEW, NEWEST = (Request(i, None, float(i), 10, 10) for i in range(4))


class View:
    """A replica whose memory has room for some requests and no others."""

    now_s = 9.0
    max_wait_tokens = 10

    def __init__(
        self, waiting: Sequence[Request], fits: Sequence[Request] = (), running: int = 0, steps: int = 0
    ) -> None:
        self.waiting = Queue(waiting)
        self.fits = fits
        self.running = running
        self.members = (NEWEST,) * running
        self.steps_since_prefill = steps

    def trial(self) -> View:
        return self

    def admit(self, request: Request) -> bool:
        return request in self.fits

    def retry_steps(self) -> int:
        return 7


@pytest.mark.parametrize("scheduler, first", [(Fcfs, (OLD, MIDDLE)), (Lcfs, (NEW, MIDDLE))])
def test_an_idle_replica_looks_at_once(scheduler: type[Fcfs], first: tuple[Request, ...]) -> None:
    assert scheduler().schedule(View((OLD, MIDDLE, NEW), fits=first, steps=3)) == SchedulerOutput(
        prefill=first
    )


@pytest.mark.parametrize("scheduler", [Fcfs, Lcfs])
def test_admission_stops_at_the_first_that_does_not_fit(scheduler: type[Fcfs]) -> None:
    decision = scheduler().schedule(View((OLD, MIDDLE, NEW), fits=(OLD, NEW)))
    assert decision.prefill == ((OLD,) if scheduler is Fcfs else (NEW,))


@pytest.mark.parametrize("scheduler", [Fcfs, Lcfs])
def test_a_running_replica_leaves_the_queue_alone_for_ten_steps(scheduler: type[Fcfs]) -> None:
    view = View((OLD,), fits=(OLD,), running=1, steps=4)
    assert scheduler().schedule(view) == SchedulerOutput(steps=6), "whatever arrives"
    assert scheduler().schedule(View((), running=1, steps=4)) == SchedulerOutput(on_arrival=6)
    view.steps_since_prefill = 10
    assert scheduler().schedule(view) == SchedulerOutput(prefill=(OLD,))


@pytest.mark.parametrize("scheduler", [Fcfs, Lcfs])
def test_with_no_request_waiting_the_batch_runs_until_one_arrives(scheduler: type[Fcfs]) -> None:
    assert scheduler().schedule(View((), running=1, steps=10)) == SchedulerOutput(on_arrival=0)


def test_fcfs_after_a_refusal_an_arrival_changes_nothing() -> None:
    assert Fcfs().schedule(View((OLD,), running=1, steps=10)) == SchedulerOutput(steps=7, on_arrival=NEVER)


def test_lcfs_after_a_refusal_a_newer_request_may_fit() -> None:
    assert Lcfs().schedule(View((OLD,), running=1, steps=10)) == SchedulerOutput(steps=7, on_arrival=0)
