"""An adapter that leaves HBM while it is still on its way: its slots are written to until it would have landed."""

from __future__ import annotations

from unittest import mock

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from simlora.engine.cluster.simulation import Simulation
from tests.engine.by_hand import prefill_s, steps_s
from tests.engine.cases import COEFFICIENTS, Case, Row, family, placed
from tests.engine.test_fast_forward import assert_same
from tests.invariants.watch import WatchedPool, WatchedReplica, WatchedRoster

SLOW = {**COEFFICIENTS, "adapter_load.bytes_per_s": 2.0**9}
"""64 bytes, an adapter of rank 1, in an eighth of a second: several steps."""


class Strict(WatchedReplica):
    """Counts the slots of loads that were given up, and have not come, among those that are taken."""

    given_up_loads = 0

    def execute(self) -> float:
        end_s = super().execute()
        holdings, pool, run = self.holdings, self.holdings.pool, self._run
        start_s = max(self._start_s, holdings.stalled_s) if run is None else run.end_s(run.done)
        type(self).given_up_loads += any(until_s > self.sight.now_s for until_s, _ in pool.given_up)
        pool.given_up[:] = [(until_s, tokens) for until_s, tokens in pool.given_up if until_s > start_s]
        step = self._batch.step
        kv_tokens = holdings.reservation.used_tokens(step) + holdings.still_tokens
        kv_tokens -= sum(holdings.own_tokens(request.id, step) for request in self._standing.landing)
        landed = sum(a.kv_tokens for a in pool.resident.values() if pool.ready_s(a) <= start_s)
        given_up = sum(tokens for _, tokens in pool.given_up)
        assert kv_tokens + landed + given_up <= self.config.kv_token_budget, (
            "KV is written to slots that an adapter is still being copied to"
        )
        return end_s


def strict(case: Case, fast_forward: bool = True) -> int:
    """Run a case; return at how many iterations a load that was given up was still under way."""
    Strict.given_up_loads = 0
    with (
        mock.patch("simlora.engine.cluster.simulation.Replica", Strict),
        mock.patch("simlora.engine.replica.Roster", WatchedRoster),
        mock.patch("simlora.engine.holdings.Pool", WatchedPool),
    ):
        Simulation(case.scenario(fast_forward=fast_forward)).run()
    return Strict.given_up_loads


@st.composite
def slow_loads(draw: st.DrawFn) -> Case:
    """Scenarios in which loads take long, adapters are fetched ahead, and KV needs their room."""
    loaders = draw(st.sampled_from((("prefetching",), ("prefetching", "asynchronous"))))
    kinds = {"loaders": loaders, "reserves": ("full", "peak", "paged")}
    case = draw(st.one_of(family(adapter_memories=("unified",), **kinds), placed(**kinds)))
    known, slower = case.coefficients, draw(st.sampled_from((1, 16, 128)))
    known = {**known, "adapter_load.bytes_per_s": known["adapter_load.bytes_per_s"] / slower}
    largest = max(row.prompt_tokens + row.max_output_tokens for row in case.rows) + 4 * max(case.ranks)
    return case.but(coefficients=known, capacity=largest + draw(st.sampled_from((0, 4, 16))))


AHEAD = Case(
    rows=(Row(0.0, None, 4, 20, 20), Row(2**-7, None, 90, 2, 4), Row(2**-7, 0, 4, 2, 2)),
    ranks=(1,),
    capacity=120,
    kernel="merged",
    reserve="full",
    eviction="lru",
    loader="prefetching",
    max_wait_tokens=3,
    coefficients=SLOW,
)
"""While the first runs, the adapter of the third is sent for; then the second needs its slots."""


def test_who_takes_the_slots_of_a_load_that_was_given_up_waits_until_it_would_have_landed() -> None:
    """The first has 24 slots and the second takes 94 of 120: the adapter, of 4, has to go after three steps."""
    sent_s = prefill_s(4)
    lands_s = sent_s + 2**-8 + 64 / 2**9
    assert sent_s + steps_s(3, 5) < lands_s
    for fast_forward in (True, False):
        table = AHEAD.run(fast_forward=fast_forward).requests()
        assert table.admitted_s[1] == pytest.approx(lands_s)
    assert strict(AHEAD) > 0


@given(slow_loads(), st.booleans())
def test_nobody_writes_to_slots_that_a_load_still_writes_to(case: Case, fast_forward: bool) -> None:
    event(f"given up: {strict(case, fast_forward) > 0}")


@given(slow_loads())
def test_fast_forward_equals_the_plain_loop_when_loads_are_given_up(case: Case) -> None:
    assert_same(case.simulation(), case.simulation(fast_forward=False))
