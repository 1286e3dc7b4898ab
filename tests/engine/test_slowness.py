"""Stragglers and slow links: what takes longer, from when on, and what does not."""

from __future__ import annotations

import pytest

from simlora.engine.cluster.simulation import Simulation
from tests.engine.by_hand import load_s, merge_s, prefill_s, steps_s
from tests.engine.cases import Case, Row
from tests.engine.test_fast_forward import assert_same

LONG = Row(0.0, None, 9, 40, 40)
SIXTH_S, SEVENTH_S = (prefill_s(9) + steps_s(steps, 10) for steps in (5, 6))
"""When LONG begins its sixth step, and its seventh."""


def case(*rows: Row, **changes: object) -> Case:
    known = {"ranks": (1, 1), "replicas": 1, "kernel": "merged", "reserve": "full", "eviction": "lru"}
    return Case(rows=rows, **(known | changes))  # type: ignore[arg-type]


def one(arrival_s: float, adapter: int | None) -> Row:
    return Row(arrival_s, adapter, 9, 1, 1)


def test_the_step_under_way_goes_on_as_it_began_and_the_next_is_slower() -> None:
    """It gets slow in the middle of the sixth step, and is itself again in the middle of a slow one."""
    until_s = SEVENTH_S + 3 * steps_s(2, 16) + 0.01
    table = case(LONG, stragglers=((0, SIXTH_S + 0.01, until_s, 3.0),)).table()
    assert table.finish_s[0] == pytest.approx(SEVENTH_S + 3 * steps_s(3, 16) + steps_s(39 - 9, 19))


def test_at_the_very_moment_of_a_boundary_the_next_step_is_slow() -> None:
    of = case(LONG, stragglers=((0, SIXTH_S, None, 2.0),))
    fast = of.simulation()
    assert_same(fast, of.simulation(fast_forward=False))
    assert fast.recorder.requests().finish_s[0] == pytest.approx(SIXTH_S + 2 * steps_s(34, 15))


MERGES = {"scheduler": "merged_only", "loader": "cached"}


@pytest.mark.parametrize(
    "row, changes, cold_s, ttft_s",
    [
        (one(0.0, 0), {"stragglers": ((0, 0.0, None, 4.0),)} | MERGES, 0.0, 4 * (merge_s(1) + prefill_s(9))),
        (one(0.0, 0), {"stragglers": ((0, 0.0, None, 4.0),)}, load_s(1), load_s(1) + 4 * prefill_s(9)),
        (one(5.0, 0), {"slow_links": ((0, 1.0, None, 8.0),)}, 8 * load_s(1), 8 * load_s(1) + prefill_s(9)),
        (one(0.0, 0), {"slow_links": ((0, load_s(1) / 2, None, 8.0),)}, load_s(1), load_s(1) + prefill_s(9)),
        (one(2.0, None), {"stragglers": ((0, 1.0, 1.5, 2.0), (0, 1.75, None, 3.0))}, 0.0, 3 * prefill_s(9)),
        (one(0.0, None), {"stragglers": ((0, 0.005, None, 2.0),)}, 0.0, prefill_s(9)),
        (one(0.0, None), {"stragglers": ((0, 0.0, None, 0.5),)}, 0.0, prefill_s(9) / 2),
        (one(0.0, None), {"stragglers": ((1, 0.0, None, 2.0),), "replicas": 2}, 0.0, prefill_s(9)),
    ],
    ids=[
        "a straggler merges slowly, too",
        "and loads as fast as ever",
        "over a slow link loads take longer and computing does not",
        "a transfer under way goes on as it began",
        "an idle replica that gets slow is slow when it has work",
        "a prefill under way goes on as it began",
        "one may be fast",
        "only the one that straggles is slow",
    ],
)
def test_what_is_slow(row: Row, changes: dict[str, object], cold_s: float, ttft_s: float) -> None:
    found = case(row, **changes).table().loc[0]
    assert (found.cold_start_s, found.ttft_s) == pytest.approx((cold_s, ttft_s))


def test_a_host_with_slow_links_is_slow_to_give_and_to_take_over_the_network() -> None:
    of = case(one(1.0, 0), replicas=2, adapter_pool="distributed", placement="contiguous")
    simulation = Simulation(of.but(slow_links=((1, 0.0, None, 8.0),)).scenario())
    simulation.run()
    stores = simulation.store
    assert stores is not None
    to_host = [replica.host_link.to_host for replica in simulation.fleet.replicas]
    for links in (stores._sends, stores._receives, to_host):
        assert [link.slowdown for link in links] == [1.0, 8.0]
    stores.fail(1)
    assert [link.slowdown for link in stores._receives] == [1.0, 8.0], "also when it comes back"
    cold_s = simulation.recorder.requests().cold_start_s[0]
    assert cold_s == pytest.approx(load_s(1)), "the other's are as they were"


def test_a_host_that_comes_back_is_as_slow_as_it_was_and_so_is_each_of_its_replicas() -> None:
    slow = {"stragglers": ((0, 0.0, None, 2.0),), "slow_links": ((0, 0.0, None, 8.0),)}
    back = {"failures": ((0, 1.0, 2.0),)} | slow
    assert case(one(3.0, 0), **back).table().ttft_s[0] == pytest.approx(8 * load_s(1) + 2 * prefill_s(9))
    table = case(Row(3.0, None, 9, 40, 40), one(3.0, 0), replicas=2, replicas_per_host=2, **back).table()
    assert table.replica.tolist() == [0, 1]
    assert table.cold_start_s[1] == pytest.approx(8 * load_s(1))


def test_what_begins_when_the_one_before_it_ends_is_not_ended_with_it() -> None:
    """Whatever the order in which they are listed."""
    slow = ((0, 2.0, 3.0, 4.0), (0, 1.0, 2.0, 2.0))
    table = case(one(2.5, 0), stragglers=slow, slow_links=slow).table()
    assert table.ttft_s[0] == pytest.approx(4 * load_s(1) + 4 * prefill_s(9))
