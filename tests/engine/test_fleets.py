"""Replicas that come and go, are slow for a while, or are of two kinds: everything of it together.

That fast-forward equals the plain loop there as well is in test_fast_forward.py.
"""

from hypothesis import event, given
from hypothesis import strategies as st

from experiments.torture.watch import watched
from tests.engine.cases import fleets
from tests.engine.observing import all_requests_end
from tests.examples import share


@given(fleets(), st.booleans())
@share(2 / 3)
def test_every_request_ends_whichever_replicas_come_and_go(case, fast_forward):
    simulation = watched(case.scenario(fast_forward=fast_forward))
    table = simulation.recorder.requests()
    all_requests_end(simulation, may_lose=bool(case.failures))
    done = table[table.status == "finished"]
    assert (done.arrival_s <= done.admitted_s).all()
    assert (done.admitted_s <= done.first_token_s).all()
    assert (done.first_token_s <= done.finish_s).all()
    assert simulation.fleet.outstanding.sum() == 0
    ran = table[table.replica >= 0]
    highest = simulation.scenario.highest_ranks[ran.replica]
    ranks = [0 if case.rows[id].adapter is None else case.ranks[case.rows[id].adapter] for id in ran.index]
    assert (highest >= ranks).all(), "a request ran where its rank is not held"
    lasts_s = simulation.recorder.last_s
    assert (simulation.autoscaling.on_s >= 0.0).all()
    assert (simulation.autoscaling.on_s <= lasts_s + 1e-9).all()
    changes = simulation.recorder.journal.scaled
    if changes:
        assert min(row.on for row in changes) >= 0
        assert max(row.on for row in changes) <= case.replicas
        assert all(row.on == row.serving + row.booting for row in changes)
    event(f"autoscaler: {case.autoscaler}, changes: {min(len(changes), 3)}")
    event(f"moved: {len(simulation.recorder.journal.moved) > 0}")
