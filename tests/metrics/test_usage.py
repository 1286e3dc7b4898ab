"""What HBM holds on average, by hand and from one step to the next."""

import numpy as np
import pytest
from hypothesis import event, given

from simlora.metrics.usage import CachedUsage, Usage
from tests.engine.cases import Case, Row, swapped
from tests.examples import share


def test_levels_hold_until_the_next_boundary_and_the_last_one_until_the_end():
    usage = Usage(replicas=1)
    usage.hold(0, 1.0, 10, (), 0)
    usage.hold(0, 3.0, 40, (), 0)
    assert usage.until(5.0).used == pytest.approx([(2 * 10 + 2 * 40) / 5])
    assert usage.until(3.0).used == pytest.approx([2 * 10 / 3]), "asking changes nothing"


@pytest.mark.parametrize("grows, used", [(True, 10 + 8 / 2), (False, 10)])
def test_kv_grows_by_the_steps_between_two_boundaries_unless_it_is_reserved(grows, used):
    """A request that left at the second boundary was there until then."""
    usage = Usage(replicas=1, grows=grows)
    usage.hold(0, 0.0, 10, (), 0)
    usage.hold(0, 2.0, 3, (), 8)
    assert usage.until(2.0).used == pytest.approx([used])


def test_steps_are_those_of_the_replica_whose_boundary_it_is():
    usage = Usage(replicas=3)
    usage.hold(0, 0.0, 10, (), 0)
    usage.hold(1, 0.0, 20, (), 0)
    usage.hold(1, 1.0, 26, (), 6)
    usage.hold(0, 2.0, 14, (), 10)
    usage.hold(1, 2.0, 32, (), 16)
    assert usage.until(2.0).used == pytest.approx([12, 26, 0])


def test_of_cached_kv_what_no_request_holds_what_has_no_adapter_and_what_the_host_has():
    usage = CachedUsage(replicas=2)
    usage.hold(1, 1.0, 50, (20, 5, 100), 0)
    usage.hold(1, 2.0, 50, (0, 0, 60), 0)
    found = usage.until(4.0)
    assert found.idle == pytest.approx([0, 20 / 4])
    assert found.invalid == pytest.approx([0, 5 / 4])
    assert found.host == pytest.approx([0, (100 + 2 * 60) / 4])


def test_no_time_has_no_mean():
    assert np.isnan(Usage(replicas=1).until(0.0).used).all()


def test_a_run_by_hand():
    """Nine slots of a prompt and a token, and one of its adapter, then a token more at each of two steps."""
    rows = (Row(1.0, 0, 8, 3, 3),)
    simulation = Case(rows=rows, ranks=(1,), reserve="paged", block_size=1).simulation()
    table = simulation.recorder.requests()
    first_s, end_s = table.first_token_s[0], table.finish_s[0]
    area = (first_s - 1.0) * 13 + (end_s - first_s) * (13 + 1)
    assert simulation.recorder.usage.until(end_s).used == pytest.approx([area / end_s])


@given(swapped(loaders=("blocking", "asynchronous")))
@share(1 / 3)
def test_cached_kv_is_the_same_on_average_however_many_steps_are_one_event(case):
    fast, plain = (case.simulation(fast_forward=fast_forward) for fast_forward in (True, False))
    end_s = fast.recorder.last_s
    if end_s == 0.0:
        return
    one, other = fast.recorder.usage.until(end_s), plain.recorder.usage.until(end_s)
    for name in ("idle", "invalid", "host"):
        np.testing.assert_allclose(getattr(one, name), getattr(other, name), rtol=1e-9, atol=1e-9)
    event(f"on the host: {one.host.any()}")
    event(f"invalid: {one.invalid.any()}")
