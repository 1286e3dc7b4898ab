"""Replicas that prefill and replicas that decode, of which each does the other's work while that one's pool is full."""

from itertools import count

import numpy as np
import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from experiments.torture.watch import watched
from simlora.api.handover import stages
from simlora.core.request import Request
from simlora.engine.cluster.mixed_pool import MixedPool
from simlora.engine.parts.kv_circles import longest_in_circle
from simlora.engine.parts.kv_transfer import Transfer
from tests.engine.by_hand import load_s, prefill_s, step_s, steps_s
from tests.engine.cases import LOADERS, Case, Row, apart
from tests.engine.observing import all_requests_end
from tests.engine.test_disaggregation import run
from tests.engine.test_fast_forward import assert_same

FAST = 2.0**22
HELP = {"mixed_pool_tokens": 40, "capacity": 100, "network_bytes_per_s": FAST}
LITTLE = {
    "mixed_pool_tokens": 1,
    "decode_router": "round_robin",
    "block_size": 1,
    "watermark": 0.0,
    "network_bytes_per_s": 256.0,
}
"""Of prompts with which a replica is full, and of a network that is slow."""
IDS = count()


def asked(prompt_tokens: int, output_tokens: int) -> Request:
    """A request of so many tokens, other than all before."""
    return Request(next(IDS), None, 0.0, prompt_tokens, output_tokens)


def test_a_prompt_that_would_wait_too_long_is_computed_where_others_decode_and_stays_there():
    simulation, table, log = run(Row(0.0, None, 30, 5, 5), Row(0.0, None, 30, 9, 9), **HELP)
    assert table.first_token_s.tolist() == [prefill_s(30)] * 2, "side by side"
    assert log.request.tolist() == [0], "the first is handed over, as without a mixed pool"
    assert log.source.tolist() == [0]
    assert table.replica.tolist() == [1, 1]
    assert simulation.apart.stayed == 1


@pytest.mark.parametrize("way", ["whole", "by_layer"])
def test_a_request_decodes_where_it_was_prefilled_if_no_replica_that_decodes_has_room(way):
    """The first needs 90 of the 100 slots where it decodes; the second stays, and needs no copy."""
    simulation, table, log = run(
        Row(0.0, None, 30, 60, 60), Row(0.5, None, 30, 9, 9), **HELP, kv_handover=way
    )
    assert log.request.tolist() == [0]
    assert table.replica.tolist() == [1, 0]
    assert table.finish_s[1] == 0.5 + prefill_s(30) + steps_s(8, 31)
    assert simulation.apart.stayed == 1


IN_A_CIRCLE = Row(0.0, 0, 1, 3, 3), Row(0.0, 0, 2, 2, 2)
"""With 8 slots, of which an adapter takes 4: each replica has room for one request and a few tokens."""


def test_kv_that_two_replicas_keep_for_each_other_is_dropped_where_it_was_computed_first():
    """Replica 0 gives up the KV of request 0, and gets request 1; then 1 has room, and computes request 0 anew."""
    simulation, table, log = run(*IN_A_CIRCLE, **LITTLE, ranks=(1,), capacity=8)
    assert table.status.tolist() == ["finished"] * 2
    assert table.preemptions.tolist() == [1, 0]
    assert table.replica.tolist() == [1, 0], "each decodes where it was to decode"
    assert log.request.tolist() == [0, 1]
    assert np.isnan(log.asked_s[0]), "it is never fetched"
    assert np.isnan(log.end_s[0])
    assert log.begin_s[1] == table.first_token_s[1] == load_s(1) + prefill_s(2), "the circle lasts no time"
    assert table.finish_s[1] == log.end_s[1] + step_s(3)
    assert table.finish_s[0] == log.end_s[1] + prefill_s(2) + step_s(3), "the prompt and its first token"
    prefilled, decoded = stages(simulation, table)
    assert prefilled.replica.tolist() == [0, 1]
    assert decoded.replica.tolist() == [0], "only request 1 has come with its KV"


@pytest.mark.parametrize("rows", [IN_A_CIRCLE, IN_A_CIRCLE[::-1]])
@pytest.mark.parametrize("way", ["whole", "by_layer"])
def test_two_replicas_that_hand_over_to_each_other_do_not_wait_for_ever(rows, way):
    """KV that goes layer by layer waits beside the pool of its target, so there is no circle."""
    _, table, _ = run(*rows, **LITTLE, ranks=(1,), capacity=8, kv_handover=way)
    assert table.status.tolist() == ["finished"] * 2
    assert way == "whole" or not table.preemptions.any()


class Keeper:
    """A replica that keeps KV and waits for more; `still`: nothing runs there."""

    def __init__(self, replica_id: int, still: bool = True) -> None:
        self.replica_id, self.stands_still = replica_id, still


@pytest.mark.parametrize(
    ("waits", "found"),
    [
        ([(0, 1), (1, 0)], 0),
        ([(0, 1), (1, 2), (2, 0)], 0),
        ([(0, 1), (1, 2), (2, 1)], 1),  # 0 waits for the circle of 1 and 2, which does not wait for 0
        ([(0, 3), (1, 2), (2, 1)], 1),  # 3 runs, and will fetch from 0
        ([(0, 1), (1, 0), (1, 3)], None),
        ([(0, 1), (1, 2), (2, 3)], None),
        ([(3, 0), (0, 3)], None),
        ([], None),
    ],
)
def test_replicas_wait_in_a_circle_if_each_keeps_kv_for_others_of_it_only(waits, found):
    """Each keeps KV for the other, in the order in which it was computed; replica 3 runs."""
    keepers = [Keeper(id, still=id != 3) for id in range(4)]
    kept = []
    for place, (source, target) in enumerate(waits):
        kept.append(Transfer(asked(1, 2), keepers[source], place))
        kept[-1].receiver = keepers[target]
    longest = longest_in_circle(reversed(kept))
    assert (None if longest is None else longest.place) == found


@pytest.mark.parametrize("scheduler", ["fcfs", "chunked_prefill"])
@pytest.mark.parametrize("way", ["whole", "by_layer"])
def test_a_request_that_decodes_alone_is_preempted_beside_kv_that_is_kept(way, scheduler):
    """The first grows to 7 of the 9 slots beside 4 that are on their way; it goes on when these are free."""
    rows = Row(0.0, None, 1, 6, 6), Row(0.0, None, 3, 2, 2), Row(0.0, None, 3, 2, 2)
    _, table, log = run(*rows, **LITTLE, capacity=9, kv_handover=way, scheduler=scheduler)
    assert table.status.tolist() == ["finished"] * 3
    assert table.preemptions.tolist() == [1, 0, 0]
    assert table.finish_s[0] > log.end_s.max(), "the slots of that KV are needed"


@pytest.mark.parametrize("way", ["whole", "by_layer"])
def test_a_request_goes_to_no_replica_whose_pool_could_never_hold_it(way):
    """While the first request takes 80 of the 100 slots where it decodes, the second waits for 40 there, not for 25."""
    kinds = {"capacity": 25, "others": 1, "own": {"kv_token_budget": 100}}
    rows = Row(0.0, None, 20, 60, 60), Row(0.5, None, 10, 30, 30)
    _, table, _ = run(*rows, **(HELP | kinds), kv_handover=way)
    assert table.status.tolist() == ["finished"] * 2
    assert table.replica.tolist() == [1, 1]


@st.composite
def in_little_memory(draw: st.DrawFn) -> Case:
    """Mixed pools that hold little more than the largest request, whose KV goes over slow links."""
    loaders = tuple(name for name in LOADERS if name != "cpu_assisted")
    case = draw(apart(reserves=("paged",), loaders=loaders))
    largest = max(row.prompt_tokens + row.max_output_tokens for row in case.rows)
    blocks = -(-(largest + case.speculative_tokens) // case.block_size)
    more = draw(st.sampled_from((0, 1, 4, 8, 16)))
    return case.but(
        capacity=blocks * case.block_size + 4 * max(case.ranks) + more,
        mixed_pool_tokens=draw(st.sampled_from((1, 1, 16))),
        decode_router=draw(st.sampled_from(("round_robin", case.decode_router))),
        network_bytes_per_s=draw(st.sampled_from((16.0, 256.0, 65536.0))),
    )


@given(in_little_memory())
def test_in_little_memory_all_requests_end_and_fast_forward_equals_the_plain_loop(case):
    fast, plain = (watched(case.scenario(fast_forward=fast_forward)) for fast_forward in (True, False))
    assert_same(fast, plain)
    all_requests_end(fast)
    assert not fast.apart.mixed_pool.counts.any(), "every request is counted as gone"
    log, table = fast.apart.transfers.log(), fast.recorder.requests()
    dropped = np.isnan(log.end_s) & (table.status == "finished").to_numpy()[log.request]
    event(f"dropped: {dropped.any()}")
    assert case.kv_handover == "whole" or not dropped.any()
    assert (table.preemptions.to_numpy()[log.request[dropped]] > 0).all(), (
        "what is computed twice was preempted"
    )


@pytest.mark.parametrize("way", ["whole", "by_layer"])
def test_without_a_full_pool_nothing_differs(way):
    rows = Row(0.0, None, 20, 5, 5), Row(2.0, None, 30, 9, 9), Row(2.0, None, 8, 1, 1)
    _, one, log = run(*rows, kv_handover=way)
    simulation, other, same = run(*rows, kv_handover=way, mixed_pool_tokens=40)
    assert one.equals(other)
    assert log.end_s.tolist() == same.end_s.tolist()
    assert simulation.apart.stayed == 0


def test_a_replica_is_mixed_until_it_has_no_request_of_the_other_pool():
    """Replica 0 prefills, and 1 and 2 decode."""
    pool, everywhere = MixedPool(1, 40, [100, 100, 100]), np.arange(3)

    def may(prompt_tokens: int, output_tokens: int, decodes: bool) -> list[int]:
        return pool.among(everywhere, asked(prompt_tokens, output_tokens), decodes).tolist()

    assert may(30, 10, decodes=False) == [0]
    assert may(30, 10, decodes=True) == [1, 2]
    first, second, third = asked(30, 1), asked(60, 1), asked(60, 30)
    pool.enter(0, first, decodes=False)
    assert may(10, 1, decodes=False) == [0], "40 tokens are not more than 40"
    assert may(11, 1, decodes=False) == [1, 2]
    pool.enter(1, second, decodes=False)
    assert may(11, 1, decodes=False) == [2], "1 is mixed, and has prompts of 60 tokens"
    assert may(30, 10, decodes=True) == [2], "1 decodes only what 2 cannot"
    assert may(90, 10, decodes=True) == [0], "nor can 2: all of its 100 slots would be taken"
    pool.enter(2, third, decodes=True)
    assert may(30, 9, decodes=True) == [1], "which has 60 slots taken"
    assert may(30, 10, decodes=True) == [0]
    fourth = asked(60, 1)
    pool.enter(2, fourth, decodes=False)
    assert may(11, 1, decodes=False) == [0, 1, 2], "all have more than enough to do"
    pool.leave(2, fourth)
    pool.leave(1, second)
    assert may(30, 10, decodes=True) == [1], "it is back in its pool"
    pool.leave(0, first)
    pool.leave(2, third)
    assert not pool.counts.any()
