"""What is kept of a run to be looked at closely: whole, cut where there is too much, and of no influence."""

from functools import partial

import pytest

import simlora
from simlora.core.adapter import Adapter
from simlora.engine.cluster import simulation
from simlora.metrics.tracing import Copied, Level, Tracing
from tests.report.traced import SYSTEMS

ADAPTER = Adapter(0, "a", 8, 64, 32)


def level(time_s: float) -> Level:
    return Level(0, time_s, 1, 0, 10, 0, 0, 0)


def test_it_keeps_what_it_is_told_in_order():
    tracing = Tracing(lambda: 0.0)
    tracing.add(level(1.0))
    tracing.add(Copied(0, "host to GPU", 0.5, 0.75, ADAPTER))
    found = tracing.until(2.0)
    assert [type(kept) for kept in found.happened] == [Level, Copied]
    assert (found.until_s, found.cut) == (2.0, False)


def test_of_too_much_it_keeps_the_first_and_when_it_stopped():
    clock = iter((3.0, 4.0))
    tracing = Tracing(lambda: next(clock), most=2)
    for time_s in (0.0, 1.0, 3.0, 4.0):
        tracing.add(level(time_s))
    found = tracing.until(9.0)
    assert [kept.time_s for kept in found.happened] == [0.0, 1.0]
    assert (found.until_s, found.cut) == (3.0, True)
    assert next(clock) == 4.0  # it did not ask again


@pytest.mark.parametrize("system", ["dlora_merged_only", "swap", "failure"])
def test_looking_changes_nothing(system):
    seen, unseen = (simlora.simulate([*SYSTEMS[system], f"perfetto={on}"]) for on in ("true", "false"))
    assert seen.traced is not None
    assert unseen.traced is None
    assert seen.requests.equals(unseen.requests)
    assert seen.timeline.equals(unseen.timeline)
    for summary in (seen.summary, unseen.summary):
        del summary["command"], summary["simulation"]["wall_s"], summary["simulation"]["requests_per_wall_s"]
        summary["simulation"].pop("migration_wall_s", None)
    assert seen.summary == unseen.summary


def test_a_run_with_too_much_says_where_it_was_cut(monkeypatch):
    monkeypatch.setattr(simulation, "Tracing", partial(Tracing, most=100))
    found = simlora.simulate([*SYSTEMS["slora"], "perfetto=true"])
    assert len(found.traced.happened) == 100
    (notice,) = [notice for notice in found.notices if "timeline.json.gz" in notice]
    assert f"ends at {found.traced.until_s:g} s, with the first 100 things" in notice
    assert 0 < found.traced.until_s < found.summary["makespan_s"]
