"""Moves between replicas: when they are made, what goes along, what is sent for, and what stays as it was."""

from itertools import count
from typing import Any

import numpy as np
import pytest

from simlora.metrics.recorder import Recorder
from simlora.policies.migration.base import Copy, Migration, Move, Plan
from simlora.policies.views import ClusterView
from tests.engine.by_hand import BOTH, load_s, prefill_s, steps_s
from tests.engine.cases import Case, Row
from tests.engine.moving import IN_TURN, TO_THE_FIRST, Fixed, Planned, Routed, looking, moves

CASE = Case(replicas=2, eviction="lru", kernel="merged", max_wait_tokens=0, max_num_seqs=1, reserve="paged")
LONG, SHORT = Row(0.0, None, 4, 40, 40), Row(0.0, None, 4, 3, 3)


def run(*rows: Row, fast_forward: bool = True, **changes: Any) -> Recorder:
    """All requests go to replica 0 at first."""
    policies = {name: changes.pop(name) for name in ("migration", "placement") if name in changes}
    return CASE.of(*rows, **changes).run(fast_forward=fast_forward, router=TO_THE_FIRST, **policies)


def second(period_s: float, **more: object) -> Planned:
    """Moves the second request at the first look that finds it."""
    return moves(1, period_s, **more)


def test_a_waiting_request_goes_where_there_is_a_seat_and_is_prefilled_there():
    recorder = run(LONG, SHORT, migration=second(2**-4))
    row = recorder.requests().loc[1]
    (moved,) = recorder.journal.moved
    assert moved.decided_s == 2**-4 < moved.time_s, "at the end of the step under way"
    assert row.admitted_s == moved.time_s
    assert row.finish_s == moved.time_s + prefill_s(4) + steps_s(2, 5)
    assert row.arrival_s == 0.0, "it waits since it came"


def test_a_running_request_goes_at_the_end_of_a_step_and_is_prefilled_with_the_tokens_that_it_has():
    steps = next(n for n in count() if prefill_s(4) + steps_s(n, 5) >= 2**-4)
    recorder = run(LONG, migration=moves(0, 2**-4))
    row = recorder.requests().loc[0]
    (moved,) = recorder.journal.moved
    assert moved.time_s == prefill_s(4) + steps_s(steps, 5)
    assert moved.recomputed_tokens == 5 + steps
    again_s = prefill_s(5 + steps) + steps_s(38 - steps, 6 + steps)
    assert row.finish_s == pytest.approx(moved.time_s + again_s)
    assert (row.replica, row.migrations, row.preemptions, recorder.token_gaps.count) == (1, 1, 0, 39)
    between_s = row.finish_s - row.first_token_s
    assert recorder.token_gaps.mean() * 39 == pytest.approx(between_s, rel=1e-6), "a gap spans the move"


@BOTH
@pytest.mark.parametrize("back_s", [None, 1.0])
def test_a_request_whose_new_replica_has_failed_when_it_leaves_is_routed_anew(fast_forward, back_s):
    """The step under way at the decision, 1/16 s, ends after the host of replica 1 has failed."""
    fails = ((1, 2**-4 + 2**-14, back_s),)
    recorder = run(LONG, SHORT, migration=second(2**-4), fast_forward=fast_forward, failures=fails)
    assert recorder.requests().status.tolist() == ["finished", "finished"]
    (moved,) = recorder.journal.moved
    assert (moved.source, moved.target) == (0, 0)
    assert moved.time_s > 2**-4 + 2**-14


@BOTH
def test_a_request_whose_replica_failed_before_it_left_can_be_moved_later(fast_forward):
    """Replica 0 fails between the plan and the end of its step; the request goes on at 1, and may go back to 0."""

    def there_and_back(view: ClusterView) -> Plan:
        found = [Move(q, r, 1 - r) for r in (0, 1) for q in view.requests_of(r) if q.id == 1]
        return Plan(tuple(found), "to the other one")

    fails = ((0, 2**-4 + 2**-14, 2**-4 + 2**-13),)
    first_open = Routed(lambda request, candidates, view: int(candidates[0]))
    chosen = {"migration": Planned(there_and_back, 2**-4, plans=2), "router": first_open}
    recorder = CASE.of(LONG, SHORT, failures=fails).run(fast_forward=fast_forward, **chosen)
    last = recorder.journal.moved[-1]
    assert (last.request_id, last.source, last.target, last.reason) == (1, 1, 0, "to the other one")


def test_a_plan_is_carried_out_once_it_is_decided():
    migration = second(2**-4, delay_s=2**-3)
    (moved,) = run(LONG, SHORT, migration=migration).journal.moved
    assert moved.decided_s == 2**-4
    assert moved.time_s >= 2**-4 + 2**-3
    assert migration.looks[:2] == [2**-4, 2**-2], "there is no look while it is being decided"


def test_a_request_that_has_ended_when_it_is_decided_does_not_move_and_nothing_is_loaded_for_it():
    migration = second(2**-5, delay_s=5.0)
    journal = run(LONG, SHORT, migration=migration, max_num_seqs=2).journal
    assert (journal.moved, journal.planned[0][1:]) == ([], (1, True, "two there, none here"))
    rows = (Row(0.0, None, 4, 400, 400), Row(0.0, 2, 4, 3, 3))
    brings = second(2**-5, delay_s=1.0, brings=True)
    assert run(*rows, migration=brings, max_num_seqs=2).adapter_loads == 1, (
        "by the request itself, where it was"
    )


def test_nothing_moves_without_a_solution_and_the_journal_says_so():
    migration = Planned(lambda view: Plan((), "no solution", solved=False), 2**-4)
    recorder = run(LONG, SHORT, migration=migration)
    assert recorder.requests().equals(run(LONG, SHORT).requests())
    assert {row[1:] for row in recorder.journal.planned} == {(0, False, "no solution")}
    assert recorder.journal.migration_facts()["unsolved"] == len(migration.looks) > 1


@pytest.mark.parametrize("brings, waits_s", [(False, load_s(4)), (True, 0.0)])
def test_an_adapter_that_is_sent_for_at_once_is_there_before_its_request(brings, waits_s):
    """The idle replica loads it from the moment of the plan on; the request comes when a step is over."""
    rows = (Row(0.0, 0, 400, 40, 40), Row(0.0, 2, 4, 3, 3))
    recorder = run(*rows, migration=second(2**-8, brings=brings))
    (moved,) = recorder.journal.moved
    assert moved.loaded, "whichever replica sends for it"
    assert recorder.requests().cold_start_s[1] == pytest.approx(waits_s)
    assert moved.time_s - 2**-8 > load_s(4)


FIRST = np.array([0], dtype=np.int64)


def test_no_request_moves_to_where_its_adapter_must_not_be_nor_to_what_could_never_hold_it():
    apart = Fixed(serves={2: FIRST})
    assert run(LONG, Row(0.0, 2, 4, 3, 3), migration=second(2**-4), placement=apart).journal.moved == []
    large, budgets = Row(0.0, None, 60, 3, 3), (1000, 50)
    assert run(LONG, large, migration=second(2**-4), kv_token_budgets=budgets).journal.moved == []


@pytest.mark.parametrize("capacity, loads", [(1000, 0), (28, 0), (27, 1)])
def test_no_request_waits_for_what_was_preloaded_as_far_as_there_was_room(capacity, loads):
    """All adapters lie in HBM from the start, in 4, 8 and 16 slots, which counts as no load."""
    preloaded = Fixed(preloads={0: FIRST, 1: FIRST, 2: FIRST})
    rows = (Row(0.0, 0, 4, 1, 1), Row(0.0, 2, 4, 1, 1))
    recorder = run(*rows, placement=preloaded, capacity=capacity, block_size=1, watermark=0.0)
    assert recorder.adapter_loads == loads
    assert recorder.requests().cold_start_s[0] == 0.0


def test_execution_counts_from_the_start_and_not_from_the_arrival():
    seen: list[float | None] = []
    looks = looking(seen, lambda view: view.execution_s(), 2**-5)
    table = run(LONG, SHORT, LONG._replace(arrival_s=5.0), migration=looks).requests()
    seconds = (table.finish_s - table.admitted_s).mean()
    assert (seen[0], seen[-1]) == (None, pytest.approx(seconds))
    assert table.queue_s[1] > seconds


def test_an_adapter_is_loaded_by_the_first_request_that_a_plan_moves_and_waiting_costs_no_tokens():
    rows = (LONG, *(Row(0.0, adapter, 4, 3, 3) for adapter in (1, 1, 2, None)))
    rest = Planned(
        lambda view: Plan(tuple(Move(r, 0, 1) for r in view.requests_of(0)[1:]), "all at once"), 2**-8
    )
    moved = run(*rows, migration=rest).journal.moved
    assert [move.loaded for move in moved] == [True, False, True, False]
    assert [move.recomputed_tokens for move in moved] == [0, 0, 0, 0]


def test_chunks_that_are_thrown_away_count_as_recomputed():
    rows = (LONG, Row(0.0, None, 60, 3, 3))
    recorder = run(*rows, migration=second(2**-5), scheduler="chunked_prefill", max_num_seqs=1000)
    (moved,) = recorder.journal.moved
    assert 0 < moved.recomputed_tokens < 60


def test_a_copy_is_there_for_requests_to_come():
    """Replica 1 has nothing to do but to load it; requests are counted as they arrive."""
    asked: list[list[int]] = []

    def copies(view: ClusterView) -> Plan:
        asked.append(view.asked_requests.tolist())
        return Plan((), "a copy", copies=(Copy(view.adapters[2], 1),) if len(asked) == 1 else ())

    migration = Planned(copies, 2**-8, brings=True)
    case = CASE.but(rows=(Row(0.0, 0, 4, 40, 40), Row(1.0, 2, 4, 3, 3)))
    recorder = case.run(migration=migration, router=IN_TURN)
    assert recorder.requests().cold_start_s.tolist() == [load_s(1), 0.0]
    assert recorder.adapter_loads == 2
    assert (asked[0], asked[-1]) == ([1, 0, 0], [1, 0, 1])


@pytest.mark.parametrize(
    "scheduler, reserve", [("fcfs", "full"), ("fcfs", "peak"), ("chunked_prefill", "paged")]
)
def test_a_request_from_another_replica_may_stand_before_one_that_was_refused(scheduler, reserve):
    """The third is refused for its memory; the second, which came before it, is there before it could fit."""
    rows = (Row(0.0, None, 10, 40, 40), Row(0.0, None, 4, 30, 30), Row(0.05, None, 60, 30, 30))
    case = CASE.but(rows=rows, capacity=110, reserve=reserve, scheduler=scheduler, max_num_seqs=1000)
    tables = []
    for fast_forward in (True, False):
        back = Planned(lambda view: Plan(tuple(Move(r, 1, 0) for r in view.requests_of(1))), 0.2)
        tables.append(case.table(fast_forward=fast_forward, migration=back, router=IN_TURN))
    fast, plain = tables
    assert plain.migrations.tolist() == [0, 1, 0]
    assert fast.finish_s.tolist() == pytest.approx(plain.finish_s.tolist(), abs=1e-9)
    if reserve == "full":
        assert fast.finish_s[1] < fast.finish_s[0] < fast.finish_s[2]


class Swing(Migration):
    """Sends request 1 to the other replica at every look, wherever it is, a while after it has looked."""

    period_s, delay_s = 2**-4, 2**-5

    def __init__(self) -> None:
        self.back = False

    def plan(self, view: ClusterView) -> Plan:
        if self.back:
            return Plan()
        self.back = any(request.id == 1 for request in view.requests_of(1))
        moves = (Move(q, r, 1 - r) for r in (0, 1) for q in view.requests_of(r) if q.id == 1)
        return Plan(tuple(moves), "why not")


def test_a_sending_that_is_out_of_date_moves_no_request():
    """It leaves and comes back while one long iteration is under way where it had been sent from."""
    for prompt in range(290, 330):
        rows = (*(Row(0.0, None, 4, 400, 400),) * 2, Row(0.05, None, prompt, 2, 2), Row(0.1, None, 400, 2, 2))
        assert (run(*rows, migration=Swing()).requests().status == "finished").all()
