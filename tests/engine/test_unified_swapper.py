"""KV and adapters that leave HBM for the host and come back: what waits for which copy, and when the swapper checks.

Times are sums by hand: to copy takes 2^-8 s, unless the link is busy anyway, and 2^-10 s a token of KV.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import accumulate
from math import log
from typing import Any

import pytest

from experiments.torture.watch import watched
from simlora.core.request import Request
from simlora.engine.cluster.simulation import Simulation
from simlora.engine.parts.unified_swapper import KvWorth, SwappedKV, UnifiedSwapper
from simlora.engine.replica.part import Part
from simlora.engine.replica.replica import Replica
from simlora.memory.segments import Branch, Segment
from simlora.policies.eviction.banded_lru import BandedLru
from simlora.policies.eviction.cost_model import CostModel
from simlora.policies.eviction.swapper import Swapper
from tests.engine.by_hand import chunks_s, load_s, prefill_s, step_s, steps_s
from tests.engine.cases import COEFFICIENTS as C
from tests.engine.cases import Case, Row

LATENCY_S = C["adapter_load.latency_s"]
NEVER: dict[str, Any] = {"every_s": 1000.0, "idle": 0.0, "idle_to": 0.0}
"""A swapper that makes room where it is needed, and nothing else."""


def copy_s(tokens: int) -> float:
    """Seconds to copy the KV of so many tokens behind something else."""
    return tokens * 16 / C["adapter_load.bytes_per_s"]


def case(*rows: Row, hashes: tuple[tuple[int, ...], ...] | None = None, **changes: object) -> Case:
    """Cached KV, a large host, LoRA whose kernels cost nothing, a queue that is looked at after every step."""
    known: dict[str, Any] = {"kernel": "merged", "reserve": "full", "max_wait_tokens": 0, "eviction": "lru"}
    host = {"prefix_caching": True, "host_kv_tokens": 10_000, "block_hashes": hashes}
    return Case(rows=rows, **(known | host | changes))


def banded(tokens: int) -> Callable[[], Swapper]:
    """The least recently used leaves, at second 3, until HBM of a hundred slots holds so many."""
    return lambda: BandedLru(every_s=3.0, idle=0.0, idle_to=0.0, busy=tokens / 100, busy_to=tokens / 100)


class Ran:
    """A case after its run, with a swapper made for it if there is one."""

    def __init__(
        self,
        of: Case,
        swapper: Callable[[], Swapper] | None = None,
        fast: bool = True,
        parts: tuple[type[Part], ...] = (),
        **replica: object,
    ) -> None:
        scenario = replace(of.scenario(fast_forward=fast), parts=parts)
        policies = scenario.policies if swapper is None else replace(scenario.policies, eviction=swapper)
        self.simulation = Simulation(
            replace(scenario, policies=policies, replica=replace(scenario.replica, **replica))  # type: ignore[arg-type]
        )
        self.recorder = self.simulation.run()
        self.table = self.recorder.requests()
        self._replica = self.simulation.fleet.replicas[0]
        self.link, self.cache = self._replica.host_link, self._replica.kv.adapters
        tree = self._replica.kv.tree
        assert tree is not None
        self.tree = tree

    @property
    def swapper(self) -> UnifiedSwapper:
        found = self._replica.part(UnifiedSwapper)
        assert found is not None
        return found

    @property
    def kv_cold_start_s(self) -> list[float]:
        return self.table.kv_cold_start_s.tolist()

    @property
    def ready_s(self) -> list[float]:
        """When each adapter was there; all are resident."""
        return [self.cache.ready_s[adapter.id] for adapter in self.simulation.adapters]

    @property
    def resident(self) -> list[int]:
        """Ids of the adapters in HBM."""
        return [adapter.id for adapter in self.simulation.adapters if adapter in self.cache]

    def cached(self, *hashes: int, adapter: int | None = None) -> list[bool]:
        """Of the blocks that a request would find, which are in HBM."""
        of = None if adapter is None else self.simulation.adapters[adapter]
        new = Request(999, of, 0.0, 4 * len(hashes) + 1, 1, None, hashes)
        return [segment.resident for segment in self.tree.claim_prefix(new) for _ in segment.blocks]


# Back from the host -------------------------------------------------------------------------

FIRST, THROWS_OUT, AGAIN = (Row(t, None, prompt, 2, 2) for t, prompt in ((0.0, 9), (4.0, 15), (8.0, 9)))
TWICE = case(FIRST, THROWS_OUT, AGAIN, hashes=((1, 4), (), (1, 4)), capacity=20)
"""Twenty slots: the second needs 17, and the first one's eight go. The third begins with them."""


def test_kv_from_the_host_comes_in_the_time_of_a_copy_and_is_not_prefilled_again() -> None:
    ran = Ran(TWICE)
    assert ran.table.cached_tokens.tolist() == [0, 0, 8]
    assert ran.table.ttft_s[2] == pytest.approx(LATENCY_S + copy_s(8) + chunks_s((8, 1)))
    assert ran.kv_cold_start_s[2] == pytest.approx(LATENCY_S + copy_s(8))
    assert ran.table.cold_start_s[2] == 0.0, "that is what adapters are waited for"


def test_without_a_host_it_is_prefilled_again() -> None:
    ran = Ran(TWICE.but(host_kv_tokens=0))
    assert ran.table.cached_tokens.tolist() == [0, 0, 0]
    assert ran.table.ttft_s[2] == pytest.approx(prefill_s(9))
    assert ran.kv_cold_start_s == [0.0, 0.0, 0.0]


@pytest.mark.parametrize(
    "eviction, host_tokens, found",
    [
        ("lru", 0, 8),
        ("lru", 4, 8),
        ("lru", 12, 20),
        ("banded_lru", 0, 0),
        ("banded_lru", 19, 0),
        ("banded_lru", 20, 20),
        ("cost_model", 0, 0),
        ("cost_model", 20, 20),
    ],
)
def test_a_session_answers_whatever_has_become_of_its_kv(eviction: str, host_tokens: int, found: int) -> None:
    """Another leaves nine of fifty slots: two of its five blocks, or none where all are one thing."""
    rows = (Row(0.0, None, 15, 6, 6), Row(4.0, None, 40, 1, 1), Row(8.0, None, 30, 3, 3))
    ran = Ran(
        case(*rows, sessions=("s", None, "s"), capacity=50, host_kv_tokens=host_tokens, eviction=eviction)
    )
    assert ran.table.status.tolist() == ["finished"] * 3
    assert ran.table.cached_tokens[2] == found


LONG = Row(8.0, None, 1, 20, 20)
COMES = Row(8.01, None, 33, 2, 2)
BESIDE = case(
    Row(0.0, None, 33, 1, 1),
    Row(4.0, None, 57, 2, 2),
    LONG,
    COMES,
    hashes=(tuple(range(1, 9)), (), (), tuple(range(1, 9))),
    capacity=60,
)
"""The first one's 32 tokens go for the second; the fourth begins with them, while the third decodes."""


def test_a_replica_waits_for_kv_where_it_waits_for_weights() -> None:
    ran = Ran(BESIDE)
    boundary_s = 8.0 + prefill_s(1)
    ready_s = boundary_s + LATENCY_S + copy_s(32)
    assert ran.table.admitted_s[3] == pytest.approx(ready_s)
    assert ran.table.first_token_s[3] == pytest.approx(ready_s + chunks_s((32, 1)))
    assert ran.kv_cold_start_s[3] == pytest.approx(LATENCY_S + copy_s(32))
    second_s = step_s(2, 34)  # the fourth's only step
    alone_s = 8.0 + prefill_s(1) + steps_s(18, 3)
    assert ran.table.finish_s[2] == pytest.approx(
        alone_s + LATENCY_S + copy_s(32) + chunks_s((32, 1)) + second_s
    )


def test_the_batch_goes_on_where_it_goes_on_beside_weights() -> None:
    """The copy takes two steps and a part of a third."""
    ran = Ran(BESIDE.but(loader="asynchronous"))
    steps_until = list(accumulate((step_s(2), step_s(3), step_s(4)), initial=8.0 + prefill_s(1)))
    asked_s, begins_s = steps_until[0], steps_until[3]
    assert steps_until[2] < asked_s + LATENCY_S + copy_s(32) < begins_s
    assert ran.table.admitted_s[3] == pytest.approx(begins_s)
    assert ran.table.first_token_s[3] == pytest.approx(begins_s + chunks_s((32, 1)))
    assert ran.kv_cold_start_s[3] == pytest.approx(LATENCY_S + copy_s(32))
    finish_s = begins_s + chunks_s((32, 1)) + step_s(5, 34) + steps_s(15, 6)
    assert ran.table.finish_s[2] == pytest.approx(finish_s)


def test_a_request_that_shares_kv_on_its_way_waits_for_the_rest_of_the_copy() -> None:
    """It comes a boundary later."""
    rows = (Row(0.0, None, 33, 1, 1), Row(4.0, None, 87, 2, 2), LONG, COMES, COMES._replace(arrival_s=8.02))
    ran = Ran(case(*rows, sessions=("s", None, None, "s", "s"), capacity=90, loader="asynchronous"))
    asked_s = 8.0 + prefill_s(1)
    ready_s = asked_s + LATENCY_S + copy_s(32)
    assert ran.kv_cold_start_s[3:] == pytest.approx([ready_s - asked_s, ready_s - asked_s - step_s(2)])
    assert ran.table.admitted_s[4] == ran.table.admitted_s[3]


# Two things on one link ---------------------------------------------------------------------

ADAPTERS = (Row(0.0, 0, 9, 2, 2), Row(4.0, None, 30, 2, 2), Row(8.0, 0, 9, 2, 2))


@pytest.mark.parametrize("loader", ["blocking", "asynchronous"])
def test_a_cold_start_is_for_the_adapter_first_and_for_kv_behind_it(loader: str) -> None:
    """The second copy on a link that is busy anyway has nothing to wait for but its bytes."""
    ran = Ran(case(*ADAPTERS, hashes=((1, 4), (), (1, 4)), capacity=32, eviction="on_demand", loader=loader))
    assert ran.table.cold_start_s[2] == pytest.approx(load_s(1))
    assert ran.kv_cold_start_s[2] == pytest.approx(copy_s(8))
    assert ran.table.ttft_s[2] == pytest.approx(load_s(1) + copy_s(8) + chunks_s((8, 1)))


def test_where_the_adapter_costs_nothing_kv_does() -> None:
    ran = Ran(
        case(*ADAPTERS, hashes=((1, 4), (), (1, 4)), capacity=32, eviction="on_demand", loader="cached")
    )
    assert ran.table.cold_start_s[2] == 0.0
    assert ran.kv_cold_start_s[2] == pytest.approx(LATENCY_S + copy_s(8))


BOTH = case(
    *(Row(t, None, 9, 1, 1) for t in (0.0, 1.0)),
    Row(4.0, None, 30, 2, 2),
    *(Row(8.0, None, 9, 2, 2) for _ in range(2)),
    hashes=((1, 4), (2, 7), (), (1, 4), (2, 7)),
    capacity=32,
)
"""The third throws out two things of eight tokens, and two requests begin with one of them each."""


def test_two_copies_the_same_way_wait_for_each_other_and_pay_the_latency_once() -> None:
    ran = Ran(BOTH)
    assert ran.kv_cold_start_s[3:] == pytest.approx([LATENCY_S + copy_s(8), LATENCY_S + copy_s(16)])
    assert ran.table.admitted_s.tolist()[3:] == pytest.approx([8.0 + LATENCY_S + copy_s(16)] * 2)
    assert ran.link.to_gpu.busy_s == pytest.approx(LATENCY_S + copy_s(16))
    assert ran.link.to_host.busy_s == pytest.approx(LATENCY_S + copy_s(16))
    assert ran.link.kv_tokens_out == 16


def test_a_request_whose_kv_is_there_begins_while_another_waits_for_its_own() -> None:
    ran = Ran(BOTH.but(loader="asynchronous"))
    first_s = 8.0 + LATENCY_S + copy_s(8)
    assert ran.table.admitted_s[3] == pytest.approx(first_s)
    assert ran.table.admitted_s[4] == pytest.approx(first_s + chunks_s((8, 1)))
    assert ran.kv_cold_start_s[3:] == pytest.approx([LATENCY_S + copy_s(8), LATENCY_S + copy_s(16)])


def test_copies_in_the_two_directions_do_not_wait_for_each_other() -> None:
    """At second 6, eight tokens go that are too many; at second 12, forty others, which takes four times as long as
    what comes then.
    """
    rows = (
        Row(0.0, None, 9, 1, 1),
        Row(1.0, None, 41, 1, 1),
        Row(7.0, None, 9, 1, 1),
        Row(12.0, None, 9, 1, 1),
    )
    hashes = ((1, 4), tuple(range(20, 30)), (2, 7), (1, 4))
    swapper = BandedLru(every_s=6.0, busy=0.45, busy_to=0.4, idle=0.0, idle_to=0.0)
    ran = Ran(case(*rows, hashes=hashes, capacity=100), lambda: swapper)
    assert ran.link.kv_tokens_out == 48
    assert ran.link.to_host.busy_s == pytest.approx(2 * LATENCY_S + copy_s(48))
    assert ran.table.cached_tokens[3] == 8
    assert ran.table.ttft_s[3] == pytest.approx(LATENCY_S + copy_s(8) + chunks_s((8, 1)))


# Slots on their way out ---------------------------------------------------------------------


@pytest.mark.parametrize("capacity, leaves", [(20, 8), (24, 4), (25, 0)])
def test_a_request_that_takes_the_slots_of_kv_that_leaves_waits_until_it_has_left(
    capacity: int, leaves: int
) -> None:
    """Of 17 slots for the second, three, one or none are the first one's."""
    ran = Ran(TWICE.but(capacity=capacity))
    waits_s = LATENCY_S + copy_s(leaves) if leaves else 0.0
    assert ran.link.kv_tokens_out == leaves
    assert ran.table.ttft_s[1] == pytest.approx(waits_s + prefill_s(15))
    assert ran.kv_cold_start_s[1] == pytest.approx(waits_s)


@pytest.mark.parametrize("loader", ["blocking", "asynchronous"])
@pytest.mark.parametrize("fast", [True, False])
def test_a_step_that_writes_to_such_slots_waits_too(loader: str, fast: bool) -> None:
    """24 of 40 slots are left. A context of 9 + 16 needs 28, one of 9 + 20 needs 32: each time a block has to go."""
    rows = (Row(0.0, None, 17, 1, 1), Row(4.0, None, 9, 24, 24))
    grows = case(*rows, hashes=((1, 2, 3, 4), ()), capacity=40, reserve="paged", watermark=0.0, loader=loader)
    ran = Ran(grows, fast=fast)
    assert ran.link.kv_tokens_out == 8
    unhindered_s = 4.0 + prefill_s(9) + steps_s(23, 10)
    assert ran.table.finish_s[1] == pytest.approx(unhindered_s + 2 * (LATENCY_S + copy_s(4)))
    assert Ran(grows.but(host_kv_tokens=0)).table.finish_s[1] == pytest.approx(unhindered_s)


def test_an_adapter_is_written_to_slots_that_are_left() -> None:
    """8 of 40 slots are free: four for KV, and four of the adapter's eight."""
    rows = (Row(0.0, None, 33, 1, 1), Row(4.0, 1, 1, 3, 3))
    ran = Ran(case(*rows, hashes=(tuple(range(1, 9)), ()), capacity=40))
    assert ran.table.cold_start_s[1] == pytest.approx(LATENCY_S + copy_s(4) + load_s(2))
    assert ran.kv_cold_start_s[1] == 0.0


def test_a_request_has_its_slots_before_anothers_adapter_has() -> None:
    """16 slots for KV, of which eight are to be left first, then four for the adapter, which are left later."""
    rows = (Row(0.0, None, 33, 1, 1), Row(4.0, None, 9, 3, 3), Row(4.0, 0, 1, 3, 3))
    hashes = (tuple(range(1, 9)), (), ())
    together = case(*rows, hashes=hashes, capacity=40, loader="asynchronous")
    ran = Ran(together)
    assert ran.table.admitted_s[1] == pytest.approx(4.0 + LATENCY_S + copy_s(8))
    assert ran.kv_cold_start_s[1] == pytest.approx(LATENCY_S + copy_s(8))
    assert ran.cache.ready_s[0] == pytest.approx(4.0 + LATENCY_S + copy_s(12) + load_s(1))
    watched(together.scenario())


# When the swapper checks --------------------------------------------------------------------


def checks(of: Case, swapper: Callable[[], Swapper], fast: bool = False) -> list[float]:
    """When it checked whether HBM is busy or idle."""
    at: list[float] = []

    class Listens(Part):
        """Is made after the swapper, to which it listens."""

        def __init__(self, replica: Replica) -> None:
            assert isinstance(replica.kv, SwappedKV)
            replica.kv.swapper.on_check += (at.append,)

    Ran(of, swapper, fast, parts=(Listens,))
    return at


def boundaries(steps: int) -> list[float]:
    """When a request alone with a prompt of one token is prefilled, and when each step ends."""
    return list(accumulate((step_s(2 + i) for i in range(steps)), initial=prefill_s(1)))


ALONE = case(Row(0.0, None, 1, 30, 30), ranks=())


@pytest.mark.parametrize("every_s", [0.05, 2**-4, 0.2])
def test_it_checks_at_the_first_boundary_from_each_multiple_of_its_interval_on(every_s: float) -> None:
    at = boundaries(29)
    multiples = [i * every_s for i in range(1, int(at[-1] / every_s) + 1)]
    expected = [next(end_s for end_s in at if end_s >= moment_s) for moment_s in multiples]
    assert checks(ALONE, lambda: BandedLru(every_s=every_s)) == pytest.approx(expected)


def test_or_at_every_boundary() -> None:
    at = checks(ALONE, lambda: BandedLru(every_s=0.0))
    assert list(dict.fromkeys(at)) == pytest.approx([0.0, *boundaries(29)])


def test_fast_forward_goes_past_checks_that_find_nothing_to_do() -> None:
    assert checks(ALONE, lambda: BandedLru(every_s=0.05), fast=True) == []


def test_adapters_come_to_a_replica_that_has_had_no_request_yet() -> None:
    """At the first check, one behind the other; a request that comes later waits for nothing."""
    ran = Ran(case(Row(1.0, 2, 1, 1, 1)), BandedLru)
    there_s = list(accumulate((load_s(rank) for rank in (1, 2, 4)), initial=0.1))[1:]
    assert ran.ready_s == pytest.approx(there_s)
    assert (ran.recorder.adapter_loads, ran.recorder.adapter_hits) == (3, 1)
    assert ran.table.ttft_s[0] == pytest.approx(prefill_s(1))


def test_it_checks_again_when_it_has_found_the_link_taken() -> None:
    """Each load takes longer than the time to the next check."""
    every_s = 2**-9
    assert every_s < load_s(1)
    ran = Ran(case(Row(1.0, 2, 1, 1, 1)), lambda: BandedLru(every_s=every_s, backlog_s=2**-12))
    assert all(ready_s < 1.0 for ready_s in ran.ready_s)
    assert (ran.recorder.adapter_loads, ran.recorder.adapter_hits) == (3, 1)


def test_what_stayed_away_for_its_size_comes_when_there_is_room() -> None:
    """Forty slots beside the request's sixty are too many; when that has ended they are not."""
    ran = Ran(case(Row(0.0, None, 30, 30, 30), ranks=(10,), capacity=100), BandedLru)
    assert ran.table.finish_s[0] > 0.2
    assert ran.resident == [0]
    assert ran.cache.ready_s[0] > ran.table.finish_s[0]


def test_what_comes_back_while_it_still_leaves_has_to_have_left_first() -> None:
    """It goes when the second is prefilled, as HBM is busy then, and is sent for a step later: that has ended."""
    rows = (Row(0.0, None, 33, 1, 1), Row(4.0, None, 60, 2, 2))
    swapper = lambda: BandedLru(every_s=0.0, busy=0.9, busy_to=0.7, idle=0.5, idle_to=0.5)  # noqa: E731
    ran = Ran(case(*rows, hashes=(tuple(range(1, 9)), ()), capacity=100, ranks=()), swapper)
    left_s = 4.0 + prefill_s(60) + LATENCY_S + copy_s(32)
    assert ran.table.finish_s[1] < left_s
    assert ran.swapper.kv_tokens_in == ran.link.kv_tokens_out == 32
    (segment,) = ran.tree.claim_prefix(Request(999, None, 0.0, 33, 1, None, tuple(range(1, 9))))
    assert segment.ready_s == pytest.approx(left_s + LATENCY_S + copy_s(32))


def test_nor_does_a_request_get_it_before() -> None:
    """It goes when the second is prefilled, as HBM is busy then, and the third starts at once: it fits beside both."""
    rows = (Row(0.0, None, 33, 1, 1), Row(4.0, None, 60, 2, 2), Row(4.001, None, 33, 1, 1))
    swapper = lambda: BandedLru(every_s=0.0, busy=0.62, busy_to=0.5, idle=0.0, idle_to=0.0)  # noqa: E731
    hashes = (tuple(range(1, 9)), (), tuple(range(1, 9)))
    ran = Ran(case(*rows, hashes=hashes, capacity=150, ranks=()), swapper)
    left_s = 4.0 + prefill_s(60) + LATENCY_S + copy_s(32)
    assert ran.table.cached_tokens[2] == 32
    assert ran.table.first_token_s[2] == pytest.approx(left_s + LATENCY_S + copy_s(32) + chunks_s((32, 1)))


def test_it_brings_no_more_while_its_copies_keep_the_link_busy() -> None:
    """Each load takes longer than that: one at a check."""
    ran = Ran(case(Row(1.0, 2, 1, 1, 1)), lambda: BandedLru(backlog_s=2**-7))
    there_s = [0.1 + load_s(1), 0.2 + load_s(2), 0.3 + load_s(4)]
    assert ran.ready_s == pytest.approx(there_s)
    less = Ran(case(Row(1.0, 2, 1, 1, 1)), lambda: BandedLru(backlog_s=2**-7 + 2**-20))
    there_s = [0.1 + load_s(1), 0.1 + load_s(1) + load_s(2), 0.2 + load_s(4)]
    assert less.ready_s == pytest.approx(there_s)


def test_it_does_not_check_while_they_do() -> None:
    """Three loads, one at a check; each takes several times as long as until the next."""
    every_s = 2**-9
    lasts_s = sum(load_s(rank) for rank in (1, 2, 4))
    assert lasts_s > 12 * every_s
    at = checks(case(Row(2.0, 2, 1, 1, 1)), lambda: BandedLru(every_s=every_s, backlog_s=2**-20), fast=True)
    assert len([moment_s for moment_s in at if moment_s < 2.0]) <= 6


@pytest.mark.parametrize("idle_to, come", [(0.08, 2), (0.09, 3), (0.12, 3), (0.13, 4)])
def test_it_brings_until_hbm_is_as_full_as_it_shall_be(idle_to: float, come: int) -> None:
    """A hundred slots, and adapters of four."""
    ran = Ran(
        case(Row(1.0, None, 1, 1, 1), ranks=(1,) * 6, capacity=100),
        lambda: BandedLru(idle=0.01, idle_to=idle_to),
    )
    assert ran.resident == list(range(come))


def test_what_would_make_hbm_busy_stays_away_and_others_come() -> None:
    """96 slots are more than 95, and 92 with four others are, too."""
    ran = Ran(case(Row(1.0, None, 1, 1, 1), ranks=(24, 1, 23), capacity=100), BandedLru)
    assert ran.resident == [1]


# Busy and idle ------------------------------------------------------------------------------


def cached(count: int, **changes: object) -> Case:
    """As many requests as leave eight tokens of KV each, in different seconds, in a hundred slots."""
    rows = (Row(float(i), None, 9, 1, 1) for i in range(count))
    return case(*rows, hashes=tuple((10 * i, 10 * i + 1) for i in range(count)), capacity=100, **changes)


def band(**bounds: float) -> Callable[[], Swapper]:
    return lambda: BandedLru(every_s=100.0, **bounds)


@pytest.mark.parametrize("busy, left", [(0.87, 6), (0.88, 11), (0.89, 11)])
def test_when_hbm_is_busy_the_least_worthy_leave_until_it_is_less(busy: float, left: int) -> None:
    """Of 88 slots 38 have to go, in eights, to be 50; but not as long as 88 are not more than there may be."""
    ran = Ran(cached(11, ranks=()), band(busy=busy, busy_to=0.5, idle=0.0, idle_to=0.0))
    assert ran.tree.tokens == 8 * left
    assert ran.link.kv_tokens_out == ran.tree.host_tokens == 88 - 8 * left
    assert [ran.cached(10 * i)[0] for i in range(11)] == [i >= 11 - left for i in range(11)]


@pytest.mark.parametrize("busy_to, left", [(0.50, 6), (0.48, 6), (0.47, 5), (0.88, 11)])
def test_down_to_where_it_shall_be(busy_to: float, left: int) -> None:
    ran = Ran(
        cached(11, ranks=()), band(busy=0.88 if busy_to == 0.88 else 0.8, busy_to=busy_to, idle=0, idle_to=0)
    )
    assert ran.tree.tokens == 8 * left


@pytest.mark.parametrize("idle, comes", [(0.40, False), (0.48, False), (0.49, True)])
def test_inside_the_band_nothing_moves(idle: float, comes: bool) -> None:
    """48 slots are in use, of 95 that may be; an adapter could come."""
    ran = Ran(cached(6, ranks=(1,)), band(idle=idle, idle_to=0.7))
    assert (ran.resident, ran.tree.tokens) == ([0] if comes else [], 48)


# From the arrival on ------------------------------------------------------------------------


def queued(prompt: int, loader: str) -> Ran:
    """As TWICE, but the third request comes 2^-10 s into the prefill of another one with such a prompt."""
    rows = (*TWICE.rows[:2], Row(8.0, None, prompt, 2, 2), Row(8.0 + 2**-10, None, 9, 2, 2))
    of = case(*rows, hashes=((1, 4), (), (), (1, 4)), capacity=20, loader=loader)
    return Ran(of, lambda: BandedLru(**NEVER))


def test_kv_on_the_host_comes_from_the_arrival_on_where_slots_are_free() -> None:
    """Ten slots are. The copy is over before the prefill that the request waits for."""
    assert 2**-10 + LATENCY_S + copy_s(8) < prefill_s(8)
    late, early = (queued(8, loader) for loader in ("asynchronous", "on_arrival"))
    assert late.kv_cold_start_s[3] == pytest.approx(LATENCY_S + copy_s(8))
    assert early.kv_cold_start_s[3] == 0.0
    assert late.link.kv_tokens_in == early.link.kv_tokens_in == 8
    assert early.table.cached_tokens[3] == 8


def test_kv_that_does_not_fit_then_is_left_to_the_admission() -> None:
    late, early = (queued(15, loader) for loader in ("asynchronous", "on_arrival"))
    assert early.kv_cold_start_s == late.kv_cold_start_s
    assert early.table.ttft_s.tolist() == late.table.ttft_s.tolist()


# Adapters and their KV ----------------------------------------------------------------------

PRESSED = case(*ADAPTERS, hashes=((1, 4), (), (1, 4)))
"""An adapter of four slots and eight tokens of its KV, when the second request needs 32; the third needs both."""


def test_an_adapter_whose_kv_is_in_hbm_does_not_leave() -> None:
    """Four slots are short, and it is worth less: two thirds of what its KV costs to bring."""
    ran = Ran(PRESSED.but(capacity=40), lambda: CostModel(**NEVER))
    assert (ran.recorder.adapter_loads, ran.link.kv_tokens_out) == (1, 8)
    assert ran.table.cold_start_s[2] == 0.0
    assert ran.kv_cold_start_s[2] == pytest.approx(LATENCY_S + copy_s(8))


def test_without_dependencies_it_does_and_its_kv_is_invalid() -> None:
    without = lambda: CostModel(**NEVER, dependencies=False)  # noqa: E731
    ran = Ran(PRESSED.but(capacity=40), without)
    assert (ran.recorder.adapter_loads, ran.link.kv_tokens_out) == (2, 0)
    assert ran.table.cold_start_s[2] == pytest.approx(load_s(1))
    assert ran.kv_cold_start_s[2] == 0.0
    before = Ran(case(*ADAPTERS[:2], hashes=((1, 4), ()), capacity=40), without)
    assert (before.resident, before.tree.tokens, before.tree.invalid_tokens) == ([], 8, 8)


@pytest.mark.parametrize("loader", ["blocking", "on_arrival"])
def test_invalid_kv_is_prefilled_again_unless_it_is_matched(loader: str) -> None:
    """FastLibra §6.6: it cannot be matched, as its adapter was not there when the request came."""
    swapper = lambda: CostModel(**NEVER, dependencies=False, matches_invalid=False)  # noqa: E731
    ran = Ran(PRESSED.but(capacity=40, loader=loader), swapper)
    assert ran.table.cached_tokens.tolist() == [0, 0, 0]
    assert ran.table.ttft_s[2] == pytest.approx(load_s(1) + prefill_s(9))
    assert ran.tree.tokens == 8, "and is one copy with the old one"


def test_an_adapter_was_used_last_when_a_request_started_with_it() -> None:
    """The first one's request runs until after the second one's has come and gone. One has to be evicted."""
    rows = (Row(0.0, 0, 1, 40, 40), Row(0.01, 1, 1, 2, 2), Row(4.0, None, 13, 2, 2))
    ran = Ran(case(*rows, hashes=((), (), ()), capacity=100, ranks=(1, 1)), banded(6))
    assert ran.table.finish_s[1] < ran.table.finish_s[0]
    assert ran.resident == [1]


def test_when_both_have_to_go_the_adapter_leaves_behind_its_kv() -> None:
    before = Ran(case(*ADAPTERS[:2], hashes=((1, 4), ()), capacity=32), lambda: CostModel(**NEVER))
    assert (before.resident, before.tree.tokens, before.tree.host_tokens) == ([], 0, 8)


def test_an_adapter_that_was_kept_once_can_leave_the_next_time() -> None:
    """Which is for what others wait for that is loaded ahead."""
    rows = (Row(0.0, 0, 1, 1, 1), Row(1.0, 1, 1, 1, 1))
    ran = Ran(case(*rows, ranks=(1, 1)), lambda: BandedLru(**NEVER))
    ran.swapper.make_room(4, 9.0, keep={0})
    assert ran.resident == [0]
    ran.swapper.make_room(4, 9.0)
    assert ran.resident == []


EQUALS = (Row(0.0, None, 9, 1, 1), Row(prefill_s(9), 0, 1, 1, 1))
"""Eight tokens of KV, used until their request ends, and an adapter of four slots that another starts with then."""


def test_of_equals_kv_leaves_before_an_adapter() -> None:
    ran = Ran(
        case(*EQUALS, Row(4.0, None, 88, 2, 2), hashes=((1, 4), (), ()), capacity=100, ranks=(1,)),
        lambda: BandedLru(**NEVER),
    )
    assert ran.table.finish_s[0] == EQUALS[1].arrival_s
    assert (ran.resident, ran.tree.host_tokens) == ([0], 8)


def test_and_comes_behind_it() -> None:
    swapper = lambda: BandedLru(every_s=12.0, idle=0.01, idle_to=0.04)  # noqa: E731
    ran = Ran(
        case(*EQUALS, Row(4.0, None, 97, 2, 2), hashes=((1, 4), (), ()), capacity=100, ranks=(1,)), swapper
    )
    assert ran.recorder.adapter_loads == 2
    assert (ran.resident, ran.tree.tokens, ran.tree.host_tokens) == ([0], 0, 8)


def ahead(swapper: Callable[[], Swapper], arrival_s: float = 13.0) -> Ran:
    """Both have gone when the swapper checks, at second 12; then a request comes that needs them."""
    rows = (*ADAPTERS[:2], ADAPTERS[2]._replace(arrival_s=arrival_s))
    return Ran(case(*rows, hashes=((1, 4), (), (1, 4)), capacity=32, ranks=(1,)), swapper)


def test_what_was_brought_ahead_is_there_for_a_request_that_begins_with_it() -> None:
    ran = ahead(lambda: CostModel(every_s=12.0, idle_to=0.9, busy_to=0.95))
    assert ran.swapper.kv_tokens_in == 8
    assert ran.table.cached_tokens[2] == 8
    assert (ran.table.cold_start_s[2], ran.kv_cold_start_s[2]) == (0.0, 0.0)
    assert ran.table.ttft_s[2] == pytest.approx(chunks_s((8, 1)))


def test_or_is_waited_for_as_long_as_it_still_takes() -> None:
    """The adapter first, and its KV behind it."""
    ran = ahead(lambda: CostModel(every_s=12.0, idle_to=0.9, busy_to=0.95), arrival_s=12.0 + 2**-10)
    assert ran.table.cold_start_s[2] == pytest.approx(load_s(1) - 2**-10)
    assert ran.kv_cold_start_s[2] == pytest.approx(copy_s(8))


@pytest.mark.parametrize("dependencies", [True, False])
def test_kv_comes_behind_its_adapter_whatever_it_is_worth(dependencies: bool) -> None:
    """It is worth half as much again."""
    swapper = lambda: CostModel(  # noqa: E731
        every_s=12.0, idle_to=0.9, dependencies=dependencies, adapter_reward=False
    )
    ran = ahead(swapper, arrival_s=12.0 + 2**-10)
    cold_s = [ran.table.cold_start_s[2], ran.kv_cold_start_s[2]]
    if dependencies:
        assert cold_s == pytest.approx([load_s(1) - 2**-10, copy_s(8)])
    else:
        assert cold_s == pytest.approx([LATENCY_S + copy_s(8) + load_s(1) - 2**-10, 0.0])


def test_adapters_take_as_many_slots_as_they_are_said_to() -> None:
    """Their loads take as long as their bytes."""
    ran = Ran(case(Row(1.0, None, 1, 1, 1), capacity=100), BandedLru, adapter_tokens=20)
    assert ran.cache.adapter_tokens == 60
    assert ran.link.to_gpu.busy_s == pytest.approx(load_s(1) + load_s(2) + load_s(4))


# Cost, equation 5 ---------------------------------------------------------------------------


def test_cost_is_bytes_over_bandwidth_whatever_a_copy_takes_besides() -> None:
    """Sixty-four slots of KV have as many bytes as an adapter of rank 16."""
    link = Ran(TWICE).link
    worth = KvWorth(CostModel(), link, 4)
    once, eight = segment(1), segment(8)
    assert worth.key(eight) - worth.key(once) == pytest.approx(log(8))
    assert link.kv_cost_s(64) == pytest.approx(copy_s(64))
    assert link.adapter_cost_s(64 * 16) == pytest.approx(copy_s(64))


def test_by_block_a_long_segment_is_worth_no_more_than_a_short_one() -> None:
    worth = KvWorth(CostModel(by_block=True), Ran(TWICE).link, 4)
    assert worth.key(segment(8)) == worth.key(segment(1))


def segment(blocks: int) -> Segment:
    """Cached KV of so many blocks, used once at second 0."""
    found = Segment(Branch(0), Branch(0), 0, 0, blocks, ())
    found.visits = 1
    return found


# Low, equation 3 ----------------------------------------------------------------------------


class Asked(CostModel):
    """Keeps what it was asked: adapters needed, and in HBM."""

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.asked: list[tuple[float, int]] = []

    def reward(self, needed: float, resident: int) -> float:
        self.asked.append((needed, resident))
        return super().reward(needed, resident)


def test_low_is_how_many_adapters_a_batch_of_the_last_five_seconds_has() -> None:
    """At second 10 all have gone: three requests of the first adapter, one of the second, and ten without any. Five of
    those that decoded since second 5 had begun before.
    """
    ten = [Row(t, None, 9, 60, 60) for t in (4.8, 6.8) for _ in range(5)]
    rows = [*(Row(t, adapter, 1, 5, 5) for t, adapter in ((0.0, 0), (1.0, 0), (2.0, 1), (3.0, 0))), *ten]
    rows.append(Row(8.6, None, 390, 3, 3))
    hashes = ((),) * 4 + ((1, 4),) + ((),) * 10
    policy = Asked(every_s=10.0)
    ran = Ran(case(*rows, hashes=hashes, capacity=400, ranks=(1, 2, 4)), lambda: policy)
    begin_s, end_s = ran.table.first_token_s, ran.table.finish_s
    assert begin_s[4] < 5.0 < end_s[4] < 10.0
    batch = (end_s.clip(lower=5.0) - begin_s.clip(lower=5.0)).sum() / 5.0
    assert 3.5 < batch < 4.5
    low = sum(1 - (1 - share) ** batch for share in (3 / 15, 1 / 15, 0.0))
    assert policy.asked[-2:] == [(pytest.approx(low), 0), (pytest.approx(low), 1)]


def test_before_five_seconds_have_gone_by_it_is_the_mean_until_then() -> None:
    rows = [
        *(Row(0.0, i % 2, 1, 40, 40) for i in range(3)),
        Row(1.0, None, 9, 1, 1),
        Row(1.5, None, 135, 3, 3),
    ]
    policy = Asked(every_s=2.0)
    ran = Ran(case(*rows, hashes=((), (), (), (1, 4), ()), capacity=140, ranks=(1, 1)), lambda: policy)
    assert ran.table.finish_s.max() < 2.0
    batch = (ran.table.finish_s - ran.table.first_token_s).sum() / 2.0
    low = sum(1 - (1 - share) ** batch for share in (2 / 5, 1 / 5))
    assert policy.asked[-2] == (pytest.approx(low), 0)


def test_low_is_asked_as_soon_as_fewer_adapters_are_left_than_requests_run() -> None:
    """Three requests ran, and three adapters lie in HBM beside KV; two have to go for one that needs nearly all."""
    rows = [*(Row(0.0, i, 1, 90, 90) for i in range(3)), Row(1.0, None, 9, 1, 1), Row(2.0, None, 286, 3, 3)]
    hashes = ((), (), (), (1, 4), ())
    policy = Asked(**NEVER)
    ran = Ran(case(*rows, hashes=hashes, capacity=304, ranks=(1, 1, 1)), lambda: policy)
    assert (ran.resident, ran.tree.tokens) == ([2], 8)
    assert [resident for _, resident in policy.asked] == [3, 2]
    assert policy.asked[0][0] == 0.0, "as many adapters as requests need not be summed up"
    assert policy.asked[1][0] > 0.0


def test_what_stays_away_for_its_size_does_not_count_as_being_there() -> None:
    """The one that was used is too large for what is left of HBM."""
    rows = (Row(0.0, 0, 1, 5, 5), Row(4.0, None, 9, 2, 2), Row(6.0, None, 96, 3, 3))
    policy = Asked(every_s=10.0, idle=0.3, idle_to=0.3, busy=0.6, busy_to=0.6)
    Ran(case(*rows, hashes=((), (1, 4), ()), capacity=100, ranks=(16, 1)), lambda: policy)
    assert [resident for _, resident in policy.asked[-2:]] == [0, 0]
