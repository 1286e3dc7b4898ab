"""Replicas that are added and taken away: what it takes, where requests go, and what it costs."""

from __future__ import annotations

from math import inf

import numpy as np
import pytest

from simlora.core.errors import InputError
from simlora.core.request import Request
from simlora.engine.clock import ARRIVAL, Clock
from simlora.engine.cluster.cluster_view import LatencyHistory
from simlora.engine.cluster.simulation import Simulation
from simlora.policies.scaling.base import Autoscaler
from simlora.policies.views import FleetView
from tests.engine.by_hand import load_s, prefill_s, steps_s
from tests.engine.cases import AUTOSCALERS, Case, Row

BOOT_S = 2**-3


class Scripted(Autoscaler):
    """Wants these numbers of replicas, one a period, and the last of them from then on."""

    def __init__(self, *counts: int, period_s: float = 0.25) -> None:
        self.counts, self.period_s = list(counts), period_s
        self.seen: list[tuple[float, int]] = []
        self.waits_s: list[list[float]] = []

    def replicas(self, view: FleetView) -> int:
        self.seen.append((view.now_s, view.on))
        self.waits_s.append(view.waits_s.tolist())
        return self.counts.pop(0) if len(self.counts) > 1 else self.counts[0]


@pytest.fixture
def scripted(monkeypatch: pytest.MonkeyPatch):
    def scaled(*counts: int, rows: tuple[Row, ...], **changes: object) -> tuple[Simulation, Scripted]:
        policy = Scripted(*counts)
        monkeypatch.setitem(AUTOSCALERS, "scripted", lambda: policy)
        known = {"ranks": (1, 1), "replicas": 3, "kernel": "merged", "reserve": "full", "router": "most_idle"}
        known |= {"autoscaler": "scripted", "boot_s": BOOT_S}
        simulation = Simulation(Case(rows=rows, **(known | changes)).scenario())  # type: ignore[arg-type]
        simulation.run()
        return simulation, policy

    return scaled


def row(arrival_s: float, adapter: int | None = None, output_tokens: int = 40) -> Row:
    return Row(arrival_s, adapter, 9, output_tokens, output_tokens)


def lasts_s(output_tokens: int = 40) -> float:
    return prefill_s(9) + steps_s(output_tokens - 1, 10)


def scalings(simulation: Simulation) -> list[tuple[float, int, int, int, int]]:
    return [tuple(row[:5]) for row in simulation.recorder.journal.scaled]


def test_a_replica_that_is_on_at_first_need_not_boot(scripted) -> None:
    simulation, policy = scripted(2, rows=(row(0.0), row(0.0), row(0.0)))
    table = simulation.recorder.requests()
    assert sorted(table.replica) == [0, 0, 1]
    assert scalings(simulation) == [(0.0, 2, 2, 0, 0)]
    assert policy.seen[0] == (0.0, 1), "it is asked as if the least were on"


def test_a_new_replica_takes_requests_when_it_has_booted(scripted) -> None:
    """It is wanted at 0.25 s and there an eighth of a second later: a request that comes before goes to the first."""
    rows = (row(0.0), row(0.26), row(0.25 + BOOT_S + 0.01))
    simulation, _ = scripted(1, 2, rows=rows)
    assert simulation.recorder.requests().replica.tolist() == [0, 0, 1]
    assert scalings(simulation) == [(0.0, 1, 1, 0, 0), (0.25, 2, 1, 1, 0), (0.25 + BOOT_S, 2, 2, 0, 0)]


def test_a_new_replica_warms_up_with_the_ranks_that_it_holds(scripted) -> None:
    """Of three adapters the one of rank 8 is asked for most; the slots of the second replica are of rank 1."""
    rows = (*(row(0.0, 0) for _ in range(3)), row(0.0, 1), row(0.0, 2), row(0.5, 2))
    memory = {"adapter_memory": "slots", "max_loras": 3, "max_lora_rank": 8, "adapter_region_tokens": 3 * 32}
    own = {"max_lora_rank": 1, "max_loras": 2, "adapter_region_tokens": 2 * 4}
    known = {
        "ranks": (8, 1, 1),
        "replicas": 2,
        "others": 1,
        "own": own,
        "eviction": "lru",
        "warm_up_adapters": 2,
    }
    simulation, _ = scripted(1, 2, rows=rows, **known, **memory)
    assert sorted(simulation.fleet.caches[1].ready_s) == [1, 2]
    assert simulation.fleet.caches[1].adapter_tokens == 2 * 4
    assert simulation.recorder.requests().replica.tolist() == [0, 0, 0, 0, 0, 1]


def test_it_costs_from_the_start_of_its_boot_until_it_is_off(scripted) -> None:
    simulation, _ = scripted(1, 2, rows=(row(0.0, output_tokens=60),))
    ends_s = lasts_s(60)
    assert simulation.recorder.last_s == pytest.approx(ends_s)
    assert simulation.autoscaling.on_s.tolist() == pytest.approx([ends_s, ends_s - 0.25, 0.0])


def test_one_that_is_to_go_does_what_it_has_and_takes_nothing_more(scripted) -> None:
    """Of two the second is no longer wanted at 0.25 s; it finishes its request, while new ones go to the first."""
    rows = (
        row(0.0),
        row(0.0),
        row(0.3, output_tokens=1),
        row(0.3, output_tokens=1),
        row(2.0, output_tokens=1),
    )
    simulation, _ = scripted(2, 1, rows=rows)
    table = simulation.recorder.requests()
    assert table.replica.tolist() == [0, 1, 0, 0, 0]
    assert table.finish_s[1] == pytest.approx(lasts_s())
    assert simulation.autoscaling.on_s.tolist() == pytest.approx([simulation.recorder.last_s, lasts_s(), 0.0])
    draining = scalings(simulation)[1:]
    assert draining[0] == (0.25, 1, 1, 0, 1)
    assert draining[1][1:] == (1, 1, 0, 0)
    assert draining[1][0] == pytest.approx(lasts_s())


def test_one_that_has_nothing_to_do_is_off_at_once(scripted) -> None:
    simulation, _ = scripted(2, 1, rows=(row(0.0), row(3.0, output_tokens=1)))
    assert simulation.autoscaling.on_s[1] == pytest.approx(0.25)


def test_one_that_is_about_to_go_can_be_had_back_without_a_boot(scripted) -> None:
    rows = (row(0.0, output_tokens=60), row(0.0, output_tokens=60), row(0.51, output_tokens=1))
    simulation, _ = scripted(2, 1, 2, rows=rows)
    assert simulation.autoscaling.boots == 0
    assert [row[1:] for row in scalings(simulation)] == [(2, 2, 0, 0), (1, 1, 0, 1), (2, 2, 0, 0)]


def test_a_request_that_found_no_replica_goes_to_one_that_is_had_back(scripted) -> None:
    """The second is about to go when the host of the first fails; at the next look it is wanted after all."""
    rows = (row(0.0), row(0.0, output_tokens=60))
    simulation, _ = scripted(2, 1, rows=rows, replicas=2, failures=((0, 0.3, None),))
    table = simulation.recorder.requests()
    assert table.replica.tolist() == [1, 1]
    (moved,) = simulation.recorder.journal.moved
    assert moved.target == -1, "no replica took it at first"
    assert simulation.autoscaling.boots == 0


def test_a_boot_can_be_called_off(scripted) -> None:
    simulation, _ = scripted(1, 2, 1, rows=(row(0.0, output_tokens=60), row(2.0)), boot_s=1.0)
    assert simulation.recorder.requests().replica.tolist() == [0, 0]
    assert simulation.autoscaling.on_s[1] == pytest.approx(0.25), "which it cost nevertheless"


def test_of_two_boots_the_later_replica_s_is_called_off(scripted) -> None:
    rows = (row(0.0, output_tokens=60), row(1.1, output_tokens=1))
    simulation, _ = scripted(1, 3, 2, rows=rows, boot_s=0.5)
    assert simulation.recorder.requests().replica.tolist() == [0, 1]
    assert simulation.autoscaling.on_s[2] == pytest.approx(0.25)


def test_a_boot_that_is_called_off_forgets_what_it_was_loading(scripted) -> None:
    """At 0.5 s it is half way through its warm-up; the boot that begins at 0.75 s loads the adapter again."""
    rows = (row(0.0, 0, 60), row(2.0, output_tokens=1))
    known = {"boot_s": 0.25 - load_s(1) / 2, "warm_up_adapters": 1, "eviction": "lru"}
    simulation, _ = scripted(1, 2, 1, 2, rows=rows, **known)
    assert simulation.recorder.adapter_loads == 3


def test_one_that_is_to_go_does_all_that_it_has(scripted) -> None:
    rows = (row(0.0), row(0.0, output_tokens=60), row(0.0), row(0.0, output_tokens=30), row(4.0))
    simulation, _ = scripted(2, 1, rows=rows, replicas=2)
    table = simulation.recorder.requests()
    assert table.replica.tolist() == [0, 1, 0, 1, 0]
    assert simulation.autoscaling.on_s[1] == pytest.approx(table.finish_s[1])


def test_one_that_is_to_go_and_whose_host_fails_costs_until_then(scripted) -> None:
    rows = (row(0.0), row(0.0, output_tokens=60), row(2.0, output_tokens=1))
    simulation, _ = scripted(2, 1, 1, 2, rows=rows, replicas=2, failures=((1, 0.3, 0.6),))
    lasts_s = simulation.recorder.last_s
    assert simulation.autoscaling.on_s.tolist() == pytest.approx([lasts_s, 0.3 + lasts_s - 0.75])


def test_a_replica_that_comes_back_has_nothing_in_memory(scripted) -> None:
    """The second has adapter 1 until it goes; when it is there again it has to load it again."""
    known = {"placement": "contiguous", "eviction": "lru"}
    rows = (row(0.0, 1, 2), row(0.5, 0, 1), row(1.5, 1, 2), row(2.6, 1, 1))
    simulation, _ = scripted(2, 2, 2, 2, 1, 1, 1, 1, 1, 2, rows=rows, replicas=2, **known)
    table = simulation.recorder.requests()
    assert table.replica.tolist() == [1, 0, 0, 1], "a request whose replica is not there goes elsewhere"
    assert table.cold_start_s.tolist() == pytest.approx([load_s(1)] * 4)


def test_a_new_replica_loads_what_is_asked_for_most_before_it_takes_requests(scripted) -> None:
    """Adapter 1 was asked for twice, adapter 0 once, and there is time for one of them."""
    rows = (
        row(0.0, 0),
        row(0.0, 1),
        row(0.1, 1),
        row(0.25 + BOOT_S, 1, 1),
        row(0.26 + BOOT_S + load_s(1), 1, 1),
    )
    simulation, _ = scripted(1, 2, rows=rows, warm_up_adapters=1, eviction="lru")
    table = simulation.recorder.requests()
    assert table.replica.tolist() == [0, 0, 0, 0, 1]
    assert table.cold_start_s[4] == 0.0
    assert scalings(simulation)[-1][0] == pytest.approx(0.25 + BOOT_S + load_s(1))


def test_it_waits_for_all_that_it_loads(scripted) -> None:
    rows = (row(0.0, 0, 60), row(0.0, 1, 60))
    simulation, _ = scripted(1, 2, rows=rows, warm_up_adapters=2, eviction="lru")
    assert scalings(simulation)[-1][0] == pytest.approx(0.25 + BOOT_S + 2 * load_s(1))


def test_no_request_is_rejected_while_a_replica_can_still_be_added(scripted) -> None:
    """The only one fails for good before the first look; a request that comes then waits for the next to boot."""
    simulation, _ = scripted(1, rows=(row(0.2, output_tokens=1),), failures=((0, 0.1, None),))
    table = simulation.recorder.requests()
    assert table.status.tolist() == ["finished"]
    assert table.replica.tolist() == [1]
    assert table.first_token_s[0] == pytest.approx(0.25 + BOOT_S + prefill_s(9))


def test_but_they_are_when_every_host_is_gone_for_good(scripted) -> None:
    failures = tuple((host, 0.1 + host / 100, None) for host in range(3))
    simulation, _ = scripted(1, rows=(row(0.2),), failures=failures)
    assert simulation.recorder.requests().status.tolist() == ["rejected"]


def test_a_host_that_fails_takes_its_boots_with_it(scripted) -> None:
    simulation, _ = scripted(
        1, 2, rows=(row(0.0, output_tokens=99), row(1.2)), failures=((1, 0.3, 0.9),), boot_s=0.5
    )
    assert simulation.autoscaling.boots == 2, "the third boots instead"
    assert simulation.recorder.requests().replica.tolist() == [0, 2]
    assert simulation.autoscaling.on_s[1] == pytest.approx(0.3 - 0.25)


def test_what_an_autoscaler_sees(scripted) -> None:
    """How long waiting requests have waited, and the first tokens of those that have ended lately."""
    found: list[tuple[float, list[float], list[float]]] = []

    class Looks(Scripted):
        def replicas(self, view: FleetView) -> int:
            found.append((view.now_s, view.waits_s.tolist(), view.first_tokens_s(0.5).tolist()))
            return 1

    policy = Looks(1)
    AUTOSCALERS["looks"] = lambda: policy
    try:
        rows = (row(0.0, output_tokens=2), row(0.2), row(0.21))
        case = Case(
            rows=rows, kernel="merged", reserve="full", max_num_seqs=1, autoscaler="looks", replicas=2
        )
        Simulation(case.scenario()).run()
    finally:
        del AUTOSCALERS["looks"]
    assert found[0] == (0.0, [], [])
    assert found[1] == (0.25, pytest.approx([0.25 - 0.21]), pytest.approx([prefill_s(9)]))
    ended_s = prefill_s(9) + steps_s(1, 10)
    assert all(len(first) == 0 for now_s, _, first in found if ended_s + 0.5 <= now_s < 0.2 + lasts_s())


def test_without_an_autoscaler_all_are_on_all_the_time() -> None:
    case = Case(rows=(row(0.0),), kernel="merged", reserve="full", replicas=2)
    simulation = case.simulation()
    assert simulation.autoscaling.on_s.tolist() == pytest.approx([simulation.recorder.last_s] * 2)
    assert not simulation.recorder.journal.scaled


def test_a_run_that_is_stopped_has_cost_what_it_did_until_then(scripted) -> None:
    simulation, _ = scripted(1, 2, rows=(row(0.0, output_tokens=60),), until_s=0.5)
    assert simulation.autoscaling.on_s.tolist() == [0.5, 0.25, 0.0]


def test_a_run_that_would_have_been_stopped_later_costs_until_its_end(scripted) -> None:
    simulation, _ = scripted(2, rows=(row(0.0),), until_s=9.0)
    assert simulation.autoscaling.on_s.tolist() == pytest.approx([lasts_s(), lasts_s(), 0.0])


def test_a_replica_that_has_booted_when_all_is_over_is_not_noted_and_loads_nothing(scripted) -> None:
    simulation, _ = scripted(1, 2, rows=(row(0.0, 0),), boot_s=9.0, warm_up_adapters=1)
    assert scalings(simulation) == [(0.0, 1, 1, 0, 0), (0.25, 2, 1, 1, 0)]
    assert simulation.recorder.adapter_loads == 1
    assert simulation.autoscaling.on_s[1] == pytest.approx(simulation.recorder.last_s - 0.25)


def test_a_request_that_is_aborted_or_rejected_never_had_a_first_token() -> None:
    found: list[list[float]] = []

    class Looks(Scripted):
        def replicas(self, view: FleetView) -> int:
            found.append(view.first_tokens_s(9.0).tolist())
            return 1

    AUTOSCALERS["looks"] = lambda: Looks(1)
    try:
        known = {"kernel": "merged", "reserve": "full", "autoscaler": "looks", "replicas": 2}
        rows = (row(0.0), row(0.01))
        Simulation(Case(rows=rows, max_outstanding=1, **known).scenario()).run()
        turned_away = found.pop()
        late = (*rows, row(2.0), row(2.0, output_tokens=80))
        Case(rows=late, scheduler="early_abort", max_num_seqs=1, **known).simulation()
    finally:
        del AUTOSCALERS["looks"]
    assert turned_away == [inf]
    assert inf in found[-1]


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"engines_per_gpu": 3}, "an autoscaler needs cluster.engines_per_gpu=1"),
        ({"migrates_every_s": 1.0}, "an autoscaler needs migration=stay"),
        (
            {"adapter_memory": "padded", "adapter_region_tokens": 99},
            "an autoscaler needs replica.adapter_memory=unified, partition or slots",
        ),
        (
            {"least_replicas": 4},
            "cluster.least_replicas is 4, must be a whole number of replicas, at least 1 and at most 3",
        ),
    ],
)
def test_what_cannot_be_is_said_plainly(scripted, changes: dict, message: str) -> None:
    with pytest.raises(InputError) as error:
        scripted(1, rows=(row(0.0),), **changes)
    assert str(error.value) == message


def test_what_would_still_boot_costs_until_the_end_whatever_comes_later(scripted) -> None:
    simulation, _ = scripted(1, 2, rows=(row(0.0),), boot_s=9.0, failures=((1, 5.0, None),))
    assert simulation.autoscaling.on_s[1] == pytest.approx(lasts_s() - 0.25)


def test_only_a_replica_that_is_on_has_adapters_in_memory_from_the_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(AUTOSCALERS, "scripted", lambda: Scripted(1))
    case = Case(rows=(row(0.0, 0),), replicas=2, placement="burst_tolerance", autoscaler="scripted")
    held = [replica.kv.adapters.adapter_tokens > 0 for replica in Simulation(case.scenario()).fleet.replicas]
    assert held == [True, False]
    both = Simulation(case.but(autoscaler="fixed").scenario()).fleet.replicas
    assert all(replica.kv.adapters.adapter_tokens > 0 for replica in both)


def test_unassigned_requests_count_as_waiting(scripted) -> None:
    simulation, policy = scripted(1, rows=(row(0.2, output_tokens=1),), failures=((0, 0.1, 5.0),), replicas=1)
    assert policy.waits_s[1:3] == [[pytest.approx(0.05)], [pytest.approx(0.3)]]
    assert np.diff([seen_s for seen_s, _ in policy.seen]).tolist() == [0.25] * (len(policy.seen) - 1)
    assert simulation.recorder.requests().first_token_s[0] == pytest.approx(5.0 + prefill_s(9))


def test_first_tokens_are_those_of_the_window_whatever_was_asked_before() -> None:
    clock = Clock()
    history = LatencyHistory(clock, asks_for_executions=False)
    for end_s, first_token_s in ((1.0, 0.5), (2.0, -1.0), (4.0, 3.0)):
        request = Request(0, None, 0.0, 1, 1)
        request.first_token_s = first_token_s
        clock.call(end_s, ARRIVAL, 0, lambda request=request: history.add_ttft(0, request))
    clock.run(5.0)
    for window_s, ttfts_s in ((1.0, []), (4.0, [inf, 3.0]), (9.0, [0.5, inf, 3.0]), (0.5, [])):
        assert history.ttfts_s(window_s).tolist() == ttfts_s
