"""The router of weighted scorers behind filters, on hand-made clusters, and the products that it stands for."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import simlora
from simlora.api.preparing import composed, ready
from simlora.core.adapter import Adapter
from simlora.core.request import Request
from simlora.engine.cluster.load_tracker import LoadTracker
from simlora.policies.routing.filters import FILTERS
from simlora.policies.routing.scored import Scored
from simlora.policies.routing.scorers import SCORERS, pinned
from tests.policies.hand import A, B, C, Cluster, requests

ALL = np.arange(4)
PRODUCTS = tuple(
    sorted(
        path.stem
        for path in (Path(simlora.__file__).parent / "conf/router").glob("*.yaml")
        if "Scored" in path.read_text()
    )
)


def cluster(*replicas: tuple[Sequence[Adapter | None], Sequence[Adapter | None]], **more: Any) -> Cluster:
    """Replicas with requests for these adapters, (running, waiting)."""
    made: dict[int, tuple[Sequence[Request], Sequence[Request]]] = {}
    for replica, (running, queued) in enumerate(replicas):
        waiting = requests(*queued, start=100 * replica + 50)
        made[replica] = (*requests(*running, start=100 * replica), *waiting), waiting
    return Cluster([0] * len(replicas), made, **more)


def scores(name: str, view: Cluster, request: Request, **parameters: Any) -> list[float]:
    """What one scorer says of all replicas."""
    found = SCORERS[name](**parameters).score(request, np.arange(len(view.outstanding)), view)
    return [round(score, 6) for score in found.tolist()]


def kept(name: str, view: Cluster, request: Request, **parameters: Any) -> list[int]:
    """The replicas that one filter keeps."""
    candidates = np.arange(len(view.outstanding))
    return candidates[FILTERS[name](**parameters).keeps(request, candidates, view)].tolist()


def prompt(tokens: int = 100, adapter: Adapter | None = A, **more: Any) -> Request:
    return Request(0, adapter, 0.0, tokens, 10, **more)


QUEUES = cluster(((A, A), ()), ((A,), (A,)), ((), (B, B, B, B)))


def test_the_highest_sum_of_weight_times_score_wins():
    view = cluster(((), (A,)), ((A, A), ()), used_tokens=(0, 10_000))
    assert Scored({"queue": 2, "kv_cache": 1}).route(prompt(), ALL[:2], view) == 1
    assert Scored({"queue": 1, "kv_cache": 2}).route(prompt(), ALL[:2], view) == 0


def test_of_equals_a_random_one_is_picked():
    router, view = Scored({"in_flight": 1}), Cluster((0, 0, 0, 0), {3: (requests(A), ())})
    assert {router.route(prompt(), ALL, view) for _ in range(50)} == {0, 1, 2}


def test_only_candidates_count():
    assert Scored({"queue": 1}).route(prompt(), np.array([1, 2]), QUEUES) == 1


LORA = cluster(((A,), ()), ((), (A,)), ((B,), (A,)), ((B,), (C,)), max_loras=2, at={0: (0, 1, 2, 3)})
TWICE = cluster(((B,), (B,)), ((B,), ()), max_loras=2)
LIES = cluster(
    *(((), ()), ((), ()), ((B,), ()), ((B, C), ())), max_loras=2, at={0: (0,)}, resident_adapters=(2, 1, 2, 2)
)
CACHED, ALIKE = Cluster((0, 0, 0), cached_tokens=(10, 20, 30)), Cluster((0, 0))
MOST = Cluster((0, 0), cached_tokens=(0, 60))
SENT = Cluster((0, 0), {0: (requests(A, prompt_tokens=32), ())}, cached_tokens=(48, 0))


@pytest.mark.parametrize(
    "name, view, parameters, expected",
    [
        ("queue", QUEUES, {}, [1, 0.75, 0]),
        ("running", QUEUES, {}, [0, 0.5, 1]),
        ("queue", cluster(((A,), ()), ((), ())), {}, [1, 1]),  # none waits anywhere
        ("load_aware", QUEUES, {"threshold": 4}, [0.5, 0.375, 0]),
        ("load_aware", QUEUES, {"threshold": 2}, [0.5, 0.25, 0]),
        ("kv_cache", Cluster((0, 0), budgets=(100, 1000), used_tokens=(50, 100)), {}, [0.5, 0.9]),
        ("lora_affinity", LORA, {}, [1, 0.8, 0.6, 0]),  # of requests, not where an adapter lies idle
        ("lora_affinity", TWICE, {}, [0, 0.8]),  # one that runs and waits counts twice
        ("lora_affinity", cluster(((B, C), (C,))), {}, [0.8]),  # without max_loras there is always room
        ("lora_load_state", LIES, {"placement": 0, "headroom": 0}, [1, 0.6, 0.3, 0]),
        ("lora_load_state", LIES, {"placement": 0, "headroom": 0.1}, [0.9, 0.59, 0.27, 0]),
        ("cached_kv", CACHED, {}, [0, 0.5, 1]),
        ("cached_kv", ALIKE, {}, [1, 1]),
        ("cached_kv", MOST, {"beyond_tokens": 40}, [0, 1]),
        ("cached_kv", MOST, {"beyond_tokens": 39}, [0, 0]),
        ("cached_kv", ALIKE, {"beyond_tokens": 2000}, [0, 0]),
    ],
)
def test_a_scorer_gives_each_replica_a_number(name, view, parameters, expected):
    assert scores(name, view, prompt(), **parameters) == expected


def test_requests_of_the_base_model_need_a_slot_all_the_same():
    assert scores("lora_affinity", TWICE, prompt(adapter=None)) == [0, 0.8]
    assert scores("lora_load_state", LIES, prompt(adapter=None)) == [0, 0.5, 0, 0]


def test_in_flight_is_what_the_router_has_sent_and_not_what_replicas_report():
    sent = LoadTracker([1000, 1000])
    sent.arrive(0, requests(A)[0])
    view = cluster(((), ()), ((A, A), ()), sent=sent)
    assert scores("in_flight", view, prompt()) == [0, 1]
    assert scores("running", view, prompt()) == [1, 0]


def test_an_adapter_that_is_nowhere_has_a_home_of_its_own():
    view = Cluster((0, 0, 0, 0), at={0: ()}, max_loras=8)
    found = scores("lora_load_state", view, prompt(), headroom=0)
    assert int(np.argmax(found)) == pinned(A.name, ALL)
    assert sorted(found) == [0.582, 0.582, 0.582, 0.612]


def test_a_prefix_is_looked_for_where_the_router_sent_it():
    router, view = Scored({"prefix": 1}), Cluster((0, 0, 0, 0))
    first = router.route(prompt(40, block_hashes=(1, 2, 3, 4)), ALL, view)
    assert router.route(prompt(40, block_hashes=(1, 2, 7, 8)), ALL, view) == first
    scorer = router._scorers[0]
    half = scorer.score(prompt(40, block_hashes=(1, 2, 9, 9)), ALL, view).tolist()
    assert half == [0.5 if replica == first else 0 for replica in range(4)]
    other = scorer.score(prompt(40, adapter=B, block_hashes=(1, 2, 9, 9)), ALL, view)
    assert not other.any(), "another adapter's KV is of no use"


def test_a_session_begins_with_its_last_prompt():
    scorer, view = SCORERS["prefix"](), Cluster((0, 0))
    scorer.routed(prompt(165, session="a"), 1, view)
    assert scorer.score(prompt(330, session="a"), ALL[:2], view).tolist() == [0, 0.5]
    assert not scorer.score(prompt(330, session="b"), ALL[:2], view).any()
    assert not scorer.score(prompt(330), ALL[:2], view).any(), "it has neither session nor hashes"


def test_the_prefix_sent_longest_ago_is_forgotten_first_unless_all_are_remembered():
    view = Cluster((0, 0), budgets=(100, 100))
    for forgets in (True, False):
        scorer = SCORERS["prefix"](forgets=forgets)
        for name in "abc":
            scorer.routed(prompt(48, session=name), 0, view)
        known = [bool(scorer.score(prompt(48, session=name), ALL[:2], view)[0]) for name in "abc"]
        assert known == [not forgets, True, True]


def test_a_session_goes_where_it_went_last():
    scorer, view = SCORERS["session"](), Cluster((0, 0))
    assert scorer.score(prompt(session="a"), ALL, view).tolist() == [0, 0, 0, 0]
    scorer.routed(prompt(session="a"), 2, view)
    assert scorer.score(prompt(session="a"), ALL, view).tolist() == [0, 0, 1, 0]
    assert scorer.score(prompt(), ALL, view).tolist() == [0, 0, 0, 0]


def test_only_the_sessions_of_a_lost_replica_move():
    names = [f"session {i}" for i in range(200)]
    before, after = ([pinned(name, some) for name in names] for some in (ALL, ALL[:3]))
    assert {home for home, other in zip(before, after, strict=True) if home != other} == {3}
    assert all(30 <= before.count(replica) <= 70 for replica in range(4))


def test_rate_counts_the_requests_of_the_last_seconds():
    scorer, view = SCORERS["rate"](window_s=10), Cluster((0, 0, 0))
    for second, replica in ((0.0, 0), (1.0, 0), (5.0, 1)):
        view.now_s = second
        scorer.routed(prompt(), replica, view)
    assert scorer.score(prompt(), ALL[:3], view).tolist() == [0, 0.5, 1]
    view.now_s = 11.0
    assert scorer.score(prompt(), ALL[:3], view).tolist() == [1, 0, 1]


def test_kv_cost_adds_the_blocks_to_prefill_and_those_of_requests_sent():
    assert scores("kv_cost", SENT, prompt(64)) == [-(1 + 2), -4]
    assert scores("kv_cost", SENT, prompt(64), overlap_credit=0) == [-(4 + 2), -4]
    assert scores("kv_cost", SENT, prompt(64), prefill_scale=3) == [-(3 + 2), -12]


def test_kv_cost_counts_prompts_without_kv_until_their_first_token():
    scorer, sent = SCORERS["kv_cost"](), requests(A, prompt_tokens=32)
    view = Cluster((0, 0), {0: (sent, sent)}, cached_tokens=(16, 0))
    scorer.routed(sent[0], 0, view)
    assert scorer.score(prompt(64), ALL[:2], view).tolist() == [-(1 + 4 - 1 + 2), -4]
    sent[0].first_token_s = 1.0
    assert scorer.score(prompt(64), ALL[:2], view).tolist() == [-(4 - 1 + 2), -4]
    scorer.routed(prompt(64), 0, ALIKE)
    assert scorer.score(prompt(64), ALL[:2], ALIKE).tolist() == [-4, -4], "it ended without a token"


HOMES: Mapping[int, Sequence[int]] = {0: (0, 1)}
BUSY, FREE = ((A,), (A, A, A)), ((), ())


@pytest.mark.parametrize(
    "replicas, more, keeps",
    [
        ((FREE, BUSY, FREE), {}, [0, 1]),  # one home has room
        ((BUSY, BUSY, FREE), {}, [2]),  # none has: one more copy
        ((BUSY, BUSY, FREE), {"most_homes": 2}, [0, 1]),
        ((BUSY, BUSY, BUSY), {}, [0, 1]),  # nothing has room
        ((BUSY, BUSY, FREE), {"queue": 0}, [0, 1]),
    ],
)
def test_an_adapter_stays_at_its_homes_until_all_are_saturated(replicas, more, keeps):
    view = cluster(*replicas, at=HOMES)
    assert kept("lora_residency", view, prompt(), **{"queue": 2, **more}) == keeps
    assert kept("lora_residency", view, prompt(adapter=None)) == [0, 1, 2]


def test_a_full_pool_saturates_too():
    view = Cluster((0, 0, 0), budgets=(100, 100, 100), used_tokens=(81, 81, 0), at=HOMES)
    assert kept("lora_residency", view, prompt()) == [2]
    assert kept("lora_residency", view, prompt(), kv_cache=0.9) == [0, 1]


def test_an_adapter_without_a_home_may_go_anywhere():
    router = Scored({"queue": 1}, {"lora_residency": None})
    assert router.route(prompt(), ALL[:3], cluster(BUSY, FREE, BUSY, at={0: ()})) == 1


def test_balanced_keeps_what_is_near_the_mean_and_only_the_fewest_when_far_apart():
    counts = [cluster(*(((A,) * n, ()) for n in found)) for found in ((4, 4, 4, 9), (0, 4, 4, 9))]
    assert kept("balanced", counts[0], prompt(), gap=8, deviations=1) == [0, 1, 2]
    assert kept("balanced", counts[0], prompt(), gap=8, deviations=2) == [0, 1, 2, 3]
    assert kept("balanced", counts[0], prompt(), gap=0, deviations=2) == [0, 1, 2], "the fewest, always"
    assert kept("balanced", counts[1], prompt(), gap=8) == [0]


@pytest.mark.parametrize("product", PRODUCTS)
def test_a_product_serves_conversations_from_reports_that_are_late(product):
    settings = ["system=vllm", "replica.prefix_caching=true", "workload=agent", "workload.rate_rps=8"]
    settings += ["workload.duration_s=3", "cluster.replicas=3", "cluster.status_every_s=0.05"]
    found = simlora.simulate([*settings, f"router={product}"])
    assert found.summary["requests"]["finished"] == len(found.requests)
    assert found.requests["replica"].nunique() == 3


def test_keys_of_a_product_can_be_changed():
    changes = ["router.scorers.queue=5", "+router.scorers.lora_affinity=1"]
    router = ready(*composed(["router=gie", "cluster.replicas=2", *changes])).scenario.policies.router
    assert router._weights == [5, 2, 3, 1]
