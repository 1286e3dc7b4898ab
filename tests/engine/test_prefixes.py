"""Requests that begin alike, on one replica: what they find, what it saves, and what it costs in memory."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import assume, given
from numpy.typing import NDArray

from simlora.core.adapter import Adapter
from simlora.core.request import Request
from simlora.engine.cluster.simulation import Simulation
from simlora.engine.replica.running_batch import prefill_work
from simlora.policies.routing.base import Router
from simlora.policies.views import ClusterView
from tests.engine.cases import COEFFICIENTS as C
from tests.engine.cases import Case, Row, cases, divided, family

ALONE = (Row(0.0, 0, 9, 6, 6), Row(4.0, 0, 9, 6, 6), Row(8.0, 1, 9, 6, 6))
"""Each comes when the one before has gone; the third has another adapter. Their prompts are two blocks and a token."""
ALIKE = Case(rows=ALONE, prefix_caching=True, block_hashes=((1, 4), (1, 4), (1, 4)), reserve="full")


def table(case: Case) -> pd.DataFrame:
    return case.run().requests()


def test_only_what_is_not_cached_is_prefilled() -> None:
    assert table(ALIKE).cached_tokens.tolist() == [0, 8, 0]
    recorder = ALIKE.run()
    assert recorder.prefix_hit_rate == 8 / 27
    assert ALIKE.but(prefix_caching=False).run().prefix_hit_rate is None


def test_a_cached_prefix_saves_its_prefill_but_not_the_attention_to_it() -> None:
    """One token after eight: 1, and a square of 81 less 64."""
    prefill_s = (
        C["prefill.intercept_s"]
        + C["kernels.mbgmv.prefill.intercept_s"]
        + C["prefill.per_token_s"]
        + C["prefill.per_token_sq_s"] * (9**2 - 8**2)
        + C["kernels.mbgmv.prefill.per_token_rank_s"]
    )
    rows = table(ALIKE.but(eviction="lru"))
    assert rows.ttft_s[1] == pytest.approx(prefill_s)


class Looks(Router):
    """Sends the first two requests to replica 0 and the others to 1; notes what each would find at replica 0."""

    def __init__(self) -> None:
        self.found: list[int] = []

    def route(self, request: Request, candidates: NDArray[np.int64], view: ClusterView) -> int:
        self.found.append(int(view.cached_tokens(request)[0]))
        return int(request.id > 1)


@pytest.mark.parametrize("fast_forward", [True, False])
def test_a_router_sees_what_is_cached_while_a_window_of_many_steps_displaces_it(fast_forward: bool) -> None:
    rows = (Row(0.0, None, 17, 2, 2), Row(1.0, None, 9, 30, 30))
    rows += tuple(Row(1.0 + i / 8, None, 17, 1, 1) for i in range(1, 8))
    hashes = ((1, 2, 3, 4), (5, 6)) + ((1, 2, 3, 4),) * 7
    case = Case(rows=rows, prefix_caching=True, block_hashes=hashes, reserve="paged", capacity=40, replicas=2)
    scenario, router = case.scenario(fast_forward=fast_forward), Looks()
    Simulation(replace(scenario, policies=replace(scenario.policies, router=router))).run()
    assert router.found == [0, 0, 16, 16, 8, 4, 0, 0, 0]


def test_chunks_of_what_is_not_cached_attend_to_what_is() -> None:
    """However the rest is cut, the squares of its parts and what lies before them sum up to the same."""
    rows = (Row(0.0, None, 9, 2, 2), Row(4.0, None, 49, 2, 2))
    case = Case(
        rows=rows,
        prefix_caching=True,
        block_hashes=((1, 4), (1, 4)),
        scheduler="chunked_prefill",
        reserve="full",
    )
    whole = case.but(scheduler="fcfs")
    assert table(case).cached_tokens.tolist() == table(whole).cached_tokens.tolist() == [0, 8]
    once = C["prefill.intercept_s"]
    assert table(case).ttft_s[1] == pytest.approx(table(whole).ttft_s[1] + 2 * once), (
        "41 tokens in chunks of 16"
    )


def test_turns_of_a_session_find_prompt_and_output_of_those_before() -> None:
    """Of 12 tokens the last one's KV was never computed: two blocks of four. Of 24 likewise: five."""
    rows = (Row(0.0, 0, 6, 6, 6), Row(4.0, 0, 21, 3, 3), Row(8.0, 0, 30, 4, 4))
    case = Case(rows=rows, prefix_caching=True, sessions=("s", "s", "s"), reserve="full")
    assert table(case).cached_tokens.tolist() == [0, 8, 20]


def test_each_replica_has_a_cache_of_its_own() -> None:
    assert table(ALIKE.but(replicas=2)).cached_tokens.tolist() == [0, 0, 0]


def test_cached_kv_goes_when_its_slots_are_needed() -> None:
    """Twenty slots for KV: a prompt of 15 leaves no room for the eight that are cached."""
    rows = (Row(0.0, None, 9, 2, 2), Row(4.0, None, 15, 2, 2), Row(8.0, None, 9, 2, 2))
    case = Case(
        rows=rows, capacity=20, prefix_caching=True, block_hashes=((1, 4), (), (1, 4)), reserve="full"
    )
    assert table(case).cached_tokens.tolist() == [0, 0, 0]
    kept = case.but(capacity=24)
    assert table(kept).cached_tokens.tolist() == [0, 0, 4], "seven slots are left: one block's, the first"
    assert table(case.but(capacity=25)).cached_tokens.tolist() == [0, 0, 8]


def test_what_two_running_requests_share_takes_its_slots_once() -> None:
    """A prompt of 33 and 8 more each: two of them need 57 slots with a common prefix, and 82 without."""
    rows = (Row(0.0, None, 33, 8, 8), Row(0.1, None, 33, 8, 8))
    hashes = (tuple(range(1, 9)),) * 2
    case = Case(
        rows=rows, capacity=60, reserve="full", max_wait_tokens=0, prefix_caching=True, block_hashes=hashes
    )
    together, apart = table(case), table(case.but(prefix_caching=False))
    assert together.admitted_s[1] < together.finish_s[0]
    assert apart.admitted_s[1] == apart.finish_s[0]


def test_a_request_that_was_preempted_finds_what_is_left_of_its_own() -> None:
    rows = (Row(0.0, None, 9, 30, 30), Row(0.0, None, 9, 30, 30))
    case = Case(
        rows=rows,
        capacity=60,
        reserve="paged",
        watermark=0.0,
        prefix_caching=True,
        block_hashes=((1, 4), (2, 7)),
    )
    recorder, without = case.run(), case.but(prefix_caching=False).run()
    assert recorder.preemptions == without.preemptions == 1
    assert recorder.requests().cached_tokens.tolist() == [0, 0], "what was found at the first start"
    assert recorder.requests().finish_s[1] < without.requests().finish_s[1]


@pytest.mark.parametrize("capacity, together", [(39, False), (40, True)])
def test_blocks_that_two_candidates_of_one_trial_found_count_once(capacity: int, together: bool) -> None:
    """32 tokens are idle. Two prompts of 33 and two tokens more each need four slots of their own each."""
    rows = (Row(0.0, None, 33, 1, 1), Row(4.0, None, 33, 3, 3), Row(4.0, None, 33, 3, 3))
    hashes = (tuple(range(1, 9)),) * 3
    case = Case(rows=rows, capacity=capacity, reserve="full", max_wait_tokens=0, prefix_caching=True)
    found = table(case.but(block_hashes=hashes))
    assert (found.admitted_s[2] == found.admitted_s[1]) == together


def test_an_adapter_in_a_slot_of_its_own_throws_no_kv_out() -> None:
    """KV has 20 slots, of which eight stay; the second adapter goes into the other part."""
    rows = (Row(0.0, None, 9, 2, 2), Row(4.0, 1, 3, 2, 2), Row(8.0, None, 9, 2, 2))
    case = Case(
        rows=rows,
        capacity=20,
        reserve="full",
        prefix_caching=True,
        block_hashes=((1, 4), (), (1, 4)),
        adapter_memory="slots",
        max_loras=2,
        adapter_region_tokens=32,
        eviction="lru",
    )
    assert table(case).cached_tokens.tolist() == [0, 0, 8]


def swapped_out(case: Case) -> int:
    """How many tokens went to the host, at the one preemption that there is."""
    simulation, copied = Simulation(case.scenario()), []

    def note(begin_s: float, until_s: float, what: Adapter | int | None) -> None:
        copied.append(what)

    simulation.fleet.replicas[0].host_link.to_host.on_transfer += (note,)
    assert simulation.run().preemptions == 1
    (tokens,) = copied
    assert isinstance(tokens, int)
    return tokens


def test_of_a_request_that_is_swapped_out_others_keep_what_they_can_use() -> None:
    """KV runs out, and the second of two is preempted: what it has beyond its shared blocks goes to the host."""
    rows = (Row(0.0, None, 9, 30, 30), Row(0.0, None, 9, 30, 30))
    case = Case(rows=rows, capacity=60, reserve="paged", watermark=0.0, preemption="swap")
    cached = case.but(prefix_caching=True, block_hashes=((1, 4), (2, 7)))
    assert swapped_out(cached) == swapped_out(case) - 8


def test_what_comes_back_from_the_host_is_attended_to() -> None:
    """One token after 27 others: as long as a prefill of 28 takes beyond one of 27, with each 2**-18 s a square."""
    one = Request(0, None, 0.0, 20, 30)
    one.generated_tokens, one.host_tokens = 8, 27
    tokens, tokens_sq, _ = prefill_work([one], [one.prefill_tokens])
    assert (tokens, tokens_sq) == (1, 28**2 - 27**2)


def test_a_clock_that_stops_leaves_no_more_in_the_pool_than_it_holds() -> None:
    rows = (Row(0.0, None, 41, 1, 1), Row(4.0, None, 5, 40, 40))
    hashes = (tuple(range(1, 11)), ())
    case = Case(
        rows=rows, capacity=50, reserve="paged", max_wait_tokens=0, prefix_caching=True, block_hashes=hashes
    )
    for until_s in (4.1 + 0.05 * i for i in range(12)):
        (replica,) = case.but(until_s=until_s).simulation().fleet.replicas
        assert replica.kv.tokens() <= 50


@given(cases(reserves=("full",), loaders=("blocking", "prefetching")))
def test_a_cache_in_which_no_request_finds_anything_changes_nothing(case: Case) -> None:
    """Every request has a session to itself: KV stays, and leaves when its slots are needed."""
    assume(case.loader != "prefetching" or case.eviction == "on_demand")
    alone = tuple(f"session-{i}" for i in range(len(case.rows)))
    cached = case.but(prefix_caching=True, sessions=alone, hash_block_tokens=1)
    pd.testing.assert_frame_equal(table(cached), table(case), check_exact=True)


@given(family(reserves=("full", "paged")) | divided(reserves=("full", "paged")))
def test_a_cache_for_requests_with_neither_session_nor_hashes_changes_nothing(case: Case) -> None:
    tokens = case.block_size
    cached = case.but(prefix_caching=True, hash_block_tokens=tokens)
    pd.testing.assert_frame_equal(table(cached), table(case), check_exact=True)
