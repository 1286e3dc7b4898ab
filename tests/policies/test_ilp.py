"""dLoRA's co-migration: what an optimal plan is, by trying them all, and what the two policies make of it, by hand."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from math import inf
from unittest import mock

import numpy as np
import pulp
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simlora.core.adapter import Adapter
from simlora.core.request import Request
from simlora.core.trace import BASE_MODEL
from simlora.policies.migration import comigration
from simlora.policies.migration.base import Migration, Plan
from simlora.policies.migration.comigration import (
    Comigration,
    Solution,
    Solver,
    fullest,
    gather,
    ilp,
    rounded,
)
from simlora.policies.migration.ilp import Ilp
from simlora.policies.migration.selective_ilp import SelectiveIlp
from tests.examples import share
from tests.policies import hand
from tests.policies.hand import A, B, C

SOLVERS = ("cbc", "highs")
BOTH = (Ilp, SelectiveIlp)
PREFILL_S = 0.03 + 0.0003 * 10
"""What a request of ten tokens takes to prefill on a hand-made cluster."""


class Cluster(hand.Cluster):
    """Replicas that hold these requests; `executions_s` by adapter, None: of all; `used_tokens` left out: nothing.

    A token slot has 2^20 bytes, and 32 GiB a second are 32,768 slots. Contexts are prompts and what was generated.
    """

    kv_bytes_per_token = 2**20

    def __init__(
        self,
        *held: Sequence[Request],
        executions_s: Mapping[Adapter | None, float] = {},
        **others: object,
    ) -> None:
        super().__init__((0,) * len(held), {i: (requests, []) for i, requests in enumerate(held)}, **others)
        self._executions_s = executions_s

    def context_tokens(self, request: Request, replica: int) -> int:
        assert request in self.requests_of(replica), "asked where it is not"
        return request.prompt_tokens + request.generated_tokens

    def execution_s(self, adapter: Adapter | None = None) -> float | None:
        return self._executions_s.get(adapter)


def some(*ids: int, of: Adapter | None = A, tokens: int = 10) -> list[Request]:
    return [Request(id, of, float(id), tokens, 10) for id in ids]


def moves(plan: Plan) -> list[tuple[int, int, int]]:
    return [(move.request.id, move.source, move.target) for move in plan.moves]


def exactly(policy: type[Migration] = Ilp, **arguments: object) -> Migration:
    """A policy that stops at the optimum only."""
    return policy(**{"gap": 0.0, "most_nodes": 10**6, **arguments})


def always(**arguments: object) -> Migration:
    """SelectiveIlp that one request above the mean sets off."""
    return exactly(SelectiveIlp, more_requests=1, **arguments)


# What is asked of the solver


@st.composite
def problems(draw: st.DrawFn, relaxed: bool = False) -> Comigration:
    replicas = draw(st.integers(2, 3))
    requests = draw(st.integers(1, 5 if replicas == 2 else 4))
    numbers = lambda among, *shape: np.array(  # noqa: E731
        draw(st.lists(among, min_size=int(np.prod(shape)), max_size=int(np.prod(shape))))
    ).reshape(shape)
    home = numbers(st.integers(0, replicas - 1), requests)
    moved_s = numbers(st.sampled_from([0.0, 0.05, 0.5, 3.0]), requests, replicas)
    moved_s[np.arange(requests), home] = 0.0
    return Comigration(
        home=home,
        adapter=numbers(st.sampled_from([BASE_MODEL, 4, 7]), requests),
        execution_s=numbers(st.sampled_from([0.5, 1.0, 1.25, 7.0]), requests),
        moved_s=moved_s,
        request_tokens=numbers(st.integers(1, 60), requests),
        adapter_tokens={4: draw(st.sampled_from([0, 8, 30])), 7: 16},
        gpu_tokens=numbers(st.sampled_from([10, 16, 50, 90, 1000]), replicas),
        host_tokens=draw(st.sampled_from([None, 0, 40])),
        swap_s=draw(st.sampled_from([1e-4, 0.02])),
        eta_s=draw(st.sampled_from([0.0, 0.1, 2.0])),
        relaxed=relaxed,
    )


def longest_s(problem: Comigration, placed: Sequence[int]) -> float:
    """The objective as printed, of the best x^G, x^H and y for a placement; inf if memory does not allow any."""
    times_s = []
    for j, gpu_tokens in enumerate(problem.gpu_tokens):
        there = [i for i, at in enumerate(placed) if at == j]
        adapters = {problem.adapter[i] for i in there} - {BASE_MODEL}
        best_s = inf
        for in_host in product((0, 1), repeat=len(there)):
            host = sum(problem.request_tokens[i] for i, x in zip(there, in_host, strict=True) if x)
            gpu = sum(problem.request_tokens[i] for i, x in zip(there, in_host, strict=True) if not x)
            gpu += sum(problem.adapter_tokens[k] for k in adapters)
            if gpu <= gpu_tokens and host <= (inf if problem.host_tokens is None else problem.host_tokens):
                best_s = min(best_s, problem.swap_s * host)
        run_s = sum(problem.execution_s[i] + problem.moved_s[i, j] for i in there)
        times_s.append(run_s + best_s + problem.eta_s * len(adapters))
    return max(times_s)


def every_placement(problem: Comigration) -> Iterator[tuple[int, ...]]:
    return product(range(len(problem.gpu_tokens)), repeat=len(problem.home))


@pytest.mark.parametrize("solver", SOLVERS)
@given(problem=problems())
@share(1 / 3)
def test_no_placement_is_over_sooner_than_the_solution(solver, problem):
    best_s = min(longest_s(problem, placed) for placed in every_placement(problem))
    found = Solver(solver, gap=0.0, most_nodes=10**6).solve(problem)
    if best_s == inf:
        assert found.placed is None
    else:
        assert found.placed is not None
        assert longest_s(problem, found.placed) == pytest.approx(best_s, rel=1e-6)
        assert found.ending == ""


@given(problem=problems())
@share(1)
def test_a_placement_is_priced_as_printed_and_no_cheaper_than_the_bound(problem):
    for placed in every_placement(problem):
        price_s = problem.seconds(np.array(placed)).max()
        assert price_s == pytest.approx(longest_s(problem, placed))
        assert price_s >= problem.least_s * (1 - 1e-9)


@given(problem=problems(relaxed=True))
@share(1 / 3)
def test_the_relaxed_problem_is_never_over_later_than_the_printed_one(problem):
    asked, _ = ilp(problem)
    asked.solve(pulp.HiGHS(msg=False, threads=1, gapRel=0.0))
    best_s = min(longest_s(problem, placed) for placed in every_placement(problem))
    if best_s < inf:
        assert asked.sol_status == pulp.LpSolutionOptimal
        assert pulp.value(asked.objective) <= best_s * (1 + 1e-6)


@given(tokens=st.lists(st.integers(0, 40), max_size=7), room=st.integers(0, 150))
def test_a_gpu_is_filled_as_far_as_it_goes(tokens, room):
    sums = [
        sum(t for t, x in zip(tokens, chosen, strict=True) if x)
        for chosen in product((0, 1), repeat=len(tokens))
    ]
    assert fullest(tokens, room) == max(s for s in sums if s <= room)


def test_a_request_goes_where_most_of_it_is_and_of_equals_stays_or_takes_the_lowest():
    shares = np.array(
        [[0.2, 0.3, 0.5], [0.5, 0.5, 0.0], [0.5, 0.5, 0.0], [0.4, 0.2, 0.4], [0.5, 0.5 + 1e-9, 0.0]]
    )
    assert rounded(shares, np.array([0, 1, 2, 2, 0])).tolist() == [2, 1, 0, 2, 0]


# Nothing moves for nothing


def by_load(home: Sequence[int], *execution_s: float, replicas: int = 3) -> Comigration:
    """Requests of the base model that move for nothing, on replicas with memory for all."""
    return Comigration(
        home=np.array(home),
        adapter=np.full(len(home), BASE_MODEL),
        execution_s=np.array(execution_s),
        moved_s=np.zeros((len(home), replicas)),
        request_tokens=np.ones(len(home), dtype=np.int64),
        adapter_tokens={},
        gpu_tokens=np.full(replicas, 1000),
        host_tokens=None,
        swap_s=0.01,
        eta_s=0.1,
        relaxed=False,
    )


def test_two_that_swap_places_stay_and_so_do_three_that_go_round():
    """The last replica is over at 9 s whatever the others do; putting only one of them back would take 10 s."""
    problem = by_load([0, 1, 2], 5.0, 5.0, 9.0)
    assert problem.needed(np.array([1, 0, 2])).tolist() == [0, 1, 2]
    assert by_load([0, 1, 2], 5.0, 5.0, 5.0).needed(np.array([1, 2, 0])).tolist() == [0, 1, 2]


@given(problem=problems() | problems(relaxed=True), data=st.data())
@share(1)
def test_what_is_left_of_a_plan_is_as_good_and_needs_all_its_moves(problem, data):
    found = np.array(data.draw(st.sampled_from(list(every_placement(problem)))))
    needed, most_s = problem.needed(found), problem.seconds(found).max()
    moved = np.flatnonzero(needed != problem.home)
    assert (needed == np.where(needed == problem.home, problem.home, found)).all(), (
        "moves that were not in the plan"
    )
    if most_s == inf:
        assert not len(moved)
        return
    assert problem.seconds(needed).max() <= most_s * (1 + 1e-5)
    for one in moved:
        back = needed.copy()
        back[one] = problem.home[one]
        assert problem.seconds(back).max() > most_s


# Plans, worked by hand


@pytest.mark.parametrize("policy", [exactly, always])
def test_half_of_four_equal_requests_go_to_the_idle_replica(policy):
    """Five seconds each: 20 s + η; two and two take 10 s + η, and the moved ones their prefills besides."""
    plan = policy().plan(Cluster(some(1, 2, 3, 4), []))
    assert len(plan.moves) == 2
    assert {(source, target) for _, source, target in moves(plan)} == {(0, 1)}
    assert plan.solved
    assert plan.reason.endswith("2 moves shorten the longest replica's work from 20.1 s to 10.17 s")


def test_the_shortest_context_moves():
    """Any one of the three makes it 10 s and 5 s + prefill, unless the prefill takes longer than the other two."""
    held = [*some(1, tokens=4000), *some(2, tokens=20_000), *some(3, tokens=900)]
    view = Cluster(held, some(4), executions_s={A: 1.0}, budgets=(10**6,) * 2)
    assert moves(exactly().plan(view)) == [(3, 0, 1)]
    held[2].generated_tokens = 10_000
    assert moves(exactly().plan(view)) == []
    held[0].prompt_tokens = 100
    assert moves(exactly().plan(view)) == [(1, 0, 1)]


def test_a_request_moves_to_where_its_adapter_is():
    view = Cluster(some(1, 2), [], [], executions_s={A: 1.0}, at={A.id: (0, 2)}, adapter_load_s=0.4)
    (move,) = exactly().plan(view).moves
    assert move.target == 2


@pytest.mark.parametrize("load_s, moving", [(0.9, 1), (1.1, 0)])
def test_an_adapter_that_takes_too_long_to_load_keeps_its_requests(load_s, moving):
    """One second each: 2 s together, or one after its load and prefill: γ = (1 + load + prefill) / 1."""
    view = Cluster(some(1, 2), [], executions_s={A: 1.0}, at={A.id: (0,)}, adapter_load_s=load_s)
    assert len(exactly(eta_s=0.0).plan(view).moves) == moving


@pytest.mark.parametrize("eta_s, adapters", [(0.0, {A, B}), (2.0, {A})])
def test_affinity_keeps_the_requests_of_an_adapter_together(eta_s, adapters):
    """If one of each moves, the two replicas are over after 2.1 s and 2.166 s; if both of A's do, after 2.2 s and
    2.066 s, with one adapter each in place of two."""
    view = Cluster([*some(1, 2), *some(3, 4, of=B)], [], executions_s={A: 1.0, B: 1.1})
    plan = exactly(eta_s=eta_s).plan(view)
    assert len(plan.moves) == 2
    assert {move.request.adapter for move in plan.moves} == adapters


@pytest.mark.parametrize("policy", [exactly, always])
def test_requests_of_the_base_model_need_no_adapter(policy):
    """They take the mean of all requests, and neither a load nor η."""
    view = Cluster(some(1, 2, of=None), [], executions_s={None: 3.0}, adapter_load_s=100.0)
    plan = policy(eta_s=100.0).plan(view)
    assert len(plan.moves) == 1
    assert plan.reason.endswith(f"from 6 s to {3 + PREFILL_S:.4g} s")


@pytest.mark.parametrize(
    "known_s, unknown_s, work_s",
    [({}, 5.0, "6.2"), ({A: 2.0}, 5.0, "3.2"), ({}, 7.0, "8.2"), ({C: 3.0}, 5.0, "6.2")],
)
def test_an_adapter_without_finished_requests_is_taken_to_need_five_seconds(known_s, unknown_s, work_s):
    """One of A's and one of B's, with η for either; B's take a second, and so do all on average, which is not asked."""
    view = Cluster([*some(1), *some(2, of=B)], some(3), executions_s={None: 1.0, B: 1.0, **known_s})
    plan = exactly(unknown_execution_s=unknown_s).plan(view)
    assert plan.reason == f"every 10 s; no move shortens the longest replica's work of {work_s} s"


def test_gamma_is_the_time_with_the_move_over_the_time_without():
    """Of A, which is on replicas 0 and 2, and of B, which is nowhere, a request each; replica 1 takes no part."""
    held = [*some(1, tokens=100), *some(2, of=B, tokens=200)]
    at = {A.id: (0, 2), B.id: ()}
    view = Cluster(held, some(3), [], some(4, of=None), executions_s={A: 2.0}, at=at, adapter_load_s=0.5)
    requests, problem = gather(view, [0, 2, 3], Ilp().terms)
    gamma = 1 + problem.moved_s / problem.execution_s[:, None]
    assert [request.id for request in requests] == [1, 2, 4]
    assert problem.home.tolist() == [0, 0, 2]
    np.testing.assert_allclose(gamma[0], [1, (2 + 0.06) / 2, (2 + 0.06 + 0.5) / 2])
    np.testing.assert_allclose(gamma[1], [1, (5 + 0.09 + 0.5) / 5, (5 + 0.09 + 0.5) / 5])
    np.testing.assert_allclose(gamma[2], [(5 + PREFILL_S) / 5, (5 + PREFILL_S) / 5, 1])


# Memory


@pytest.mark.parametrize("policy", [exactly, always])
def test_requests_move_for_memory_alone(policy):
    """Two of 32,768 slots, of which one does not fit beside the other: swapped, it takes a second more."""
    view = Cluster(some(1, 2, tokens=32_768), [], executions_s={A: 0.01}, budgets=(32_776, 32_776))
    view.models[0][0].prefill_token = 0.0
    plan = policy(eta_s=0.0).plan(view)
    assert len(plan.moves) == 1
    assert plan.reason.endswith("from 1.02 s to 0.04 s")


def test_a_request_is_swapped_whole_as_printed_and_in_part_when_relaxed():
    """Half of the second one fits: as printed all of it is swapped, relaxed the other half. A move takes ten."""
    view = Cluster(some(1, 2, tokens=32_768), [], executions_s={A: 5.0}, budgets=(49_160, 49_160))
    assert exactly(eta_s=0.0).plan(view).reason.endswith("work of 11 s")
    assert always(eta_s=0.0).plan(view).reason.endswith("work of 10.5 s")


@pytest.mark.parametrize("tokens, most", [(29, None), (60, 10 * 2**20)])
def test_if_nothing_fits_everything_stays(tokens, most):
    """Adapters have to fit into the GPU; requests do not, but then into the host."""
    view = Cluster(some(1, 2, 3, tokens=tokens), [], budgets=(7, 7) if most is None else (50, 50))
    plan = exactly(host_memory_bytes=most).plan(view)
    assert plan == Plan((), plan.reason, solved=False)
    assert "no placement fits" in plan.reason


def test_what_does_not_fit_where_it_is_moves_to_where_it_does():
    view = Cluster(some(1, 2, tokens=40), [], budgets=(50, 50))
    plan = exactly(host_memory_bytes=0).plan(view)
    assert len(plan.moves) == 1
    assert plan.reason.endswith(
        "1 move shortens the longest replica's work from more than its memory holds to 5.142 s"
    )


# Nothing to do, and solvers that do not get there


@pytest.mark.parametrize("policy", [exactly, always])
@pytest.mark.parametrize("held", [([], []), (some(1, 2),), ([], [], [])])
def test_where_there_is_nothing_to_place_there_is_no_cause(policy, held):
    assert policy().plan(Cluster(*held)) == Plan()


def test_where_it_cannot_get_better_no_solver_is_asked():
    view = Cluster(some(1), some(2))
    with mock.patch.object(Solver, "solve", side_effect=AssertionError):
        plan = Ilp().plan(view)
    assert plan == Plan((), "every 10 s; no move shortens the longest replica's work of 5.1 s")


def test_a_placement_that_ends_later_than_now_moves_no_request():
    """As rounding may leave it: a request that was halved goes somewhere whole."""
    with mock.patch.object(Solver, "solve", return_value=Solution(np.array([1, 1]))):
        plan = always().plan(Cluster(some(1, 2), []))
    cause = "replica 0 has 2 requests, 1 more than the mean"
    assert plan == Plan((), f"{cause}; no move shortens the longest replica's work of 10.1 s")


LOPSIDED = Cluster([*some(*range(10)), *some(*range(10, 25), of=B)], [], some(30, of=C))


def test_a_solver_that_stops_has_a_plan_or_none():
    """HiGHS counts its first node, and with none does nothing; CBC solves that one, and says where it stopped."""
    none = exactly(solver="highs", most_nodes=0).plan(LOPSIDED)
    assert none == Plan(
        (), "every 10 s; the solver found no placement within 0 nodes, so nothing moves", False
    )
    some_plan = exactly(solver="cbc", most_nodes=0).plan(LOPSIDED)
    assert some_plan.solved
    assert some_plan.moves
    assert some_plan.reason.endswith("(the solver stopped after 0 nodes)")


def test_what_highs_has_when_it_stops_counts():
    rng = np.random.default_rng(0)
    problem = by_load([0] * 40, *rng.uniform(1, 9, 40), replicas=5)
    found = Solver("highs", gap=0.0, most_nodes=1).solve(problem)
    assert found.ending == "stopped after 1 nodes"
    assert problem.seconds(found.placed).max() < problem.seconds(problem.home).max()


@pytest.mark.parametrize("error", [pulp.PulpSolverError("no cbc"), OSError("no cbc")])
def test_a_solver_that_cannot_be_run_moves_nobody(error):
    with mock.patch.object(pulp.COIN_CMD, "actualSolve", side_effect=error):
        plan = Ilp(solver="cbc").plan(LOPSIDED)
    assert plan == Plan((), "every 10 s; the solver could not be run: no cbc, so nothing moves", solved=False)


# Always the same


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("policy", BOTH)
def test_a_plan_is_always_the_same_in_whatever_order_requests_are_listed(policy, solver):
    rng = np.random.default_rng(1)
    held = [some(*range(40)), some(*range(40, 44), of=B), some(*range(44, 60), of=C), []]
    for requests in held:
        for request in requests:
            request.prompt_tokens = int(rng.integers(1, 400))
    plan = policy(solver=solver).plan(Cluster(*held))
    assert plan.moves
    assert policy(solver=solver).plan(Cluster(*held)) == plan
    assert policy(solver=solver).plan(Cluster(*(requests[::-1] for requests in held))) == plan


# What sets the selective one off, and which replicas take part


@pytest.mark.parametrize("most, caused", [(15, True), (16, False)])
def test_requests_above_the_mean_set_it_off(most, caused):
    """Replica 1 has 30 requests, the mean is 15."""
    plan = SelectiveIlp(more_requests=most).plan(Cluster([], some(*range(30))))
    assert bool(plan.moves) == caused
    assert plan.reason.startswith("replica 1 has 30 requests, 15 more than the mean; ") == caused


@pytest.mark.parametrize(
    "used_tokens, caused", [((90, 89), True), ((89, 10), False), ((95, 90), False), ((20, 100), True)]
)
def test_a_full_memory_sets_it_off_while_another_is_not(used_tokens, caused):
    view = Cluster(some(1, 2, 3), some(4), used_tokens=used_tokens, budgets=(100, 100))
    assert bool(SelectiveIlp(eta_s=0.0).plan(view).reason) == caused


def test_a_full_memory_comes_before_requests_above_the_mean():
    view = Cluster(some(*range(40)), some(50), used_tokens=(10, 95), budgets=(100, 100))
    assert SelectiveIlp().plan(view).reason.startswith("the memory of replica 1 is 95% full, of 0 10%; ")


def test_pulp_is_not_imported_before_it_is_needed():
    assert "pulp" not in vars(comigration)


LOADS = (10, 1, 5, 30, 2, 4, 28, 8, 1, 11)
"""The mean is 10, which is what 0 has; of the three above it 3 has most, of the six below it 1 and 8 have fewest."""


@pytest.mark.parametrize(
    "arguments, chosen",
    [
        ({"most_replicas": 1}, [1, 3]),
        ({"most_replicas": 2}, [1, 3, 6, 8]),
        ({}, [1, 3, 4, 5, 6, 8, 9]),
        ({"most_replicas": 9}, [1, 2, 3, 4, 5, 6, 7, 8, 9]),
        ({"constants": "released"}, [1, 2, 3, 4, 5, 7, 8]),
        ({"constants": "released", "most_replicas": 1}, [1, 3]),
    ],
)
def test_the_most_loaded_and_the_least_loaded_take_part(arguments, chosen):
    assert SelectiveIlp(**arguments).chosen(np.array(LOADS, dtype=float)) == chosen


def test_a_replica_at_the_mean_takes_no_part_and_no_other_request_moves():
    held = [some(*range(20)), some(*range(20, 30)), []]
    plan = always().plan(Cluster(*held))
    assert {(source, target) for _, source, target in moves(plan)} == {(0, 2)}


def test_the_released_constants_are_one_word_and_what_is_set_beside_it_wins():
    paper, released = SelectiveIlp().terms, SelectiveIlp(constants="released").terms
    assert (paper.eta_s, paper.moved_s) == (0.1, None)
    assert (released.eta_s, released.moved_s) == (0.0, 0.05)
    assert released == replace(paper, eta_s=0.0, moved_s=0.05)
    assert SelectiveIlp(constants="released", eta_s=0.3).terms == replace(released, eta_s=0.3)
    assert SelectiveIlp(moved_s=1.0).terms == replace(paper, moved_s=1.0)


def test_released_a_move_costs_the_same_for_every_request_and_adapter():
    """Of two requests one moves for 0.05 s, not for its prefill of 0.6 s and its load; η does not count."""
    view = Cluster(some(1, 2, tokens=2000), [], executions_s={A: 1.0}, at={A.id: (0,)}, adapter_load_s=9.0)
    plan = always(constants="released").plan(view)
    assert len(plan.moves) == 1
    assert plan.reason.endswith("from 2 s to 1.05 s")
    assert always().plan(view).moves == ()
