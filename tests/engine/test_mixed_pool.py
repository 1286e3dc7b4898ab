"""Replicas that prefill and replicas that decode, of which each does the other's work while that one's pool is full."""

from itertools import count

import numpy as np
import pytest

from simlora.core.request import Request
from simlora.engine.cluster.mixed_pool import MixedPool
from tests.engine.by_hand import prefill_s, steps_s
from tests.engine.cases import Row
from tests.engine.test_disaggregation import run

FAST = 2.0**22
HELP = {"mixed_pool_tokens": 40, "capacity": 100, "network_bytes_per_s": FAST}
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


@pytest.mark.xfail(
    strict=True, raises=AssertionError, reason="neither replica gives up what the other waits for"
)
def test_two_replicas_that_hand_over_to_each_other_do_not_wait_for_ever():
    """Each keeps the KV of the request that it has prefilled until the other has room, which neither has."""
    rows = Row(0.0, 0, 1, 3, 3), Row(0.0, 0, 2, 2, 2)
    little = {"capacity": 8, "block_size": 1, "watermark": 0.0, "network_bytes_per_s": 256.0}
    _, table, _ = run(*rows, ranks=(1,), mixed_pool_tokens=1, decode_router="round_robin", **little)
    assert table.status.tolist() == ["finished"] * 2


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
