"""Weights that come beside the running batch: requests that wait by themselves, and the CPU's help.

Times are sums by hand, from the coefficients of the cases: a load of rank r takes 2^-8 + 64 r / 2^14 seconds.
"""

from __future__ import annotations

import pytest

from simlora.core.request import Request
from simlora.engine.cores import Cores
from simlora.engine.landing import Landing
from tests.engine.by_hand import load_s, prefill_s, step_s
from tests.engine.cases import COEFFICIENTS as C
from tests.engine.cases import Case, Row

SLOW = {**C, "adapter_load.latency_s": 0.5}
"""Half a second a load: several steps."""
MERGED = {"kernel": "merged"}  # LoRA itself costs nothing: what is left are iterations and loads


def table(*rows: Row, **changes: object):
    return Case(rows=rows, **(MERGED | changes)).run().requests()


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


def test_a_request_that_waits_by_itself_is_prefilled_at_the_first_boundary_after_its_weights() -> None:
    rows = Row(0.0, None, 4, 60, 60), Row(2**-6, 0, 4, 1, 1)
    found = table(*rows, max_wait_tokens=0, coefficients=SLOW, loader="asynchronous").loc[1]
    asked_s = prefill_s(4)  # the boundary after its arrival
    landed_s = asked_s + 0.5 + 64 / 2**14
    assert found.cold_start_s == pytest.approx(landed_s - asked_s)
    assert landed_s <= found.admitted_s < landed_s + step_s(64)
    assert found.first_token_s == pytest.approx(found.admitted_s + prefill_s(4))
    assert found.blocked_s == 0.0


def test_others_whose_weights_are_there_overtake_it() -> None:
    rows = Row(0.0, 0, 4, 5, 5), Row(0.0, None, 4, 5, 5)
    found = table(*rows, coefficients=SLOW, loader="asynchronous", max_wait_tokens=0)
    assert found.admitted_s[1] == 0.0
    assert found.admitted_s[0] >= 0.5


def test_alone_it_starts_the_moment_its_weights_land() -> None:
    found = table(Row(0.25, 0, 4, 3, 3), loader="asynchronous").loc[0]
    assert found.admitted_s == 0.25 + load_s(1)


def test_who_waits_for_weights_holds_a_seat_and_memory() -> None:
    rows = Row(0.0, 0, 4, 3, 3), Row(0.0, None, 4, 3, 3)
    found = table(*rows, coefficients=SLOW, loader="asynchronous", max_num_seqs=1)
    assert found.admitted_s[1] >= found.finish_s[0]


def test_two_that_wait_for_one_adapter_share_its_load_and_start_together() -> None:
    rows = Row(0.0, 0, 4, 3, 3), Row(2**-10, 0, 4, 3, 3)
    recorder = Case(rows=rows, loader="asynchronous", **MERGED).run()
    assert recorder.adapter_loads == 1
    assert recorder.requests().admitted_s.tolist() == [load_s(1)] * 2


def test_what_lands_together_is_prefilled_within_the_limit_of_tokens() -> None:
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


# The CPU's help


def assisted_s(gpu_s: float, tokens: int, rank: int) -> float:
    """A prefill whose only layer is done with the CPU's help."""
    cores = -(-tokens // 8)
    each_s = C["cpu_lora.per_token_s"] + C["cpu_lora.per_token_rank_s"] * rank
    cpu_s = C["cpu_lora.intercept_s"] + each_s * -(-tokens // cores)
    return max(gpu_s, cpu_s) + C["cpu_lora.sync_s"]


def test_a_prefill_begins_at_once_and_takes_what_agreeing_takes_longer() -> None:
    found = table(Row(0.0, 0, 12, 1, 1), loader="cpu_assisted", coefficients=SLOW).loc[0]
    assert found.admitted_s == 0.0
    assert found.cold_start_s == 0.0
    assert found.first_token_s == pytest.approx(assisted_s(prefill_s(12), 12, 1))
    assert found.blocked_s == pytest.approx(assisted_s(prefill_s(12), 12, 1) - prefill_s(12))


def test_it_decodes_once_its_weights_have_landed() -> None:
    """First token at once, the second half a second later; that wait is its cold start's rest."""
    found = table(Row(0.0, 0, 12, 3, 3), loader="cpu_assisted", coefficients=SLOW).loc[0]
    landed_s = 0.5 + 64 / 2**14
    assert found.finish_s == pytest.approx(landed_s + step_s(13) + step_s(14))
    assert found.blocked_s == pytest.approx(landed_s - prefill_s(12))


def test_the_gaps_between_tokens_know_of_the_wait() -> None:
    recorder = Case(rows=(Row(0.0, 0, 12, 3, 3),), loader="cpu_assisted", coefficients=SLOW, **MERGED).run()
    found = recorder.requests().loc[0]
    assert recorder.token_gaps.count == 2
    assert recorder.token_gaps.mean() == pytest.approx((found.finish_s - found.first_token_s) / 2, rel=1e-6)


def test_others_go_on_decoding_meanwhile() -> None:
    rows = Row(0.0, None, 4, 60, 60), Row(2**-6, 0, 12, 3, 3)
    found = table(*rows, max_wait_tokens=0, coefficients=SLOW, loader="cpu_assisted")
    alone = table(rows[0], max_wait_tokens=0, coefficients=SLOW)
    late = assisted_s(prefill_s(12), 12, 1)
    together = sum(step_s(0, context) - step_s(0) for context in (13, 14))  # its two steps
    assert found.finish_s[0] == pytest.approx(alone.finish_s[0] + late + together)
    assert found.blocked_s[0] == pytest.approx(late - prefill_s(12))


def test_without_cores_the_replica_waits_as_with_a_blocking_loader() -> None:
    rows = Row(0.0, None, 4, 30, 30), Row(2**-6, 0, 12, 3, 3)
    one = table(*rows, coefficients=SLOW, loader="cpu_assisted", host_cores=1)  # 12 tokens need two
    other = table(*rows, coefficients=SLOW, loader="blocking")
    for column in ("admitted_s", "first_token_s", "finish_s", "cold_start_s", "blocked_s"):
        assert one[column].tolist() == other[column].tolist(), column


def test_replicas_of_a_host_share_its_cores_and_get_them_back_when_the_prefill_is_over() -> None:
    """Three prompts of two cores at once on three cores: one is helped, two wait for their weights."""
    rows = tuple(Row(0.0, 0, 12, 1, 1) for _ in range(3))
    chosen = {"replicas": 3, "loader": "cpu_assisted", "coefficients": SLOW, "host_cores": 3}
    apart = table(*rows, **chosen)
    assert (apart.admitted_s == 0.0).all()
    shared = table(*rows, **chosen, replicas_per_host=3)
    assert shared.admitted_s.tolist() == [0.0] + [0.5 + 64 / 2**14] * 2
    later = table(rows[0], rows[1]._replace(arrival_s=1.0), **(chosen | {"replicas": 2}), replicas_per_host=2)
    assert later.admitted_s.tolist() == [0.0, 1.0]


def test_what_has_landed_needs_no_help() -> None:
    rows = Row(0.0, 0, 12, 9, 9), Row(1.0, 0, 12, 1, 1)
    slow = {"coefficients": SLOW, "loader": "cpu_assisted", "eviction": "lru"}
    found = table(*rows, **slow).loc[1]
    assert found.first_token_s == pytest.approx(1.0 + prefill_s(12))


def test_many_that_wait_by_themselves_are_set_apart_one_prefill_after_the_other() -> None:
    n = 1200  # more than Python's stack is deep
    rows = tuple(Row(0.0, i, 4, 2, 2) for i in range(n))
    case = Case(rows=rows, ranks=(1,) * n, capacity=10**6, max_num_seqs=10**4, max_num_batched_tokens=4)
    assert (case.but(loader="asynchronous").run().requests().status == "finished").all()


def test_kernels_do_not_see_adapters_that_nobody_runs_yet() -> None:
    """vLLM's kernel is priced by distinct adapters: five that are on their way change nothing."""
    slow = {**C, "adapter_load.latency_s": 50.0}
    took = []
    for others in (0, 5):
        rows = (Row(0.0, 0, 4, 60, 60), *(Row(50.2, i + 1, 4, 1, 1) for i in range(others)))
        case = Case(rows=(*rows, Row(50.3, None, 4, 1, 1)), ranks=(1,) * 6, max_wait_tokens=0, kernel="vllm")
        found = case.but(loader="asynchronous", coefficients=slow).run().requests()
        took.append(found.finish_s[0] - found.first_token_s[0])
    assert took[0] == pytest.approx(took[1], rel=1e-9)


def test_who_could_have_been_helped_and_waits_for_another_is_blocked() -> None:
    """Two cores: the first prompt gets one, the second needs two; both wait for the second's weights."""
    rows = Row(0.0, 0, 8, 2, 2), Row(0.0, 1, 12, 2, 2)
    found = table(*rows, loader="cpu_assisted", host_cores=2, coefficients=SLOW)
    assert found.cold_start_s[0] == 0.0
    assert found.blocked_s[0] == pytest.approx(found.queue_s[0])
    assert found.cold_start_s[1] == pytest.approx(found.queue_s[1])


# Its parts


def test_a_host_counts_cores_until_they_are_given_back() -> None:
    cores = Cores(4)
    cores.hold(3, now_s=1.0, until_s=2.0)
    assert (cores.free(1.0), cores.free(1.9), cores.free(2.0)) == (1, 1, 4)
    cores.hold(4, now_s=2.0, until_s=3.0)
    assert cores.most_busy == 4
    with pytest.raises(AssertionError, match="5 cores are held of 4"):
        cores.hold(1, now_s=2.5, until_s=3.0)


def test_who_lands_is_listed_in_order_of_admission_and_stays_until_taken() -> None:
    landing = Landing()
    requests = [Request(id, None, 0.0, 1, 1) for id in range(3)]
    for request, ready_s in zip(requests, (3.0, 1.0, 2.0), strict=True):
        landing.add(request, 0.5, ready_s)
    assert landing.next_s == 1.0
    assert [request.id for request in landing.landed(2.0)] == [1, 2]
    assert landing.take(1, now_s=2.0) == 0.5
    assert landing.next_s == 2.0
    assert [request.id for request in landing] == [0, 2]
    assert len(landing) == 2
