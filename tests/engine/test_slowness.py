"""Stragglers and slow links: what takes longer, from when on, and what does not."""

from __future__ import annotations

import pytest

from simlora.core.errors import InputError
from simlora.engine.cluster.simulation import Simulation
from simlora.engine.replica.link import Link, together
from tests.engine.by_hand import load_s, merge_s, prefill_s, steps_s
from tests.engine.cases import Case, Row
from tests.engine.test_fast_forward import assert_same

LONG = Row(0.0, None, 9, 40, 40)
BEGIN_S = prefill_s(9)


def case(*rows: Row, **changes: object) -> Case:
    known = {"ranks": (1, 1), "replicas": 2, "kernel": "merged", "reserve": "full", "eviction": "lru"}
    return Case(rows=rows, **(known | changes))  # type: ignore[arg-type]


@pytest.mark.parametrize("fast_forward", [True, False])
def test_the_step_under_way_goes_on_as_it_began_and_the_next_is_slower(fast_forward: bool) -> None:
    """It gets slow in the middle of the sixth step, and is itself again in the middle of a slow one."""
    at_s = BEGIN_S + steps_s(5, 10) + 0.01
    slow_s = BEGIN_S + steps_s(6, 10)
    until_s = slow_s + 3 * steps_s(2, 16) + 0.01
    table = case(LONG, stragglers=((0, at_s, until_s, 3.0),)).run(fast_forward=fast_forward).requests()
    assert table.finish_s[0] == pytest.approx(slow_s + 3 * steps_s(3, 16) + steps_s(39 - 9, 19))


def test_a_prefill_under_way_does_too_and_the_next_one_is_slower() -> None:
    rows = (Row(0.0, None, 9, 1, 1), Row(0.01, None, 9, 1, 1))
    table = case(*rows, replicas=1, stragglers=((0, 0.005, None, 2.0),), max_num_seqs=1).run().requests()
    assert table.finish_s.tolist() == pytest.approx([prefill_s(9), 3 * prefill_s(9)])


def test_only_the_one_that_straggles_is_slow_and_one_may_be_fast() -> None:
    rows = (LONG, LONG)
    table = case(*rows, stragglers=((1, 0.0, None, 0.5),)).run().requests()
    both_s = BEGIN_S + steps_s(39, 10)
    assert table.finish_s.tolist() == pytest.approx([both_s, both_s / 2])


def test_merging_is_slower_too() -> None:
    row = Row(0.0, 0, 9, 1, 1)
    known = {"scheduler": "merged_only", "loader": "cached", "replicas": 1}
    table = case(row, stragglers=((0, 0.0, None, 4.0),), **known).run().requests()
    assert table.first_token_s[0] == pytest.approx(4 * (merge_s(1) + prefill_s(9)))


def test_a_straggler_loads_as_fast_as_ever() -> None:
    row = Row(0.0, 0, 9, 1, 1)
    table = case(row, stragglers=((0, 0.0, None, 4.0),)).run().requests()
    assert table.cold_start_s[0] == pytest.approx(load_s(1))


def test_loads_over_a_slow_link_take_longer_and_computing_does_not() -> None:
    rows = (Row(0.0, 0, 9, 1, 1), Row(5.0, 1, 9, 1, 1))
    table = case(*rows, replicas=1, slow_links=((0, 1.0, None, 8.0),)).run().requests()
    assert table.cold_start_s.tolist() == pytest.approx([load_s(1), 8 * load_s(1)])
    assert table.ttft_s[1] == pytest.approx(8 * load_s(1) + prefill_s(9))


def test_a_transfer_under_way_goes_on_as_it_began() -> None:
    table = (
        case(Row(0.0, 0, 9, 1, 1), replicas=1, slow_links=((0, load_s(1) / 2, None, 8.0),)).run().requests()
    )
    assert table.cold_start_s[0] == pytest.approx(load_s(1))


def test_what_goes_between_hosts_takes_as_long_as_on_the_slower_of_the_two() -> None:
    slow, usual = Link(), Link()
    slow.slowdown = 8.0
    assert together((slow, usual), 1.0, 0.5) == 1.0 + 8 * 0.5
    assert (slow.busy_s, usual.busy_s) == (4.0, 4.0), "both are taken all the while"
    assert together((usual, Link()), 5.0, 0.5) == 5.5


def test_a_host_with_slow_links_is_slow_to_give_and_to_take_over_the_network() -> None:
    of = case(
        ranks=(1, 1), adapter_pool="distributed", placement="contiguous", slow_links=((1, 0.0, None, 8.0),)
    )
    simulation = Simulation(of.but(rows=(Row(1.0, 0, 9, 1, 1),)).scenario())
    simulation.run()
    stores = simulation.store
    assert stores is not None
    assert [link.slowdown for link in stores._sends] == [1.0, 8.0]
    assert [link.slowdown for link in stores._receives] == [1.0, 8.0]
    assert [replica.host_link.to_host.slowdown for replica in simulation.fleet.replicas] == [
        1.0,
        8.0,
    ]
    stores.fail(1)
    assert [link.slowdown for link in stores._receives] == [1.0, 8.0], "also when it comes back"
    assert simulation.recorder.requests().cold_start_s[0] == pytest.approx(load_s(1)), (
        "the other's are as they were"
    )


def test_a_host_that_comes_back_is_as_slow_as_it_was() -> None:
    rows = (Row(3.0, 0, 9, 1, 1),)
    slow = {"stragglers": ((0, 0.0, None, 2.0),), "slow_links": ((0, 0.0, None, 8.0),)}
    table = case(*rows, replicas=1, failures=((0, 1.0, 2.0),), **slow).run().requests()
    assert table.ttft_s[0] == pytest.approx(8 * load_s(1) + 2 * prefill_s(9))


def test_so_is_each_of_its_replicas() -> None:
    rows = (Row(3.0, None, 9, 40, 40), Row(3.0, 0, 9, 1, 1))
    known = {"replicas": 2, "replicas_per_host": 2, "slow_links": ((0, 0.0, None, 8.0),)}
    table = case(*rows, failures=((0, 1.0, 2.0),), **known).run().requests()
    assert table.replica.tolist() == [0, 1]
    assert table.cold_start_s[1] == pytest.approx(8 * load_s(1))


def test_what_begins_when_the_one_before_it_ends_is_not_ended_with_it() -> None:
    """Whatever the order in which they are listed."""
    row = Row(2.5, 0, 9, 1, 1)
    slow = ((0, 2.0, 3.0, 4.0), (0, 1.0, 2.0, 2.0))
    table = case(row, replicas=1, stragglers=slow, slow_links=slow).run().requests()
    assert table.ttft_s[0] == pytest.approx(4 * load_s(1) + 4 * prefill_s(9))


def test_at_the_very_moment_of_a_boundary_the_next_step_is_slow() -> None:
    of = case(LONG, stragglers=((0, BEGIN_S + steps_s(5, 10), None, 2.0),))
    fast, plain = of.simulation(), of.simulation(fast_forward=False)
    assert_same(fast, plain)
    slow_s = BEGIN_S + steps_s(5, 10) + 2 * steps_s(34, 15)
    assert fast.recorder.requests().finish_s[0] == pytest.approx(slow_s)


def test_an_idle_replica_that_gets_slow_is_slow_when_it_has_work() -> None:
    table = (
        case(Row(2.0, None, 9, 1, 1), stragglers=((0, 1.0, 1.5, 2.0), (0, 1.75, None, 3.0))).run().requests()
    )
    assert table.ttft_s[0] == pytest.approx(3 * prefill_s(9))


@pytest.mark.parametrize(
    "changes, message",
    [
        (
            {"stragglers": ((2, 1.0, None, 2.0),)},
            "cluster.stragglers has replica 2, must be one of the 2 replicas, from 0 on",
        ),
        (
            {"stragglers": ((0, 1.0, None, 2.0), (0, 2.0, None, 2.0))},
            "cluster.stragglers has replica 0 at 2 s, when what began before is not over",
        ),
        (
            {"slow_links": ((2, 1.0, None, 2.0),)},
            "cluster.slow_links has host 2, must be one of the 2 hosts, from 0 on",
        ),
        (
            {"slow_links": ((0, 1.0, None, 0.0),)},
            "factor of cluster.slow_links is 0.0, must be greater than 0",
        ),
        (
            {"stragglers": ((0, 1.0, 0.5, 2.0),)},
            "until_s of cluster.stragglers is 0.5, must be greater than 1 seconds",
        ),
        (
            {"stragglers": ((0, 1.0, None, 2.0),), "engines_per_gpu": 2},
            "cluster.stragglers needs cluster.engines_per_gpu=1",
        ),
    ],
)
def test_what_cannot_be_is_said_plainly(changes: dict, message: str) -> None:
    with pytest.raises(InputError) as error:
        Simulation(case(LONG, **changes).scenario())
    assert str(error.value) == message
