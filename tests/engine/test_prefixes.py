"""Requests that begin alike, on one replica: what they find, what it saves, and what it costs in memory."""

import pandas as pd
import pytest
from hypothesis import assume, given

from simlora.core.request import Request
from simlora.policies.views import ClusterView
from tests.engine.cases import COEFFICIENTS as C
from tests.engine.cases import Case, Row, cases
from tests.engine.moving import Routed
from tests.examples import share

EIGHT = tuple(range(1, 9))
"""The hashes of eight blocks, 32 tokens."""


def alike(*rows: Row, hashes: tuple[tuple[int, ...], ...] | None = None, **changes: object) -> Case:
    """Cached KV, whose blocks have these hashes."""
    known = {"prefix_caching": True, "reserve": "full", "max_wait_tokens": 0}
    return Case(rows=rows, block_hashes=hashes, **(known | changes))  # type: ignore[arg-type]


THREE = alike(
    Row(0.0, 0, 9, 6, 6),
    Row(4.0, 0, 9, 6, 6),
    Row(8.0, 1, 9, 6, 6),
    hashes=((1, 4), (1, 4), (1, 4)),
    eviction="lru",
)
"""Each comes when the one before has gone; the third has another adapter. Their prompts are two blocks and a token."""


def test_only_what_is_not_cached_is_prefilled_and_attends_to_what_is():
    """One token after eight: 1, and a square of 81 less 64. Each replica has a cache of its own."""
    recorder = THREE.run()
    assert recorder.requests().cached_tokens.tolist() == [0, 8, 0]
    assert recorder.prefix_hit_rate == 8 / 27
    intercepts_s = C["prefill.intercept_s"] + C["kernels.mbgmv.prefill.intercept_s"]
    token_s = C["prefill.per_token_s"] + C["prefill.per_token_sq_s"] * (9**2 - 8**2)
    prefill_s = intercepts_s + token_s + C["kernels.mbgmv.prefill.per_token_rank_s"]
    assert recorder.requests().ttft_s[1] == pytest.approx(prefill_s)
    assert THREE.but(prefix_caching=False).run().prefix_hit_rate is None
    assert THREE.but(replicas=2).table().cached_tokens.tolist() == [0, 0, 0]


def test_a_router_sees_what_is_cached_while_a_window_of_many_steps_displaces_it():
    """The first two requests go to replica 0, the others to 1; each notes what it would find at replica 0."""
    found: list[int] = []

    def route(request: Request, candidates: object, view: ClusterView) -> int:
        found.append(int(view.cached_tokens(request)[0]))
        return int(request.id > 1)

    rows = (Row(0.0, None, 17, 2, 2), Row(1.0, None, 9, 30, 30))
    rows += tuple(Row(1.0 + i / 8, None, 17, 1, 1) for i in range(1, 8))
    hashes = ((1, 2, 3, 4), (5, 6)) + ((1, 2, 3, 4),) * 7
    of = alike(*rows, hashes=hashes, reserve="paged", capacity=40, replicas=2, max_wait_tokens=10)
    of.run(router=Routed(route))
    assert found == [0, 0, 16, 16, 8, 4, 0, 0, 0]


def test_chunks_of_what_is_not_cached_attend_to_what_is():
    """However the rest is cut, the squares of its parts and what lies before them sum up to the same."""
    rows = (Row(0.0, None, 9, 2, 2), Row(4.0, None, 49, 2, 2))
    chunked = alike(*rows, hashes=((1, 4), (1, 4)), scheduler="chunked_prefill", max_wait_tokens=10)
    cut, whole = chunked.table(), chunked.but(scheduler="fcfs").table()
    assert cut.cached_tokens.tolist() == whole.cached_tokens.tolist() == [0, 8]
    twice_s = 2 * C["prefill.intercept_s"]
    assert cut.ttft_s[1] == pytest.approx(whole.ttft_s[1] + twice_s), "41 tokens in chunks of 16"


SLOTS = {"adapter_memory": "slots", "max_loras": 2, "adapter_region_tokens": 32, "eviction": "lru"}


@pytest.mark.parametrize(
    "middle, changes, found",
    [
        (Row(4.0, None, 15, 2, 2), {"capacity": 20}, 0),
        (Row(4.0, None, 15, 2, 2), {"capacity": 24}, 4),
        (Row(4.0, None, 15, 2, 2), {"capacity": 25}, 8),
        (Row(4.0, 1, 3, 2, 2), {"capacity": 20} | SLOTS, 8),
    ],
    ids=[
        "all of it",
        "seven slots are left: one block's, the first",
        "none",
        "an adapter in a slot of its own: none",
    ],
)
def test_cached_kv_goes_when_its_slots_are_needed(middle, changes, found):
    """Eight tokens are cached, and a prompt of 15 and two tokens more need 17."""
    rows = (Row(0.0, None, 9, 2, 2), middle, Row(8.0, None, 9, 2, 2))
    assert alike(*rows, hashes=((1, 4), (), (1, 4)), **changes).table().cached_tokens.tolist() == [
        0,
        0,
        found,
    ]


@pytest.mark.parametrize("capacity, together", [(39, False), (40, True)])
def test_blocks_that_two_candidates_of_one_trial_found_count_once(capacity, together):
    """32 tokens are idle. Two prompts of 33 and two tokens more each need four slots of their own each."""
    rows = (Row(0.0, None, 33, 1, 1), Row(4.0, None, 33, 3, 3), Row(4.0, None, 33, 3, 3))
    found = alike(*rows, hashes=(EIGHT,) * 3, capacity=capacity).table()
    assert (found.admitted_s[2] == found.admitted_s[1]) == together


PREEMPTED = alike(
    *(Row(0.0, None, 9, 30, 30),) * 2,
    hashes=((1, 4), (2, 7)),
    capacity=60,
    reserve="paged",
    watermark=0.0,
    max_wait_tokens=10,
)
"""KV runs out, and the second of two is preempted."""


def test_a_request_that_was_preempted_finds_what_is_left_of_its_own():
    recorder, without = PREEMPTED.run(), PREEMPTED.but(prefix_caching=False).run()
    assert recorder.preemptions == without.preemptions == 1
    assert recorder.requests().cached_tokens.tolist() == [0, 0], "what was found at the first start"
    assert recorder.requests().finish_s[1] < without.requests().finish_s[1]


def test_of_a_request_that_is_swapped_out_others_keep_what_they_can_use():
    """What it has beyond its shared blocks goes to the host."""
    cached = PREEMPTED.but(preemption="swap")
    runs = (of.simulation() for of in (cached, cached.but(prefix_caching=False)))
    busy_s = [simulation.fleet.replicas[0].host_link.to_host.busy_s for simulation in runs]
    assert busy_s[1] - busy_s[0] == pytest.approx(8 * 16 / C["adapter_load.bytes_per_s"])


@given(cases(reserves=("full",), loaders=("blocking", "prefetching")))
@share(1 / 3)
def test_a_cache_in_which_no_request_finds_anything_changes_nothing(case):
    """Every request has a session to itself: KV stays, and leaves when its slots are needed."""
    assume(case.loader != "prefetching" or case.eviction == "on_demand")
    alone = tuple(f"session-{i}" for i in range(len(case.rows)))
    cached = case.but(prefix_caching=True, sessions=alone, hash_block_tokens=1)
    pd.testing.assert_frame_equal(cached.table(), case.table(), check_exact=True)
