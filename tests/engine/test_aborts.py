"""A scheduler may abort waiting requests, and may ask to be called again at a time."""

from __future__ import annotations

from dataclasses import replace

import pytest

from simlora.engine.cluster.simulation import Simulation
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
        if late:
            gone = tuple(Abort(request, "waited too long") for request in late)
            left = [r for r in view.waiting if r not in late]
            next_s = min((r.arrival_s + PATIENCE_S for r in left), default=float("inf"))
            if view.running or not left:
                return SchedulerOutput(steps=1, actions=gone, until_s=next_s)
            admission = view.trial()
            return SchedulerOutput(prefill=tuple(r for r in left if admission.admit(r)), actions=gone)
        output = super().schedule(view)
        next_s = min((r.arrival_s + PATIENCE_S for r in view.waiting), default=float("inf"))
        return output.replace(until_s=next_s, on_arrival=0) if not output.prefill else output


def crowd(fast_forward: bool = True) -> Recorder:
    rows = tuple(Row(0.013 * i, i % 3, 8, 6 + i % 9, 6 + i % 9) for i in range(40))
    scenario = Case(rows=rows, capacity=90, max_wait_tokens=3).scenario(fast_forward=fast_forward)
    return Simulation(replace(scenario, policies=replace(scenario.policies, scheduler=Impatient))).run()


def test_aborted_requests_have_the_reason_in_their_row_and_never_had_a_token() -> None:
    requests = crowd().requests()
    aborted = requests[requests["status"] == "aborted"]
    assert 0 < len(aborted) < len(requests)
    assert set(requests["status"]) == {"aborted", "finished"}
    assert set(aborted["reason"]) == {"waited too long"}
    assert aborted["first_token_s"].isna().all()
    assert (aborted["finish_s"] - aborted["arrival_s"] >= PATIENCE_S).all()


def test_fast_forward_aborts_the_same_requests_at_the_same_times() -> None:
    fast, plain = crowd(), crowd(fast_forward=False)
    assert fast.requests().equals(plain.requests())
    assert fast.boundaries < plain.boundaries


def test_the_router_no_longer_counts_aborted_requests() -> None:
    rows = tuple(Row(0.0, 0, 8, 6, 6) for _ in range(9))
    scenario = Case(rows=rows, capacity=40).scenario()
    simulation = Simulation(replace(scenario, policies=replace(scenario.policies, scheduler=Impatient)))
    simulation.run()
    assert simulation.fleet.outstanding.tolist() == [0]


class Lazy(Fcfs):
    """Does nothing."""

    def schedule(self, view: ReplicaView) -> SchedulerOutput:
        return SchedulerOutput()


def test_a_scheduler_that_leaves_a_replica_idle_beside_work_is_named() -> None:
    scenario = Case(rows=(Row(0.0, 0, 8, 6, 6),)).scenario()
    simulation = Simulation(replace(scenario, policies=replace(scenario.policies, scheduler=Lazy)))
    with pytest.raises(AssertionError, match="Lazy leaves replica 0 idle beside request 0"):
        simulation.run()


class Pausing(Fcfs):
    """Pauses a request and does not declare that it does."""

    def schedule(self, view: ReplicaView) -> SchedulerOutput:
        output = super().schedule(view)
        return output if output.prefill else output.replace(actions=(Pause(next(iter(view.members))),))


def test_an_action_that_a_scheduler_does_not_declare_is_named() -> None:
    scenario = Case(rows=(Row(0.0, 0, 8, 6, 6),)).scenario()
    simulation = Simulation(replace(scenario, policies=replace(scenario.policies, scheduler=Pausing)))
    with pytest.raises(AssertionError, match="a scheduler asks to Pause and does not declare that it does"):
        simulation.run()


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
    rows = tuple(Row(0.0, None, 8, 6, 6) for _ in range(3))
    scenario = Case(rows=rows, max_num_seqs=1, max_wait_tokens=0).scenario()
    recorder = Simulation(replace(scenario, policies=replace(scenario.policies, scheduler=Noting))).run()
    noted = [(note.name, note.value) for note in recorder.journal.decided]
    assert noted == [("before", 2.0), ("after", 1.0)]
    assert recorder.requests().reason.tolist() == ["", "in the way", ""]
