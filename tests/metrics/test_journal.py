"""What schedulers and migrations decided, row by row."""

import numpy as np
import pytest

from simlora.core.adapter import Adapter
from simlora.core.trace import AdapterSpec, Trace
from simlora.metrics.journal import Failed, Journal, Moved, Planned, Replanned
from simlora.metrics.recorder import Recorder


def adapter(id: int, name: str) -> Adapter:
    return Adapter(id=id, name=name, rank=8, size_bytes=1, kv_tokens=1)


def recorder(timeline: bool = True) -> Recorder:
    """One that has not been told anything yet."""
    none = np.empty(0, dtype=np.int64)
    trace = Trace(
        arrival_s=np.empty(0),
        adapter=none,
        prompt_tokens=none,
        output_tokens=none,
        max_output_tokens=none,
        adapters=(AdapterSpec("a", 8),),
        source="by hand",
    )
    return Recorder(trace, replicas=2, timeline=timeline)


def move(request: int = 0, decided_s: float = 10.0, adapter: str = "a", target: int = 1, loaded: bool = True):
    return Moved(decided_s + 0.2, decided_s, request, adapter, 0, target, 100, loaded, "replica 0 is full")


def rows(journal: Journal) -> list[tuple[object, ...]]:
    return list(journal.decisions().itertuples(index=False, name=None))


def test_a_note_is_named_and_may_be_an_adapters():
    journal = Journal()
    journal.note(1.0, 0, "alpha", 0.95)
    journal.note(2.0, 1, "credit:lora:7b", -3.0)
    journal.note(3.0, 1, "credit:", 3.0)
    assert rows(journal) == [
        (1.0, 0, "alpha", "", 0.95),
        (2.0, 1, "credit", "lora:7b", -3.0),
        (3.0, 1, "credit", "", 3.0),
    ]


def test_what_did_not_change_is_not_written_again():
    journal = Journal()
    for time_s, value in ((1.0, 0.5), (2.0, 0.5), (3.0, 0.6), (4.0, 0.5)):
        journal.note(time_s, 0, "beta", value)
    journal.note(5.0, 1, "beta", 0.5)
    assert [(time_s, replica) for time_s, replica, *_ in rows(journal)] == [(1, 0), (3, 0), (4, 0), (5, 1)]


def test_a_switch_names_what_is_merged_from_then_on():
    told = recorder()
    told.switch(0, 1.0, 0.02, adapter(4, "x"))
    told.switch(0, 3.0, 0.02, None)
    told.switch(0, 5.0, 0.02, adapter(4, "x"))
    assert rows(told.journal) == [
        (1.0, 0, "merged", "x", 4.0),
        (3.0, 0, "merged", "", -1.0),
        (5.0, 0, "merged", "x", 4.0),
    ]


@pytest.mark.parametrize("timeline", [True, False])
def test_the_time_with_something_merged_is_counted_whether_it_is_drawn_or_not(timeline):
    told = recorder(timeline)
    told.switch(0, 1.0, 0.02, adapter(0, "a"))
    told.switch(0, 3.0, 0.04, adapter(1, "b"))
    told.switch(0, 4.0, 0.02, None)
    told.switch(1, 6.0, 0.02, adapter(0, "a"))
    assert told.merged_s(10.0) == 3.0 + 4.0
    assert told.switches == 4
    assert len(told.journal.decisions()) == (4 if timeline else 0)


def test_empty_tables_have_the_types_of_full_ones():
    full = Journal()
    full.switch(1.0, 0, "a", 3)
    full.moved.append(move())
    full.planned.append(Planned(10.0, 1, True, "why"))
    full.replanned.append(Replanned(10.0, 1, 1, 64))
    for empty, one in zip(
        (Journal().decisions(), Journal().moves(), Journal().plans(), Journal().placements()),
        (full.decisions(), full.moves(), full.plans(), full.placements()),
        strict=True,
    ):
        assert len(empty) == 0
        assert len(one) == 1
        assert empty.dtypes.to_dict() == one.dtypes.to_dict()


def test_facts_count_plans_moves_and_what_they_cost():
    journal = Journal()
    journal.planned += [
        Planned(10.0, 4, True, "why"),
        Planned(20.0, 2, True, "why"),
        Planned(30.0, 0, False, "?"),
    ]
    journal.moved += [
        move(0),
        move(1),
        move(2, target=2),
        move(3, adapter="b", loaded=False),
        move(4, decided_s=20.0),
    ]
    assert journal.migration_facts() == {
        "plans": 3,
        "unsolved": 1,
        "planned_moves": 6,
        "moves": 5,
        "recomputed_tokens": 500,
        "adapters_loaded": 4,
    }


def test_facts_of_a_placement_sum_up_its_plans_and_count_those_that_changed_anything():
    journal = Journal()
    journal.replanned += [Replanned(60.0, 2, 1, 128), Replanned(120.0, 0, 0, 0), Replanned(180.0, 0, 1, 0)]
    assert journal.placement_facts() == {
        "plans": 3,
        "changes": 2,
        "adapters_assigned": 2,
        "adapters_given_up": 2,
        "assigned_bytes": 128,
    }


def test_a_host_is_down_until_it_is_back_or_the_run_is_over():
    journal = Journal()
    journal.failed += [
        Failed(10.0, 0, 15.0, 3, 2, 100, 1),
        Failed(20.0, 0, 99.0, 0, 0, 0, 0),
        Failed(30.0, 1, float("inf"), 4, 1, 50, 2),
        Failed(70.0, 0, float("inf"), 9, 9, 900, 9),
    ]
    facts = journal.failure_facts(60.0)
    assert facts["downtime_s"] == 5.0 + 40.0 + 30.0
    assert (facts["failures"], facts["hosts"]) == (3, 2), "the last is after the end"
    assert [facts[name] for name in ("requests", "restarted", "recomputed_tokens", "lost_adapters")] == [
        7,
        3,
        150,
        3,
    ]
    assert [one["time_s"] for one in facts["each"]] == [10.0, 20.0, 30.0]
