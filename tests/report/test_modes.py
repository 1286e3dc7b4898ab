"""What was merged when, and the numbers beside it, as pictures need them."""

import numpy as np

from simlora.metrics.journal import Journal
from simlora.report.modes import colours, merged_spans, thresholds


def switches(*rows: tuple[float, str], replica: int = 0) -> Journal:
    """A journal of what was merged from when on; "" is nothing."""
    journal = Journal()
    ids: dict[str, int] = {}
    for time_s, name in rows:
        journal.switch(time_s, replica, name, ids.setdefault(name, len(ids)) if name else -1)
    return journal


def spans(journal: Journal, end_s: float = 10.0, replica: int = 0, stretches: int | None = None):
    frame = merged_spans(journal.decisions(), replica, end_s, stretches)
    return [(start, end, name) for start, end, name in frame.itertuples(index=False, name=None)]


def test_an_adapter_is_merged_until_the_next_switch_or_the_end():
    journal = switches((1.0, "a"), (3.0, ""), (5.0, "a"), (6.0, "b"), (10.0, "c"), (11.0, "a"))
    assert spans(journal) == [(1, 3, "a"), (5, 6, "a"), (6, 10, "b")]
    assert spans(journal, replica=1) == []


def test_of_too_many_switches_each_stretch_of_time_keeps_what_lasted_longest():
    # For four seconds a has 80 % of every tenth, b the rest.
    rows = [(i // 2 / 10 + (0.08 if i % 2 else 0.0), "ab"[i % 2]) for i in range(80)]
    journal = switches(*rows, (4.0, ""))
    assert len(spans(journal, end_s=8.0, stretches=80)) == 80
    assert spans(journal, end_s=8.0, stretches=8) == [(0, 4, "a")]


def test_thresholds_are_those_of_one_replica_and_hold_until_the_next():
    journal = Journal()
    journal.note(1.0, 0, "alpha", 0.95)
    journal.note(1.0, 0, "beta", 0.5)
    journal.note(1.0, 1, "alpha", 0.7)
    journal.note(3.0, 0, "alpha", 0.8)
    found = thresholds(journal.decisions(), 0, np.array([0.0, 1.0, 2.9, 3.0, 9.0]))
    assert [*found] == ["alpha", "beta"]
    np.testing.assert_array_equal(found["alpha"], [np.nan, 0.95, 0.95, 0.8, 0.8])
    assert thresholds(journal.decisions(), 2, np.array([2.0])) == {}


def test_colours_go_to_those_merged_longest_then_to_others():
    first = merged_spans(switches((0.0, "a"), (1.0, "b"), (4.0, "")).decisions(), 0, 10.0)
    second = merged_spans(switches((9.0, "a")).decisions(), 0, 10.0)
    assert list(colours([first, second], ["c", "a"])) == ["b", "a", "c"]
    assert colours([]) == {}
