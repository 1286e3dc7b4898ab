"""Autoscalers on hand-made fleets: how many replicas they want, and when."""

import re
from collections.abc import Sequence

import numpy as np
import pytest

from simlora.core.errors import InputError
from simlora.policies.scaling.by_queue import ByQueue
from simlora.policies.scaling.by_schedule import BySchedule
from simlora.policies.scaling.by_slo import BySlo
from simlora.policies.scaling.fixed import Fixed
from simlora.policies.scaling.rules import ScalingRules
from tests.policies.hand import Cluster


class Fleet(Cluster):
    """`desired` of eight replicas, with so many requests, at a time."""

    def __init__(
        self,
        desired: int,
        requests: int = 0,
        now_s: float = 0.0,
        *,
        waits_s: Sequence[float] = (),
        had_s: Sequence[float] = (),
    ) -> None:
        super().__init__((requests, *(0,) * 7))
        self.desired, self.now_s = desired, now_s
        self.waits_s, self._had_s = np.array(waits_s), np.array(had_s)
        self.asked: list[float] = []
        self.unassigned = self.adapters_in_use = 0
        self.scaled: list[tuple[float, int]] = []
        self.active = requests > 0

    def first_tokens_s(self, window_s: float) -> np.ndarray:
        self.asked.append(window_s)
        return self._had_s


def test_fixed_wants_all_and_never_looks():
    assert Fixed().replicas(Fleet(3)) == 8
    assert Fixed().period_s is None


# By queue -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "on, requests, more, wanted",
    [
        (2, 20, {}, 2),  # ten each, as they should
        (2, 21, {}, 2),  # within a tenth of it
        (2, 23, {}, 3),
        (18, 162, {}, 18),  # a tenth below, and no rounding
        (2, 60, {}, 6),
        (2, 990, {}, 6),  # at most four more at once
        (8, 990, {}, 16),  # or as many again, if that is more; the cluster keeps it to what there is
        (4, 37, {}, 4),
        (0, 30, {}, 3),  # all have failed, or are off
        (0, 10, {}, 1),
        (0, 0, {}, 0),
        (0, 0, {"unassigned": 25}, 3),  # they wait for a replica
        (2, 20, {"adapters_in_use": 8}, 2),
        (2, 20, {"adapters_in_use": 13}, 4),  # more adapters than two replicas are to have
        (2, 40, {"adapters_in_use": 13}, 4),
        (4, 5, {"adapters_in_use": 5}, 2),
        (2, 30, {"adapters_in_use": 9}, 3),  # for its requests
    ],
)
def test_by_queue_wants_as_many_as_have_the_target_of_requests_or_of_adapters_each(
    on, requests, more, wanted
):
    fleet = Fleet(on, requests)
    vars(fleet).update(more)
    targets = {"target_adapters": 4} if "adapters_in_use" in more else {}
    assert ByQueue(target_requests=10, down_window_s=0, **targets).replicas(fleet) == wanted


def test_by_queue_stays_where_a_metric_deviates_by_as_much_as_it_tolerates():
    wanted = [
        ByQueue(target_requests=10, up_tolerance=0.25, down_tolerance=0.25).replicas(Fleet(4, requests))
        for requests in (50, 51, 30)
    ]
    assert wanted == [4, 6, 4]


def test_of_waiting_requests_alone_one_replica_is_enough_where_none_waits():
    policy = ByQueue(target_requests=None, target_waiting=5, down_window_s=0)
    waiting = [policy.replicas(Fleet(2, 50, waits_s=[1.0] * count)) for count in (0, 5, 10, 13)]
    assert waiting == [1, 1, 2, 3]
    assert ByQueue(target_requests=10, target_waiting=5).replicas(Fleet(2, 50, waits_s=[1.0] * 13)) == 5
    with pytest.raises(InputError, match="no target: give target_requests"):
        ByQueue(target_requests=None)


def test_by_queue_goes_down_to_the_most_of_the_last_minutes_and_up_at_once():
    policy = ByQueue(target_requests=10, down_window_s=300)
    said = [
        policy.replicas(Fleet(on, requests, now_s))
        for now_s, on, requests in [
            (0.0, 1, 60),
            (15.0, 6, 20),
            (200.0, 6, 35),
            (300.0, 6, 10),  # what was said at 0 s is forgotten, and 4 at 200 s is the most since
            (400.0, 4, 5),
            (501.0, 4, 5),
            (510.0, 1, 90),
        ]
    ]
    assert said == [5, 6, 6, 4, 4, 1, 5]


def test_with_behavior_by_queue_goes_up_to_what_is_needed_now_and_without_it_to_what_was_needed_lately():
    load = [(0.0, 1, 60), (15.0, 5, 20), (30.0, 4, 45), (301.0, 4, 45), (314.0, 4, 45), (331.0, 8, 200)]
    said = {}
    for behavior in (True, False):
        policy = ByQueue(target_requests=10, behavior=behavior)
        said[behavior] = [policy.replicas(Fleet(on, requests, now_s)) for now_s, on, requests in load]
    assert said == {True: [5, 5, 5, 5, 5, 16], False: [4, 6, 6, 5, 5, 16]}


def test_without_behavior_a_decision_doubles_the_number_or_makes_it_four():
    policy = ByQueue(target_requests=10, behavior=False)
    assert [policy.replicas(Fleet(on, 990)) for on in (0, 1, 2, 3, 5)] == [4, 4, 4, 6, 10]
    assert ByQueue(target_requests=10, behavior=False).replicas(Fleet(8, 20)) == 2, "and may empty it at once"


def test_by_queue_goes_by_the_metrics_of_a_while_ago():
    policy = ByQueue(target_requests=10, lag_s=30, down_window_s=0)
    load = [(0.0, 40), (15.0, 60), (30.0, 10), (45.0, 10), (60.0, 10)]
    assert [policy.replicas(Fleet(4, requests, now_s)) for now_s, requests in load] == [4, 4, 4, 6, 1]


def test_by_queue_wants_none_only_when_no_request_was_there_for_long():
    policy = ByQueue(target_requests=10, down_window_s=300, lag_s=15)
    came = Fleet(1, 0, 100.0)
    came.active = True
    assert [policy.replicas(fleet) for fleet in (came, Fleet(1, 0, 399.0))] == [1, 1]
    assert policy.replicas(Fleet(1, 0, 401.0)) == 0


# How fast it may go -------------------------------------------------------------------------


def rules(direction: str, **changes: object) -> ScalingRules:
    known = {"replicas": 4, "share": 1.0, "period_s": 60}
    return ScalingRules(direction, **(known | changes))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "changes, on, most",
    [
        ({}, 2, 6),
        ({}, 8, 16),
        ({"select": "min"}, 2, 4),
        ({"select": "min"}, 8, 12),
        ({"select": "disabled"}, 8, 8),
        ({"share": None}, 8, 12),
        ({"replicas": None, "share": 0.5}, 3, 5),
        ({"replicas": None}, 0, 0),  # a share of none is none
    ],
)
def test_the_most_replicas_that_rules_allow(changes, on, most):
    assert rules("up", **changes).limit(on, [], 100.0) == most


@pytest.mark.parametrize(
    "changes, on, fewest",
    [
        ({}, 8, 0),
        ({"share": 0.1}, 8, 4),
        ({"share": 0.1, "select": "min"}, 20, 18),
        ({"share": 0.1, "replicas": None}, 5, 4),  # int(5 x 0.9)
        ({"share": None}, 3, -1),  # the cluster has its least
        ({"select": "disabled"}, 8, 8),
    ],
)
def test_the_fewest_replicas_that_rules_allow(changes, on, fewest):
    assert rules("down", **changes).limit(on, [], 100.0) == fewest


def test_a_change_uses_up_what_its_period_allows_until_it_is_that_old():
    up, down = rules("up", share=None), rules("down", share=None)
    added = [(10.0, 2), (50.0, 3)]
    assert [up.limit(7, added, now_s) for now_s in (50.0, 69.9, 70.0, 109.9, 110.0)] == [7, 7, 8, 8, 11]
    removed = [(50.0, -4)]
    assert [down.limit(4, removed, now_s) for now_s in (60.0, 110.0)] == [4, 0]
    assert up.limit(4, removed, 60.0) == 12, "four that are back, and four more"
    assert rules("up", share=0.5, replicas=None).limit(6, [(50.0, 2)], 60.0) == 6, (
        "half of the four that were"
    )
    assert rules("down", share=None).limit(9, [(50.0, 3)], 60.0) == 2, "three that came, and four of six"


def test_one_a_minute_is_removed_however_often_the_policy_decides():
    policy = ByQueue(target_requests=10, down_window_s=0, down_replicas=1, down_share=None, down_period_s=60)
    fleet, said = Fleet(5, 5), []
    for now_s in (0.0, 15.0, 30.0, 45.0, 60.0, 75.0):
        fleet.now_s = now_s
        said.append(policy.replicas(fleet))
        if said[-1] != fleet.desired:
            fleet.scaled.append((now_s, said[-1] - fleet.desired))
        fleet.desired = said[-1]
    assert said == [4, 4, 4, 4, 3, 3]


def test_it_goes_up_only_to_the_lowest_result_of_a_window():
    policy = ByQueue(target_requests=10, up_window_s=60, down_window_s=0)
    load = [(0.0, 20), (15.0, 60), (59.0, 60), (60.0, 50), (75.0, 90), (119.0, 90)]
    assert [policy.replicas(Fleet(2, requests, now_s)) for now_s, requests in load] == [2, 2, 2, 5, 5, 5]


def test_a_metric_may_miss_its_target_by_more_in_one_direction_than_in_the_other():
    policy = ByQueue(target_requests=10, up_tolerance=0.3, down_tolerance=0.0, down_window_s=0)
    assert [policy.replicas(Fleet(4, requests)) for requests in (52, 53, 39, 30)] == [4, 6, 4, 3]


@pytest.mark.parametrize("behind_s, fewest", [(59.9, 2), (60.0, 5)])
@pytest.mark.parametrize("at_s, most", [(99.9, 7), (100.0, 4)])
def test_a_result_counts_until_it_is_as_old_as_the_window_of_its_direction(behind_s, fewest, at_s, most):
    """Of windows of 60 and 100 s each has the results that are younger than it."""
    known = {"target_requests": 10, "up_window_s": 60, "down_window_s": 100}
    up, down = ByQueue(**known), ByQueue(**known)
    up.replicas(Fleet(2, 20, 0.0))
    assert up.replicas(Fleet(2, 50, behind_s)) == fewest
    down.replicas(Fleet(7, 70, 0.0))
    assert down.replicas(Fleet(7, 40, at_s)) == most


def test_one_limit_is_the_only_one():
    """As in a manifest, whose policies take the place of Kubernetes' own."""
    one = ByQueue(target_requests=10, up_replicas=1, down_replicas=1, down_window_s=0)
    assert [one.replicas(Fleet(4, requests)) for requests in (990, 0)] == [5, 3]
    assert ByQueue(target_requests=10, up_share=0.25).replicas(Fleet(4, 990)) == 5
    assert ByQueue(target_requests=10, up_select="disabled").replicas(Fleet(4, 990)) == 4


@pytest.mark.parametrize(
    "changes, sentence",
    [
        ({"up_select": "most"}, "autoscaler.up_select is 'most'"),
        ({"down_share": 1.5}, "autoscaler.down_share is 1.5"),
        ({"behavior": False, "up_replicas": 2}, "autoscaler.behavior is false, which leaves"),
        ({"behavior": False, "up_window_s": 2}, "need autoscaler.behavior=true"),
        ({"behavior": False, "down_select": "disabled"}, "need autoscaler.behavior=true"),
        ({"behavior": "no"}, "autoscaler.behavior is 'no', must be true or false"),
    ],
)
def test_rules_that_make_no_sense_are_refused(changes, sentence):
    with pytest.raises(InputError, match=re.escape(sentence)):
        ByQueue(**changes)
    assert ByQueue(behavior=False, down_window_s=60, up_tolerance=0.2).up.tolerance == 0.2


# By SLO -------------------------------------------------------------------------------------


def test_by_slo_grows_by_a_share_while_too_few_are_in_time():
    policy = BySlo(ttft_s=2.0, attainment=0.9, grow=0.25, window_s=30)
    fleet = Fleet(4, had_s=[1.0] * 8 + [3.0] * 2)
    assert policy.replicas(fleet) == 5
    assert fleet.asked == [30]
    assert policy.replicas(Fleet(8, had_s=[1.0] * 8 + [2.0] * 2)) == 10, "at the target is too late"
    assert policy.replicas(Fleet(1, had_s=[3.0])) == 2, "at least one"
    assert policy.replicas(Fleet(0, waits_s=[3.0])) == 1
    calm = BySlo(ttft_s=2.0, down_after_s=0)
    assert [calm.replicas(fleet) for fleet in (Fleet(2, 1), Fleet(1, 1), Fleet(1, 0))] == [1, 1, 0]
    assert policy.replicas(Fleet(4, had_s=[1.0] * 9 + [3.0])) == 4, "nine of ten are what it wants"


def test_by_slo_counts_requests_that_have_waited_past_the_target():
    assert BySlo(ttft_s=2.0).replicas(Fleet(4, had_s=[1.0] * 10, waits_s=[2.5])) == 5
    assert BySlo(ttft_s=2.0).replicas(Fleet(4, had_s=[1.0] * 10, waits_s=[1.5])) == 4
    many = Fleet(4, had_s=[1.0] * 5, waits_s=[2.5] + [0.5] * 94)
    assert BySlo(ttft_s=2.0, attainment=0.9).replicas(many) == 5, (
        "one that has not waited too long yet is not in time yet"
    )


def test_by_slo_lets_one_go_when_it_has_been_calm_for_long():
    policy = BySlo(ttft_s=2.0, headroom=0.25, down_after_s=300)
    calm, near = {"had_s": [0.5] * 9}, {"had_s": [0.5] * 9 + [0.6]}
    assert policy.replicas(Fleet(4, now_s=299.0, **calm)) == 4
    assert policy.replicas(Fleet(4, now_s=300.0, **near)) == 4
    assert policy.replicas(Fleet(4, now_s=300.0, waits_s=[0.1], **calm)) == 4
    assert policy.replicas(Fleet(4, now_s=300.0, **calm)) == 3
    assert policy.replicas(Fleet(3, now_s=315.0, **calm)) == 3, "one at a time"
    assert policy.replicas(Fleet(3, now_s=600.0)) == 2, "nobody at all is calm too"


def test_by_slo_waits_as_long_after_it_has_grown():
    policy = BySlo(ttft_s=2.0, down_after_s=300)
    assert policy.replicas(Fleet(4, now_s=100.0, had_s=[9.0])) == 5
    assert policy.replicas(Fleet(5, now_s=399.0, had_s=[0.1])) == 5
    assert policy.replicas(Fleet(5, now_s=400.0, had_s=[0.1])) == 4


# By schedule --------------------------------------------------------------------------------

DAY = [{"at_s": 0, "replicas": 2}, {"at_s": 100, "replicas": 6}, {"at_s": 200, "replicas": 3}]


@pytest.mark.parametrize("every_s", [None, 10_000])
@pytest.mark.parametrize(
    "now_s, wanted", [(0, 2), (99.9, 2), (100, 6), (199, 6), (200, 3), (9999, 3), (10_000, 2)]
)
def test_by_schedule_wants_what_the_last_step_says_and_may_begin_anew(every_s, now_s, wanted):
    over = every_s is None and now_s == 10_000
    assert BySchedule(DAY, every_s=every_s).replicas(Fleet(1, now_s=now_s)) == (3 if over else wanted)
    assert BySchedule(DAY[1:]).replicas(Fleet(2, now_s=10)) == 3, "before the first step as after the last"
