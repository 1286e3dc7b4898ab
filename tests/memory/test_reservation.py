"""Full, PaddedKv, Peak and Paged against sums over explicit lists of requests; Pausable around each."""

from dataclasses import dataclass, field
from itertools import count

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from simlora.core.request import Request
from simlora.memory.reservation import UNLIMITED, Full, PaddedKv, Paged, Pausable, Peak, Reservation
from tests.examples import share

IDS = count()


@dataclass
class Member:
    """A running request: the tokens it holds, and those it may still produce."""

    context: int
    to_come: int
    request: Request = field(default_factory=lambda: Request(next(IDS), None, 0.0, 1, 1), compare=False)


MEMBERS = st.lists(st.builds(Member, st.integers(1, 60), st.integers(0, 60)), max_size=12)
CANDIDATE = st.builds(Member, st.integers(1, 60), st.integers(0, 60))
STEPS = st.integers(0, 50)


def fill(reservation: Reservation, members: list[Member], step: int) -> list[Member]:
    """Admit every member that fits, one by one, and return them."""
    admitted: list[Member] = []
    for member in members:
        reservation.begin(step)
        if reservation.fits(member.context, member.to_come, 0):
            reservation.add(member.request, member.context, member.to_come, step)
            admitted.append(member)
    return admitted


def printed_peak(running: list[Member], candidates: list[Member]) -> int:
    """Design §3: max over i of l_i * i + c_i; a member has one token to come less than as a candidate."""
    entries = [(m.to_come - 1, m.context) for m in running] + [(m.to_come, m.context) for m in candidates]
    entries.sort(reverse=True)
    held = [sum(context for _, context in entries[: i + 1]) for i in range(len(entries))]
    return max(left * (i + 1) + held[i] for i, (left, _) in enumerate(entries))


KINDS = pytest.mark.parametrize("kind", [Full, PaddedKv, Peak, Paged])


@KINDS
def test_neither_a_refused_candidate_nor_a_trial_without_admission_leaves_a_trace(kind):
    reservation = kind(100)
    for _ in range(5):
        reservation.begin(0)
        assert [reservation.fits(tokens, 0, 0) for tokens in (40, 90, 40)] == [True, False, True]
    assert reservation.used_tokens(0) == 0


@KINDS
def test_an_empty_batch_never_fills_the_pool(kind):
    assert kind(100).steps_until_full(free_tokens=0, step=7) == UNLIMITED


@pytest.mark.parametrize("kind", [Full, PaddedKv])
def test_what_never_grows_never_fits_later(kind):
    reservation = kind(100)
    fill(reservation, [Member(11, 29)], step=0)
    reservation.begin(0)
    assert not reservation.fits(90, 0, beside_tokens=0)
    assert reservation.steps_until_full(free_tokens=0, step=0) == reservation.retry_steps() == UNLIMITED


# Full and padded


@pytest.mark.parametrize(
    "kind, there, comes, beside_tokens",
    [(Full, Member(11, 29), (11, 49), 0), (PaddedKv, Member(21, 9), (31, 5), 20)],
    ids=["full: 40 + 60", "padded: 2 * (31 + 9)"],
)
def test_a_candidate_fits_to_the_last_slot_of_what_adapters_leave(kind, there, comes, beside_tokens):
    reservation = kind(100)
    fill(reservation, [there], step=0)
    for more, fits in ((0, True), (1, False)):
        reservation.begin(5)
        assert reservation.fits(*comes, beside_tokens + more) is fits


def test_full_takes_prompt_and_output_from_admission_to_end():
    full = Full(100)
    running = fill(full, [Member(11, 29)], step=0)
    assert full.used_tokens(step=0) == full.used_tokens(step=29) == 40
    full.remove(running[0].request, step=29)
    assert full.used_tokens(step=29) == 0


def test_padded_an_empty_batch_has_no_shape():
    padded = PaddedKv(1000)
    (running,) = fill(padded, [Member(31, 29)], step=0)
    assert padded.used_tokens(step=0) == padded.used_tokens(step=9) == 31 + 29
    padded.remove(running.request, step=9)
    padded.add(Member(10, 10).request, 10, 10, 39)
    assert padded.used_tokens(step=39) == 20


def test_padded_a_long_candidate_makes_all_before_it_longer():
    padded = PaddedKv(100)
    padded.begin(0)
    candidates = ((10, 10), (10, 10), (30, 10), (20, 10))  # 3 * 40 and 3 * 30 with the last two
    assert [padded.fits(*each, 0) for each in candidates] == [True, True, False, True]


@given(MEMBERS, CANDIDATE, st.integers(20, 1500), st.integers(0, 20))
def test_padded_takes_a_rectangle_over_all_that_were_ever_in_the_batch(
    members, candidate, capacity, adapter_tokens
):
    padded = PaddedKv(capacity)
    running = fill(padded, members, step=0)
    sides = ("context", "to_come")
    longest = [max((getattr(m, side) for m in running), default=0) for side in sides]
    for member in running[1:]:
        padded.remove(member.request, step=0)
    left = min(len(running), 1)
    assert padded.used_tokens(0) == left * sum(longest)
    shape = [max(left * one, getattr(candidate, side)) for one, side in zip(longest, sides, strict=True)]
    padded.begin(0)
    fits = (left + 1) * sum(shape) <= capacity - adapter_tokens
    assert padded.fits(candidate.context, candidate.to_come, adapter_tokens) == fits


# Peak


@given(MEMBERS, st.lists(CANDIDATE, min_size=1, max_size=6), STEPS, st.integers(0, 20), st.integers(20, 1500))
def test_peak_admits_while_the_printed_formula_stays_strictly_below_the_pool(
    running, candidates, step, adapter_tokens, capacity
):
    peak = Peak(capacity)
    running = fill(peak, [member for member in running if member.to_come], step=0)
    ahead = min([step, *(member.to_come - 1 for member in running)])
    now = [Member(member.context + ahead, member.to_come - ahead) for member in running]
    peak.begin(ahead)
    admitted: list[Member] = []
    for candidate in candidates:
        fits = printed_peak(now, [*admitted, candidate]) < capacity - adapter_tokens
        assert peak.fits(candidate.context, candidate.to_come, adapter_tokens) == fits
        if fits:
            admitted.append(candidate)


SMALL = st.builds(Member, st.integers(1, 12), st.integers(1, 8))


@given(st.lists(SMALL, max_size=6), SMALL, st.integers(5, 60), st.integers(0, 8))
@share(2)
def test_peak_a_refused_candidate_would_not_fit_at_any_step_before_the_retry(
    running, candidate, capacity, adapter_tokens
):
    """While no request leaves: until the first of the running requests has made its last step."""
    peak = Peak(capacity)
    running = fill(peak, running, step=0)
    peak.begin(0)
    assume(not peak.fits(candidate.context, candidate.to_come, adapter_tokens))
    stay = min((member.to_come for member in running), default=0)
    for step in range(1, min(peak.retry_steps(), stay)):
        now = [Member(member.context + step, member.to_come - step) for member in running]
        assert printed_peak(now, [candidate]) >= capacity - adapter_tokens, f"it would fit {step} steps later"


def test_peak_the_retry_is_not_before_the_next_step():
    peak = Peak(50)
    fill(peak, [Member(20, 20)], step=0)
    peak.begin(0)
    assert not peak.fits(20, 20, 0)
    assert peak.retry_steps() > 1


# Paged

BLOCKS = st.sampled_from((1, 2, 5, 16))


@pytest.mark.parametrize("kind", [Peak, Paged])
@given(members=MEMBERS, start=STEPS, ahead=STEPS, block=BLOCKS)
def test_what_the_requests_hold_is_taken_in_whole_blocks_if_it_is_paged(kind, members, start, ahead, block):
    reservation, block = (Paged(10**6, block), block) if kind is Paged else (Peak(10**6), 1)
    running, now = fill(reservation, members, step=start), start + ahead
    while running:
        held = sum(-(-(member.context + ahead) // block) * block for member in running)
        assert reservation.used_tokens(now) == held
        reservation.remove(running.pop(0).request, now)
    assert reservation.used_tokens(now) == 0
    reservation.begin(now)
    assert reservation.fits(10**6 - 2, 1, 0), "those that left are forgotten"


@pytest.mark.parametrize("kind", [Peak, Paged])
@given(members=MEMBERS.filter(len), start=STEPS, block=BLOCKS, free=st.integers(0, 300))
def test_the_pool_is_full_at_the_first_step_that_takes_more_than_is_free(kind, members, start, block, free):
    reservation = Paged(10**6, block) if kind is Paged else Peak(10**6)
    assert fill(reservation, members, step=start) == members
    limit = reservation.used_tokens(start) + free
    steps = reservation.steps_until_full(free, start)
    assert steps >= 1
    assert reservation.used_tokens(start + steps) > limit >= reservation.used_tokens(start + steps - 1)
    for most in (1, 7, 20, 400):
        assert min(reservation.steps_until_full(free, start, most), most) == min(steps, most)


def test_paged_keeps_the_watermark_free_unless_the_candidate_is_alone():
    paged = Paged(100, block_size=10, watermark=0.2)
    paged.begin(0)
    assert paged.fits(71, 0, beside_tokens=20), "alone: 80 slots and the adapter, to the last slot"
    paged.begin(0)
    assert paged.fits(10, 0, beside_tokens=0)
    assert paged.fits(70, 0, beside_tokens=0), "80 slots, 20 are kept free"
    assert not paged.fits(1, 0, beside_tokens=0)


def test_paged_does_not_ask_how_long_an_answer_may_get():
    paged = Paged(100, block_size=10, watermark=0.0)
    paged.begin(0)
    assert paged.fits(10, 10_000, beside_tokens=0)


# Pausable

RULES = {"full": lambda: Full(100), "peak": lambda: Peak(100), "paged": lambda: Paged(100, 10, 0.0)}


@pytest.mark.parametrize("rule", RULES)
def test_pausable_without_a_pause_is_its_rule(rule):
    pausable, alone = Pausable(RULES[rule]()), RULES[rule]()
    _, one = fill(pausable, [Member(11, 9), Member(21, 19)], step=2)
    _, other = fill(alone, [Member(11, 9), Member(21, 19)], step=2)
    assert pausable.grows == alone.grows
    for step in (2, 5, 9):
        assert pausable.used_tokens(step) == alone.used_tokens(step)
        assert pausable.peak_tokens(step) == alone.peak_tokens(step)
        assert pausable.held_tokens(one.request, step) == alone.held_tokens(other.request, step)
        assert pausable.steps_until_full(30, step) == alone.steps_until_full(30, step)
        pausable.begin(step)
        alone.begin(step)
        assert pausable.fits(60, 5, 0) == alone.fits(60, 5, 0)
        assert pausable.retry_steps() == alone.retry_steps()


@pytest.mark.parametrize("rule, held", [("full", 20), ("peak", 14), ("paged", 20)])
def test_pausable_a_paused_request_keeps_the_slots_that_it_holds_and_takes_no_more(rule, held):
    """11 slots at step 0, 14 at step 3: two blocks of ten; with what may come, 20."""
    pausable = Pausable(RULES[rule]())
    running = fill(pausable, [Member(11, 9)], step=0)
    pausable.pause(running[0].request, step=3)
    for step in (3, 8):
        assert pausable.used_tokens(step) == pausable.peak_tokens(step) == held
        assert pausable.held_tokens(running[0].request, step) == pausable.paused_tokens == held
    assert pausable.steps_until_full(free_tokens=0, step=3) == UNLIMITED


def test_pausable_only_the_others_grow():
    pausable = Pausable(Paged(100, block_size=1, watermark=0.0))
    running = fill(pausable, [Member(11, 9), Member(21, 19)], step=0)
    pausable.pause(running[0].request, step=3)
    assert [pausable.used_tokens(step) for step in (3, 8)] == [14 + 24, 14 + 29]
    assert pausable.steps_until_full(free_tokens=5, step=3) == 6


def test_pausable_a_request_that_resumes_is_charged_by_the_rule_again():
    pausable = Pausable(Peak(100))
    running = fill(pausable, [Member(11, 9)], step=0)
    pausable.pause(running[0].request, step=3)
    pausable.remove(running[0].request, step=8)
    assert (pausable.used_tokens(8), pausable.paused_tokens) == (0, 0)
    pausable.add(running[0].request, 14, 6, step=8)
    assert [pausable.used_tokens(step) for step in (8, 10)] == [14, 16]
    pausable.remove(running[0].request, step=10)
    assert pausable.used_tokens(10) == 0


def test_pausable_a_trial_counts_no_paused_request_but_in_the_slots_beside():
    """The paused slots come with `beside_tokens`, so that a trial can do without some of them."""
    pausable = Pausable(Full(100))
    running = fill(pausable, [Member(11, 29)], step=0)
    pausable.pause(running[0].request, step=0)
    for beside_tokens, fits in ((0, True), (pausable.paused_tokens, False)):
        pausable.begin(0)
        assert pausable.fits(61, 9, beside_tokens) is fits
