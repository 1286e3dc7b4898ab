"""Weights that are loaded beside the running batch: a request waits for its own, and the others go on.

Times are sums by hand, from the coefficients of the cases: a load of rank r takes 2^-8 + 64 r / 2^14 seconds.
"""

from functools import partial
from math import nextafter

import pytest

from simlora.engine.parts.early_loading import Forecasting
from simlora.metrics.recorder import Recorder
from tests.engine.by_hand import load_s, prefill_s, step_s
from tests.engine.cases import COEFFICIENTS as C
from tests.engine.cases import LOADERS, Case, Row

SLOW = {**C, "adapter_load.latency_s": 0.5}
"""Half a second a load: several steps."""
SLOW_S = 0.5 + 64 / 2**14
CASE = Case(kernel="merged", loader="asynchronous", max_wait_tokens=0)
"""LoRA itself costs nothing: iterations and loads remain."""
BESIDE = Row(0.0, None, 4, 60, 60), Row(2**-6, 0, 4, 1, 1)
"""The second comes during the prefill of the first, which decodes long."""


def test_an_asynchronous_load_lets_the_batch_go_on():
    """The base model's request decodes as if it were alone, until the other one's prefill.

    That begins at the first boundary after its weights.
    """
    both = CASE.serve(*BESIDE, coefficients=SLOW)
    blocked = CASE.serve(*BESIDE, coefficients=SLOW, loader="blocking").loc[0]
    alone_s = CASE.serve(BESIDE[0], coefficients=SLOW).finish_s[0]
    assert both.finish_s[0] == pytest.approx(alone_s + prefill_s(4))
    assert both.blocked_s.tolist() == [0.0, 0.0]
    assert blocked.finish_s == pytest.approx(alone_s + prefill_s(4) + SLOW_S)
    assert blocked.blocked_s == pytest.approx(SLOW_S)
    ready_s = prefill_s(4) + SLOW_S  # asked for at the boundary after its arrival
    assert both.cold_start_s[1] == pytest.approx(SLOW_S)
    assert ready_s <= both.admitted_s[1] < ready_s + step_s(64)
    assert both.first_token_s[1] == pytest.approx(both.admitted_s[1] + prefill_s(4))


def test_two_that_wait_for_one_adapter_share_its_load_and_start_the_moment_it_is_there():
    recorder = CASE.but(rows=(Row(0.25, 0, 4, 3, 3), Row(0.25 + 2**-10, 0, 4, 3, 3))).run()
    assert recorder.adapter_loads == 1
    assert recorder.requests().admitted_s.tolist() == [0.25 + load_s(1)] * 2


def test_requests_whose_weights_come_together_are_prefilled_within_the_limit_of_tokens():
    found = CASE.serve(*(Row(0.0, 0, 30, 3, 3),) * 2, max_num_batched_tokens=40)
    assert found.admitted_s[0] == load_s(1)
    assert found.admitted_s[1] >= found.first_token_s[0]


@pytest.mark.parametrize("loader", ["asynchronous", "cpu_assisted"])
def test_weights_that_are_to_be_merged_are_waited_for(loader):
    merged = Case(rows=(Row(0.0, 0, 4, 3, 3), Row(0.0, 1, 4, 3, 3)), scheduler="merged_per_batch")
    one, other = merged.but(loader=loader).table(), merged.but(loader="blocking").table()
    assert one.finish_s.tolist() == other.finish_s.tolist()


def test_many_requests_are_deferred_one_prefill_after_the_other():
    n = 1200  # more than Python's stack is deep
    rows = tuple(Row(0.0, i, 4, 2, 2) for i in range(n))
    many = CASE.but(rows=rows, ranks=(1,) * n, capacity=10**6, max_num_seqs=10**4, max_num_batched_tokens=4)
    assert (many.table().status == "finished").all()


def test_kernels_do_not_see_adapters_of_requests_that_do_not_run_yet():
    """vLLM's kernel is priced by distinct adapters: five that are on their way change nothing."""
    took = []
    for others in (0, 5):
        waiting = (Row(50.2, i + 1, 4, 1, 1) for i in range(others))
        rows = (Row(0.0, 0, 4, 60, 60), *waiting, Row(50.3, None, 4, 1, 1))
        slow = {**C, "adapter_load.latency_s": 50.0}
        found = CASE.serve(*rows, ranks=(1,) * 6, kernel="vllm", coefficients=slow).loc[0]
        took.append(found.finish_s - found.first_token_s)
    assert took[0] == pytest.approx(took[1], rel=1e-9)


# From the arrival on ------------------------------------------------------------------------


@pytest.mark.parametrize("loader, cold_s", [("asynchronous", load_s(1)), ("on_arrival", 0.0)])
def test_on_arrival_a_load_begins_when_its_request_comes_not_when_it_is_admitted(loader, cold_s):
    """The second comes in the middle of the first one's prefill, and its load, which is no hit, is over before that."""
    assert 2**-10 + load_s(1) < prefill_s(40)
    rows = Row(0.0, None, 40, 2, 2), Row(2**-10, 0, 4, 1, 1), Row(4.0, 0, 4, 1, 1)
    recorder = CASE.but(rows=rows, loader=loader, eviction="lru").run()
    found = recorder.requests().loc[1]
    assert found.cold_start_s == pytest.approx(cold_s)
    assert (recorder.adapter_loads, recorder.adapter_misses, recorder.adapter_hits) == (1, 1, 1)
    if loader == "on_arrival":
        assert found.admitted_s == prefill_s(40)


# Ahead of requests ----------------------------------------------------------------------------

FORECAST = Case(
    ranks=(1,) * 3,
    kernel="merged",
    loader="predictive",
    eviction="lru",
    reserve="paged",
    max_wait_tokens=0,
    adapter_memory="slots",
    max_loras=1,
    adapter_region_tokens=4,
)
"""A slot for one adapter, and a forecast every eighth of a second of what comes with a probability of 30 %."""
OFTEN = tuple(Row(0.01 * i, 0, 1, 1, 1) for i in range(3))
"""Requests of adapter 0, all of which have left before 0.06 s."""


@pytest.mark.parametrize("loader, cold_s", [("blocking", load_s(1)), ("predictive", 0.0)])
def test_a_forecast_brings_what_is_asked_for_most_to_an_idle_replica(loader: str, cold_s: float) -> None:
    """Adapter 1 takes the slot of adapter 0 for a request; the forecast at 0.25 s brings that back."""
    rows = *OFTEN, Row(0.15, 1, 1, 1, 1), Row(0.3, 0, 1, 1, 1)
    recorder = FORECAST.but(rows=rows, loader=loader).run()
    assert recorder.requests().finish_s[3] < 0.25, "the replica is idle then"
    assert recorder.requests().cold_start_s[4] == pytest.approx(cold_s)
    assert recorder.adapter_loads == 3


def test_after_a_forecast_the_next_one_is_due_later():
    """1.0 is the end of a tenth of a second, and 1.0 // 0.1 is 9: the tenth end is no later than now."""
    every = partial(LOADERS["predictive"], period_s=0.1)
    case = FORECAST.of(Row(1.0, 0, 1, 1, 1), until_s=nextafter(1.0, 2.0))
    (replica,) = case.simulation(loader=every).fleet.replicas
    forecasts = replica.part(Forecasting)
    assert forecasts is not None
    assert forecasts.next_s() > 1.0


def test_a_forecast_leaves_what_is_in_use_and_what_is_likelier() -> None:
    """Adapter 1 runs at 0.125 s, and adapter 0 is back at 0.25 s; the less likely adapter 1 does not replace it."""
    rows = *OFTEN, Row(0.06, 1, 1, 6, 6), Row(0.4, 0, 1, 1, 1)
    recorder = FORECAST.but(rows=rows).run()
    assert 0.125 < recorder.requests().finish_s[3] < 0.25
    assert recorder.requests().cold_start_s[4] == 0.0
    assert recorder.adapter_loads == 3


def test_what_a_forecast_brought_leaves_as_any_idle_adapter_does() -> None:
    """Not after all others, as what was brought for a waiting request does: the later load finds its room there."""
    rows = *OFTEN, Row(0.15, 1, 1, 1, 1), Row(0.3, 2, 1, 1, 1)
    assert FORECAST.but(rows=rows).table().cold_start_s[4] == pytest.approx(load_s(1))
    two = FORECAST.but(rows=(*OFTEN, *rows[3:], Row(0.31, 2, 1, 1, 1)), max_loras=2, adapter_region_tokens=8)
    assert two.run().adapter_loads == 3


def crowd(loader: str, scheduler: str = "fcfs") -> Recorder:
    """Sixty requests of twenty adapters in a pool that holds a few of them."""
    rows = tuple(Row(0.01 * i, i % 20, 6, 12, 12) for i in range(60))
    return Case(
        rows=rows, ranks=(1,) * 20, capacity=100, max_wait_tokens=2, loader=loader, scheduler=scheduler
    ).run()


@pytest.mark.parametrize("scheduler", ["fcfs", "lcfs"])
def test_prefetching_fetches_nothing_that_growing_kv_pushes_out_again(scheduler):
    blocking, prefetching = crowd("blocking", scheduler), crowd("prefetching", scheduler)
    assert prefetching.adapter_hits > blocking.adapter_hits
    # A request that starts may still take the room of one that was fetched for another.
    assert prefetching.adapter_loads <= 1.2 * blocking.adapter_loads
    assert prefetching.requests().cold_start_s.mean() < blocking.requests().cold_start_s.mean()
