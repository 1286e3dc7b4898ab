"""KV and adapters that leave HBM for the host and come back: what waits for which copy, and when the swapper checks.

Times are sums by hand: to copy takes 2^-8 s, unless the link is busy anyway, and 2^-10 s a token of KV.
"""

from collections.abc import Callable
from dataclasses import replace
from itertools import accumulate
from math import log
from typing import Any

import pandas as pd
import pytest

from simlora.core.request import Request
from simlora.engine.cluster.simulation import Simulation
from simlora.engine.parts.unified_swapper import KvWorth, SwappedKV, UnifiedSwapper
from simlora.engine.replica.part import Part
from simlora.engine.replica.replica import Replica
from simlora.memory.segments import Branch, Segment
from simlora.policies.eviction.banded_lru import BandedLru
from simlora.policies.eviction.cost_model import CostModel
from simlora.policies.eviction.swapper import Swapper
from tests.engine.by_hand import chunks_s, kv_s, load_s, prefill_s, step_s
from tests.engine.cases import COEFFICIENTS as C
from tests.engine.cases import Case, Row

LOADS_S = [load_s(rank) for rank in (1, 2, 4)]
NEVER: dict[str, Any] = {"every_s": 1000.0, "idle": 0.0, "idle_to": 0.0}
"""A swapper that makes room where it is needed, and nothing else."""
EIGHT = tuple(range(1, 9))
"""The hashes of eight blocks, 32 tokens."""


def copy_s(tokens: int) -> float:
    """Seconds to copy the KV of so many tokens behind something else."""
    return tokens * 16 / C["adapter_load.bytes_per_s"]


def case(*rows: Row, hashes: tuple[tuple[int, ...], ...] | None = None, **changes: object) -> Case:
    """Cached KV, a large host, LoRA whose kernels cost nothing, a queue that is looked at after every step."""
    known: dict[str, Any] = {"kernel": "merged", "reserve": "full", "max_wait_tokens": 0, "eviction": "lru"}
    host = {"prefix_caching": True, "host_kv_tokens": 10_000, "block_hashes": hashes}
    return Case(rows=rows, **(known | host | changes))


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
        chosen = {} if swapper is None else {"eviction": swapper}
        scenario = replace(of.scenario(fast_forward=fast, **chosen), parts=parts)
        self.simulation = Simulation(replace(scenario, replica=replace(scenario.replica, **replica)))  # type: ignore[arg-type]
        self.recorder = self.simulation.run()
        self.table = self.recorder.requests()
        self.kv_cold_start_s = self.table.kv_cold_start_s.tolist()
        first = self.simulation.fleet.replicas[0]
        self.link, self.cache, self.tree = first.host_link, first.kv.adapters, first.kv.tree
        self.swapper = first.part(UnifiedSwapper)

    @property
    def resident(self) -> list[int]:
        """Ids of the adapters in HBM."""
        return [adapter.id for adapter in self.simulation.adapters if adapter in self.cache]

    @property
    def ready_s(self) -> list[float]:
        """When each adapter was there; all are resident."""
        return [self.cache.ready_s[adapter.id] for adapter in self.simulation.adapters]

    @property
    def kv(self) -> tuple[int, int]:
        """Tokens of cached KV in HBM and on the host."""
        return self.tree.tokens, self.tree.host_tokens


# Back from the host -------------------------------------------------------------------------

FIRST, THROWS_OUT, AGAIN = (Row(t, None, prompt, 2, 2) for t, prompt in ((0.0, 9), (4.0, 15), (8.0, 9)))
TWICE = case(FIRST, THROWS_OUT, AGAIN, hashes=((1, 4), (), (1, 4)), capacity=20)
"""Twenty slots: the second needs 17, and the first one's eight go. The third begins with them."""


@pytest.mark.parametrize("host_tokens, found", [(10_000, 8), (0, 0)])
def test_kv_comes_from_the_host_in_the_time_of_a_copy_and_without_a_host_is_prefilled_again(
    host_tokens, found
):
    ran = Ran(TWICE.but(host_kv_tokens=host_tokens))
    waits_s = kv_s(8) if found else 0.0
    assert ran.table.cached_tokens.tolist() == [0, 0, found]
    assert ran.table.ttft_s[2] == pytest.approx(waits_s + chunks_s((found, 9 - found)))
    assert ran.kv_cold_start_s[2] == pytest.approx(waits_s)
    assert ran.table.cold_start_s[2] == 0.0, "that is what adapters are waited for"


# Two things on one link ---------------------------------------------------------------------

ADAPTERS = (Row(0.0, 0, 9, 2, 2), Row(4.0, None, 30, 2, 2), Row(8.0, 0, 9, 2, 2))
AGAIN_BOTH = ((1, 4), (), (1, 4))


@pytest.mark.parametrize(
    "loader, cold_s, kv_cold_s",
    [("blocking", load_s(1), copy_s(8)), ("asynchronous", load_s(1), copy_s(8)), ("cached", 0.0, kv_s(8))],
)
def test_a_cold_start_is_for_the_adapter_first_and_for_kv_behind_it(loader, cold_s, kv_cold_s):
    """The second copy on a link that is busy anyway has nothing to wait for but its bytes."""
    table = case(*ADAPTERS, hashes=AGAIN_BOTH, capacity=32, eviction="on_demand", loader=loader).table()
    assert table.cold_start_s[2] == pytest.approx(cold_s)
    assert table.kv_cold_start_s[2] == pytest.approx(kv_cold_s)
    assert table.ttft_s[2] == pytest.approx(cold_s + kv_cold_s + chunks_s((8, 1)))


# Slots on their way out ---------------------------------------------------------------------


@pytest.mark.parametrize("capacity, leaves", [(20, 8), (24, 4), (25, 0)])
def test_a_request_that_takes_the_slots_of_kv_that_leaves_waits_until_it_has_left(capacity, leaves):
    """Of 17 slots for the second, three, one or none are the first one's."""
    ran = Ran(TWICE.but(capacity=capacity))
    waits_s = kv_s(leaves) if leaves else 0.0
    assert ran.link.kv_tokens_out == leaves
    assert ran.table.ttft_s[1] == pytest.approx(waits_s + prefill_s(15))
    assert ran.kv_cold_start_s[1] == pytest.approx(waits_s)


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


ALONE = case(Row(0.0, None, 1, 30, 30), ranks=())
BOUNDARIES = list(accumulate((step_s(2 + i) for i in range(29)), initial=prefill_s(1)))
"""When its prompt is prefilled, and when each of its steps ends."""


@pytest.mark.parametrize("every_s", [0.0, 0.05])
def test_it_checks_at_the_first_boundary_from_each_multiple_of_its_interval_on(every_s):
    """Or at every boundary."""
    multiples = [i * every_s for i in range(1, int(BOUNDARIES[-1] / every_s) + 1)] if every_s else []
    expected = [next(end_s for end_s in BOUNDARIES if end_s >= moment_s) for moment_s in multiples]
    found = dict.fromkeys(checks(ALONE, lambda: BandedLru(every_s=every_s)))
    assert list(found) == pytest.approx(expected or [0.0, *BOUNDARIES])


LATE = case(Row(1.0, 2, 1, 1, 1))
"""A replica that has no request before second 1."""


@pytest.mark.parametrize(
    "backlog_s, there_s",
    [
        ({}, list(accumulate(LOADS_S, initial=0.1))[1:]),
        ({"backlog_s": 2**-7 + 2**-20}, [0.1 + LOADS_S[0], 0.1 + sum(LOADS_S[:2]), 0.2 + LOADS_S[2]]),
        ({"backlog_s": 2**-7}, [0.1 + LOADS_S[0], 0.2 + LOADS_S[1], 0.3 + LOADS_S[2]]),
    ],
    ids=["one behind the other", "two at a check", "one at a check"],
)
def test_adapters_come_ahead_of_all_requests_as_long_as_the_link_is_not_busy_for_too_long(backlog_s, there_s):
    """The shortest load takes 2^-7 s; a request that comes later waits for nothing."""
    ran = Ran(LATE, lambda: BandedLru(**backlog_s))
    assert ran.ready_s == pytest.approx(there_s)
    assert (ran.recorder.adapter_loads, ran.recorder.adapter_hits) == (3, 1)
    assert ran.table.ttft_s[0] == pytest.approx(prefill_s(1))


def test_what_comes_back_while_it_still_leaves_has_to_have_left_first():
    """It goes when the second is prefilled, as HBM is busy then, and the third starts at once: it fits beside both."""
    rows = (Row(0.0, None, 33, 1, 1), Row(4.0, None, 60, 2, 2), Row(4.001, None, 33, 1, 1))
    swapper = lambda: BandedLru(every_s=0.0, busy=0.62, busy_to=0.5, idle=0.0, idle_to=0.0)  # noqa: E731
    table = Ran(case(*rows, hashes=(EIGHT, (), EIGHT), capacity=150, ranks=()), swapper).table
    assert table.cached_tokens[2] == 32
    left_s = 4.0 + prefill_s(60) + kv_s(32)
    assert table.first_token_s[2] == pytest.approx(left_s + kv_s(32) + chunks_s((32, 1)))


@pytest.mark.parametrize(
    "ranks, idle_to, come",
    [
        ((1,) * 6, 0.12, 3),
        ((1,) * 6, 0.13, 4),
        ((24, 1, 23), None, 1),
    ],
)
def test_it_brings_until_hbm_is_as_full_as_it_shall_be(ranks, idle_to, come):
    """A hundred slots, and adapters of four; of those that would make HBM busy, 96 and 92 + 4 slots, none comes."""
    of = case(Row(1.0, None, 1, 1, 1), ranks=ranks, capacity=100)
    swapper = BandedLru if idle_to is None else lambda: BandedLru(idle=0.01, idle_to=idle_to)
    assert Ran(of, swapper).resident == ([1] if idle_to is None else list(range(come)))


# Busy and idle ------------------------------------------------------------------------------


def cached(count: int, **changes: object) -> Case:
    """As many requests as leave eight tokens of KV each, in different seconds, in a hundred slots."""
    rows = (Row(float(i), None, 9, 1, 1) for i in range(count))
    return case(*rows, hashes=tuple((10 * i, 10 * i + 1) for i in range(count)), capacity=100, **changes)


@pytest.mark.parametrize(
    "busy, busy_to, left",
    [
        (0.87, 0.50, 6),
        (0.88, 0.50, 11),
        (0.80, 0.48, 6),
        (0.80, 0.47, 5),
    ],
)
def test_when_hbm_is_busy_the_least_worthy_leave_until_it_is_less(busy, busy_to, left):
    """Of 88 slots 38 have to go, in eights, to be 50; but not as long as 88 are not more than there may be."""
    ran = Ran(
        cached(11, ranks=()),
        lambda: BandedLru(every_s=100.0, busy=busy, busy_to=busy_to, idle=0.0, idle_to=0.0),
    )
    assert ran.kv == (8 * left, 88 - 8 * left)
    assert ran.link.kv_tokens_out == 88 - 8 * left
    for i in range(11):
        (segment,) = ran.tree.claim_prefix(Request(999, None, 0.0, 9, 1, None, (10 * i, 10 * i + 1)))
        assert segment.resident == (i >= 11 - left)


@pytest.mark.parametrize("idle, comes", [(0.48, False), (0.49, True)])
def test_inside_the_band_nothing_moves(idle, comes):
    """48 slots are in use, of 95 that may be; an adapter could come."""
    ran = Ran(cached(6, ranks=(1,)), lambda: BandedLru(every_s=100.0, idle=idle, idle_to=0.7))
    assert (ran.resident, ran.tree.tokens) == ([0] if comes else [], 48)


# Adapters and their KV ----------------------------------------------------------------------

PRESSED = case(*ADAPTERS, hashes=AGAIN_BOTH, capacity=40)
"""An adapter of four slots and eight tokens of its KV, when the second request needs 32; the third needs both."""


@pytest.mark.parametrize(
    "loader, without, found",
    [
        ("blocking", {}, (1, 8, 0.0, kv_s(8), 8)),
        ("blocking", {"dependencies": False}, (2, 0, load_s(1), 0.0, 8)),
        ("blocking", {"dependencies": False, "matches_invalid": False}, (2, 0, load_s(1), 0.0, 0)),
        ("on_arrival", {"dependencies": False, "matches_invalid": False}, (2, 0, load_s(1), 0.0, 0)),
    ],
)
def test_an_adapter_whose_kv_is_in_hbm_does_not_leave_but_without_dependencies(loader, without, found):
    """Four slots are short, and it is worth less: two thirds of what its KV costs to bring.

    FastLibra §6.6: KV whose adapter was not there when the request came may not be matched; it is prefilled again.
    """
    ran = Ran(PRESSED.but(loader=loader), lambda: CostModel(**NEVER, **without))
    last = ran.table.loc[2]
    loads, out = ran.recorder.adapter_loads, ran.link.kv_tokens_out
    assert (loads, out, last.cold_start_s, last.kv_cold_start_s, last.cached_tokens) == pytest.approx(found)
    waits_s, cached = sum(found[2:4]), int(found[4])
    assert last.ttft_s == pytest.approx(waits_s + chunks_s((cached, 9 - cached)))
    assert ran.tree.tokens == 8, "what was prefilled again is one copy with the old one"


def test_an_adapter_was_used_last_when_a_request_started_with_it():
    """The first one's request runs until after the second one's has come and gone. One has to be evicted."""
    rows = (Row(0.0, 0, 1, 40, 40), Row(0.01, 1, 1, 2, 2), Row(4.0, None, 13, 2, 2))
    swapper = lambda: BandedLru(every_s=3.0, idle=0.0, idle_to=0.0, busy=0.06, busy_to=0.06)  # noqa: E731
    ran = Ran(case(*rows, hashes=((), (), ()), capacity=100, ranks=(1, 1)), swapper)
    assert ran.table.finish_s[1] < ran.table.finish_s[0]
    assert ran.resident == [1]


def test_an_adapter_that_was_kept_once_can_leave_the_next_time():
    """Which is for what others wait for that is loaded ahead."""
    rows = (Row(0.0, 0, 1, 1, 1), Row(1.0, 1, 1, 1, 1))
    ran = Ran(case(*rows, ranks=(1, 1)), lambda: BandedLru(**NEVER))
    ran.swapper.make_room(4, 9.0, keep={0})
    assert ran.resident == [0]
    ran.swapper.make_room(4, 9.0)
    assert ran.resident == []


EQUALS = (Row(0.0, None, 9, 1, 1), Row(prefill_s(9), 0, 1, 1, 1))
"""Eight tokens of KV, used until their request ends, and an adapter of four slots that another starts with then."""


@pytest.mark.parametrize(
    "prompt, swapper, loads",
    [(88, NEVER, 1), (97, {"every_s": 12.0, "idle": 0.01, "idle_to": 0.04}, 2)],
    ids=["leaves before", "comes behind"],
)
def test_of_equals_kv_leaves_before_an_adapter_and_comes_behind_it(prompt, swapper, loads):
    rows = (*EQUALS, Row(4.0, None, prompt, 2, 2))
    ran = Ran(case(*rows, hashes=((1, 4), (), ()), capacity=100, ranks=(1,)), lambda: BandedLru(**swapper))
    assert ran.table.finish_s[0] == EQUALS[1].arrival_s
    assert ran.recorder.adapter_loads == loads
    assert (ran.resident, ran.kv) == ([0], (0, 8))


BROUGHT_AHEAD_S, RIGHT_BEHIND_S = 13.0, 12.0 + 2**-10


@pytest.mark.parametrize(
    "arrival_s, swapper, cold_s, kv_cold_s",
    [
        (BROUGHT_AHEAD_S, {"busy_to": 0.95}, 0.0, 0.0),
        (RIGHT_BEHIND_S, {"busy_to": 0.95}, load_s(1) - 2**-10, copy_s(8)),
        (RIGHT_BEHIND_S, {"adapter_reward": False}, load_s(1) - 2**-10, copy_s(8)),
        (
            RIGHT_BEHIND_S,
            {"adapter_reward": False, "dependencies": False},
            kv_s(8) + load_s(1) - 2**-10,
            0.0,
        ),
    ],
    ids=["there", "on its way", "whatever KV is worth", "but for dependencies"],
)
def test_kv_comes_behind_its_adapter_and_a_request_waits_as_long_as_both_still_take(
    arrival_s, swapper, cold_s, kv_cold_s
):
    """Both have gone when the swapper checks, at second 12; without a reward KV is worth half as much again."""
    rows = (*ADAPTERS[:2], ADAPTERS[2]._replace(arrival_s=arrival_s))
    of = case(*rows, hashes=AGAIN_BOTH, capacity=32, ranks=(1,))
    ran = Ran(of, lambda: CostModel(every_s=12.0, idle_to=0.9, **swapper))
    assert ran.table.cold_start_s[2] == pytest.approx(cold_s)
    assert ran.kv_cold_start_s[2] == pytest.approx(kv_cold_s)
    assert (ran.swapper.kv_tokens_in, ran.table.cached_tokens[2]) == (8, 8)
    assert ran.table.ttft_s[2] == pytest.approx(cold_s + kv_cold_s + chunks_s((8, 1)))


def test_adapters_take_as_many_slots_as_they_are_said_to():
    """Their loads take as long as their bytes."""
    ran = Ran(case(Row(1.0, None, 1, 1, 1), capacity=100), BandedLru, adapter_tokens=20)
    assert ran.cache.adapter_tokens == 60
    assert ran.link.to_gpu.busy_s == pytest.approx(sum(LOADS_S))


# Cost, equation 5 ---------------------------------------------------------------------------


def segment(blocks: int) -> Segment:
    """Cached KV of so many blocks, used once at second 0."""
    found = Segment(Branch(0), Branch(0), 0, 0, blocks, ())
    found.visits = 1
    return found


def test_cost_is_bytes_over_bandwidth_whatever_a_copy_takes_besides():
    """Sixty-four slots of KV have as many bytes as an adapter of rank 16; by block, length does not count."""
    link = Ran(TWICE).link
    worth, by_block = KvWorth(CostModel(), link, 4), KvWorth(CostModel(by_block=True), link, 4)
    assert worth.key(segment(8)) - worth.key(segment(1)) == pytest.approx(log(8))
    assert by_block.key(segment(8)) == by_block.key(segment(1))
    assert link.kv_cost_s(64) == pytest.approx(copy_s(64))
    assert link.adapter_cost_s(64 * 16) == pytest.approx(copy_s(64))


# Equation 4, as printed ---------------------------------------------------------------------


class AsPrinted(CostModel):
    """Multiplies the worth of every node by the same reward: equation 4 has no index of a node on its right side."""

    def __init__(self, reward: float, **arguments: Any) -> None:
        super().__init__(adapter_reward=False, **arguments)
        self._log = log(reward)

    def key(self, cost_s: float, visits: int, used_s: float) -> float:
        return super().key(cost_s, visits, used_s) + self._log


@pytest.mark.parametrize("reward", [1.0, 1.5, 1000.0])
def test_a_reward_that_all_nodes_get_changes_nothing(reward):
    """Equation 6 only sorts. So FastLibra as printed is FastLibra without its reward (WOL), whatever the conditions."""
    rows = [Row(0.4 * i, i % 3, 9 + 4 * (i % 2), 2, 2) for i in range(12)]
    hashes = tuple((i % 5 + 1, 10 + i % 2) for i in range(12))
    of = case(*rows, hashes=hashes, capacity=44)
    swapper = {"every_s": 2**-4, "recency_s": 2.0, "idle_to": 0.8}
    printed, without = (Ran(of, lambda each=each: AsPrinted(each, **swapper)) for each in (reward, 1.0))
    assert min(without.link.kv_tokens_out, without.recorder.adapter_loads) > 0, "something left and came back"
    pd.testing.assert_frame_equal(printed.table, without.table)
    assert (printed.resident, printed.link.kv_tokens_out) == (without.resident, without.link.kv_tokens_out)


# Low, equation 3 ----------------------------------------------------------------------------


class Asked(CostModel):
    """Keeps what it was asked: adapters needed, and in HBM."""

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.asked: list[tuple[float, int]] = []

    def reward(self, needed: float, resident: int) -> float:
        self.asked.append((needed, resident))
        return super().reward(needed, resident)


def low(batch: float, *shares: float) -> object:
    """How many adapters a batch has whose requests use adapters by these shares."""
    return pytest.approx(sum(1 - (1 - share) ** batch for share in shares))


def test_low_is_how_many_adapters_a_batch_of_the_last_five_seconds_has():
    """At second 10 all have gone: three requests of the first adapter, one of the second, and ten without any. Five of
    those that decoded since second 5 had begun before.
    """
    rows = [Row(t, adapter, 1, 5, 5) for t, adapter in ((0.0, 0), (1.0, 0), (2.0, 1), (3.0, 0))]
    rows += [Row(t, None, 9, 60, 60) for t in (4.8, 6.8) for _ in range(5)]
    rows.append(Row(8.6, None, 390, 3, 3))
    hashes = ((),) * 4 + ((1, 4),) + ((),) * 10
    policy = Asked(every_s=10.0)
    ran = Ran(case(*rows, hashes=hashes, capacity=400, ranks=(1, 2, 4)), lambda: policy)
    begin_s, end_s = ran.table.first_token_s, ran.table.finish_s
    assert begin_s[4] < 5.0 < end_s[4] < 10.0
    batch = (end_s.clip(lower=5.0) - begin_s.clip(lower=5.0)).sum() / 5.0
    assert 3.5 < batch < 4.5
    assert policy.asked[-2:] == [(low(batch, 3 / 15, 1 / 15, 0.0), n) for n in (0, 1)]


def test_before_five_seconds_have_gone_by_it_is_the_mean_until_then():
    rows = [Row(0.0, i % 2, 1, 40, 40) for i in range(3)]
    rows += [Row(1.0, None, 9, 1, 1), Row(1.5, None, 135, 3, 3)]
    policy = Asked(every_s=2.0)
    ran = Ran(case(*rows, hashes=((), (), (), (1, 4), ()), capacity=140, ranks=(1, 1)), lambda: policy)
    assert ran.table.finish_s.max() < 2.0
    batch = (ran.table.finish_s - ran.table.first_token_s).sum() / 2.0
    assert policy.asked[-2] == (low(batch, 2 / 5, 1 / 5), 0)


def test_low_is_asked_as_soon_as_fewer_adapters_are_left_than_requests_run():
    """Three requests ran, and three adapters lie in HBM beside KV; two have to go for one that needs nearly all."""
    rows = [*(Row(0.0, i, 1, 90, 90) for i in range(3)), Row(1.0, None, 9, 1, 1), Row(2.0, None, 286, 3, 3)]
    policy = Asked(**NEVER)
    of = case(*rows, hashes=((), (), (), (1, 4), ()), capacity=304, ranks=(1, 1, 1))
    ran = Ran(of, lambda: policy)
    assert (ran.resident, ran.tree.tokens) == ([2], 8)
    assert [resident for _, resident in policy.asked] == [3, 2]
    assert policy.asked[0][0] == 0.0, "as many adapters as requests need not be summed up"
    assert policy.asked[1][0] > 0.0


def test_what_stays_away_for_its_size_does_not_count_as_being_there():
    """The one that was used is too large for what is left of HBM."""
    rows = (Row(0.0, 0, 1, 5, 5), Row(4.0, None, 9, 2, 2), Row(6.0, None, 96, 3, 3))
    policy = Asked(every_s=10.0, idle=0.3, idle_to=0.3, busy=0.6, busy_to=0.6)
    Ran(case(*rows, hashes=((), (1, 4), ()), capacity=100, ranks=(16, 1)), lambda: policy)
    assert [resident for _, resident in policy.asked[-2:]] == [0, 0]
