"""Which requests are picked, paused and resumed: merged only, unmerged only, and PEFT, on hand-made views."""

import pytest

from simlora.core.errors import InputError
from simlora.policies.scheduling.base import Pause, SchedulerOutput
from simlora.policies.scheduling.merged_only import MergedOnly
from simlora.policies.scheduling.peft_continuous import PeftContinuous
from simlora.policies.scheduling.unmerged_only import UnmergedOnly
from simlora.policies.views import Refusal
from tests.policies.hand import RETRY_STEPS, A, B, View, paused, requests, resumed


def test_merged_only_merges_the_oldest_request_s_adapter_and_starts_all_of_its_requests():
    first, _, third, _ = queue = requests(A, B, A, None)
    decision = MergedOnly().schedule(View(queue))
    assert decision == SchedulerOutput(prefill=(first, third), merge=A, on_arrival=0, decode=True)


def test_requests_of_another_adapter_are_paused_once_the_oldest_is_for_another():
    """The oldest of adapter A has ended; of the rest B's is the oldest."""
    b, a, late = requests(B, A, B)
    decision = MergedOnly().schedule(View((b, late), members=[a], merged=A))
    assert decision == SchedulerOutput(
        prefill=(b, late), actions=(Pause(a),), unmerge=True, merge=B, on_arrival=0, decode=True
    )
    assert paused(decision) == (a,), "actions of two kinds may be equal as tuples"


def test_a_paused_request_resumes_where_it_was():
    a, b, other = requests(A, B, A)
    decision = MergedOnly().schedule(View(members=[b], paused=[other, a], merged=B))
    assert paused(decision) == (b,)
    assert resumed(decision) == (a, other), "in order of arrival"
    assert (decision.prefill, decision.decode) == ((), False)
    assert (decision.unmerge, decision.merge) == (True, A)


def test_what_is_merged_already_is_not_merged_again():
    a, more = requests(A, A)
    decision = MergedOnly().schedule(View((more,), members=[a], merged=A))
    assert decision == SchedulerOutput(prefill=(more,), on_arrival=0, decode=True)


def test_for_the_base_model_what_is_merged_is_taken_out():
    base, a = requests(None, A)
    decision = MergedOnly().schedule(View((base,), members=[a], merged=A))
    assert (decision.unmerge, decision.merge, paused(decision)) == (True, None, (a,))


def test_no_more_run_than_there_are_seats_for_and_the_first_to_arrive_do():
    a, b, c, d = requests(A, B, None, A)
    decision = UnmergedOnly().schedule(View((a, d), members=[b, c], max_num_seqs=3))
    assert decision == SchedulerOutput(prefill=(a,), on_arrival=0, decode=True)
    decision = UnmergedOnly().schedule(View((a, b), members=[c, d], max_num_seqs=3))
    assert (decision.prefill, paused(decision)) == ((a, b), (d,)), "the request that came back is older"


def test_requests_are_tried_beside_those_that_stay_while_the_others_make_way():
    a, b, c, d = requests(A, B, A, A)
    view = View((d,), members=[a, b], paused=[c], merged=A)
    MergedOnly().schedule(view)
    assert view.beside == [a, c]
    assert view.tried == (d,)


def test_a_refused_request_is_tried_again_when_it_could_fit():
    a, b = requests(A, A)
    view = View((b,), members=[a], merged=A, refuses={b: Refusal.MEMORY})
    assert MergedOnly().schedule(view) == SchedulerOutput(steps=RETRY_STEPS, on_arrival=0)
    c, d = requests(B, A, start=2)
    view = View((b,), members=[a, c], paused=[d], merged=A, refuses={b: Refusal.MEMORY})
    assert MergedOnly().schedule(view).steps == 1, "the batch is another one then"


def test_only_what_merges_says_so_and_all_that_pick_say_that_they_pause():
    assert (MergedOnly.merges, UnmergedOnly.merges) == (True, False)
    assert MergedOnly.pauses
    assert UnmergedOnly.pauses
    assert not PeftContinuous.pauses


def test_peft_takes_the_first_requests_in_line_of_one_adapter():
    first, second, _, _ = queue = requests(A, A, B, A)
    decision = PeftContinuous().schedule(View(queue))
    assert decision == SchedulerOutput(prefill=(first, second), merge=A)


def test_behind_a_request_of_another_adapter_none_joins():
    peft = PeftContinuous()
    peft.schedule(View(requests(A)))
    assert peft.schedule(View(requests(B, A), running=1, merged=A)).prefill == ()
    joins, _ = queue = requests(A, B)
    assert peft.schedule(View(queue, running=1, merged=A)) == SchedulerOutput(prefill=(joins,))
    assert peft.schedule(View((), running=1, merged=A)).on_arrival == 0


def test_peft_changes_over_between_batches_only_where_it_has_to():
    queue = requests(A, B)
    assert PeftContinuous().schedule(View(queue, merged=A)) == SchedulerOutput(prefill=queue[:1])
    decision = PeftContinuous().schedule(View(queue, merged=B))
    assert (decision.unmerge, decision.merge) == (True, A)
    decision = PeftContinuous().schedule(View(requests(None), merged=B))
    assert (decision.unmerge, decision.merge) == (True, None)


def test_whole_copies_need_no_merging():
    copies = PeftContinuous(merge=False)
    assert not copies.merges
    queue = requests(A, B)
    assert copies.schedule(View(queue)) == SchedulerOutput(prefill=queue[:1])
    with pytest.raises(InputError, match=r"scheduler\.merge is 3, must be true or false"):
        PeftContinuous(merge=3)  # type: ignore[arg-type]
