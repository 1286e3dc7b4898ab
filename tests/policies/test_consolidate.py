"""Whom Punica's consolidation moves, on hand-made clusters, and what moving costs in a real run."""

from __future__ import annotations

from dataclasses import replace

import pytest

from simlora.core.adapter import Adapter
from simlora.core.errors import InputError
from simlora.core.request import Request
from simlora.engine.cluster.simulation import Simulation
from simlora.policies.migration.consolidate import Consolidate
from simlora.policies.migration.stay import Stay
from simlora.policies.placement.dedicated import Dedicated
from tests.engine.by_hand import prefill_s, step_s, steps_s
from tests.engine.cases import Case, Row
from tests.policies.hand import Cluster as ByHand


def some(*ids: int, tokens: int = 10) -> list[Request]:
    return [Request(id, None, float(id), tokens - 1, 1) for id in ids]


def cluster(*held: list[Request], **changes: object) -> ByHand:
    return ByHand((0,) * len(held), {i: (requests, []) for i, requests in enumerate(held)}, **changes)


def moves(view: ByHand, **arguments: int) -> list[tuple[int, int, int]]:
    return [(move.request.id, move.source, move.target) for move in Consolidate(**arguments).plan(view).moves]


def test_the_least_loaded_is_emptied_into_the_fullest() -> None:
    view = cluster(some(1, 2), some(3), some(4, 5, 6))
    assert moves(view) == [(3, 1, 2)]


def test_what_does_not_fit_into_the_fullest_goes_to_the_next() -> None:
    view = cluster(some(1, 2, 3), some(4, 5), some(6, 7, 8, 9))
    assert moves(view, most_requests=5) == [(4, 1, 2), (5, 1, 0)]


def test_nobody_moves_unless_all_can() -> None:
    view = cluster(some(1, 2, 3), some(4, 5), some(6, 7, 8, 9))
    assert moves(view, most_requests=4) == []


def test_nobody_moves_to_slots_that_do_not_hold_the_rank() -> None:
    high = Adapter(0, "high", 64, 512, 32)
    held = (
        [Request(1, None, 1.0, 9, 1)] * 2,
        [Request(2, high, 2.0, 9, 1)],
        [Request(3, None, 3.0, 9, 1)] * 2,
    )
    assert moves(cluster(*held, max_lora_ranks=(16, 64, 64))) == [(2, 1, 2)]
    assert moves(cluster(*held, max_lora_ranks=(16, 64, 16))) == []


def test_memory_counts_too() -> None:
    view = cluster(some(1, 2), some(3), budgets=(29, 100))
    assert moves(view) == []
    assert moves(cluster(some(1, 2), some(3), budgets=(30, 100))) == [(3, 1, 0)]


def test_who_has_nothing_gets_nothing_and_one_alone_stays() -> None:
    assert moves(cluster([], some(1), [])) == []
    assert moves(cluster([], some(1), some(2, 3))) == [(1, 1, 2)]
    assert Stay().plan(cluster(some(1), some(2))).moves == ()
    assert Stay().period_s is None


def test_of_equals_the_highest_id_goes_to_the_lowest() -> None:
    assert moves(cluster(some(1), some(2), some(3))) == [(3, 2, 0)]


@pytest.mark.parametrize("arguments", [{"period_s": 0}, {"most_requests": 0}])
def test_what_is_out_of_range_is_named(arguments: dict[str, int]) -> None:
    with pytest.raises(InputError, match=rf"migration\.{next(iter(arguments))} is"):
        Consolidate(**arguments)


def test_a_period_is_not_so_short_that_a_run_gets_nowhere() -> None:
    with pytest.raises(InputError, match=r"migration\.period_s is 1e-09, must be at least 0\.001 seconds"):
        Consolidate(period_s=1e-9)


TWO = Case(
    rows=(Row(0.0, None, 4, 30, 30), Row(0.0, None, 8, 30, 30)),
    replicas=2,
    max_wait_tokens=0,
    kernel="merged",
)


def test_a_request_that_moves_keeps_its_tokens_and_is_prefilled_anew_with_them() -> None:
    """At 0.25 s replica 1 is in a step; at its end its request goes to replica 0, as if it arrived there then."""
    recorder = TWO.but(migrates_every_s=0.25).run()
    found = recorder.requests()
    assert found.migrations.tolist() == [0, 1]
    assert found.replica.tolist() == [0, 0]
    tokens, leaves_s = 1, prefill_s(8)
    while leaves_s < 0.25:
        leaves_s += step_s(8 + tokens)
        tokens += 1
    mine, now_s = 1, prefill_s(4)
    while now_s < leaves_s:
        now_s += step_s(4 + mine)
        mine += 1
    now_s += prefill_s(8 + tokens)
    tokens += 1
    together = 30 - max(mine, tokens)
    now_s += sum(step_s(4 + mine + i, 8 + tokens + i) for i in range(together))
    last = (4 + mine, 30 - mine - together) if mine < tokens else (8 + tokens, 30 - tokens - together)
    now_s += steps_s(last[1], last[0] + together)
    assert found.finish_s.max() == pytest.approx(now_s)
    assert found.preemptions.sum() == 0


def test_the_gap_between_its_tokens_spans_the_move() -> None:
    recorder = TWO.but(migrates_every_s=0.25).run()
    found = recorder.requests()
    assert recorder.token_gaps.count == found.output_tokens.sum() - 2
    spans = (found.finish_s - found.first_token_s).sum()
    assert recorder.token_gaps.mean() * recorder.token_gaps.count == pytest.approx(spans, rel=1e-6)


def test_waiting_requests_move_too() -> None:
    """Queues are looked at only when the batch is empty: at the first tick each replica runs one and lets one wait."""
    rows = tuple(Row(t, None, 4, 400, 400) for t in (0.0, 0.0, 0.05, 0.05))
    case = Case(
        rows=rows, replicas=2, kernel="merged", migrates_every_s=2**-4, max_wait_tokens=10**6, capacity=9999
    )
    found = case.run().requests()
    assert (found.status == "finished").all()
    assert found.migrations.tolist() == [0, 1, 0, 1]
    assert found.replica.tolist() == [0, 0, 0, 0]
    assert found.admitted_s[3] > 2**-4, "it had not begun"
    assert found.preemptions.sum() == 0


def test_a_request_that_has_grown_beyond_a_prefill_goes_on_alone() -> None:
    rows = Row(0.0, None, 4, 60, 60), Row(0.0, None, 30, 60, 60)
    found = TWO.but(rows=rows, max_num_batched_tokens=32, migrates_every_s=0.25).run().requests()
    assert found.migrations.tolist() == [0, 1]
    assert (found.status == "finished").all()


@pytest.mark.parametrize("fast_forward", [True, False])
def test_what_comes_at_a_boundary_of_its_target_waits_for_the_next_one(fast_forward: bool) -> None:
    """Equal replicas: both are at a boundary when the request leaves, and the target's, of lower number, is over."""
    equal = TWO.but(rows=(Row(0.0, None, 4, 30, 30),) * 2, migrates_every_s=0.25)
    found = equal.run(fast_forward=fast_forward).requests()
    assert found.finish_s[0] == found.finish_s[1]


def test_a_wait_for_weights_that_ends_with_a_move_counts_as_long_as_it_was() -> None:
    slow = {**TWO.coefficients, "adapter_load.latency_s": 0.5}
    rows = Row(0.0, 0, 4, 400, 400), Row(0.9, 0, 4, 20, 20)
    found = (
        TWO.but(rows=rows, loader="asynchronous", coefficients=slow, migrates_every_s=1.0).run().requests()
    )
    assert found.migrations[1] == 1
    assert found.cold_start_s[1] == pytest.approx(1.0 - 0.9)
    assert found.cold_start_s[1] <= found.queue_s[1]


def test_nobody_moves_to_where_the_placement_does_not_let_him() -> None:
    """Each adapter has a replica of its own; requests of the base model may go anywhere."""
    rows = tuple(Row(0.0, adapter, 4, 60, 60) for adapter in (0, 1))
    scenario = TWO.but(rows=rows, migrates_every_s=0.25).scenario()
    dedicated = replace(scenario, policies=replace(scenario.policies, placement=Dedicated()))
    assert Simulation(scenario).run().requests().migrations.tolist() == [0, 1]
    found = Simulation(dedicated).run().requests()
    assert found.migrations.tolist() == [0, 0]
    assert found.replica.tolist() == [0, 1]
