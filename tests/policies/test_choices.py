"""Routers, loaders, evictions and placements on hand-made views."""

from collections import Counter

import numpy as np
import pytest

from simlora.core.adapter import Adapter
from simlora.core.request import Request
from simlora.policies.eviction.gdsf import Gdsf
from simlora.policies.eviction.latest import Latest
from simlora.policies.loading.base import Miss
from simlora.policies.loading.blocking import Blocking
from simlora.policies.loading.cached import Cached
from simlora.policies.loading.predictive import Predictive
from simlora.policies.loading.prefetching import Prefetching
from simlora.policies.placement.by_max_rank import ByMaxRank
from simlora.policies.placement.dedicated import Dedicated
from simlora.policies.routing.adapter_affinity import AdapterAffinity
from simlora.policies.routing.least_of_model import LeastOfModel
from simlora.policies.routing.most_idle import MostIdle
from simlora.policies.routing.random import Random
from simlora.policies.routing.round_robin import RoundRobin
from tests.policies.hand import A, B, C, Cluster, Idle

NEAR = AdapterAffinity(slack=4)
ANY = Request(0, None, 0.0, 10, 10)
ALL = np.arange(4)


@pytest.mark.parametrize(
    "router, adapter, outstanding, has, candidates, chosen",
    [
        (MostIdle(), None, (3, 1, 2, 5), (), ALL, 1),
        (MostIdle(), None, (3, 1, 1, 1), (), ALL, 1),  # of equals the lowest
        (MostIdle(), None, (3, 1, 2, 5), (), np.array([0, 2, 3]), 2),
        (NEAR, A, (0, 3, 0, 0), {1}, ALL, 1),  # three more than the idlest
        (NEAR, A, (0, 4, 0, 0), {1}, ALL, 0),  # four are too much
        (NEAR, A, (2, 3, 3, 1), {1, 2}, ALL, 1),  # of equals the lowest
        (NEAR, A, (2, 3, 2, 1), {1, 2}, ALL, 2),
        (NEAR, A, (2, 3, 2, 1), set(), ALL, 3),
        (NEAR, A, (0, 9, 7, 6), {1, 3}, np.array([1, 2, 3]), 3),  # only candidates count as the idlest
        (NEAR, A, (0, 9, 1, 1), {0}, np.array([1, 2, 3]), 2),
        (NEAR, None, (2, 1, 0, 3), {1}, ALL, 2),  # the base model is everywhere
    ],
)
def test_the_idlest_replica_is_chosen_or_with_affinity_the_one_with_the_adapter_unless_it_has_too_much_to_do(
    router, adapter, outstanding, has, candidates, chosen
):
    view = Cluster(outstanding, at={A.id: has})
    assert router.route(Request(0, adapter, 0.0, 10, 10), candidates, view) == chosen


def test_least_of_model_counts_the_requests_of_the_same_adapter_alone():
    a, b = (Request(number, adapter, 0.0, 10, 10) for number, adapter in enumerate((A, B)))
    cluster = Cluster((0, 0, 0), {0: ([a, a], []), 1: ([a, b, b], []), 2: ([b], [b])})
    assert [LeastOfModel().route(each, np.arange(3), cluster) for each in (a, b, ANY)] == [2, 0, 0]
    assert LeastOfModel().route(b, np.array([1, 2]), cluster) == 2


def test_round_robin_takes_the_next_candidate_after_the_last_one():
    router = RoundRobin()
    assert [router.route(ANY, np.array([0, 2]), Cluster()) for _ in range(4)] == [0, 2, 0, 2]
    assert [router.route(ANY, ALL, Cluster()) for _ in range(3)] == [3, 0, 1]


def test_random_is_as_likely_for_every_candidate():
    cluster = Cluster()
    counts = Counter(Random().route(ANY, np.array([0, 2, 3]), cluster) for _ in range(3000))
    assert sorted(counts) == [0, 2, 3]
    four_sigma = 4 * (3000 * (1 / 3) * (2 / 3)) ** 0.5
    assert max(abs(count - 1000) for count in counts.values()) < four_sigma


def test_by_max_rank_gives_adapters_to_the_smallest_slots_that_hold_them():
    adapters = tuple(Adapter(i, f"a{i}", rank, 128, 8) for i, rank in enumerate((8, 16, 17, 256, 512)))
    serves, preloads, _ = ByMaxRank().place(adapters, Cluster((0,) * 4, max_lora_ranks=(256, 16, 64, 16)))
    assert {id: replicas.tolist() for id, replicas in serves.items()} == {
        0: [1, 3],
        1: [1, 3],
        2: [2],
        3: [0],
    }
    assert not preloads
    assert not ByMaxRank().place(adapters, Cluster((0,) * 4)).serves, "all hold the same"


@pytest.mark.parametrize(
    "consecutive, replicas, at",
    [
        (True, 1, [[0], [0], [0]]),
        (True, 2, [[0], [0], [1]]),
        (True, 3, [[0], [1], [2]]),
        (True, 5, [[0, 1], [2, 3], [4]]),
        (False, 2, [[0], [1], [0]]),
        (False, 5, [[0, 3], [1, 4], [2]]),
    ],
)
def test_dedicated_deals_adapters_or_replicas_out_evenly(consecutive, replicas, at):
    serves, preloads, _ = Dedicated(consecutive).place((A, B, C), Cluster((0,) * replicas))
    assert not preloads
    assert [serves[adapter.id].tolist() for adapter in (A, B, C)] == at


def test_latest_keeps_the_adapter_that_was_used_last_unless_its_slots_are_needed():
    assert list(Latest().victims((A, B, C), 0)) == [A, B]
    assert list(Latest().victims((A,), 0)) == []
    assert list(Latest().victims((A, B, C), 1)) == [A, B, C]


def test_gdsf_keeps_what_is_used_often_and_takes_long_to_load():
    idle = Idle((A, 3, 1.0, 0.1, 0), (B, 1, 2.0, 0.1, 0), (C, 1, 3.0, 0.2, 0))
    assert list(Gdsf().victims(idle, 0)) == []
    assert list(Gdsf().victims(idle, 1)) == [B]
    assert list(Gdsf().victims(idle, 9)) == [B, C]


def test_gdsf_lets_what_was_used_often_leave_once_the_age_has_grown_over_it():
    policy = Gdsf()
    often, others = (A, 3, 1.0, 0.1, 0), [(B, 2, 2.0, 0.1, 0), (C, 2, 2.5, 0.1, 0)]
    assert list(policy.victims(Idle(often, *others), 16)) == [B, C]
    again = [(B, 3, 9.5, 0.1, 0), (C, 3, 9.6, 0.1, 0)]  # used after the age has grown to two uses
    assert list(policy.victims(Idle(often, *again), 1)) == [A]


class Queue:
    """A replica with these requests waiting and adapter A in HBM."""

    def __init__(self, *adapters: Adapter | None) -> None:
        self.waiting = [Request(i, adapter, 0.0, 1, 1) for i, adapter in enumerate(adapters)]

    def upcoming(self) -> list[Request]:
        return self.waiting

    def resident(self, adapter: Adapter) -> bool:
        return adapter is A


def test_a_blocking_loader_stalls_and_a_cached_one_never_does():
    assert Blocking().on_miss(A) is Prefetching().on_miss(A) is Miss.STALL
    assert Cached().on_miss(A) is Miss.FREE


def test_prefetching_wants_each_adapter_of_the_queues_head_once_and_in_order():
    assert Prefetching().ahead(Queue(C, None, A, B, C, B)) == [C, A, B]
    assert Prefetching(depth=2).ahead(Queue(A, C, B)) == [A, C]
    assert Prefetching().ahead(Queue()) == []


def test_a_forecast_names_what_is_likely_to_be_asked_for_the_likeliest_first() -> None:
    """With a mean of ln 2 requests a period there is one in half of the periods."""
    loader = Predictive(threshold=0.5, window=2)
    for adapter in (A, B, B, C, C, C):
        loader.asked(adapter)
    assert loader.forecast(1) == [C, B, A]
    loader.asked(B)
    assert loader.forecast(1) == [B, C], (
        "means of (2/2 + 1) / (1/2 + 1), (3/2) / (3/2), and of A (1/2) / (3/2)"
    )
    assert loader.forecast(1) == [], "the means are 4/7 and 3/7"
    assert Predictive(threshold=0.4, window=1).forecast(1) == []


@pytest.mark.parametrize(("requests", "likely"), [(4, []), (5, [A])])
def test_requests_of_several_periods_count_as_spread_over_them(requests, likely):
    """A mean of 4 / 6 requests a period is less than ln 2, which 5 / 6 are not."""
    loader = Predictive(threshold=0.5, window=2)
    for _ in range(requests):
        loader.asked(A)
    assert loader.forecast(6) == likely


@pytest.mark.parametrize("loader", [Blocking(), Cached()])
def test_others_fetch_nothing_ahead(loader):
    assert list(loader.ahead(Queue(B, C))) == []
