"""Roster: a request is in one place, holds what belongs there, and gives it back on every way out."""

from __future__ import annotations

import pytest

from simlora.core.request import Request
from simlora.engine.cluster.simulation import Simulation
from simlora.engine.roster import Roster
from tests.engine.cases import Case, Row

NOW_S = 2.0


def made(**more: object) -> tuple[Roster, list[Request]]:
    """An empty replica's roster, and three requests of prompts of 4 tokens that make 6."""
    case = Case(rows=tuple(Row(0.0, None, 4, 6, 6) for _ in range(3)), **more)
    simulation = Simulation(case.scenario())
    requests = [Request(i, None, 0.0, 4, 6) for i in range(3)]
    return simulation.fleet.replicas[0]._roster, requests


def admit(roster: Roster, request: Request, now_s: float = 0.0) -> None:
    """Let it in from the queue, with the memory of its prompt."""
    roster.enqueue(request)
    roster.dequeue(request)
    roster.incoming.admit((request,), roster.batch.step, roster.batch.step, now_s)


def decode(roster: Roster, request: Request, now_s: float = NOW_S) -> None:
    """Let it in and have it prefilled, so that it is a member of the batch."""
    admit(roster, request)
    assert not roster.prefilled(request, now_s, helped=False)


def used(roster: Roster) -> int:
    """Token slots that requests hold."""
    return roster.holdings.running_tokens(roster.batch.step)


def test_everyone_is_there_once_wherever_they_are() -> None:
    roster, (one, two, three) = made()
    decode(roster, one)
    roster.enqueue(two)
    admit(roster, three)
    assert {request.id for request in roster.everyone([three])} == {0, 1, 2}
    assert len(roster.everyone([three])) == 3
    roster.pause(one)
    assert len(roster.everyone([three])) == 3


def test_who_came_from_elsewhere_waits_since_then_and_no_longer() -> None:
    roster, (one, two, _) = made()
    roster.enqueue(one)
    roster.comes(two, since_s=3.0, token_s=None)
    roster.enqueue(two)
    assert [roster.waited_at(now_s) for now_s in (0.0, 2.9, 3.0)] == [1, 1, 2]
    roster.dequeue(two)
    assert roster.waited_at(3.0) == 1


def test_a_prefill_in_chunks_stands_until_it_is_whole() -> None:
    roster, (one, *_) = made()
    admit(roster, one)
    assert not roster.chunk(one, 3)
    assert list(roster.standing) == [one]
    assert roster.chunk(one, 1)
    assert not list(roster.standing)


def test_who_is_paused_keeps_memory_and_tokens_and_joins_again() -> None:
    roster, (one, two, _) = made()
    decode(roster, one)
    decode(roster, two)
    roster.batch.step += 2
    held, generated = used(roster), roster.batch.generated(one)
    roster.pause(one)
    assert used(roster) == held
    assert list(roster.batch) == [two]
    roster.resume(one)
    assert used(roster) == held
    assert roster.batch.generated(one) == generated == 3


@pytest.mark.parametrize("preemption", ["recompute", "swap"])
def test_who_is_preempted_gives_all_back_and_waits(preemption: str) -> None:
    roster, (one, *_) = made(preemption=preemption, reserve="paged")
    decode(roster, one)
    roster.batch.step += 2
    roster.preempt(one, NOW_S)
    assert list(roster.waiting) == [one]
    assert (used(roster), len(roster.batch), one.preemptions, one.generated_tokens) == (0, 0, 1, 3)
    # The KV of its last token does not exist before its next step.
    assert one.host_tokens == (4 + 3 - 1 if preemption == "swap" else 0)


def test_a_prefill_that_was_not_whole_starts_again() -> None:
    roster, (one, *_) = made()
    admit(roster, one)
    roster.chunk(one, 3)
    roster.put_back(one, NOW_S)
    assert (one.chunked_tokens, one.prefill_tokens, used(roster)) == (0, 4, 0)


def test_those_whose_last_step_it_was_leave_with_their_memory() -> None:
    roster, (one, two, _) = made()
    decode(roster, one)
    roster.batch.step += 1
    decode(roster, two)
    roster.batch.step += 4
    roster.finish_batch(NOW_S)
    assert list(roster.batch) == [two]
    assert roster.everyone(()) == [two]


def test_who_leaves_for_another_replica_takes_the_time_of_the_last_token() -> None:
    roster, (one, two, _) = made()
    decode(roster, one)
    roster.put_back(one, NOW_S)
    roster.dequeue(one)
    assert roster.depart(one, 0) == (one, NOW_S, one.prefill_tokens)
    assert roster.depart(two, 3) == (two, None, 3)
