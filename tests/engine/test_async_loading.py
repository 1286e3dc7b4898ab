"""Weights that are loaded beside the running batch: a request waits for its own, and the others go on.

Times are sums by hand, from the coefficients of the cases: a load of rank r takes 2^-8 + 64 r / 2^14 seconds.
"""

from __future__ import annotations

from math import inf

import pandas as pd
import pytest

from experiments.torture.watch import watched
from simlora.core.request import Request
from simlora.engine.cluster.simulation import Simulation
from simlora.engine.parts.async_loading import AsyncLoading
from simlora.engine.replica.request_table import RequestStatus
from tests.engine.by_hand import load_s, prefill_s, step_s
from tests.engine.cases import COEFFICIENTS as C
from tests.engine.cases import Case, Row

SLOW = {**C, "adapter_load.latency_s": 0.5}
"""Half a second a load: several steps."""
MERGED = {"kernel": "merged"}  # LoRA itself costs nothing: iterations and loads remain


def table(*rows: Row, **changes: object) -> pd.DataFrame:
    """The requests of a run in which LoRA itself costs nothing."""
    return Case(rows=rows, **(MERGED | changes)).run().requests()  # type: ignore[arg-type]


def test_an_asynchronous_load_lets_the_batch_go_on() -> None:
    """The base model's request decodes as if it were alone, until the other one's prefill."""
    first, second = Row(0.0, None, 4, 60, 60), Row(2**-6, 0, 4, 1, 1)
    alone = table(first, max_wait_tokens=0, coefficients=SLOW)
    both = table(first, second, max_wait_tokens=0, coefficients=SLOW, loader="asynchronous")
    blocked = table(first, second, max_wait_tokens=0, coefficients=SLOW, loader="blocking")
    assert both.finish_s[0] == pytest.approx(alone.finish_s[0] + prefill_s(4))
    assert both.blocked_s[0] == 0.0
    assert blocked.finish_s[0] == pytest.approx(alone.finish_s[0] + prefill_s(4) + load_s(1) + 0.5 - 2**-8)
    assert blocked.blocked_s[0] == pytest.approx(load_s(1) + 0.5 - 2**-8)


def test_a_deferred_request_is_prefilled_at_the_first_boundary_after_its_weights() -> None:
    rows = Row(0.0, None, 4, 60, 60), Row(2**-6, 0, 4, 1, 1)
    found = table(*rows, max_wait_tokens=0, coefficients=SLOW, loader="asynchronous").loc[1]
    asked_s = prefill_s(4)  # the boundary after its arrival
    ready_s = asked_s + 0.5 + 64 / 2**14
    assert found.cold_start_s == pytest.approx(ready_s - asked_s)
    assert ready_s <= found.admitted_s < ready_s + step_s(64)
    assert found.first_token_s == pytest.approx(found.admitted_s + prefill_s(4))
    assert found.blocked_s == 0.0


def test_others_whose_weights_are_there_overtake_it() -> None:
    rows = Row(0.0, 0, 4, 5, 5), Row(0.0, None, 4, 5, 5)
    found = table(*rows, coefficients=SLOW, loader="asynchronous", max_wait_tokens=0)
    assert found.admitted_s[1] == 0.0
    assert found.admitted_s[0] >= 0.5


def test_alone_it_starts_the_moment_its_weights_are_there() -> None:
    found = table(Row(0.25, 0, 4, 3, 3), loader="asynchronous").loc[0]
    assert found.admitted_s == 0.25 + load_s(1)


def test_a_request_that_waits_for_weights_holds_a_seat_and_memory() -> None:
    rows = Row(0.0, 0, 4, 3, 3), Row(0.0, None, 4, 3, 3)
    found = table(*rows, coefficients=SLOW, loader="asynchronous", max_num_seqs=1)
    assert found.admitted_s[1] >= found.finish_s[0]


def test_two_that_wait_for_one_adapter_share_its_load_and_start_together() -> None:
    rows = Row(0.0, 0, 4, 3, 3), Row(2**-10, 0, 4, 3, 3)
    recorder = Case(rows=rows, loader="asynchronous", **MERGED).run()
    assert recorder.adapter_loads == 1
    assert recorder.requests().admitted_s.tolist() == [load_s(1)] * 2


def test_requests_whose_weights_come_together_are_prefilled_within_the_limit_of_tokens() -> None:
    rows = Row(0.0, 0, 30, 3, 3), Row(0.0, 0, 30, 3, 3)
    found = table(*rows, loader="asynchronous", max_num_batched_tokens=40)
    assert found.admitted_s[0] == load_s(1)
    assert found.admitted_s[1] >= found.first_token_s[0]


@pytest.mark.parametrize("loader", ["asynchronous", "cpu_assisted"])
def test_weights_that_are_to_be_merged_are_waited_for(loader: str) -> None:
    rows = Row(0.0, 0, 4, 3, 3), Row(0.0, 1, 4, 3, 3)
    one = Case(rows=rows, scheduler="merged_per_batch", loader=loader).run().requests()
    other = Case(rows=rows, scheduler="merged_per_batch", loader="blocking").run().requests()
    assert one.finish_s.tolist() == other.finish_s.tolist()


def test_many_requests_are_deferred_one_prefill_after_the_other() -> None:
    n = 1200  # more than Python's stack is deep
    rows = tuple(Row(0.0, i, 4, 2, 2) for i in range(n))
    case = Case(rows=rows, ranks=(1,) * n, capacity=10**6, max_num_seqs=10**4, max_num_batched_tokens=4)
    assert (case.but(loader="asynchronous").run().requests().status == "finished").all()


# From the arrival on ------------------------------------------------------------------------


def test_on_arrival_a_load_begins_when_its_request_comes_not_when_it_is_admitted() -> None:
    """The second comes in the middle of the first one's prefill, and its load is over before that is."""
    rows = Row(0.0, None, 40, 2, 2), Row(2**-10, 0, 4, 1, 1)
    assert 2**-10 + load_s(1) < prefill_s(40)
    late, early = (
        table(*rows, max_wait_tokens=0, loader=loader).loc[1] for loader in ("asynchronous", "on_arrival")
    )
    assert late.cold_start_s == pytest.approx(load_s(1))
    assert early.cold_start_s == 0.0
    assert early.admitted_s == prefill_s(40)


def test_what_is_not_over_at_the_admission_is_waited_for() -> None:
    rows = Row(0.0, None, 4, 60, 60), Row(2**-6, 0, 4, 1, 1)
    found = table(*rows, max_wait_tokens=0, coefficients=SLOW, loader="on_arrival").loc[1]
    assert found.cold_start_s == pytest.approx(2**-6 + 0.5 + 64 / 2**14 - prefill_s(4))


def test_a_load_that_begins_at_an_arrival_is_no_hit() -> None:
    rows = Row(0.0, None, 40, 2, 2), Row(2**-10, 0, 4, 1, 1), Row(4.0, 0, 4, 1, 1)
    recorder = Case(rows=rows, loader="on_arrival", eviction="lru", **MERGED).run()
    assert (recorder.adapter_loads, recorder.adapter_misses, recorder.adapter_hits) == (1, 1, 1)


def test_a_request_that_has_to_queue_finds_its_adapter_there() -> None:
    """One seat: the adapter comes while the other one's request decodes."""
    rows = Row(0.0, None, 4, 60, 60), Row(2**-6, 0, 4, 1, 1)
    found = table(*rows, max_num_seqs=1, loader="on_arrival")
    assert found.cold_start_s[1] == 0.0
    assert found.admitted_s[1] == found.finish_s[0]


def test_an_adapter_that_does_not_fit_beside_all_others_is_left_to_the_admission() -> None:
    """Ranks 1, 1 and 1 take four slots each of a dozen, and the first one's KV six."""
    rows = Row(0.0, 0, 4, 2, 2), Row(2**-10, 1, 4, 2, 2), Row(2**-9, 2, 4, 2, 2)
    case = Case(rows=rows, ranks=(1, 1, 1), capacity=18, loader="on_arrival", eviction="lru", **MERGED)
    recorder = case.run()
    assert (recorder.requests().status == "finished").all()
    assert recorder.adapter_misses == 3


def test_nor_does_it_take_more_than_the_part_of_memory_that_adapters_have() -> None:
    """There is room for one adapter. That of the first request is idle when the third waits for the other."""
    rows = Row(0.0, 0, 1, 1, 1), Row(2**-7, None, 2, 4, 4), Row(2**-7 + 2**-12, 1, 1, 1, 1)
    case = Case(rows=rows, ranks=(1, 1), capacity=16, loader="on_arrival", eviction="lru", max_wait_tokens=0)
    watched(case.but(adapter_memory="partition", adapter_region_tokens=4).scenario())


def test_kernels_do_not_see_adapters_of_requests_that_do_not_run_yet() -> None:
    """vLLM's kernel is priced by distinct adapters: five that are on their way change nothing."""
    slow = {**C, "adapter_load.latency_s": 50.0}
    took = []
    for others in (0, 5):
        rows = (Row(0.0, 0, 4, 60, 60), *(Row(50.2, i + 1, 4, 1, 1) for i in range(others)))
        case = Case(rows=(*rows, Row(50.3, None, 4, 1, 1)), ranks=(1,) * 6, max_wait_tokens=0, kernel="vllm")
        found = case.but(loader="asynchronous", coefficients=slow).run().requests()
        took.append(found.finish_s[0] - found.first_token_s[0])
    assert took[0] == pytest.approx(took[1], rel=1e-9)


def test_deferred_requests_are_ready_in_order_of_admission_and_are_held_until_they_are_taken() -> None:
    case = Case(rows=(Row(0.0, None, 1, 1, 1),) * 3, loader="asynchronous")
    replica = Simulation(case.scenario()).fleet.replicas[0]
    part, held = replica.part(AsyncLoading), replica.table.held[RequestStatus.LOADING_ADAPTER]
    assert part is not None
    requests = [Request(id, None, 0.0, 1, 1) for id in range(3)]
    for request, ready_s in zip(requests, (3.0, 2.0, 1.0), strict=True):
        part.add(request, 0.5, ready_s)
    assert (part.next_s(), part.next_ready(0.9)) == (1.0, None)
    assert part.next_ready(2.0) is requests[1]
    assert part.take(requests[1], now_s=2.0) == 1.5
    assert part.next_ready(2.0) is requests[2]
    assert part.take(requests[2], now_s=2.0) == 0.5
    assert (part.next_s(), part.next_ready(2.0)) == (3.0, None)
    assert list(held) == [0]
    assert replica.table.held_count == 1


def test_a_deferred_request_that_is_taken_early_is_never_ready() -> None:
    """Before its copy has ended, and once it has."""
    case = Case(rows=(Row(0.0, None, 1, 1, 1),) * 3, loader="asynchronous")
    part = Simulation(case.scenario()).fleet.replicas[0].part(AsyncLoading)
    assert part is not None
    requests = [Request(id, None, 0.0, 1, 1) for id in range(3)]
    for request, ready_s in zip(requests, (1.0, 2.0, 3.0), strict=True):
        part.add(request, 0.5, ready_s)
    part.take(requests[1], now_s=0.75)
    assert part.next_ready(3.0) is requests[0]
    part.take(requests[2], now_s=3.0)
    part.take(requests[0], now_s=3.0)
    assert (part.next_s(), part.next_ready(4.0)) == (inf, None)


def test_a_deferred_request_bounds_the_decode_window_to_a_step_only_while_others_wait() -> None:
    case = Case(rows=(Row(0.0, None, 1, 1, 1),) * 2, loader="asynchronous")
    replica = Simulation(case.scenario()).fleet.replicas[0]
    part = replica.part(AsyncLoading)
    assert part is not None
    deferred, waits = (Request(id, None, 0.0, 1, 1) for id in range(2))
    assert part.steps(7) == 7
    part.add(deferred, 0.5, 3.0)
    assert part.steps(7) == 7
    replica.table.enqueue(waits)
    assert part.steps(7) == 1
