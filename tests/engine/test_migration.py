"""Moves between replicas: when they are made, what goes along, what is sent for, and what stays as it was."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from simlora.core.request import Request
from simlora.engine.cluster.simulation import Simulation
from simlora.metrics.recorder import Recorder
from simlora.policies.migration.base import Copy, Migration, Move, Plan
from simlora.policies.placement.base import Placed, Placement
from simlora.policies.routing.base import Router
from simlora.policies.views import ClusterView
from tests.engine.by_hand import load_s, prefill_s, steps_s
from tests.engine.cases import Case, Row

CASE = Case(
    rows=(), replicas=2, eviction="lru", kernel="merged", max_wait_tokens=0, max_num_seqs=1, reserve="paged"
)
BOTH = pytest.mark.parametrize("fast_forward", [True, False])


class ToTheFirst(Router):
    """A router that sends all requests to replica 0."""

    def route(self, request: Request, candidates: object, view: ClusterView) -> int:
        return 0


class Once(Migration):
    """Moves the second request at the first look that finds it, as it is told."""

    def __init__(
        self, period_s: float, delay_s: float = 0.0, brings: bool = False, solved: bool = True
    ) -> None:
        self.period_s: float = period_s
        self.delay_s, self.brings, self.solved = delay_s, brings, solved
        self.looks: list[float] = []

    def plan(self, view: ClusterView) -> Plan:
        self.looks.append(view.now_s)
        if not self.solved:
            return Plan((), "no solution", solved=False)
        found = [request for request in view.requests_of(0) if request.id == 1]
        return Plan(tuple(Move(request, 0, 1) for request in found), "two there, none here" if found else "")


def run(
    *rows: Row,
    migration: Migration,
    fast_forward: bool = True,
    placement: Placement | None = None,
    router: Router | None = None,
    **changes: object,
) -> Recorder:
    scenario = CASE.but(rows=rows, **changes).scenario(fast_forward=fast_forward)
    policies = replace(scenario.policies, migration=migration, router=router or ToTheFirst())
    if placement is not None:
        policies = replace(policies, placement=placement)
    return Simulation(replace(scenario, policies=policies)).run()


LONG, SHORT = Row(0.0, None, 4, 40, 40), Row(0.0, None, 4, 3, 3)


@BOTH
def test_a_waiting_request_goes_where_there_is_a_seat_and_is_prefilled_there(fast_forward: bool) -> None:
    recorder = run(LONG, SHORT, migration=Once(2**-4), fast_forward=fast_forward)
    table = recorder.requests()
    (moved,) = recorder.journal.moved
    assert moved.decided_s == 2**-4
    assert moved.time_s > 2**-4, "at the end of the step under way"
    assert table.admitted_s[1] == moved.time_s
    assert table.finish_s[1] == moved.time_s + prefill_s(4) + steps_s(2, 5)
    assert table.arrival_s[1] == 0.0, "it waits since it came"


@BOTH
@pytest.mark.parametrize("back_s", [None, 1.0])
def test_a_request_whose_new_replica_has_failed_when_it_leaves_is_routed_anew(
    fast_forward: bool, back_s: float | None
) -> None:
    """The step under way at the decision, 1/16 s, ends after the host of replica 1 has failed."""
    recorder = run(
        LONG,
        SHORT,
        migration=Once(2**-4),
        fast_forward=fast_forward,
        failures=((1, 2**-4 + 2**-14, back_s),),
    )
    assert recorder.requests().status.tolist() == ["finished", "finished"]
    (moved,) = recorder.journal.moved
    assert (moved.source, moved.target) == (0, 0)
    assert moved.time_s > 2**-4 + 2**-14


@BOTH
def test_a_plan_is_carried_out_once_it_is_decided(fast_forward: bool) -> None:
    migration = Once(2**-4, delay_s=2**-3)
    recorder = run(LONG, SHORT, migration=migration, fast_forward=fast_forward)
    (moved,) = recorder.journal.moved
    assert moved.decided_s == 2**-4
    assert moved.time_s >= 2**-4 + 2**-3
    assert migration.looks[:2] == [2**-4, 2**-2], "there is no look while it is being decided"


def test_a_request_that_has_ended_when_it_is_decided_does_not_move() -> None:
    migration = Once(2**-5, delay_s=5.0)
    recorder = run(LONG, SHORT, migration=migration, max_num_seqs=2)
    assert recorder.journal.moved == []
    assert recorder.requests().migrations.tolist() == [0, 0]
    assert recorder.adapter_loads == 0
    assert recorder.journal.planned[0][1:] == (1, True, "two there, none here")


@BOTH
def test_nothing_moves_without_a_solution_and_the_journal_says_so(fast_forward: bool) -> None:
    migration = Once(2**-4, solved=False)
    recorder = run(LONG, SHORT, migration=migration, fast_forward=fast_forward)
    stays = run(LONG, SHORT, migration=Once(1e6), fast_forward=fast_forward)
    assert recorder.requests().equals(stays.requests())
    assert {row[1:] for row in recorder.journal.planned} == {(0, False, "no solution")}
    assert recorder.journal.migration_facts()["unsolved"] == len(migration.looks) > 1


@BOTH
def test_an_adapter_that_is_sent_for_at_once_is_there_before_its_request(fast_forward: bool) -> None:
    """The idle replica loads it from the moment of the plan on; the request comes when a step is over."""
    rows = (Row(0.0, 0, 400, 40, 40), Row(0.0, 2, 4, 3, 3))
    for brings in (False, True):
        recorder = run(*rows, migration=Once(2**-8, brings=brings), fast_forward=fast_forward)
        table = recorder.requests()
        (moved,) = recorder.journal.moved
        assert moved.loaded, "whichever replica sends for it"
        waits_s = 0.0 if brings else load_s(4)
        assert table.cold_start_s[1] == pytest.approx(waits_s)
        assert moved.time_s - 2**-8 > load_s(4)


class Apart(Placement):
    """Adapter 2 belongs to replica 0 alone."""

    def place(self, adapters: object, view: ClusterView) -> Placed:
        return Placed({2: np.array([0], dtype=np.int64)})


def test_no_request_moves_to_where_its_adapter_must_not_be() -> None:
    recorder = run(LONG, Row(0.0, 2, 4, 3, 3), migration=Once(2**-4), placement=Apart())
    assert recorder.journal.moved == []


class Preloaded(Placement):
    """All adapters lie in HBM from the start, on replica 0, as far as there is room: 4, 8 and 16 slots."""

    def place(self, adapters: object, view: ClusterView) -> Placed:
        home = np.array([0], dtype=np.int64)
        return Placed(preloads={0: home, 1: home, 2: home})


def test_no_request_waits_for_what_was_preloaded_and_it_counts_as_no_load() -> None:
    rows = (Row(0.0, 0, 4, 1, 1), Row(0.0, 2, 4, 1, 1))
    for capacity, loads in ((1000, 0), (28, 0), (27, 1)):
        recorder = run(
            *rows,
            migration=Once(1e6),
            placement=Preloaded(),
            capacity=capacity,
            block_size=1,
            watermark=0.0,
        )
        assert recorder.adapter_loads == loads
        assert recorder.requests().cold_start_s[0] == 0.0


class Looks(Migration):
    """Writes down what a view shows, and moves no request."""

    period_s = 2**-5

    def __init__(self) -> None:
        self.seen: list[tuple[object, ...]] = []

    def plan(self, view: ClusterView) -> Plan:
        requests = view.requests_of(0)
        self.seen.append(
            (
                view.used_tokens.tolist(),
                [view.context_tokens(request, 0) for request in requests],
                view.execution_s(),
                [view.execution_s(r.adapter) for r in requests],
            )
        )
        return Plan()


def test_what_a_migration_sees_within_a_run_is_what_the_plain_loop_shows() -> None:
    rows = tuple(Row(i * 2**-6, i % 3, 4 + i, 5 + 3 * i, 60) for i in range(6))
    seen = []
    for fast_forward in (True, False):
        migration = Looks()
        run(*rows, migration=migration, fast_forward=fast_forward, max_num_seqs=4, block_size=1)
        seen.append(migration.seen)
    assert seen[0] == seen[1]
    assert any(contexts and contexts[0] > 5 for _, contexts, *_ in seen[0])
    assert seen[0][0][2] is None, "no request has finished yet"
    assert seen[0][-1][2] > 0.0


class AllAtOnce(Migration):
    """Moves all requests but the first, once."""

    period_s = 2**-8

    def __init__(self) -> None:
        self.done = False

    def plan(self, view: ClusterView) -> Plan:
        if self.done:
            return Plan()
        self.done = True
        return Plan(tuple(Move(request, 0, 1) for request in view.requests_of(0)[1:]), "all at once")


def test_an_adapter_is_loaded_by_the_first_of_those_whom_a_plan_moves_and_waiting_costs_no_tokens() -> None:
    rows = (LONG, *(Row(0.0, adapter, 4, 3, 3) for adapter in (1, 1, 2, None)))
    moved = run(*rows, migration=AllAtOnce()).journal.moved
    assert [move.loaded for move in moved] == [True, False, True, False]
    assert [move.recomputed_tokens for move in moved] == [0, 0, 0, 0]


def test_nothing_is_loaded_for_a_request_that_has_ended() -> None:
    rows = (Row(0.0, None, 4, 400, 400), Row(0.0, 2, 4, 3, 3))
    recorder = run(*rows, migration=Once(2**-5, delay_s=1.0, brings=True), max_num_seqs=2)
    assert recorder.adapter_loads == 1, "by the request itself, where it was"


class Copies(Migration):
    """Makes a copy of adapter 2 on replica 1, once, and notes what has been asked for."""

    period_s, brings = 2**-8, True

    def __init__(self) -> None:
        self.asked: list[list[int]] = []

    def plan(self, view: ClusterView) -> Plan:
        self.asked.append(view.asked_requests.tolist())
        copies = () if len(self.asked) > 1 else (Copy(view.adapters[2], 1),)
        return Plan((), "a copy" if copies else "", copies=copies)


@BOTH
def test_a_copy_is_there_for_requests_to_come(fast_forward: bool) -> None:
    """Replica 1 has nothing to do but to load it; requests are counted as they arrive."""
    rows = (Row(0.0, 0, 4, 40, 40), Row(1.0, 2, 4, 3, 3))
    migration = Copies()
    recorder = run(*rows, migration=migration, fast_forward=fast_forward, router=OneTwo())
    assert recorder.requests().cold_start_s.tolist() == [load_s(1), 0.0]
    assert recorder.adapter_loads == 2
    assert (migration.asked[0], migration.asked[-1]) == ([1, 0, 0], [1, 0, 1])


class OneTwo(ToTheFirst):
    """A router that deals requests out to two replicas."""

    def route(self, request: Request, candidates: object, view: ClusterView) -> int:
        return request.id % 2


class Back(Migration):
    """Moves all that replica 1 has to replica 0, once."""

    period_s = 0.2

    def __init__(self) -> None:
        self.done = False

    def plan(self, view: ClusterView) -> Plan:
        found = [] if self.done else view.requests_of(1)
        self.done = self.done or bool(found)
        return Plan(tuple(Move(request, 1, 0) for request in found), "to the first")


@pytest.mark.parametrize("reserve", ["full", "peak", "paged"])
@pytest.mark.parametrize("scheduler", ["fcfs", "chunked_prefill"])
def test_a_request_from_another_replica_may_stand_before_one_that_was_refused(
    scheduler: str, reserve: str
) -> None:
    """The third is refused for its memory; the second, which came before it, is there before it could fit."""
    rows = (Row(0.0, None, 10, 40, 40), Row(0.0, None, 4, 30, 30), Row(0.05, None, 60, 30, 30))
    case = CASE.but(rows=rows, capacity=110, reserve=reserve, scheduler=scheduler, max_num_seqs=1000)
    found = []
    for fast_forward in (True, False):
        scenario = case.scenario(fast_forward=fast_forward)
        policies = replace(scenario.policies, migration=Back(), router=OneTwo())
        found.append(Simulation(replace(scenario, policies=policies)).run().requests())
    fast, plain = found
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


def test_a_sending_that_is_out_of_date_moves_no_request() -> None:
    """It leaves and comes back while one long iteration is under way where it had been sent from."""
    for prompt in range(290, 330):
        rows = (*(Row(0.0, None, 4, 400, 400),) * 2, Row(0.05, None, prompt, 2, 2), Row(0.1, None, 400, 2, 2))
        recorder = run(*rows, migration=Swing())
        assert (recorder.requests().status == "finished").all()


def test_chunks_that_are_thrown_away_count_as_recomputed() -> None:
    rows = (Row(0.0, None, 4, 40, 40), Row(0.0, None, 60, 3, 3))
    recorder = run(*rows, migration=Once(2**-5), scheduler="chunked_prefill", max_num_seqs=1000)
    (moved,) = recorder.journal.moved
    assert 0 < moved.recomputed_tokens < 60


def test_what_a_target_could_never_hold_stays() -> None:
    rows = (LONG, Row(0.0, None, 60, 3, 3))
    scenario = CASE.but(rows=rows).scenario()
    policies = replace(scenario.policies, migration=Once(2**-4), router=ToTheFirst())
    cluster = replace(scenario.cluster, kv_token_budgets=(1000, 50))
    recorder = Simulation(replace(scenario, policies=policies, cluster=cluster)).run()
    assert recorder.journal.moved == []


def test_memory_in_use_is_what_cannot_be_evicted() -> None:
    """Adapters and cached KV without a request are not in use; within a window it is what the plain loop shows."""
    rows = (Row(0.0, 0, 8, 1, 1), Row(0.0, None, 1, 16, 16))
    seen = []
    for fast_forward in (True, False):
        migration = Looks()
        run(
            *rows,
            migration=migration,
            fast_forward=fast_forward,
            capacity=20,
            block_size=1,
            watermark=0.0,
            prefix_caching=True,
            sessions=("a", None),
            hash_block_tokens=1,
            max_num_seqs=2,
        )
        seen.append([used[0] for used, *_ in migration.seen])
    assert seen[0] == seen[1]
    assert max(seen[0]) <= 20
    assert seen[0][-1] <= 17, "one prompt token and its answer"


def test_execution_counts_from_the_start_and_not_from_the_arrival() -> None:
    migration = Looks()
    rows = (Row(0.0, None, 4, 40, 40), Row(0.0, None, 4, 3, 3), Row(5.0, None, 4, 40, 40))
    table = run(*rows, migration=migration).requests()
    seconds = (table.finish_s - table.admitted_s).mean()
    assert [found for *_, found, _ in migration.seen][-1] == pytest.approx(seconds)
    assert table.queue_s[1] > seconds


class Away(Migration):
    """Moves the request that came first to replica 0 away from there, at its only look."""

    def __init__(self, period_s: float) -> None:
        self.period_s: float = period_s
        self.looked = False

    def plan(self, view: ClusterView) -> Plan:
        first, self.looked = () if self.looked else view.requests_of(0)[:1], True
        return Plan(tuple(Move(request, 0, 1) for request in first), "it is in the way" if first else "")


@pytest.mark.parametrize("look", range(22, 32))
def test_a_preempted_request_goes_on_as_soon_as_the_others_have_left(look: int) -> None:
    """At one of these boundaries one request is preempted, and the other one goes; nothing is left to wait for."""
    rows = (Row(0.0, None, 2, 24, 24), Row(0.05, None, 12, 19, 19))
    tight = {"capacity": 45, "block_size": 1, "scheduler": "chunked_prefill", "max_num_seqs": 9}
    table = run(*rows, migration=Away(look * 2**-6), ranks=(), **tight).requests()
    assert (table.migrations + table.preemptions > 0).any()
    assert (table.status == "finished").all()
