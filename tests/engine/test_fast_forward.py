"""`fast_forward=true` gives what `fast_forward=false` gives: the same decisions at the same times."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from simlora.engine.cluster.simulation import Simulation
from simlora.engine.parts.adapter_memory import OwnRegion
from simlora.engine.parts.kv_offload import PrefixCachingKV
from simlora.engine.parts.unified_swapper import UnifiedSwapper
from simlora.engine.replica.part import Part
from simlora.engine.replica.replica import Replica
from simlora.metrics.recorder import Recorder
from simlora.policies.migration.base import Migration, Plan
from simlora.policies.views import ClusterView
from tests.engine.cases import (
    LOADERS,
    PICKING,
    PLACEMENTS,
    ROUTERS,
    SCHEDULERS,
    Case,
    Row,
    cases,
    divided,
    family,
    own_memory,
    placed,
    pressed,
    shared_gpus,
    shared_prefixes,
    swapped,
)
from tests.engine.observing import holds_nothing, observed
from tests.examples import share

EQUAL = ("status", "reason", "replica", "preemptions", "cached_tokens", "migrations")
TIMES = (
    "admitted_s",
    "first_token_s",
    "finish_s",
    "ttft_s",
    "tpot_s",
    "latency_s",
    "queue_s",
    "cold_start_s",
    "kv_cold_start_s",
    "blocked_s",
)
COUNTS = (
    "token_steps",
    "preemptions",
    "adapter_hits",
    "adapter_misses",
    "adapter_loads",
    "adapter_load_bytes",
    "disk_loads",
    "remote_loads",
    "storage_loads",
    "reloads",
)


def assert_same(fast: Simulation, plain: Simulation) -> None:
    a, b = fast.recorder.requests(), plain.recorder.requests()
    for column in EQUAL:
        assert a[column].tolist() == b[column].tolist(), column
    for column in TIMES:
        np.testing.assert_allclose(a[column], b[column], rtol=0, atol=1e-9, err_msg=column)
    for name in COUNTS:
        assert getattr(fast.recorder, name) == getattr(plain.recorder, name), name
    for one, other in zip(fast.fleet.replicas, plain.fleet.replicas, strict=True):
        assert one.view.iterations == other.view.iterations
        assert one.most_running == other.most_running
        assert one.most_waiting == other.most_waiting
        assert one.busy_s == pytest.approx(other.busy_s, abs=1e-9)
        assert_same_memory(one, other)
    assert fast.recorder.last_s == pytest.approx(plain.recorder.last_s, abs=1e-9)
    assert fast.recorder.boundaries <= plain.recorder.boundaries
    assert_same_gaps(fast.recorder, plain.recorder)


def assert_same_memory(one: Replica, other: Replica) -> None:
    assert one.host_link.to_gpu.busy_s == pytest.approx(other.host_link.to_gpu.busy_s, abs=1e-9)
    assert one.host_link.to_host.busy_s == pytest.approx(other.host_link.to_host.busy_s, abs=1e-9)
    assert one.host_link.kv_tokens_out == other.host_link.kv_tokens_out
    assert one.kv.adapters.adapter_tokens == other.kv.adapters.adapter_tokens
    if isinstance(one.kv, PrefixCachingKV):
        assert isinstance(other.kv, PrefixCachingKV)
        for name in ("tokens", "held_tokens", "host_tokens", "invalid_tokens"):
            assert getattr(one.kv.tree, name) == getattr(other.kv.tree, name), name
    assert brought_ahead(one) == brought_ahead(other)


def brought_ahead(replica: Replica) -> int:
    """Tokens of KV that a swapper brought from the host ahead of any request."""
    swapper = replica.part(UnifiedSwapper)
    return 0 if swapper is None else swapper.kv_tokens_in


def region_tokens(replica: Replica) -> int:
    """Token slots in use of adapter memory outside the pool."""
    own = replica.part(OwnRegion)
    assert own is not None
    return own.region.used_tokens


def assert_same_gaps(fast: Recorder, plain: Recorder) -> None:
    a, b = fast.token_gaps, plain.token_gaps
    assert a.count == b.count
    if a.count:
        assert a.mean() == pytest.approx(b.mean(), rel=1e-9)
        for q in (0.0, 0.1, 0.5, 0.9, 0.99, 1.0):
            assert a.quantile(q) == pytest.approx(b.quantile(q), rel=2e-3), f"quantile {q}"


@pytest.mark.parametrize("reserve", ["full", "peak", "paged"])
@given(data=st.data())
def test_fast_forward_equals_the_plain_loop(reserve: str, data: st.DataObject) -> None:
    case: Case = data.draw(cases(reserves=(reserve,)))
    fast, plain = case.simulation(), case.simulation(fast_forward=False)
    assert_same(fast, plain)
    event(f"steps skipped: {fast.recorder.boundaries < plain.recorder.boundaries}")


@pytest.mark.parametrize("scheduler", SCHEDULERS)
@given(data=st.data())
@share(1 / 3)
def test_fast_forward_equals_the_plain_loop_with_every_scheduler(scheduler: str, data: st.DataObject) -> None:
    case: Case = data.draw(family(schedulers=(scheduler,)))
    assert_same(case.simulation(), case.simulation(fast_forward=False))


@given(
    divided(
        schedulers=("chunked_prefill", "prefill_first", "chunked_slo", "fcfs", "early_abort"),
        loaders=("blocking", "prefetching"),
    )
)
def test_fast_forward_equals_the_plain_loop_when_hbm_is_divided(case: Case) -> None:
    fast, plain = case.simulation(), case.simulation(fast_forward=False)
    assert_same(fast, plain)
    event(f"from disk: {fast.recorder.disk_loads > 0}")
    event(f"preempted: {fast.recorder.preemptions > 0}")


@given(divided(ends=st.floats(2**-8, 8.0), loaders=("blocking", "prefetching")))
def test_fast_forward_equals_the_plain_loop_when_the_clock_stops_before_the_end(case: Case) -> None:
    fast, plain = case.simulation(), case.simulation(fast_forward=False)
    assert_same(fast, plain)
    event(f"unfinished: {fast.recorder.ended < len(case.rows)}")


@given(shared_prefixes(loaders=("blocking", "prefetching")))
def test_fast_forward_equals_the_plain_loop_when_requests_begin_alike(case: Case) -> None:
    fast, plain = case.simulation(), case.simulation(fast_forward=False)
    assert_same(fast, plain)
    event(f"found: {fast.recorder.cached_tokens > 0}")
    event(f"preempted: {fast.recorder.preemptions > 0}")


@given(shared_prefixes(ends=st.floats(2**-8, 8.0)))
@share(1 / 2)
def test_fast_forward_equals_the_plain_loop_when_requests_begin_alike_and_the_clock_stops(case: Case) -> None:
    fast, plain = case.simulation(), case.simulation(fast_forward=False)
    assert_same(fast, plain)


@given(swapped(loaders=tuple(LOADERS)) | pressed())
@share(2)
def test_fast_forward_equals_the_plain_loop_when_kv_and_adapters_are_swapped(case: Case) -> None:
    fast, plain = case.simulation(), case.simulation(fast_forward=False)
    assert_same(fast, plain)
    event(f"to the host: {any(r.host_link.kv_tokens_out for r in fast.fleet.replicas)}")
    event(f"and back: {any(r.host_link.kv_tokens_in for r in fast.fleet.replicas)}")
    event(f"ahead: {any(map(brought_ahead, fast.fleet.replicas))}")


@given(pressed(ends=st.floats(2**-8, 8.0)))
def test_fast_forward_equals_the_plain_loop_when_they_are_swapped_and_the_clock_stops(case: Case) -> None:
    assert_same(case.simulation(), case.simulation(fast_forward=False))


@pytest.mark.parametrize("scheduler", ["chunked_prefill", "prefill_first", "chunked_slo", *PICKING])
@given(data=st.data())
@share(1 / 3)
def test_fast_forward_equals_the_plain_loop_when_they_are_swapped_beside_parts_of_requests(
    scheduler: str, data: st.DataObject
) -> None:
    """Prefilled in part, or paused."""
    case: Case = data.draw(pressed(schedulers=(scheduler,)))
    assert_same(case.simulation(), case.simulation(fast_forward=False))


@given(placed())
def test_fast_forward_equals_the_plain_loop_when_hosts_hold_what_they_serve(case: Case) -> None:
    fast, plain = case.simulation(), case.simulation(fast_forward=False)
    assert_same(fast, plain)
    if fast.store is not None and plain.store is not None:
        assert fast.store.holders == plain.store.holders
        assert fast.store.most_held == plain.store.most_held
    event(f"fetched: {fast.recorder.remote_loads > 0}")


@given(own_memory())
def test_fast_forward_equals_the_plain_loop_when_adapters_have_memory_of_their_own(case: Case) -> None:
    fast, plain = case.simulation(), case.simulation(fast_forward=False)
    assert_same(fast, plain)
    for one, other in zip(fast.fleet.replicas, plain.fleet.replicas, strict=True):
        assert region_tokens(one) == region_tokens(other)


@pytest.mark.parametrize("engines", [2, 3])
@given(data=st.data())
@share(1 / 2)
def test_fast_forward_equals_the_plain_loop_when_engines_share_a_gpu(
    engines: int, data: st.DataObject
) -> None:
    case: Case = data.draw(shared_gpus(engines_per_gpu=(engines,)))
    fast, plain = case.simulation(), case.simulation(fast_forward=False)
    assert_same(fast, plain)
    event(f"steps skipped: {fast.recorder.boundaries < plain.recorder.boundaries}")


@given(cases(reserves=("paged",), preemptions=("swap",)))
def test_fast_forward_equals_the_plain_loop_when_preempted_kv_is_swapped_to_the_host(case: Case) -> None:
    fast, plain = case.simulation(), case.simulation(fast_forward=False)
    assert_same(fast, plain)
    event(f"preempted: {fast.recorder.preemptions > 0}")


@pytest.mark.parametrize("loader", ["asynchronous", "on_arrival", "cpu_assisted"])
@given(data=st.data())
def test_fast_forward_equals_the_plain_loop_when_adapters_come_beside_the_batch(
    loader: str, data: st.DataObject
) -> None:
    """At the rates of these cases a load takes a step or two; a slow link lets weights land after the prefill."""
    family_ = st.one_of(
        family(loaders=(loader,)),
        divided(loaders=(loader,)),
        shared_prefixes(loaders=(loader,)),
        pressed(loaders=(loader,)),
        shared_gpus(loaders=(loader,)),
        cases(loaders=(loader,), ends=st.floats(2**-8, 8.0)),
    )
    case: Case = data.draw(family_)
    slower = data.draw(st.sampled_from((1, 8, 64)))
    loads = {"adapter_load.latency_s": case.coefficients["adapter_load.latency_s"] * slower}
    case = case.but(coefficients={**case.coefficients, **loads})
    fast, plain = case.simulation(), case.simulation(fast_forward=False)
    assert_same(fast, plain)
    event(f"loads: {fast.recorder.adapter_loads > 0}")
    event(f"preempted: {fast.recorder.preemptions > 0}")


@pytest.mark.parametrize("router", ["first_fit", "rank_aware"])
@given(data=st.data())
@share(1 / 2)
def test_fast_forward_equals_the_plain_loop_behind_a_router_that_knows_loads(
    router: str, data: st.DataObject
) -> None:
    case: Case = data.draw(family(loaders=("blocking", "asynchronous")))
    case = case.but(router=router)
    assert_same(case.simulation(), case.simulation(fast_forward=False))


@pytest.mark.parametrize("router", ["scored", "kv_cost"])
@given(case=st.one_of(shared_prefixes(loaders=tuple(LOADERS)), pressed()))
@share(1 / 2)
def test_fast_forward_equals_the_plain_loop_behind_a_router_that_knows_cached_kv(
    router: str, case: Case
) -> None:
    case = case.but(router=router, replicas=max(case.replicas, 2))
    fast, plain = case.simulation(), case.simulation(fast_forward=False)
    assert_same(fast, plain)
    event(f"found: {bool(fast.recorder.prefix_hit_rate)}")


@given(
    st.one_of(
        family(loaders=tuple(LOADERS)),
        divided(loaders=tuple(LOADERS)),
        shared_prefixes(loaders=tuple(LOADERS)),
        pressed(),
        shared_gpus(),
        cases(loaders=tuple(LOADERS), ends=st.floats(2**-8, 8.0)),
    ),
    st.sampled_from((2**-6, 2**-3, 0.1)),
    st.sampled_from(tuple(ROUTERS)),
    st.sampled_from(("consolidate", "consolidate", "selective_ilp")),
    st.sampled_from(tuple(PLACEMENTS)),
)
def test_fast_forward_equals_the_plain_loop_when_requests_move(
    case: Case, every_s: float, router: str, migration: str, placement: str
) -> None:
    if migration == "selective_ilp":
        every_s = 0.1  # each solve takes tens of milliseconds
    case = case.but(migrates_every_s=every_s, router=router, migration=migration, placement=placement)
    fast, plain = case.simulation(), case.simulation(fast_forward=False)
    assert_same(fast, plain)
    event(f"moved: {(fast.recorder.requests().migrations > 0).any()}")


@given(cases(loaders=("prefetching",), preemptions=("recompute", "swap")))
def test_fast_forward_equals_the_plain_loop_when_adapters_are_prefetched(case: Case) -> None:
    fast, plain = case.simulation(), case.simulation(fast_forward=False)
    assert_same(fast, plain)
    event(f"loads: {fast.recorder.adapter_loads > 0}")


def test_a_prefetch_takes_no_slot_of_an_adapter_that_the_queues_head_wants_too() -> None:
    """Three slots: asked again at the next step, it would fetch what it threw out at the step before."""
    rows = (
        Row(2**-6, 1, 5, 6, 6),
        Row(0.0166015625, 2, 1, 1, 1),
        Row(0.0322265625, 4, 4, 11, 11),
        Row(0.033203125, 1, 6, 10, 10),
        Row(0.095703125, 3, 7, 6, 6),
    )
    case = Case(
        rows=rows,
        ranks=(1,) * 5,
        max_num_seqs=1,
        max_loras=3,
        scheduler="chunked_prefill",
        loader="prefetching",
        eviction="lru",
        reserve="paged",
        adapter_memory="slots",
        adapter_region_tokens=48,
    )
    assert_same(case.simulation(), case.simulation(fast_forward=False))


def test_low_counts_requests_that_join_when_their_weights_are_there() -> None:
    """One that the CPU helps is prefilled before its weights are there; when it decodes, no iteration has ended."""
    rows = (
        Row(0.0, 1, 1, 34, 34),
        Row(0.0, 0, 6, 34, 34),
        Row(0.0, 0, 5, 1, 34),
        Row(0.0, None, 7, 38, 56),
        Row(0.0, None, 8, 34, 34),
        Row(0.0, 2, 2, 1, 25),
    )
    case = Case(
        rows=rows,
        ranks=(4, 2, 8, 2),
        capacity=198,
        max_loras=1,
        max_wait_tokens=0,
        reserve="full",
        block_size=1,
        tp=2,
        scheduler="chunked_prefill",
        loader="cpu_assisted",
        kernel="merged",
        eviction="cost_model_without_tree",
        prefix_caching=True,
        host_kv_tokens=10_000,
        sessions=("b", "c", None, "b", "c", "b"),
        hash_block_tokens=1,
    )
    assert_same(case.simulation(), case.simulation(fast_forward=False))


def test_a_deferred_request_waits_for_the_slot_of_its_first_token_itself() -> None:
    """Beside a batch that decodes it takes the slot a step earlier than those that begin; a copy may still use it."""
    hashes = (
        (3, 10, 31, 96, 291, 875, 2626, 7880),
        (1, 6, 21, 65, 196, 589),
        (3, 12, 37, 112),
        (3, 11, 36, 110, 331, 994, 2983, 8950),
        (1, 5, 18, 55, 168, 505),
    )
    rows = (
        Row(0.0, None, 24, 1, 1),
        Row(4.856571484960938, 3, 49, 31, 31),
        Row(4.884527136621094, None, 36, 17, 17),
        Row(5.594022295996094, None, 21, 10, 10),
        Row(5.640293719433594, 1, 56, 1, 1),
    )
    case = Case(
        rows=rows,
        ranks=(4, 2, 4, 1, 4),
        capacity=156,
        max_wait_tokens=0,
        reserve="paged",
        scheduler="chunked_prefill",
        loader="asynchronous",
        kernel="padded_bmm",
        eviction="banded_lru",
        prefix_caching=True,
        host_kv_tokens=10_000,
        block_hashes=hashes,
    )
    assert_same(case.simulation(), case.simulation(fast_forward=False))


class Looks(Migration):
    """Moves nothing, and keeps what it sees of memory."""

    period_s = 2**-5 + 2**-9

    def __init__(self) -> None:
        self.seen: list[tuple[float, list[int]]] = []

    def plan(self, view: ClusterView) -> Plan:
        self.seen.append((view.now_s, view.used_tokens.tolist()))
        return Plan()


@given(family(loaders=("asynchronous", "cpu_assisted")) | pressed())
@share(2 / 3)
def test_a_look_in_the_middle_of_a_window_sees_the_memory_of_the_plain_loop(case: Case) -> None:
    """The KV of requests that do not decode has not grown meanwhile."""
    seen = []
    for fast_forward in (True, False):
        looks, scenario = Looks(), case.scenario(fast_forward=fast_forward)
        Simulation(replace(scenario, policies=replace(scenario.policies, migration=looks))).run()
        seen.append(looks.seen)
    assert seen[0] == seen[1]


class NothingIsShort(Part):
    """Checks at each boundary that KV and adapters fit, and counts those at which the replica need not make room."""

    certain = 0

    def __init__(self, replica: Replica) -> None:
        self._replica = replica

    def at_boundary(self, now_s: float) -> None:
        kv, window = self._replica.kv, self._replica.table.window
        assert kv.adapters.free_tokens(kv.tokens()) >= 0, "KV takes slots that are not free"
        type(self).certain += window is not None and window.done < window.full


@given(cases(reserves=("paged",), preemptions=("recompute", "swap"), max_loras=(None, 2)))
@share(2 / 3)
def test_room_is_made_wherever_something_could_be_short(case: Case) -> None:
    """Within the first `full` steps of a window nothing is; after them the replica makes room."""
    NothingIsShort.certain = 0
    simulation = observed(case.scenario(), NothingIsShort)
    for replica in simulation.fleet.replicas:
        assert holds_nothing(replica)
    event(f"room need not be made: {NothingIsShort.certain > 0}")
    event(f"preempted: {simulation.recorder.preemptions > 0}")


class Windows(Part):
    """Keeps the windows that were launched: when they finish a member, when KV is full, when they stop."""

    def __init__(self, replica: Replica) -> None:
        self._table = replica.table
        self.seen: list[tuple[int, int, int]] = []

    def on_ran(self, now_s: float) -> None:
        window = self._table.window
        if window is not None:
            self.seen.append((window.finish, window.full, window.stop))


def test_a_window_knows_when_it_finishes_a_member_and_when_kv_may_be_short() -> None:
    """Blocks of four: two contexts of 5 hold 16 of 30 slots, of 9 they hold 24, and of 13, after 8 steps, too many.

    The last request is then preempted, and the other goes on alone, with as many slots as it can need.
    """
    rows = (Row(0.0, None, 4, 20, 20), Row(0.0, None, 4, 20, 20))
    case = Case(rows=rows, capacity=30, reserve="paged", watermark=0.0, max_wait_tokens=99)
    simulation = observed(case.scenario(), Windows)
    windows = simulation.fleet.replicas[0].part(Windows)
    assert windows is not None
    assert windows.seen[:2] == [(19, 8, 8), (11, 11, 11)]
    assert simulation.recorder.preemptions == 1


def test_fast_forward_needs_fewer_boundaries(burst: Case) -> None:
    fast, plain = burst.simulation(), burst.simulation(fast_forward=False)
    assert fast.fleet.replicas[0].view.iterations == plain.fleet.replicas[0].view.iterations == 59
    assert fast.recorder.boundaries == 12, "arrival, prefill, and one for each of the ten that finish"
    assert plain.recorder.boundaries == 60
