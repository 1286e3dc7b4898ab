"""`fast_forward=true` gives what `fast_forward=false` gives: the same decisions at the same times."""

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
from tests.engine import cases as draws
from tests.engine.cases import IRREGULAR, LOADERS, PLACEMENTS, ROUTERS, SCHEDULERS, Case, Row
from tests.engine.moving import looking
from tests.engine.observing import observed
from tests.examples import share

EQUAL = ["status", "reason", "replica", "preemptions", "cached_tokens", "migrations"]
TIMES = ["admitted_s", "first_token_s", "finish_s", "ttft_s", "tpot_s", "latency_s", "queue_s"]
TIMES += ["cold_start_s", "kv_cold_start_s", "blocked_s"]
COUNTS = ["token_steps", "draft_tokens", "accepted_tokens", "verified", "preemptions"]
COUNTS += ["adapter_hits", "adapter_misses", "adapter_loads", "adapter_load_bytes"]
COUNTS += ["disk_loads", "remote_loads", "storage_loads", "reloads"]
LOADS = ("blocking", "prefetching", "predictive")
ENDS = st.floats(2**-8, 8.0)
MAYBE_ENDS = st.none() | ENDS


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
        assert (one.most_running, one.most_waiting) == (other.most_running, other.most_waiting)
        assert one.busy_s == pytest.approx(other.busy_s, abs=1e-9)
        assert_same_memory(one, other)
    if fast.store is not None and plain.store is not None:
        assert (fast.store.holders, fast.store.most_held) == (plain.store.holders, plain.store.most_held)
    assert fast.recorder.journal.scaled == plain.recorder.journal.scaled
    assert fast.recorder.last_s == pytest.approx(plain.recorder.last_s, abs=1e-9)
    assert fast.recorder.boundaries <= plain.recorder.boundaries
    assert_same_gaps(fast.recorder, plain.recorder)
    if fast.scenario.replica.host_kv_tokens and fast.recorder.last_s > 0:
        hosts = [each.recorder.usage.until(fast.recorder.last_s).host for each in (fast, plain)]
        np.testing.assert_allclose(*hosts, rtol=0, atol=1e-6, err_msg="KV on the host")


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
    assert region_tokens(one) == region_tokens(other)


def brought_ahead(replica: Replica) -> int:
    """Tokens of KV that a swapper brought from the host ahead of any request."""
    swapper = replica.part(UnifiedSwapper)
    return 0 if swapper is None else swapper.kv_tokens_in


def region_tokens(replica: Replica) -> int:
    """Token slots in use of adapter memory outside the pool."""
    own = replica.part(OwnRegion)
    return 0 if own is None else own.region.used_tokens


def assert_same_gaps(fast: Recorder, plain: Recorder) -> None:
    a, b = fast.token_gaps, plain.token_gaps
    assert a.count == b.count
    if a.count:
        assert a.mean() == pytest.approx(b.mean(), rel=1e-9)
        for q in (0.0, 0.1, 0.5, 0.9, 0.99, 1.0):
            assert a.quantile(q) == pytest.approx(b.quantile(q), rel=2e-3), f"quantile {q}"


# Families of scenarios ----------------------------------------------------------------------


@st.composite
def beside(draw: st.DrawFn, loader: str) -> Case:
    """Adapters that come beside the batch: as fast as a step or two, or so slowly that a prefill is over before."""
    loaders = (loader,)
    kinds = [kind(loaders=loaders) for kind in (draws.family, draws.divided, draws.shared_prefixes)]
    kinds += [draws.pressed(loaders=loaders), draws.shared_gpus(loaders=loaders)]
    case = draw(st.one_of(*kinds, draws.cases(loaders=loaders, ends=ENDS)))
    slower = draw(st.sampled_from((1, 8, 64)))
    loads = {"adapter_load.latency_s": case.coefficients["adapter_load.latency_s"] * slower}
    return case.but(coefficients={**case.coefficients, **loads})


@st.composite
def abandoning(draw: st.DrawFn) -> Case:
    """Scenarios in which loads take long, adapters are fetched ahead, and KV needs their room."""
    loaders = draw(st.sampled_from((("prefetching",), ("prefetching", "asynchronous"), ("predictive",))))
    kinds = {"loaders": loaders, "reserves": ("full", "peak", "paged")}
    case = draw(st.one_of(draws.family(adapter_memories=("unified",), **kinds), draws.placed(**kinds)))
    known, slower = case.coefficients, draw(st.sampled_from((1, 16, 128)))
    known = {**known, "adapter_load.bytes_per_s": known["adapter_load.bytes_per_s"] / slower}
    largest = max(row.prompt_tokens + row.max_output_tokens for row in case.rows) + 4 * max(case.ranks)
    return case.but(coefficients=known, capacity=largest + draw(st.sampled_from((0, 4, 16))))


@st.composite
def moving(draw: st.DrawFn) -> Case:
    """Requests that move between replicas, behind every router."""
    every = tuple(LOADERS)
    kinds = [kind(loaders=every) for kind in (draws.family, draws.divided, draws.shared_prefixes)]
    kinds += [draws.pressed(), draws.shared_gpus(), draws.cases(loaders=every, ends=ENDS)]
    case = draw(st.one_of(*kinds))
    migration = draw(st.sampled_from(("consolidate", "consolidate", "selective_ilp")))
    periods_s = (2**-6, 2**-3, 0.1) if migration == "consolidate" else (0.1,)  # a solve takes long
    return case.but(
        migrates_every_s=draw(st.sampled_from(periods_s)),
        router=draw(st.sampled_from(tuple(ROUTERS))),
        migration=migration,
        placement=draw(st.sampled_from(tuple(PLACEMENTS))),
    )


@st.composite
def asking(draw: st.DrawFn) -> Case:
    """Dispatch that asks all replicas first, each for no time or for as long as a step takes."""
    every = tuple(LOADERS)
    kinds = [kind(loaders=every) for kind in (draws.family, draws.divided, draws.shared_prefixes)]
    kinds += [draws.pressed(), draws.shared_gpus(), draws.cases(loaders=every, ends=ENDS)]
    case = draw(st.one_of(*kinds))
    calls = {"front_end.per_call_s": draw(st.sampled_from((0.0, 2**-10, 2**-6)))}
    return case.but(router="asking", coefficients={**case.coefficients, **calls})


def behind(router: str, kinds: st.SearchStrategy[Case], least: int = 1) -> st.SearchStrategy[Case]:
    """At least so many replicas behind a router."""
    return kinds.map(lambda case: case.but(router=router, replicas=max(case.replicas, least)))


CURVES = {
    **{name: value for name, value in IRREGULAR.items() if not name.startswith(("prefill.", "decode."))},
    **{f"prefill.pass_s_by_tokens.{tokens}": s for tokens, s in ((4, 0.012), (32, 0.020), (128, 0.080))},
    **{f"decode.step_s_by_batch.{batch}": s for batch, s in ((1, 0.011), (3, 0.0115), (8, 0.020))},
    **{f"decode.per_context_token_s_by_batch.{batch}": s for batch, s in ((1, 4e-5), (8, 9e-5))},
}
"""Iterations by curves, each with a knee, in place of coefficients."""
PARTLY = ("chunked_prefill", "prefill_first", "chunked_slo")
"""Schedulers that prefill requests in part."""
FAMILIES: dict[str, st.SearchStrategy[Case]] = {
    **{scheduler: draws.family(schedulers=(scheduler,)) for scheduler in SCHEDULERS},
    "adapters are prefetched": draws.cases(loaders=LOADS[1:], preemptions=("recompute", "swap")),
    "preempted KV goes to the host": draws.cases(reserves=("paged",), preemptions=("swap",)),
    "iterations are by curves": draws.family(schedulers=("fcfs", "chunked_prefill")).map(
        lambda case: case.but(coefficients=CURVES)
    ),
    "HBM is divided": draws.divided(
        schedulers=(*PARTLY, "fcfs", "early_abort"), loaders=LOADS, ends=MAYBE_ENDS
    ),
    "requests begin alike": draws.shared_prefixes(loaders=LOADS, ends=MAYBE_ENDS),
    "KV is kept below the host": draws.tiered(draws.shared_prefixes, loaders=LOADS),
    "KV is swapped, and kept below the host": draws.tiered(draws.swapped, loaders=tuple(LOADERS)),
    "KV is kept below the host, in little memory": draws.tiered(draws.pressed, ends=ENDS),
    "KV and adapters are swapped": draws.swapped(loaders=tuple(LOADERS)),
    "they are swapped in little memory": draws.pressed(ends=MAYBE_ENDS),
    "they are swapped in little memory, prompts in part": draws.pressed(schedulers=PARTLY),
    "a draft proposes tokens": draws.speculative(draws.family, loaders=tuple(LOADERS)),
    "a draft proposes tokens to requests that begin alike": draws.speculative(
        draws.shared_prefixes, ends=MAYBE_ENDS
    ),
    "a draft proposes tokens, in little memory": draws.speculative(draws.pressed),
    "hosts hold what they serve": draws.placed(),
    "adapters have memory of their own": draws.own_memory(),
    "engines share a GPU": draws.shared_gpus(),
    **{loader: beside(loader) for loader in ("asynchronous", "on_arrival", "cpu_assisted")},
    "loads are abandoned": abandoning(),
    **{
        router: behind(router, draws.family(loaders=("blocking", "asynchronous")))
        for router in ("first_fit", "rank_aware")
    },
    **{
        router: behind(router, st.one_of(draws.shared_prefixes(loaders=tuple(LOADERS)), draws.pressed()), 2)
        for router in ("scored", "kv_cost")
    },
    "dispatch asks all replicas": asking(),
    "requests move": moving(),
    "hosts fail": draws.failing(),
    "replicas come and go": draws.fleets(),
}
"""All that the engine has, by what is special."""


@pytest.mark.parametrize("family", FAMILIES)
@given(data=st.data())
@share(1 / 6)
def test_fast_forward_equals_the_plain_loop(family, data):
    case = data.draw(FAMILIES[family])
    fast, plain = case.simulation(), case.simulation(fast_forward=False)
    assert_same(fast, plain)
    recorder, links = fast.recorder, [replica.host_link for replica in fast.fleet.replicas]
    event(f"steps skipped: {recorder.boundaries < plain.recorder.boundaries}")
    event(
        f"loads: {recorder.adapter_loads > 0}, from elsewhere: {recorder.disk_loads + recorder.remote_loads > 0}"
    )
    event(f"preempted: {recorder.preemptions > 0}, moved: {bool(recorder.journal.moved)}")
    event(f"found: {recorder.cached_tokens > 0}, unfinished: {recorder.ended < len(case.rows)}")
    event(f"to the host: {any(link.kv_tokens_out for link in links)}")
    event(
        f"and back: {any(link.kv_tokens_in for link in links)}, ahead: {any(map(brought_ahead, fast.fleet.replicas))}"
    )


# Found once ---------------------------------------------------------------------------------


SLOTS = Case(
    rows=(
        Row(2**-6, 1, 5, 6, 6),
        Row(0.0166015625, 2, 1, 1, 1),
        Row(0.0322265625, 4, 4, 11, 11),
        Row(0.033203125, 1, 6, 10, 10),
        Row(0.095703125, 3, 7, 6, 6),
    ),
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
"""Three slots: asked again at the next step, a prefetch would bring what it threw out at the step before."""
HELPED = Case(
    rows=(
        Row(0.0, 1, 1, 34, 34),
        Row(0.0, 0, 6, 34, 34),
        Row(0.0, 0, 5, 1, 34),
        Row(0.0, None, 7, 38, 56),
        Row(0.0, None, 8, 34, 34),
        Row(0.0, 2, 2, 1, 25),
    ),
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
"""A request that the CPU helps is prefilled before its weights are there; when it decodes, no iteration has ended."""
DEFERRED = Case(
    rows=(
        Row(0.0, None, 24, 1, 1),
        Row(4.856571484960938, 3, 49, 31, 31),
        Row(4.884527136621094, None, 36, 17, 17),
        Row(5.594022295996094, None, 21, 10, 10),
        Row(5.640293719433594, 1, 56, 1, 1),
    ),
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
    block_hashes=(
        (3, 10, 31, 96, 291, 875, 2626, 7880),
        (1, 6, 21, 65, 196, 589),
        (3, 12, 37, 112),
        (3, 11, 36, 110, 331, 994, 2983, 8950),
        (1, 5, 18, 55, 168, 505),
    ),
)
"""Beside a batch that decodes a request takes the slot of its first token a step earlier than those that begin; a copy
may still use it."""
FOUND = {
    "a prefetch takes no slot of an adapter that the queue's head wants too": SLOTS,
    "low counts requests that join when their weights are there": HELPED,
    "a deferred request waits for the slot of its first token itself": DEFERRED,
}


@pytest.mark.parametrize("case", FOUND.values(), ids=FOUND)
def test_it_does_also_where_it_did_not_once(case):
    assert_same(case.simulation(), case.simulation(fast_forward=False))


@given(draws.family(loaders=("asynchronous", "cpu_assisted")) | draws.pressed())
@share(1 / 3)
def test_a_look_in_the_middle_of_a_window_sees_the_memory_of_the_plain_loop(case):
    """The KV of requests that do not decode has not grown meanwhile."""
    seen: dict[bool, list[tuple[float, list[int]]]] = {True: [], False: []}
    for fast_forward, looks in seen.items():
        sees = looking(looks, lambda view: (view.now_s, view.used_tokens.tolist()), 2**-5 + 2**-9)
        case.run(fast_forward=fast_forward, migration=sees)
    assert seen[True] == seen[False]


class Windows(Part):
    """Keeps the windows that were launched: when they finish a member, when KV is full, when they stop."""

    def __init__(self, replica: Replica) -> None:
        self._table = replica.table
        self.seen: list[tuple[int, int, int]] = []

    def on_ran(self, now_s: float) -> None:
        window = self._table.window
        if window is not None:
            self.seen.append((window.finish, window.full, window.stop))


def test_a_window_knows_when_it_finishes_a_member_and_when_kv_may_be_short():
    """Blocks of four: two contexts of 5 hold 16 of 30 slots, of 9 they hold 24, and of 13, after 8 steps, too many.

    The last request is then preempted, and the other goes on alone, with as many slots as it can need.
    """
    rows = (Row(0.0, None, 4, 20, 20), Row(0.0, None, 4, 20, 20))
    case = Case(rows=rows, capacity=30, reserve="paged", watermark=0.0, max_wait_tokens=99)
    simulation = observed(case.scenario(), Windows)
    windows = simulation.fleet.replicas[0].part(Windows)
    assert windows.seen[:2] == [(19, 8, 8), (11, 11, 11)]
    assert simulation.recorder.preemptions == 1


def test_fast_forward_needs_fewer_boundaries():
    """Ten requests at once for three adapters, with long answers of different lengths."""
    burst = Case(rows=tuple(Row(0.0, i % 3, 10, 50 + i, 60) for i in range(10)), max_wait_tokens=0)
    fast, plain = burst.simulation(), burst.simulation(fast_forward=False)
    assert fast.fleet.replicas[0].view.iterations == plain.fleet.replicas[0].view.iterations == 59
    assert fast.recorder.boundaries == 12, "arrival, prefill, and one for each of the ten that finish"
    assert plain.recorder.boundaries == 60
