"""Replicas that are added and taken away: what it takes, where requests go, and what it costs."""

from math import inf

import numpy as np
import pytest

from simlora.engine.cluster.simulation import Simulation
from simlora.policies.scaling.base import Autoscaler
from simlora.policies.scaling.by_queue import ByQueue
from simlora.policies.views import FleetView
from tests.engine.by_hand import load_s, prefill_s, steps_s
from tests.engine.cases import Case, Row

BOOT_S = 2**-3


class Scripted(Autoscaler):
    """Wants these numbers of replicas, one a period, and the last of them from then on; keeps what it saw."""

    def __init__(self, *counts: int, tokens_of_s: float = 9.0) -> None:
        self.counts, self.period_s, self.tokens_of_s = list(counts), 0.25, tokens_of_s
        self.seen: list[tuple[float, int]] = []
        self.waits_s: list[list[float]] = []
        self.first_tokens_s: list[list[float]] = []
        self.adapters: list[int] = []

    def replicas(self, view: FleetView) -> int:
        self.seen.append((view.now_s, view.desired))
        self.waits_s.append(view.waits_s.tolist())
        self.first_tokens_s.append(view.first_tokens_s(self.tokens_of_s).tolist())
        self.adapters.append(view.adapters_in_use)
        self.changes = list(view.scaled)
        return self.counts.pop(0) if len(self.counts) > 1 else self.counts[0]


CASE = Case(ranks=(1, 1), replicas=3, kernel="merged", reserve="full", router="most_idle", boot_s=BOOT_S)


def case(rows: tuple[Row, ...], scaler: Autoscaler, **changes: object) -> Case:
    return CASE.of(*rows, autoscaler=scaler, **changes)


def scripted(*counts: int, rows: tuple[Row, ...], **changes: object) -> Simulation:
    return case(rows, Scripted(*counts), **changes).simulation()


def row(arrival_s: float, adapter: int | None = None, output_tokens: int = 40) -> Row:
    return Row(arrival_s, adapter, 9, output_tokens, output_tokens)


def long(adapter: int | None = None) -> Row:
    return row(0.0, adapter, 60)


def lasts_s(output_tokens: int = 40) -> float:
    return prefill_s(9) + steps_s(output_tokens - 1, 10)


def went(simulation: Simulation) -> list[int]:
    """Where each request went."""
    return simulation.recorder.requests().replica.tolist()


def scalings(simulation: Simulation) -> list[tuple[float, int, int, int, int]]:
    """When, and how many replicas are on, serve, boot and drain."""
    return [tuple(row[:5]) for row in simulation.recorder.journal.scaled]


def test_a_replica_that_is_on_at_first_need_not_boot():
    scaler = Scripted(2)
    simulation = case((row(0.0),) * 3, scaler).simulation()
    assert sorted(went(simulation)) == [0, 0, 1]
    assert scalings(simulation) == [(0.0, 2, 2, 0, 0)]
    assert scaler.seen[0] == (0.0, 1), "it is asked as if the least were on"


@pytest.mark.parametrize(
    "counts, output_tokens, changes, on_s",
    [
        ((1, 2), 60, {}, [lasts_s(60), lasts_s(60) - 0.25, 0.0]),
        ((1, 2), 60, {"until_s": 0.5}, [0.5, 0.25, 0.0]),
        ((2,), 40, {"until_s": 9.0}, [lasts_s(), lasts_s(), 0.0]),
        ((1, 2, 1), 60, {"boot_s": 1.0}, [lasts_s(60), 0.25, 0.0]),
        ((1, 2), 40, {"boot_s": 9.0, "failures": ((1, 5.0, None),)}, [lasts_s(), lasts_s() - 0.25, 0.0]),
        ((1, 2), 40, {"boot_s": 9.0, "failures": ((1, 0.3, 9.0),)}, [lasts_s(), 0.3 - 0.25, None]),
    ],
    ids=[
        "from the start of its boot",
        "until the run is stopped",
        "or ends",
        "until its boot is called off",
        "whatever comes after the end",
        "until its host fails",
    ],
)
def test_a_replica_costs_from_the_start_of_its_boot_until_it_is_off(counts, output_tokens, changes, on_s):
    simulation = scripted(*counts, rows=(row(0.0, output_tokens=output_tokens),), **changes)
    found = simulation.autoscaling.on_s.tolist()
    assert found[:2] == pytest.approx(on_s[:2])
    assert on_s[2] in (None, pytest.approx(found[2]))


def test_one_that_is_to_go_does_all_that_it_has_and_takes_nothing_more():
    """Of two the second is no longer wanted at 0.25 s; it finishes its requests, while new ones go to the first."""
    rows = (row(0.0), row(0.0), *(row(0.3, output_tokens=1) for _ in range(2)), row(2.0, output_tokens=1))
    simulation = scripted(2, 1, rows=rows)
    assert went(simulation) == [0, 1, 0, 0, 0]
    assert simulation.autoscaling.on_s.tolist() == pytest.approx([simulation.recorder.last_s, lasts_s(), 0.0])
    drains, off = scalings(simulation)[1:]
    assert (drains, off) == ((0.25, 1, 1, 0, 1), (pytest.approx(lasts_s()), 1, 1, 0, 0))
    idle = scripted(2, 1, rows=(row(0.0), row(3.0, output_tokens=1)))
    assert idle.autoscaling.on_s[1] == pytest.approx(0.25), "at once"


def test_one_that_is_about_to_go_can_be_had_back_without_a_boot():
    simulation = scripted(2, 1, 2, rows=(long(), long(), row(0.51, output_tokens=1)))
    assert simulation.autoscaling.boots == 0
    assert [row[1:] for row in scalings(simulation)] == [(2, 2, 0, 0), (1, 1, 0, 1), (2, 2, 0, 0)]


def test_a_request_that_found_no_replica_goes_to_one_that_is_had_back():
    """The second is about to go when the host of the first fails; at the next look it is wanted after all."""
    simulation = scripted(2, 1, rows=(row(0.0), long()), replicas=2, failures=((0, 0.3, None),))
    assert went(simulation) == [1, 1]
    (moved,) = simulation.recorder.journal.moved
    assert moved.target == -1, "no replica took it at first"
    assert simulation.autoscaling.boots == 0


@pytest.mark.parametrize(
    "counts, boot_s, late, replicas", [((1, 2, 1), 1.0, row(2.0), [0, 0]), ((1, 3, 2), 0.5, row(1.1), [0, 1])]
)
def test_of_boots_the_later_replicas_are_called_off(counts, boot_s, late, replicas):
    assert went(scripted(*counts, rows=(long(), late), boot_s=boot_s)) == replicas


def test_a_boot_that_is_called_off_forgets_what_it_was_loading():
    """At 0.5 s it is half way through its warm-up; the boot that begins at 0.75 s loads the adapter again."""
    known = {"boot_s": 0.25 - load_s(1) / 2, "warm_up_adapters": 1, "eviction": "lru"}
    simulation = scripted(1, 2, 1, 2, rows=(long(0), row(2.0, output_tokens=1)), **known)
    assert simulation.recorder.adapter_loads == 3


def test_one_that_is_to_go_and_whose_host_fails_costs_until_then():
    rows = (row(0.0), long(), row(2.0, output_tokens=1))
    simulation = scripted(2, 1, 1, 2, rows=rows, replicas=2, failures=((1, 0.3, 0.6),))
    end_s = simulation.recorder.last_s
    assert simulation.autoscaling.on_s.tolist() == pytest.approx([end_s, 0.3 + end_s - 0.75])


def test_a_host_that_fails_takes_its_boots_with_it():
    rows = (row(0.0, output_tokens=99), row(1.2))
    simulation = scripted(1, 2, rows=rows, failures=((1, 0.3, 0.9),), boot_s=0.5)
    assert simulation.autoscaling.boots == 2, "the third boots instead"
    assert went(simulation) == [0, 2]


# Warming up ---------------------------------------------------------------------------------


def test_a_new_replica_loads_what_is_asked_for_most_before_it_takes_requests():
    """Adapter 1 was asked for twice, adapter 0 once, and there is time for one of them."""
    booted_s = 0.25 + BOOT_S
    rows = (
        row(0.0, 0),
        row(0.0, 1),
        row(0.1, 1),
        row(booted_s, 1, 1),
        row(booted_s + 0.01 + load_s(1), 1, 1),
    )
    simulation = scripted(1, 2, rows=rows, warm_up_adapters=1, eviction="lru")
    assert went(simulation) == [0, 0, 0, 0, 1]
    assert simulation.recorder.requests().cold_start_s[4] == 0.0
    assert scalings(simulation)[-1][0] == pytest.approx(booted_s + load_s(1))
    both = scripted(1, 2, rows=(long(0), long(1)), warm_up_adapters=2, eviction="lru")
    assert scalings(both)[-1][0] == pytest.approx(booted_s + 2 * load_s(1)), "all that it loads"


def test_a_new_replica_warms_up_with_the_ranks_that_it_holds():
    """Of three adapters the one of rank 8 is asked for most; the slots of the second replica are of rank 1."""
    rows = (*(row(0.0, 0) for _ in range(3)), row(0.0, 1), row(0.0, 2), row(0.5, 2))
    memory = {"adapter_memory": "slots", "max_loras": 3, "max_lora_rank": 8, "adapter_region_tokens": 3 * 32}
    own = {"max_lora_rank": 1, "max_loras": 2, "adapter_region_tokens": 2 * 4}
    known = {"ranks": (8, 1, 1), "replicas": 2, "others": 1, "own": own, "eviction": "lru"}
    simulation = scripted(1, 2, rows=rows, warm_up_adapters=2, **known, **memory)
    assert sorted(simulation.fleet.caches[1].ready_s) == [1, 2]
    assert simulation.fleet.caches[1].adapter_tokens == 2 * 4
    assert went(simulation) == [0, 0, 0, 0, 0, 1]


def test_a_replica_that_has_booted_when_all_is_over_is_not_noted_and_loads_nothing():
    simulation = scripted(1, 2, rows=(row(0.0, 0),), boot_s=9.0, warm_up_adapters=1)
    assert scalings(simulation) == [(0.0, 1, 1, 0, 0), (0.25, 2, 1, 1, 0)]
    assert simulation.recorder.adapter_loads == 1
    assert simulation.autoscaling.on_s[1] == pytest.approx(simulation.recorder.last_s - 0.25)


@pytest.mark.parametrize("scaler, held", [(Scripted(1), [True, False]), ("fixed", [True, True])])
def test_only_a_replica_that_is_on_has_adapters_in_memory_from_the_start(scaler, held):
    of = Case(rows=(row(0.0, 0),), replicas=2, placement="burst_tolerance", autoscaler=scaler)
    replicas = Simulation(of.scenario()).fleet.replicas
    assert [replica.kv.adapters.adapter_tokens > 0 for replica in replicas] == held


# No replica left ----------------------------------------------------------------------------


def test_no_request_is_rejected_while_a_replica_can_still_be_added():
    """The only one fails for good before the first look; a request that comes then waits for the next to boot."""
    simulation = scripted(1, rows=(row(0.2, output_tokens=1),), failures=((0, 0.1, None),))
    assert went(simulation) == [1]
    assert simulation.recorder.requests().first_token_s[0] == pytest.approx(0.25 + BOOT_S + prefill_s(9))
    gone = tuple((host, 0.1 + host / 100, None) for host in range(3))
    assert case((row(0.2),), Scripted(1), failures=gone).table().status.tolist() == ["rejected"]


# To zero, and from it -----------------------------------------------------------------------


def test_a_request_that_finds_no_replica_has_the_first_one_boot_whatever_the_autoscaler_wants():
    simulation = scripted(0, rows=(row(0.1, output_tokens=1),), least_replicas=0)
    assert scalings(simulation) == [(0.0, 0, 0, 0, 0), (0.1, 1, 0, 1, 0), (0.1 + BOOT_S, 1, 1, 0, 0)]
    assert simulation.recorder.requests().first_token_s[0] == pytest.approx(0.1 + BOOT_S + prefill_s(9))
    assert simulation.autoscaling.on_s.tolist() == pytest.approx([BOOT_S + prefill_s(9), 0.0, 0.0])


def test_without_requests_none_is_on_until_the_next_one():
    """The first look after the request, at 0.25 s, knows of it; the next one finds nothing since."""
    rows = (row(0.0, output_tokens=1), row(2.0, output_tokens=1))
    simulation = scripted(1, 0, rows=rows, least_replicas=0)
    assert [(at_s, on) for at_s, on, *_ in scalings(simulation)][:3] == [(0.0, 1), (0.5, 0), (0.5, 0)]
    assert simulation.autoscaling.boots == 1
    paid_s = 0.5 + BOOT_S + prefill_s(9)
    assert simulation.autoscaling.on_s.tolist() == pytest.approx([paid_s, 0.0, 0.0])


def test_one_stays_while_a_request_runs():
    simulation = scripted(1, 0, rows=(long(),), least_replicas=0)
    assert scalings(simulation) == [(0.0, 1, 1, 0, 0)]


def test_the_next_one_boots_where_the_host_of_the_first_fails_while_it_boots():
    rows = (row(0.1, output_tokens=1),)
    simulation = scripted(0, rows=rows, least_replicas=0, boot_s=0.2, failures=((0, 0.15, None),))
    assert went(simulation) == [1]
    assert simulation.recorder.requests().first_token_s[0] == pytest.approx(0.15 + 0.2 + prefill_s(9))


# Hosts that fail, and limits ----------------------------------------------------------------


def test_a_failed_replica_is_replaced_at_the_next_decision_and_one_too_many_when_its_host_is_back():
    """Two are wanted all the time. The second fails at 0.3 s, the third takes its place, and goes after 0.9 s."""
    scaler = Scripted(2)
    simulation = case((long(), row(2.0)), scaler, failures=((1, 0.3, 0.9),)).simulation()
    assert scaler.changes == [], "the number that it wants has not changed"
    assert scalings(simulation)[:5] == [
        (0.0, 2, 2, 0, 0),
        (0.3, 1, 1, 0, 0),
        (0.5, 2, 1, 1, 0),
        (0.5 + BOOT_S, 2, 2, 0, 0),
        (0.9, 3, 3, 0, 0),
    ]
    assert scalings(simulation)[5][:2] == (1.0, 2)


def test_limits_hold_for_changes_of_the_number_and_not_for_replacements():
    """One more in a second, whatever is asked for; of two that fail both are replaced at once."""
    scaler = ByQueue(target_requests=1, period_s=0.25, up_replicas=1, up_period_s=1.0)
    rows = tuple(row(0.0, output_tokens=400) for _ in range(4))
    simulation = case(rows, scaler, replicas=6, failures=((0, 2.3, None), (1, 2.3, None))).simulation()
    decided = [(at_s, on) for at_s, on, *_ in scalings(simulation) if at_s % 0.25 == 0]
    assert decided[:4] == [(0.0, 1), (0.25, 2), (1.25, 3), (2.25, 4)]
    assert (2.5, 4) in decided, "two of the four were gone"


# What an autoscaler sees --------------------------------------------------------------------


def test_its_own_changes_as_far_as_the_cluster_followed_them():
    """Of five wanted three can be, and of none one stays; what stays the same is no change."""
    scaler = Scripted(1, 5, 2, 2, 0)
    case((long(), row(2.0)), scaler).run()
    assert scaler.changes == [(0.25, 2), (0.5, -1), (1.0, -1)]


def test_a_boot_from_zero_is_not_a_change_of_its_own():
    scaler = Scripted(0, 0, 2)
    case((row(0.1), row(3.0)), scaler, least_replicas=0).run()
    assert scaler.changes == [(0.5, 1)]


def test_the_adapters_that_requests_ask_for_wherever_they_are():
    """Two requests of an adapter run and wait, and one of another waits; the base model is none."""
    scaler = Scripted(1)
    rows = (row(0.0, 0), row(0.0), row(0.1, 0), row(0.2, 1))
    case(rows, scaler, max_num_seqs=2, replicas=2).run()
    assert scaler.adapters[:2] == [0, 2]


def test_how_long_requests_have_waited_and_the_first_tokens_of_those_that_have_ended_lately():
    scaler = Scripted(1, tokens_of_s=0.5)
    rows = (row(0.0, output_tokens=2), row(0.2), row(0.21))
    case(rows, scaler, max_num_seqs=1, replicas=2).run()
    assert (scaler.waits_s[:2], scaler.first_tokens_s[0]) == ([[], [pytest.approx(0.25 - 0.21)]], [])
    assert scaler.first_tokens_s[1] == pytest.approx([prefill_s(9)])
    between = [lasts_s(2) + 0.5 <= now_s < 0.2 + lasts_s() for now_s, _ in scaler.seen]
    late = [found for found, lies in zip(scaler.first_tokens_s, between, strict=True) if lies]
    assert late == [[]] * len(late) != []


def test_a_request_that_is_aborted_or_rejected_never_had_a_first_token():
    turns_away, aborts = Scripted(1), Scripted(1)
    rows = (row(0.0), row(0.01))
    case(rows, turns_away, max_outstanding=1, replicas=2).run()
    assert turns_away.first_tokens_s[-1] == [inf]
    late = (*rows, row(2.0), row(2.0, output_tokens=80))
    case(late, aborts, scheduler="early_abort", max_num_seqs=1, replicas=2).run()
    assert inf in aborts.first_tokens_s[-1]


def test_requests_without_a_replica_count_as_waiting():
    scaler = Scripted(1)
    table = case((row(0.2, output_tokens=1),), scaler, failures=((0, 0.1, 5.0),), replicas=1).table()
    assert scaler.waits_s[1:3] == [[pytest.approx(0.05)], [pytest.approx(0.3)]]
    assert np.diff([seen_s for seen_s, _ in scaler.seen]).tolist() == [0.25] * (len(scaler.seen) - 1)
    assert table.first_token_s[0] == pytest.approx(5.0 + prefill_s(9))
