"""Failures, stragglers and slow links as a user writes them: listed, or drawn by how often they happen."""

from itertools import pairwise

import numpy as np
import pytest

from simlora.config.incidents import incidents
from simlora.core.errors import InputError
from simlora.engine.incidents import Failure, SlowLink, Straggler
from tests.config.setups import prepared

RATES = {"every_s": 300.0, "for_s": 60.0}


def drawn(seed: int = 0, count: int = 4, until_s: float = 36_000.0, **changes: float) -> tuple[Failure, ...]:
    return incidents("cluster.failures", [RATES | changes], Failure, count, seed, until_s)


def test_what_is_listed_is_taken_as_it_is():
    found = incidents("cluster.failures", [{"host": 1.0, "at_s": 5, "until_s": 7}], Failure, 2, 0, 9.0)
    assert found == (Failure(host=1, at_s=5, until_s=7),)
    found = incidents("cluster.stragglers", [{"replica": 1, "at_s": 5, "factor": 3}], Straggler, 2, 0, 9.0)
    assert found == (Straggler(replica=1, at_s=5, factor=3),)


def test_drawn_ones_happen_as_often_and_last_as_long_as_was_asked():
    """100 hosts over ten hours: within four standard errors of exponential means."""
    found = drawn(count=100)
    lasted_s = np.array([each.until_s - each.at_s for each in found if each.until_s is not None])
    assert lasted_s.mean() == pytest.approx(60.0, abs=4 * 60.0 / len(lasted_s) ** 0.5)
    assert lasted_s.std() == pytest.approx(60.0, rel=0.1)
    by_host = [[each for each in found if each.host == host] for host in range(100)]
    well_s = np.array([b.at_s - (a.until_s or 0.0) for one in by_host for a, b in pairwise(one)])
    # Long gaps are cut off by the end, which ten hours of five minutes hardly feel.
    assert well_s.mean() == pytest.approx(300.0, abs=4 * 300.0 / len(well_s) ** 0.5 + 10.0)


def test_they_are_over_before_the_next_and_begin_within_the_workload():
    found = drawn(until_s=3600.0)
    assert max(each.at_s for each in found) < 3600.0
    for host in range(4):
        own = [each for each in found if each.host == host]
        assert all((a.until_s or 0.0) < b.at_s for a, b in pairwise(own))


def test_the_seed_fixes_them_and_a_further_host_changes_none_of_the_others():
    assert drawn() == drawn()
    assert drawn() != drawn(seed=1)
    assert tuple(each for each in drawn(count=9) if each.host < 4) == drawn(count=4)


@pytest.mark.parametrize(
    "value, message",
    [
        ("often", "cluster.failures is 'often', must be a list, such as [{host: 0, at_s: 60, until_s"),
        ([RATES, RATES], "cluster.failures has two rates, must have one: each would draw for every host"),
        ([{"host": 0}], "cluster.failures has {'host': 0}, must have host, at_s, or rates, such as"),
        ([{"every_s": 1e-4, "for_s": 1e-4}], "cluster.failures.every_s is 0.0001, which is more than"),
    ],
)
def test_what_is_no_incident_is_said_plainly(value, message):
    with pytest.raises(InputError) as error:
        incidents("cluster.failures", value, Failure, 2, 0, 3600.0)
    assert str(error.value).startswith(message)


def test_a_configuration_has_them_all():
    setup = prepared(
        "cluster.replicas=4",
        "host.replicas=2",
        "cluster.failures=[{every_s: 100, for_s: 10}]",
        "cluster.stragglers=[{replica: 3, at_s: 5, factor: 2}]",
        "cluster.slow_links=[{host: 1, at_s: 5, factor: 2, until_s: 9}]",
    )
    scenario = setup.scenario
    assert {each.host for each in scenario.cluster.failures} == {0, 1}
    assert scenario.cluster.stragglers == (Straggler(replica=3, at_s=5, factor=2),)
    assert scenario.cluster.slow_links == (SlowLink(host=1, at_s=5, factor=2, until_s=9),)
