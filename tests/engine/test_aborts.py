"""A scheduler may abort waiting requests, and may ask to be called again at a time."""

from __future__ import annotations

import pytest

from simlora.metrics.recorder import Recorder
from simlora.policies.scheduling.base import Abort, Note, Pause, SchedulerOutput
from simlora.policies.scheduling.fcfs import Fcfs
from simlora.policies.views import ReplicaView
from tests.engine.cases import Case, Row

PATIENCE_S = 0.25


class Impatient(Fcfs):
    """Aborts each request that has waited for PATIENCE_S, at the first boundary from then on."""

    def schedule(self, view: ReplicaView) -> SchedulerOutput:
        late = [r for r in view.waiting if r.arrival_s + PATIENCE_S <= view.now_s]
        left = [r for r in view.waiting if r not in late]
        next_s = min((r.arrival_s + PATIENCE_S for r in left), default=float("inf"))
        if not late:
            output = super().schedule(view)
            return output if output.prefill else output.replace(until_s=next_s, on_arrival=0)
        gone = tuple(Abort(request, "waited too long") for request in late)
        if view.running or not left:
            return SchedulerOutput(steps=1, actions=gone, until_s=next_s)
        admission = view.trial()
        return SchedulerOutput(prefill=tuple(r for r in left if admission.admit(r)), actions=gone)


def crowd(fast_forward: bool = True) -> Recorder:
    rows = tuple(Row(0.013 * i, i % 3, 8, 6 + i % 9, 6 + i % 9) for i in range(40))
    case = Case(rows=rows, capacity=90, max_wait_tokens=3)
    return case.run(fast_forward=fast_forward, scheduler=Impatient)


def test_aborted_requests_have_the_reason_in_their_row_and_never_had_a_token() -> None:
    """Whether iterations are taken together or one by one."""
    fast, plain = crowd(), crowd(fast_forward=False)
    requests = fast.requests()
    aborted = requests[requests["status"] == "aborted"]
    assert 0 < len(aborted) < len(requests)
    assert set(requests["status"]) == {"aborted", "finished"}
    assert set(aborted["reason"]) == {"waited too long"}
    assert aborted["first_token_s"].isna().all()
    assert (aborted["finish_s"] - aborted["arrival_s"] >= PATIENCE_S).all()
    assert requests.equals(plain.requests())
    assert fast.boundaries < plain.boundaries


def test_the_router_no_longer_counts_aborted_requests() -> None:
    case = Case(rows=(Row(0.0, 0, 8, 6, 6),) * 9, capacity=40)
    assert case.simulation(scheduler=Impatient).fleet.outstanding.tolist() == [0]


class Lazy(Fcfs):
    """Does nothing."""

    def schedule(self, view: ReplicaView) -> SchedulerOutput:
        return SchedulerOutput()


class Pausing(Fcfs):
    """Pauses a request and does not declare that it does."""

    def schedule(self, view: ReplicaView) -> SchedulerOutput:
        output = super().schedule(view)
        return output if output.prefill else output.replace(actions=(Pause(next(iter(view.members))),))


@pytest.mark.parametrize(
    "scheduler, message",
    [
        (Lazy, "Lazy leaves replica 0 idle beside request 0"),
        (Pausing, "a scheduler asks to Pause and does not declare that it does"),
    ],
)
def test_a_scheduler_that_does_what_it_must_not_is_named(scheduler: type[Fcfs], message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        Case(rows=(Row(0.0, 0, 8, 6, 6),)).run(scheduler=scheduler)


class Noting(Fcfs):
    """Notes the number of waiting requests, before and after it aborts the first of them."""

    def schedule(self, view: ReplicaView) -> SchedulerOutput:
        output = super().schedule(view)
        if view.waiting and not output.prefill:
            first, count = next(iter(view.waiting)), float(len(view.waiting))
            actions = (Note("before", count), Abort(first, "in the way"), Note("after", count - 1))
            return output.replace(actions=actions)
        return output


def test_actions_are_applied_in_their_order() -> None:
    case = Case(rows=(Row(0.0, None, 8, 6, 6),) * 3, max_num_seqs=1, max_wait_tokens=0)
    recorder = case.run(scheduler=Noting)
    assert [(note.name, note.value) for note in recorder.journal.decided] == [("before", 2.0), ("after", 1.0)]
    assert recorder.requests().reason.tolist() == ["", "in the way", ""]
