"""The invariants of docs/invariants.md, by number, over random scenarios.

Invariant 10, fast-forward equals the plain loop, is tests/engine/test_fast_forward.py; 13, the same bytes again, is in
tests/golden and, over random scenarios, in tests/experiments/test_torture.py.
"""

import numpy as np
import pandas as pd
import pytest
from hypothesis import assume, event, given
from hypothesis import strategies as st

from experiments.torture.watch import Watched, watched
from simlora.core.request import Request
from simlora.metrics.recorder import Recorder
from tests.engine.cases import (
    KERNELS,
    LOADERS,
    PLACEMENTS,
    ROUTERS,
    SWAPPERS,
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
    speculative,
    swapped,
    tiered,
)
from tests.engine.observing import all_requests_end
from tests.examples import share

ENDS = st.floats(2**-8, 8.0)
BESIDE = ("asynchronous", "on_arrival", "cpu_assisted")
"""Loaders whose copies overlap iterations."""
ANY = st.one_of(
    cases(loaders=tuple(LOADERS), preemptions=("recompute", "swap")),
    family(loaders=tuple(LOADERS)),
    own_memory(),
    divided(loaders=tuple(LOADERS)),
    shared_gpus(loaders=tuple(LOADERS)),
    shared_prefixes(loaders=tuple(LOADERS)),
    swapped(loaders=tuple(LOADERS)),
    tiered(shared_prefixes, loaders=tuple(LOADERS)),
    tiered(swapped, loaders=tuple(LOADERS)),
    speculative(family, loaders=tuple(LOADERS)),
    speculative(shared_prefixes, loaders=tuple(LOADERS)),
)


def same(a: pd.DataFrame, b: pd.DataFrame) -> None:
    pd.testing.assert_frame_equal(a, b, check_exact=True)


@pytest.mark.parametrize("fast_forward", [True, False])
@given(case=ANY)
@share(1 / 2)
def test_1_to_7_of_a_run(case, fast_forward):
    simulation = watched(case.scenario(fast_forward=fast_forward))  # 3, 5 and 7, at every event
    assert sum(len(watch.held()) for watch in simulation.watches) == 0, "5: everything is given back"
    table = simulation.recorder.requests()
    every_request_ends_in_exactly_one_status(case, table)
    tokens_out_are_tokens_asked(case, simulation.recorder, table)
    arrival_admission_first_token_and_finish_come_in_this_order(table)
    if not fast_forward:
        no_replica_idles_beside_a_request(case, simulation, table)


def every_request_ends_in_exactly_one_status(case: Case, table: pd.DataFrame) -> None:
    """Invariant 1."""
    assert len(table) == len(case.rows)
    allowed = {"finished", "rejected"} | (
        {"aborted"} if case.scheduler in ("early_abort", "chunked_slo") else set()
    )
    assert set(table.status) <= allowed, "only some schedulers abort requests"
    assert ((table.status != "finished") == (table.reason != "")).all(), "nothing is dropped silently"


def tokens_out_are_tokens_asked(case: Case, recorder: Recorder, table: pd.DataFrame) -> None:
    """Invariant 2."""
    finished = table[table.status == "finished"]
    asked = finished.output_tokens.sum()
    # Every token is the first of a request, follows a gap, or was accepted beside one that does; and it comes from a
    # decode step or a prefill.
    assert recorder.token_gaps.count + recorder.accepted_tokens + len(finished) == asked
    if case.scheduler not in (
        "chunked_prefill",
        "prefill_first",
        "chunked_slo",
    ):  # there a prefill may start again before its token
        counted = recorder.token_steps + len(finished)
        # A request that was preempted while it waited for weights had no token to be computed anew.
        beside = recorder.preemptions if case.loader in BESIDE else 0
        assert counted + recorder.preemptions - beside <= asked <= counted + recorder.preemptions
    assert recorder.preemptions == table.preemptions.sum()


def arrival_admission_first_token_and_finish_come_in_this_order(table: pd.DataFrame) -> None:
    """Invariant 4."""
    done = table[table.status == "finished"]
    assert (done.arrival_s <= done.admitted_s).all()
    assert (done.admitted_s < done.first_token_s).all()
    assert (done.first_token_s <= done.finish_s).all()
    assert ((done.first_token_s == done.finish_s) == (done.output_tokens == 1)).all()
    assert (done.cold_start_s >= 0).all()
    assert (done.kv_cold_start_s >= 0).all()
    assert (done.cold_start_s + done.kv_cold_start_s <= done.queue_s + 1e-9).all()
    assert (done.blocked_s >= -1e-9).all()
    assert (done.cold_start_s + done.kv_cold_start_s + done.blocked_s <= done.latency_s + 1e-9).all()
    rejected = table[table.status == "rejected"]
    assert (rejected.finish_s == rejected.arrival_s).all()


def no_replica_idles_beside_a_request(case: Case, simulation: Watched, table: pd.DataFrame) -> None:
    """Invariant 6: iterations follow each other without a gap, but for gaps that end with the next arrival.

    Where requests wait for their own weights or KV, and hold memory, that may be after others have arrived; or the gap
    ends when what they wait for is there.
    """
    for watch in simulation.watches:
        replica = watch.replica
        served = table[(table.replica == replica.id) & (table.status == "finished")]
        free_s = 0.0
        for start_s, end_s in watch.ran:
            if start_s > free_s:
                arrivals = served.arrival_s[served.finish_s > free_s]
                beside = case.loader in BESIDE
                assert start_s == arrivals.min() or (beside and start_s in {*arrivals, *watch.landings_s})
            free_s = end_s
        assert replica.busy_s == pytest.approx(sum(end_s - start_s for start_s, end_s in watch.ran))


@given(
    st.one_of(
        divided(ends=ENDS, loaders=tuple(LOADERS)),
        shared_prefixes(ends=ENDS, loaders=tuple(LOADERS)),
        swapped(ends=ENDS, loaders=tuple(LOADERS)),
    )
)
def test_3_5_7_memory_fits_also_where_the_clock_stops_before_the_end(case):
    watched(case.scenario())


@given(st.one_of(pressed(), tiered(pressed)), st.booleans())
@share(1 / 2)
def test_3_5_7_14_memory_fits_also_where_kv_goes_to_the_host_and_back(case, fast_forward):
    """Slots are written to while copies still use others, and KV and adapters leave before they have come."""
    simulation = watched(case.scenario(fast_forward=fast_forward))
    links = [replica.host_link for replica in simulation.fleet.replicas]
    event(f"to the host: {any(link.kv_tokens_out for link in links)}")
    event(f"and back: {any(link.kv_tokens_in for link in links)}")


@given(placed(), st.booleans())
@share(1 / 2)
def test_1_3_5_7_15_memory_fits_also_where_hosts_hold_what_they_serve(case, fast_forward):
    simulation = watched(case.scenario(fast_forward=fast_forward))
    assert (simulation.recorder.requests().status != "unfinished").all()
    event(f"fetched: {simulation.recorder.remote_loads > 0}")


@given(ANY, st.sampled_from((2**-6, 2**-3, 0.1)), st.booleans())
@share(1 / 2)
def test_1_to_5_and_7_also_where_requests_move(case, every_s, fast_forward):
    moving = case.but(migrates_every_s=every_s, router="most_idle")
    all_requests_end(watched(moving.scenario(fast_forward=fast_forward)))


@given(cases(loaders=("blocking", "prefetching")))
def test_8_a_load_is_charged_once(case):
    simulation = watched(case.scenario())
    loads = sum(watch.inserted for watch in simulation.watches)
    assert simulation.recorder.adapter_loads == loads
    assert sum(len(watch.loaded) for watch in simulation.watches) == loads, "each is one copy"
    sizes = {adapter.size_bytes // case.tp for adapter in simulation.adapters}
    latency_s, bytes_per_s = (
        case.coefficients["adapter_load.latency_s"],
        case.coefficients["adapter_load.bytes_per_s"],
    )
    busy_s = sum(replica.host_link.to_gpu.busy_s for replica in simulation.fleet.replicas)
    assert loads * (latency_s + min(sizes) / bytes_per_s) <= busy_s + 1e-9
    assert busy_s <= loads * (latency_s + max(sizes) / bytes_per_s) + 1e-9


def test_8_a_request_waits_only_for_the_rest_of_a_load_in_flight():
    case = Case(
        rows=(Row(0.0, None, 5, 9, 9), Row(0.03125, 0, 5, 5, 5)), loader="prefetching", max_wait_tokens=4
    )
    case = case.but(coefficients={**case.coefficients, "adapter_load.latency_s": 0.25})
    recorder = case.run()
    assert recorder.adapter_loads == 1
    late = recorder.requests().loc[1]
    assert 0 < late.cold_start_s < 0.25


@given(ANY)
@share(1 / 2)
def test_9_without_adapters_only_the_base_model_is_left(case):
    base = case.but(rows=tuple(row._replace(adapter=None) for row in case.rows))
    plain = base.but(ranks=(), kernel="merged", loader="cached", eviction="on_demand").run()
    own = base.adapter_memory != "unified"
    for kernel, loader in zip(
        KERNELS, ("cached", "blocking", "blocking" if own else "prefetching") * 2, strict=False
    ):
        other = base.but(kernel=kernel, loader=loader, eviction="on_demand" if own else "lru").run()
        same(other.requests(), plain.requests())
        assert other.token_gaps.mean() == plain.token_gaps.mean() or not plain.token_gaps.count
        assert other.adapter_loads == 0


@given(ANY, st.randoms(use_true_random=False))
@share(1 / 2)
def test_11_other_names_and_numbers_for_adapters_change_nothing(case, random):
    if case.eviction == "lru_in_turn" or case.eviction in SWAPPERS:
        case = case.but(
            eviction="lru"
        )  # these go by the numbers of adapters: turns, and the order of adapters that no request has used
    case = case.but(adapter_acceptance=None)  # drawn by their numbers
    order = list(range(len(case.ranks)))
    random.shuffle(order)  # adapter a becomes order[a]
    ranks = tuple(case.ranks[order.index(b)] for b in range(len(order)))
    rows = tuple(
        row._replace(adapter=None if row.adapter is None else order[row.adapter]) for row in case.rows
    )
    renamed = case.but(rows=rows, ranks=ranks).run().requests()
    same(renamed.drop(columns="adapter"), case.run().requests().drop(columns="adapter"))


@given(ANY)
@share(1 / 2)
def test_11_other_numbers_for_requests_change_nothing(case):
    """Requests that are rejected at the start move every number up by one round of the replicas."""
    rejected = Row(0.0, None, case.capacity + 1, 1, 1)
    # What is accepted is drawn by a request's number, and a rejected one counts for its adapter's rate limit.
    case = case.but(acceptance=1.0, adapter_acceptance=None, adapter_rps=None)
    moved = case.behind((rejected,) * case.replicas).run().requests()
    moved = moved.iloc[case.replicas :].reset_index(drop=True)
    same(
        moved.drop(columns=["request_id", "reason"]),
        case.run().requests().drop(columns=["request_id", "reason"]),
    )


def test_12_a_request_does_not_know_its_true_output():
    assert "output_tokens" not in dir(Request)
    assert not hasattr(Request(0, None, 0.0, 5, 5), "output_tokens")
    assert not hasattr(Request(0, None, 0.0, 5, 5), "__dict__")


@given(ANY, st.data())
@share(1 / 2)
def test_12_what_is_decided_before_a_request_ends_does_not_depend_on_when_it_ends(case, data):
    """Whichever the policies, those that route and move requests included."""
    case = case.but(
        router=data.draw(st.sampled_from(tuple(ROUTERS))),
        placement=data.draw(st.sampled_from(tuple(PLACEMENTS))),
        migrates_every_s=data.draw(st.sampled_from((None, 2**-3))),
    )
    one = watched(case.scenario())
    table = one.recorder.requests()
    finished = table.index[table.status == "finished"].tolist()
    assume(finished)
    chosen = data.draw(st.sampled_from(finished))
    tokens = data.draw(st.integers(1, case.rows[chosen].max_output_tokens))
    rows = list(case.rows)
    rows[chosen] = rows[chosen]._replace(output_tokens=tokens)
    other = watched(case.of(*rows).scenario())
    tables = table, other.recorder.requests()
    first_difference_s = min(each.finish_s[chosen] for each in tables if each.status[chosen] == "finished")
    routed = case.trace().arrival_s < first_difference_s
    routed &= (tables[0].migrations + tables[1].migrations == 0).to_numpy()
    assert (tables[0].replica[routed] == tables[1].replica[routed]).all()
    for column in ("admitted_s", "first_token_s", "finish_s"):
        early = [table[column].where(table[column] < first_difference_s) for table in tables]
        np.testing.assert_allclose(early[0], early[1], rtol=0, atol=1e-9, err_msg=column)
    assert decided_before(one, first_difference_s) == decided_before(other, first_difference_s)


def decided_before(simulation: Watched, time_s: float) -> list[list[tuple[int, ...]]]:
    """Return the requests that were prefilled together, replica by replica."""
    return [[ids for now_s, ids in watch.decisions if now_s < time_s] for watch in simulation.watches]
