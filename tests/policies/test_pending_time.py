"""dLoRA's dispatch on hand-made clusters: seconds to load against seconds to wait."""

import numpy as np
import pytest

from simlora.core.adapter import Adapter
from simlora.core.request import Request
from simlora.policies.routing.pending_time import PendingTime
from tests.policies.hand import A, B, C, Cluster, requests

SIZE = 4
BOTH = np.arange(2)


def cluster(*held: tuple[Adapter | None, ...], **changes: object) -> Cluster:
    """Replicas of four seats with requests for these adapters; a request takes 2 seconds, a load 0.5."""
    known = {"max_num_seqs": SIZE, "adapter_load_s": 0.5, "executions_s": 2.0} | changes
    given = {replica: (requests(*adapters), ()) for replica, adapters in enumerate(held)}
    return Cluster((0,) * len(held), given, **known)


def new(adapter: Adapter | None) -> Request:
    return Request(99, adapter, 9.0, 10, 10)


def pending_s(adapter: Adapter | None, view: Cluster, **arguments: float) -> list[float]:
    return pytest.approx(PendingTime(**arguments).pending_s(new(adapter), view).tolist())


FULL = cluster((A,) * SIZE, (A, A, B, B), (None,) * SIZE)
UNKNOWN = cluster((A,), (), executions_s=None)


@pytest.mark.parametrize(
    "adapter, view, arguments, expected_s",
    [
        # a part of a batch takes that part of an execution
        (A, cluster((), (A,), (A, B)), {}, [2.0 / 4, 2 * 2.0 / 4, 3 * 2.0 / 4]),
        # a full batch of one adapter is cheaper than a mixed one
        (C, FULL, {}, [2.0 * (0.6 + 1 / 4), 2.0 * 5 / 4, 2.0 * (0.6 + 1 / 4)]),
        (C, FULL, {"merged_share": 1.0}, [2.5] * 3),  # unless merging saves nothing
        # the request itself may fill a batch
        (A, cluster((A,) * 3, (A, A, B), (A,) * 7 + (B,)), {}, [2.0 * 0.6, 2.0, 2.0 * (2 * 0.6 + 1 / 4)]),
        (None, cluster((None,) * 3), {}, [2.0 * 0.6]),  # so it does of the base model
        # batches of several adapters are full each for itself: A, B and now C
        (C, cluster((A,) * 5 + (B,) * 6 + (C,) * 3), {}, [2.0 * (3 * 0.6 + (1 + 2) / 4)]),
        (A, UNKNOWN, {}, [5.0 * 2 / 4, 5.0 / 4]),  # before any has finished a request takes five seconds
        (A, UNKNOWN, {"unknown_execution_s": 1.0}, [2 / 4, 1 / 4]),  # or what is set
        # the base model is loaded everywhere
        (None, cluster((A,), (), at={A.id: ()}), {}, [2.0 * 2 / 4, 2.0 / 4]),
    ],
)
def test_pending_time_is_that_of_full_batches_and_a_rest(adapter, view, arguments, expected_s):
    assert pending_s(adapter, view, **arguments) == expected_s
    least = min(range(len(expected_s)), key=expected_s.__getitem__)
    assert PendingTime(**arguments).route(new(adapter), np.arange(len(expected_s)), view) == least


@pytest.mark.parametrize("held, chosen", [((A,), 0), ((A, B), 1)])
def test_a_replica_without_the_adapter_gets_it_once_the_queue_elsewhere_takes_longer(held, chosen):
    """A seat is half a second: two of them outlast a load of 0.75 seconds, one does not."""
    view = cluster(held, (), at={A.id: {0}}, adapter_load_s=0.75)
    assert pending_s(A, view) == [0.5 * (len(held) + 1), 0.5 + 0.75]
    assert PendingTime().route(new(A), BOTH, view) == chosen


def test_of_equals_the_lowest_id_wins_among_the_candidates():
    view = cluster((A, B), (A,), (B,), (C,))
    assert PendingTime().route(new(A), np.arange(4), view) == 1
    assert PendingTime().route(new(A), np.array([0, 2, 3]), view) == 2
    assert PendingTime().route(new(A), np.array([0]), view) == 0


@pytest.mark.parametrize("loads", [True, False])
@pytest.mark.parametrize("executions_s", [None, 0.7])
def test_plain_numbers_and_arrays_choose_the_same(executions_s, loads):
    rng, known = np.random.default_rng(3), (A, B, C, None)
    for _ in range(40):
        held = [tuple(known[i] for i in rng.integers(0, 4, rng.integers(0, 9))) for _ in range(7)]
        at = {adapter.id: set(rng.choice(7, rng.integers(0, 4)).tolist()) for adapter in (A, B, C)}
        view = cluster(*held, at=at, executions_s=executions_s, adapter_load_s=0.3)
        for adapter in known:
            there = range(7) if loads or adapter is None else sorted(at[adapter.id]) or range(7)
            least = min(there, key=PendingTime().pending_s(new(adapter), view).tolist().__getitem__)
            assert PendingTime(loads=loads).route(new(adapter), np.arange(7), view) == least


def released(view: Cluster, *adapters: Adapter | None, **arguments: object) -> list[int]:
    """Where one request after the other goes as in the released code, with nothing else happening."""
    router = PendingTime("released", **arguments)
    return [router.route(new(adapter), np.arange(len(view.outstanding)), view) for adapter in adapters]


def test_as_released_batches_are_rounded_down_so_that_the_first_one_with_room_fills_up():
    at = {A.id: {0, 1}}
    assert released(cluster((A, A, B), (A,), at=at), A) == [0]
    assert released(cluster((A, A, B, B), (A,), at=at), A) == [1], "four make a batch"
    assert released(cluster((A, A, A, A), (A, B, C, C), at=at), A) == [0], "0.6 of a batch, merged"


def test_as_released_an_execution_does_not_count_and_a_load_does_in_seconds():
    """A batch is 1 beside a load of 0.9, whatever requests take; B has another copy on replica 2."""
    view = cluster(
        (A,) * 3 + (B,), (), (), at={A.id: {0}, B.id: {1, 2}}, adapter_load_s=0.9, executions_s=0.01
    )
    assert released(view, A) == [1]
    view = cluster((A,) * 3 + (B,), (), (), at={A.id: {0}, B.id: {1, 2}}, adapter_load_s=1.0)
    assert released(view, A) == [0], "an equal one does not win"


@pytest.mark.parametrize(
    "there, at, chosen",
    [
        ((), {A.id: {0}, B.id: {1, 2}, C.id: {2}}, 1),  # B is idle on 1, and on 2 too
        ((B,), {A.id: {0}, B.id: {1, 2}, C.id: {2}}, 2),  # B has a request on 1, and none on 2
        ((), {A.id: {0}, B.id: {1}, C.id: {2}}, 0),  # no adapter has another copy
    ],
)
def test_as_released_a_replica_gets_an_adapter_only_over_an_idle_one_with_another_copy(there, at, chosen):
    assert released(cluster((A, A, C, C), there, (), at=at), A) == [chosen]


def test_as_released_what_was_replaced_is_not_there_any_more():
    """A replaces B on 1. B's last copy is on 2 then, where nothing can be replaced, whatever lies in HBM."""
    at = {A.id: {0}, B.id: {1, 2}}
    view = cluster((A,) * 4, (), (), at=at)
    assert released(view, A, B, A, C) == [1, 2, 1, 1], (
        "C is nowhere: it goes to the first with the fewest requests"
    )
    assert at == {A.id: {0}, B.id: {1, 2}}


def test_as_released_without_loads_what_lies_in_hbm_counts():
    view = cluster((A,) * 8, (), (), at={A.id: {0, 1}, B.id: {0, 2}})
    assert released(view, A, B, C, None, loads=False) == [1, 2, 1, 1]
