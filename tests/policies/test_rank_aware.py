"""CaraServe's router on hand-made clusters: its Figure 5, its Algorithm 1 term by term, and first fit beside it."""

from dataclasses import replace

import numpy as np
import pytest

from simlora.core.adapter import Adapter
from simlora.core.request import Request
from simlora.latency import calibration as calibrations
from simlora.latency.iteration import IterationModel
from simlora.latency.kernels import Bgmv, Kernel, LoraWork, Mbgmv, MbgmvMax, Vllm
from simlora.policies.routing.first_fit import FirstFit
from simlora.policies.routing.rank_aware import FEW, RankAware
from tests.builds import ARRAYS
from tests.policies.hand import Cluster

A10 = calibrations.load("a10-llama_2_7b-tp1")
BOTH = np.arange(2)


def crowd(count: int, rank: int, first: int = 0, prompt_tokens: int = 1) -> list[Request]:
    """Requests that say one token each, every one with its own adapter."""
    adapters = (Adapter(first + i, f"{rank}-{i}", rank, 64 * rank, 3 * rank) for i in range(count))
    return [Request(a.id, a, 0.0, prompt_tokens, 1) for a in adapters]


def figure_5(kernel: type[Kernel]) -> Cluster:
    """Instance 1 runs 24 requests of rank 32, instance 2 16 of rank 64; their contexts are not given."""
    first, second = crowd(24, 32, prompt_tokens=0), crowd(16, 64, first=100, prompt_tokens=0)
    return Cluster(
        (0, 0),
        {0: (first, []), 1: (second, [])},
        kernel=kernel(A10),
        iteration=IterationModel(A10),
    )


@pytest.mark.parametrize(
    "kernel, decode_ms, chosen", [(Bgmv, (34.8, 35.8), 1), (Mbgmv, (35.3, 35.9), 0)], ids=["bgmv", "mbgmv"]
)
def test_figure_5_decodes_and_routes_as_published(kernel, decode_ms, chosen):
    """With a decode SLO of 36 ms a request of rank 64 goes to instance 2 with BGMV, to instance 1 with MBGMV."""
    iteration, lora = IterationModel(A10), kernel(A10)
    for count, rank, published in ((24, 32, decode_ms[0]), (16, 64, decode_ms[1])):
        work = LoraWork(count, count * rank, rank, count)
        step_s = iteration.decode_s(count, 0) + lora.decode_s(work)
        assert round(1e3 * step_s, 1) == published
    (newcomer,) = crowd(1, 64, first=500, prompt_tokens=0)
    router = RankAware(slo_s=0.036, mean_output_tokens=1)
    assert router.route(newcomer, BOTH, figure_5(kernel)) == chosen


@pytest.mark.parametrize("kernel", [Bgmv, Mbgmv])
def test_the_published_slo_is_missed_on_the_other_instance(kernel):
    """The choice is the SLO's: without it the cost alone decides."""
    (newcomer,) = crowd(1, 64, first=500, prompt_tokens=0)
    view = figure_5(kernel)
    costs = RankAware(slo_s=0.036, mean_output_tokens=1).one_by_one(newcomer, view, 1.0)
    free = RankAware(mean_output_tokens=1).one_by_one(newcomer, view, 1.0)
    missed = (np.array(costs) - free) / view.outstanding
    assert missed.round(9).tolist() == ([1.0, 0.0] if kernel is Bgmv else [0.0, 1.0])


def test_the_cost_is_algorithm_1_term_by_term():
    """One replica: two run, one of them waits; both prices are taken here from the models by hand."""
    a10 = replace(A10, coefficients={**A10.coefficients, "prefill.per_token_sq_s": 2e-9})
    running, waiting = crowd(1, 32), [Request(9, Adapter(9, "w", 8, 512, 24), 0.0, 40, 10)]
    view = Cluster((0,), {0: (running + waiting, waiting)}, kernel=Bgmv(a10), iteration=IterationModel(a10))
    request = Request(10, Adapter(10, "n", 64, 4096, 192), 0.0, 100, 20)
    base, lora = view.models[0]
    prefill_s = (base.prefill_s(140, 40**2 + 100**2) + lora.prefill_s(LoraWork(140, 0, 64, 2))) - (
        base.prefill_s(40, 40**2) + lora.prefill_s(LoraWork(40, 0, 8, 1))
    )
    step_s = base.decode_s(3, 1 + 40 + 100 + 3 * 10) + lora.decode_s(LoraWork(3, 0, 64, 3))
    before_s = base.decode_s(2, 1 + 40 + 2 * 10) + lora.decode_s(LoraWork(2, 0, 32, 2))
    expected = 2 * (prefill_s / 20 + step_s - before_s)
    assert RankAware().one_by_one(request, view, 20.0)[0] == pytest.approx(expected, rel=1e-12)
    late = RankAware(slo_s=step_s - 1e-9, penalty_s=0.5).one_by_one(request, view, 20.0)[0]
    assert late == pytest.approx(expected + 2 * 0.5)
    assert RankAware(slo_s=step_s + 1e-9).one_by_one(request, view, 20.0)[0] == pytest.approx(expected)


def test_an_idle_replica_costs_nothing_and_of_equals_the_lowest_id_wins():
    view = Cluster((0, 0, 0), {0: (crowd(1, 8), [])}, kernel=Bgmv(A10), iteration=IterationModel(A10))
    (newcomer,) = crowd(1, 8, first=500)
    assert RankAware().route(newcomer, np.arange(3), view) == 1
    assert RankAware().route(newcomer, np.array([0, 2]), view) == 2


def routed(request: Request, view: Cluster, at_once: bool) -> int:
    """Where a request goes by prices from arrays, as among many replicas, or one by one."""
    router = RankAware()
    return (
        router._cheapest_at_once(request, BOTH, view, 1.0) if at_once else router.route(request, BOTH, view)
    )


@pytest.mark.parametrize("at_once", [False, pytest.param(True, marks=ARRAYS)])
@pytest.mark.parametrize("idle, busy, chosen", [(1, 1000, 1), (1, 1, 0), (2, 1000, 0)])
def test_a_replica_without_memory_is_asked_only_if_no_other_is_left(at_once, idle, busy, chosen):
    """The request has two tokens. An idle replica with so many is the cheaper one, beside one that has requests."""
    (newcomer,) = crowd(1, 8, first=500)
    models = {"kernel": Bgmv(A10), "iteration": IterationModel(A10)}
    view = Cluster((0, 0), {1: (crowd(3, 8), [])}, budgets=(idle, busy), **models)
    assert routed(newcomer, view, at_once) == chosen


def test_the_mean_output_is_that_of_what_was_declared():
    router = RankAware()
    for declared in (10, 30):
        router.route(Request(0, None, 0.0, 1, declared), BOTH, Cluster((0, 0)))
    assert router._declared / router._seen == 20


H100 = calibrations.load("h100_64g-llama_3_1_8b-tp1-vllm")
KERNELS = {
    "bgmv": (A10, Bgmv(A10)),
    "mbgmv": (A10, Mbgmv(A10)),
    "mbgmv_max": (A10, MbgmvMax(A10)),
    "vllm": (H100, Vllm(H100, slots=64, max_lora_rank=64)),
}


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("slo_s", [None, 0.05])
@ARRAYS
def test_prices_one_by_one_are_those_at_once_to_the_bit(kernel, slo_s):
    """Replicas with and without queues, of many ranks and of the base model alone; some have the adapter."""
    calibration, lora = KERNELS[kernel]
    rng = np.random.default_rng(0)
    bare = [Request(900 + i, None, 0.0, 7 + i, 10) for i in range(2)]
    has = {0: ([], []), 1: (bare, bare[1:])}
    for replica in range(2, 7):
        tokens, ranks = rng.integers(1, 2000, 30), rng.choice([8, 16, 64, 128], 30)
        there = [
            crowd(1, int(rank), 100 * replica + i, int(count))[0]
            for i, (rank, count) in enumerate(zip(ranks, tokens, strict=True))
        ]
        has[replica] = (there, there[20 + replica :])
    view = Cluster((0,) * 7, has, kernel=lora, iteration=IterationModel(calibration))
    router = RankAware(slo_s=slo_s)
    for newcomer in (*crowd(1, 32, 999, 333), has[3][0][0], Request(1000, None, 0.0, 512, 128)):
        one_by_one = np.array(router.one_by_one(newcomer, view, 317.3))
        assert one_by_one.tobytes() == router.at_once(newcomer, view, 317.3).tobytes()


@pytest.mark.parametrize("kernel", KERNELS)
def test_what_is_kept_of_a_replica_is_right_after_its_load_has_changed(kernel):
    """Requests come, wait, start and leave; a router that has seen it all prices as one that has not."""
    calibration, lora = KERNELS[kernel]
    rng = np.random.default_rng(1)
    view = Cluster((0, 0), kernel=lora, iteration=IterationModel(calibration))
    router, there = RankAware(slo_s=0.05), list[tuple[int, Request]]()
    for id in range(60):
        adapter = Adapter(id % 7, str(id % 7), 8 << id % 4, 64, 8) if id % 5 else None
        request = Request(id, adapter, 0.0, int(rng.integers(1, 900)), 20)
        assert router.one_by_one(request, view, 30.0) == RankAware(slo_s=0.05).one_by_one(request, view, 30.0)
        replica = int(rng.integers(2))
        there.append((replica, request))
        view.loads.arrive(replica, request)
        view.loads.waiting.add(replica, request)
        if len(there) > 4:
            view.loads.waiting.take(*there[-4])
        if len(there) > 9:
            view.loads.leave(*there.pop(0))


def test_few_replicas_are_priced_one_by_one(monkeypatch):
    monkeypatch.setattr(RankAware, "at_once", lambda *_: pytest.fail("at once"))
    (newcomer,) = crowd(1, 8, first=500)
    assert RankAware().route(newcomer, np.arange(FEW), Cluster((0,) * FEW)) == 0


@pytest.mark.parametrize(
    "cluster, candidates, chosen",
    [
        (Cluster((3, 2, 0)), (0, 1, 2), 1),  # one replica is filled after the other
        (Cluster((3, 2, 0)), (0, 2), 2),  # candidates alone count
        (Cluster((4, 5, 3)), (0, 1, 2), 2),  # where none has room: the fewest requests
        (Cluster((0, 0), budgets=(1100, 1102)), (0, 1), 0),  # its memory just holds the request
        # its memory does not hold it beside another one
        (Cluster((0, 0), {0: ([Request(1, None, 0.0, 1, 1)], [])}, budgets=(1101, 1102)), (0, 1), 1),
    ],
)
def test_first_fit_takes_the_first_replica_with_room(cluster, candidates, chosen):
    request = Request(0, None, 0.0, 600, 500)
    assert FirstFit(most_requests=3).route(request, np.array(candidates), cluster) == chosen


def test_first_fit_knows_the_batch_size_of_each_replica():
    view = Cluster((2, 2))
    view.max_num_seqs = np.array([2, 3])
    assert FirstFit().route(Request(0, None, 0.0, 1, 1), BOTH, view) == 1
