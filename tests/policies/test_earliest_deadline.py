"""Earliest deadline first, on hand-made views and in a run."""

from math import inf

import pytest

from simlora.policies.scheduling.base import SchedulerOutput
from simlora.policies.scheduling.earliest_deadline import EarliestDeadline
from simlora.policies.views import Refusal
from tests.engine.by_hand import prefill_s
from tests.engine.cases import Case, Row
from tests.policies.hand import RETRY_STEPS, A, B, C, View, requests

PROMISED_S = {A.id: 10.0, B.id: 1.0, C.id: inf}
WAITING = requests(A, B, A, B, C)
"""Due at 10, 2, 12, 4 and never."""


class Promised(View):
    """Tenants of A, B and C were promised first tokens in 10 s, in 1 s, and nothing."""

    def due_s(self, request) -> float:
        return request.arrival_s + PROMISED_S[request.adapter.id]


def test_the_request_that_is_due_first_goes_first_and_one_that_was_promised_nothing_last():
    view = Promised(WAITING)
    assert [r.id for r in EarliestDeadline().order(view)] == [1, 3, 0, 2, 4]
    assert EarliestDeadline().schedule(view).prefill == tuple(WAITING[i] for i in (1, 3, 0, 2, 4))


def test_admission_stops_at_the_first_that_does_not_fit_and_an_arrival_may_be_due_before_it():
    view = Promised(WAITING, running=1, steps=99, refuses={WAITING[3]: Refusal.MEMORY})
    assert EarliestDeadline().schedule(view) == SchedulerOutput(prefill=(WAITING[1],))
    none = Promised(WAITING, running=1, steps=99, refuses={WAITING[1]: Refusal.MEMORY})
    assert EarliestDeadline().schedule(none) == SchedulerOutput(steps=RETRY_STEPS, on_arrival=0)


def test_of_equal_deadlines_the_first_to_arrive_goes_first():
    view = Promised(requests(C, C, C))
    assert [r.id for r in EarliestDeadline().order(view)] == [0, 1, 2]


@pytest.mark.parametrize("targets, first", [((9.0, 1.0, 9.0), 2), ((1.0, 9.0, 9.0), 1), ((9.0, 9.0, 1.0), 3)])
def test_in_a_run_tenants_get_what_they_were_promised_first(targets, first):
    """Three wait while one is prefilled, for adapter 0, for adapter 1 and for the base model."""
    rows = tuple(Row(i / 1000, adapter, 9, 1, 1) for i, adapter in enumerate((None, 0, 1, None)))
    case = Case(
        rows=rows,
        ranks=(1, 1),
        scheduler="earliest_deadline",
        loader="cached",
        kernel="merged",
        reserve="full",
        max_num_seqs=1,
        ttft_targets_s=targets,
    )
    table = case.run().requests()
    assert table.first_token_s[first] == pytest.approx(2 * prefill_s(9))


def test_with_one_target_for_all_it_is_fcfs():
    rows = tuple(Row(i / 100, i % 2, 9, 9, 9) for i in range(20))
    case = Case(rows=rows, ranks=(1, 2), max_num_seqs=3)
    same = case.but(scheduler="earliest_deadline", ttft_targets_s=(2.0,) * 3)
    assert same.run().requests().equals(case.run().requests())
    assert case.but(scheduler="earliest_deadline").run().requests().equals(case.run().requests()), (
        "nor without any"
    )
