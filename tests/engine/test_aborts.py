"""A scheduler may abort waiting requests, and may ask to be called again at a time."""

import pytest

from simlora.policies.scheduling.base import Abort, Note, Pause, SchedulerOutput
from simlora.policies.scheduling.fcfs import Fcfs
from simlora.policies.views import ReplicaView
from tests.engine.cases import Case, Row


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
def test_a_scheduler_that_does_what_it_must_not_is_named(scheduler, message):
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


def test_actions_are_applied_in_their_order():
    case = Case(rows=(Row(0.0, None, 8, 6, 6),) * 3, max_num_seqs=1, max_wait_tokens=0)
    recorder = case.run(scheduler=Noting)
    assert [(note.name, note.value) for note in recorder.journal.decided] == [("before", 2.0), ("after", 1.0)]
    assert recorder.requests().reason.tolist() == ["", "in the way", ""]
