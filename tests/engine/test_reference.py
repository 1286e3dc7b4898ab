"""The engine against the plain loop of tests/engine/reference.py, request by request."""

import numpy as np
import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from tests.engine.cases import Case, cases
from tests.engine.reference import simulate


@pytest.mark.parametrize("reserve", ["full", "peak", "paged"])
@given(data=st.data())
def test_every_request_and_every_token_has_the_times_of_the_plain_loop(reserve, data):
    case: Case = data.draw(cases(reserves=(reserve,)))
    jobs, nodes = simulate(case)
    engine = case.run()
    table, gaps = engine.requests(), engine.token_gaps
    assert table.status.tolist() == [job.status for job in jobs]
    assert table.preemptions.tolist() == [job.preemptions for job in jobs]
    assert engine.adapter_loads == sum(node.loads for node in nodes)
    finished = np.array([job.status == "finished" for job in jobs])
    for column in ("admitted_s", "first_token_s", "finish_s", "cold_start_s"):
        expected = np.array([getattr(job, column) for job in jobs])
        if column == "cold_start_s":
            expected[~finished] = np.nan
        np.testing.assert_allclose(table[column], expected, rtol=0, atol=1e-9, err_msg=column)
    gaps_s = np.sort([gap for node in nodes for gap in node.gaps_s])
    assert gaps.count == len(gaps_s)
    if len(gaps_s):
        assert gaps.mean() == pytest.approx(np.mean(gaps_s), rel=1e-9)
        for q in (0.0, 0.5, 0.9, 0.99, 1.0):
            nth = max(int(np.ceil(q * len(gaps_s))), 1) - 1
            assert gaps.quantile(q) == pytest.approx(gaps_s[nth], rel=2e-3), f"quantile {q}"
    event(f"preempted: {any(job.preemptions for job in jobs)}")
