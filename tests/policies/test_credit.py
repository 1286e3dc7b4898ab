"""dLoRA's batching: its worked example, thresholds that adapt, credits that change hands, and adapters that starve."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simlora.core.adapter import Adapter
from simlora.core.request import Request
from simlora.policies.scheduling.base import Note
from simlora.policies.scheduling.credit import Credit, transfer
from simlora.policies.scheduling.thresholds import Thresholds
from tests.policies.hand import A, B, C, View, paused, requests, resumed

MERGED_S, UNMERGED_S, SWITCH_S = 0.050, 0.100, 0.100
"""Those of the worked example of section 4.2."""


def thresholds(
    constants: str = "paper", alpha: float = 1.0, beta: float = 0.5, every: int = 100
) -> Thresholds:
    return Thresholds(
        constants=constants,
        merged_s=MERGED_S,
        unmerged_s=UNMERGED_S,
        switch_s=SWITCH_S,
        every=every,
        decrement=0.05,
        factor=1.1,
        alpha=alpha,
        beta=beta,
    )


def test_the_worked_example_takes_300_and_250_ms():
    """Three iterations: not merged 300 ms, and 250 ms after a switch of 100 ms (dLoRA, section 4.2)."""
    limits = thresholds()
    limits.stands(False, 1, 1)
    limits.passed(3)
    merged, unmerged = limits.throughputs()
    assert 3 / merged == pytest.approx(0.250, abs=1e-12)
    assert 3 / unmerged == pytest.approx(0.300, abs=1e-12)


@pytest.mark.parametrize(
    "known, merged, batch, turn, iterations, found",
    [
        # unmerged: two iterations take 200 ms either way, and alpha grows by a tenth
        ({"alpha": 0.9}, False, 1, 1, 2, {"alpha": 0.99}),
        # three take 300 ms or 250: to merge becomes easier
        ({"alpha": 0.9}, False, 1, 1, 3, {"alpha": 0.85}),
        # alpha never grows beyond where merging means a fuller batch
        ({"alpha": 0.95}, False, 1, 1, 2, {"alpha": 1.0}),
        ({"alpha": 3.0}, False, 1, 1, 2, {"alpha": 3.0}),  # nor does one that is there already
        ({"alpha": 0.62, "beta": 0.6}, False, 10, 10, 50, {"alpha": 0.62}),  # alpha stays above beta
        ({}, True, 10, 10, 50, {"beta": 0.45}),  # merged: beta falls unless going back would have paid
        ({}, True, 1, 10, 50, {"beta": 0.55}),  # and rises if it would
        # one iteration: 120 requests a second against 50, the switch included
        ({}, True, 6, 10, 1, {"beta": 0.45}),
        ({"alpha": 0.62, "beta": 0.605}, True, 1, 10, 50, {"beta": 0.605}),  # beta stays below alpha
        ({"beta": 0.03}, True, 10, 10, 50, {"beta": 0.0}),  # beta is never below 0
        ({"constants": "released"}, True, 10, 10, 50, {"alpha": 0.95}),  # released, merged: alpha falls
        # released, merged: alpha rises without a bound
        ({"constants": "released"}, True, 1, 10, 50, {"alpha": 1.1}),
        # released, unmerged: beta falls by its factor
        ({"constants": "released"}, False, 10, 10, 50, {"beta": 0.5 / 1.1}),
        ({"constants": "released"}, False, 1, 10, 50, {"beta": 0.55}),  # released, unmerged: beta rises
    ],
)
def test_a_period_tunes_one_threshold(known, merged, batch, turn, iterations, found):
    limits = thresholds(**known)  # type: ignore[arg-type]
    before = {"alpha": limits.alpha, "beta": limits.beta}
    limits.stands(merged, batch, turn)
    limits.passed(iterations)
    assert limits.tune()
    assert {"alpha": limits.alpha, "beta": limits.beta} == pytest.approx(before | found)


def test_the_released_code_charges_a_switch_for_every_adapter_that_led_and_to_the_way_taken():
    limits = thresholds("released")
    limits.stands(False, 1, 1)
    limits.leader_changes()
    limits.leader_changes()
    limits.passed(4)
    merged, unmerged = limits.throughputs()
    assert (4 / merged, 4 / unmerged) == (pytest.approx(0.2 + 0.2), pytest.approx(0.4 + 0.1))
    limits.stands(True, 1, 1)
    limits.tune()
    limits.passed(4)
    merged, unmerged = limits.throughputs()
    assert (4 / merged, 4 / unmerged) == (pytest.approx(0.2 + 0.1), pytest.approx(0.4))


def test_at_alpha_exactly_only_the_released_code_merges():
    assert not thresholds().merges(1.0)
    assert thresholds().merges(1.01)
    assert thresholds("released").merges(1.0)
    assert Credit(merged_s=0.3, unmerged_s=0.4).thresholds.beta == pytest.approx(0.75), "where it starts"
    assert thresholds().stays(0.5)
    assert not thresholds().stays(0.49)


def test_a_period_in_which_no_adapter_could_be_merged_teaches_nothing():
    limits = thresholds()
    limits.stands(False, 0, 5)
    limits.passed(500)
    assert not limits.tune()
    assert (limits.alpha, limits.beta) == (1.0, 0.5)


# Algorithm 1 ----------------------------------------------------------------------------------


def credit(**changes: object) -> Credit:
    return Credit(**({"alpha": 1.0, "beta": 0.5} | changes))  # type: ignore[arg-type]


def view(waiting: Sequence[Request], size: int = 4, **more: object) -> View:
    return View(waiting, max_num_seqs=size, **more)  # type: ignore[arg-type]


def test_as_long_as_no_adapter_has_more_requests_than_the_batch_they_run_in_order_of_arrival():
    queue = requests(A, A, B, A, A)
    decision = credit().schedule(view(queue))
    assert decision.prefill == queue[:4]
    assert decision.merge is None


def test_the_adapter_with_the_most_requests_is_merged_once_they_are_more_than_alpha_of_the_batch():
    queue = requests(B, A, A, C, A, A, A)
    decision = credit().schedule(view(queue))
    assert decision.merge is A
    assert decision.prefill == tuple(r for r in queue if r.adapter is A)[:4]
    assert credit(alpha=1.25).schedule(view(queue)).merge is None, "five for four are not more"


def test_of_adapters_with_equally_many_requests_that_of_the_oldest_is_merged():
    queue = requests(C, B, C, B, C, B)
    assert credit(alpha=0.5).schedule(view(queue)).merge is C
    behind = requests(None, None, None, None, C, B)
    assert credit(alpha=0.2).schedule(view(behind)).merge is C, "also of requests that are not in turn"
    older, newer = requests(B), requests(C, start=1)
    assert credit(alpha=0.1).schedule(view(newer, paused=older)).merge is B
    assert credit(alpha=0.2).schedule(view(requests(*[None] * 5))).merge is None, "the base model is nothing"


def test_it_stays_merged_until_too_few_are_left():
    others = requests(B, C, B)
    ours = requests(A, A, start=3)
    scheduler = credit()
    stays = scheduler.schedule(view(others, members=ours, merged=A))
    assert (stays.unmerge, stays.merge, paused(stays)) == (False, None, ())
    goes = credit().schedule(view(others, members=ours[:1], merged=A))
    assert (goes.unmerge, goes.prefill) == (True, others), "one for four are fewer than half"
    queue = requests(B, C)
    none = credit(beta=0.0).schedule(view(queue, merged=A))
    assert (none.unmerge, none.merge, none.prefill) == (True, None, queue), (
        "nor without any request of its own"
    )


def test_whether_to_stay_is_asked_anew_right_after_a_switch():
    queue = requests(A, A, A, A, A)
    assert credit().schedule(view(queue)).steps == 1
    assert credit(tune_every=7).schedule(view((), members=queue[:4], merged=A)).steps == 7


# Credits --------------------------------------------------------------------------------------


def test_an_adapter_that_is_left_out_is_paid_by_those_that_run_instead():
    b, a, c, *more = requests(B, A, C, A, A, A)
    assert transfer([a, *more], [b, a, c]) == {B.id: 1, C.id: 1, A.id: -2}
    assert transfer([b, a, c], [b, a, c]) == {}
    assert transfer([a], [b, a, c]) == {B.id: 1, C.id: 1, A.id: -2}, "where none runs out of turn too"


@given(st.lists(st.sampled_from((A, B, C, None)), min_size=1, max_size=12), st.data())
def test_credit_is_neither_made_nor_lost(adapters, data):
    queue = requests(*adapters)
    turn = queue[: data.draw(st.integers(1, len(queue)))]
    picked = data.draw(st.lists(st.sampled_from(queue), min_size=1, max_size=len(turn), unique=True))
    assert sum(transfer(picked, turn).values()) == 0


def overtaking(**changes: object) -> tuple[Credit, tuple[Request, ...], tuple[Request, ...]]:
    """A scheduler that has merged A, four of whose requests run before two of B and C."""
    others, ours = requests(B, C), requests(A, A, A, A, start=2)
    scheduler = credit(**({"alpha": 0.5} | changes))
    scheduler.schedule(view(others, members=ours, merged=A))
    return scheduler, others, ours


def test_credit_changes_hands_at_every_iteration():
    scheduler, others, ours = overtaking(starving=100.0, normal=50.0)
    scheduler.schedule(view(others, members=ours, merged=A, iterations=10))
    assert scheduler.credits == {B.id: 10, C.id: 10, A.id: -20}
    scheduler.schedule(view(others, members=ours, merged=A, iterations=13))
    assert scheduler.credits == {B.id: 13, C.id: 13, A.id: -26}


def released(adapters: Sequence[Adapter], members: int = 0, **changes: object) -> dict[int, float]:
    """Credits after one iteration of the released code: of requests that displace one, four of which may run."""
    queue = requests(*adapters)
    scheduler = credit(constants="released", alpha=0.5, beta=0.1, **changes)
    scheduler.schedule(view(queue[members:], members=queue[:members], merged=A if members else None))
    scheduler.schedule(view(queue[members:], members=queue[:members], merged=A, iterations=1))
    return {id: units / 1000 for id, units in scheduler.credits.items()}


def test_as_released_a_merged_batch_as_large_as_the_turn_pays_as_much_more_as_it_is_faster():
    """27 over 15 for each request from outside the turn, to the adapters of its last ones, displaced or not."""
    times = {"merged_s": 0.015, "unmerged_s": 0.027}
    assert released([B, A, A, C, A, A], **times) == {C.id: 1.8, A.id: -1.8}, "one of the two gains is A's own"


def test_as_released_a_merged_batch_of_another_size_pays_half_of_that_to_the_displaced():
    times = {"merged_s": 0.015, "unmerged_s": 0.027}
    assert released([B, A, C, A], **times) == {B.id: 0.9, C.id: 0.9, A.id: -1.8}
    six = [B, A, A, C, A, A, A]
    assert released([A, *six][1:], **times) == {C.id: 1.8, A.id: -1.8}, "to merge takes four"


def test_as_released_an_adapter_above_nothing_overtakes_whatever_that_costs():
    scheduler, others, ours = overtaking(starving=1.0, normal=0.5, constants="released")
    scheduler.credits[A.id] = -8000
    assert not scheduler.schedule(view(others, members=ours, merged=A)).unmerge
    scheduler, others, ours = overtaking(starving=1.0, normal=0.5, constants="released")
    scheduler.credits[A.id] = -8001
    assert scheduler.schedule(view(others, members=ours, merged=A)).unmerge


def test_a_starving_adapter_goes_first_and_unmerged_until_it_has_had_enough():
    """A quarter of credit an iteration: after five B and C have more than one."""
    scheduler, others, ours = overtaking(starving=1.0, normal=0.5)
    assert scheduler.schedule(view(others, members=ours, merged=A, served_adapters=30)).steps == 5
    decision = scheduler.schedule(view(others, members=ours, merged=A, iterations=5, served_adapters=30))
    assert (decision.prefill, paused(decision), decision.unmerge) == (others, ours, True)
    # They run in their turn now, and so pay no adapter: they starve until they displace another one.
    again = scheduler.schedule(view((), members=others, paused=ours, iterations=6))
    assert paused(again) == ()
    assert resumed(again) == ()


def test_an_adapter_that_cannot_pay_cannot_overtake():
    """With three adapters the start is twice what starving takes: here two, which is eight quarters."""
    scheduler, others, ours = overtaking(starving=1.0, normal=0.5)
    scheduler.credits[A.id] = -7
    decision = scheduler.schedule(view(others, members=ours, merged=A))
    assert (decision.unmerge, decision.merge) == (True, None), "it would have to pay two"
    scheduler, others, ours = overtaking(starving=1.0, normal=0.5)
    scheduler.credits[A.id] = -6
    decision = scheduler.schedule(view(others, members=ours, merged=A))
    assert not decision.unmerge
    assert decision.steps == 1, "after that it cannot"


def test_starving_requests_of_the_merged_adapter_alone_stay_merged():
    scheduler = credit(starving=1.0, normal=0.5)
    scheduler._starve.add(A.id)
    scheduler.credits[A.id] = 5
    ours = requests(A, A, start=1)
    decision = scheduler.schedule(view(requests(B), members=ours, merged=A))
    assert (decision.unmerge, decision.merge, decision.prefill) == (False, None, ())
    again = scheduler.schedule(view(requests(B), members=ours, merged=A))
    assert again.steps == 4, "it pays one an iteration, and has less than two after four"


# Break points --------------------------------------------------------------------------------


def tuned(scheduler: Credit, *views: View) -> Thresholds:
    """The thresholds after these boundaries."""
    for each in views:
        scheduler.schedule(each)
    return scheduler.thresholds


def test_another_leader_ends_a_period():
    """For 50 iterations A led with two of four requests, as if half as many ran at less than half the time; now B."""
    first = view((), members=requests(A, A, C, None))
    then = view((), members=requests(B, B, C, None), iterations=50)
    assert tuned(credit(alpha=0.9), first, then).alpha == pytest.approx(0.99)


def test_a_switch_ends_a_period():
    queue = requests(A, A, A, A, A)
    mixed, merges = view((), members=requests(A, A, A, B)), view(queue, members=queue[:0], iterations=50)
    assert tuned(credit(alpha=0.9), mixed, merges).alpha == pytest.approx(0.85), "3 at 15 ms against 4 at 27"


def test_so_many_iterations_end_a_period_but_not_in_the_released_code():
    views = [view((), members=requests(A, B), iterations=i) for i in (0, 10)]
    assert tuned(credit(alpha=0.9, tune_every=10), *views).alpha == pytest.approx(0.99)
    released = credit(alpha=0.9, tune_every=10, constants="released")
    assert tuned(released, *views).alpha == 0.9
    assert released.schedule(views[1]).steps > 10**9


def test_no_more_than_a_batch_counts_as_merged():
    """Forty requests of A for four in turn: merged it would still be four at a time, twice as fast."""
    scheduler = credit(alpha=20.0, beta=0.0)
    queue = requests(*[B] * 4, *[A] * 40)
    scheduler.schedule(view(queue[4:], members=queue[:4]))
    scheduler.schedule(view(queue[4:], members=queue[:4], iterations=10))
    merged, unmerged = scheduler.thresholds.throughputs()
    assert merged / unmerged == pytest.approx(10 * 0.027 / (10 * 0.015 + 0.020))


def test_while_an_adapter_starves_thresholds_learn_nothing():
    scheduler, others, ours = overtaking(starving=1.0, normal=0.5)
    scheduler._starve.add(B.id)
    scheduler.schedule(view(others, members=ours))
    scheduler.schedule(view(others, members=ours, iterations=10))
    assert scheduler.thresholds.iterations == 0


def test_starving_adapters_are_noted_when_that_begins_and_when_it_ends():
    scheduler, others, ours = overtaking(starving=1.0, normal=0.5)
    waits = {"members": ours, "merged": A, "served_adapters": 30}
    scheduler.schedule(view(others, **waits))
    output = scheduler.schedule(view(others, iterations=5, **waits))
    notes = {action.name: action.value for action in output.actions if isinstance(action, Note)}
    assert notes["starving"] == 2
    assert notes["credit:b"] == 1.25
    again = scheduler.schedule(view(others, iterations=5, **waits))
    assert not any(isinstance(action, Note) for action in again.actions)


def test_starving_means_more_than_the_limit_and_normal_less():
    scheduler, others, ours = overtaking(starving=1.0, normal=0.5)
    waits = {"members": ours, "merged": A, "served_adapters": 30}
    assert scheduler.schedule(view(others, iterations=4, **waits)).prefill == (), "exactly one"
    scheduler.credits[B.id], scheduler.credits[C.id], scheduler._pay = 2, 0, {B.id: 0}
    scheduler._starve.add(B.id)
    assert scheduler.schedule(view(others, iterations=4, **waits)).prefill == others[:1], "exactly a half"
