"""SLO attainment counts every submitted request."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simlora.metrics.slo import SloTargets, attainment, attainment_curve, goodput_rps, user_satisfaction
from tests.metrics.frames import finished, lost, table

FIVE = table(
    finished(ttft_s=1.0, latency_s=2.0),
    finished(ttft_s=2.0, latency_s=9.0),
    finished(ttft_s=4.0, latency_s=5.0),
    lost("aborted", ttft_s=0.5),  # a first token is not a finished request
    lost("rejected"),
)
NONE = table()
TOKENS = table(
    finished(output_tokens=1, ttft_s=1.0, latency_s=1.0),
    finished(output_tokens=11, ttft_s=1.0, latency_s=3.0),  # 0.2 s a token after the first
)


@pytest.mark.parametrize(
    "frame, targets, share",
    [
        (FIVE, SloTargets(ttft_s=6.0), 3 / 5),  # aborted and rejected requests missed
        (FIVE, SloTargets(ttft_s=2.0), 1 / 5),  # a target is met strictly below it
        (FIVE, SloTargets(ttft_s=2.0 + 1e-9), 2 / 5),  # not at it
        (FIVE, SloTargets(ttft_s=3.0, latency_s=6.0), 1 / 5),  # every target set must be met
        (FIVE, SloTargets(), 3 / 5),  # without targets it is the share that finished
        (TOKENS, SloTargets(tpot_s=0.1), 1 / 2),  # one output token cannot miss a TPOT target
        # latency per output token divides by all output tokens
        (TOKENS, SloTargets(latency_per_output_token_s=3 / 11 + 0.01), 1 / 2),
        (TOKENS, SloTargets(latency_per_output_token_s=3 / 11 - 0.01), 0),  # the first included
    ],
)
def test_attainment_is_the_share_of_all_that_met_the_targets(frame, targets, share):
    assert attainment(frame, targets) == pytest.approx(share)
    assert goodput_rps(frame, targets, makespan_s=4.0) == pytest.approx(share * len(frame) / 4)


def test_satisfaction_by_hand():
    expected = (1 - (1 / 6) ** 2) + (1 - (2 / 6) ** 2) + (1 - (4 / 6) ** 2)
    assert user_satisfaction(FIVE, 6.0) == pytest.approx(expected / 5)
    assert user_satisfaction(FIVE, 2.0) == pytest.approx((1 - (1 / 2) ** 2) / 5)


def test_no_requests_have_no_attainment():
    assert math.isnan(attainment(NONE, SloTargets(ttft_s=1.0)))
    assert math.isnan(user_satisfaction(NONE, 6.0))
    assert math.isnan(goodput_rps(NONE, SloTargets(), makespan_s=0.0))
    limits_s, shares = attainment_curve(NONE)
    assert len(limits_s) == len(shares) == 1


@pytest.mark.parametrize("limit", [0, -1.0, float("nan"), float("inf"), "6"])
def test_a_target_is_a_positive_number_of_seconds(limit):
    with pytest.raises(ValueError, match="ttft_s"):
        SloTargets(ttft_s=limit)


def test_the_curve_by_hand():
    limits_s, shares = attainment_curve(FIVE, at_s=np.array([0.5, 1.0, 1.5, 2.5, 100.0]))
    assert limits_s.tolist() == [0.5, 1.0, 1.5, 2.5, 100.0]
    assert shares.tolist() == pytest.approx([0, 0, 1 / 5, 2 / 5, 3 / 5])


def test_the_curve_keeps_the_other_targets():
    both = SloTargets(ttft_s=3.0, latency_s=6.0)
    _, shares = attainment_curve(FIVE, "ttft_s", both)
    assert shares.max() == pytest.approx(2 / 5)
    assert attainment_curve(TOKENS, "tpot_s")[1].tolist() == pytest.approx([1 / 2, 1.0]), (
        "it starts with those that have none"
    )


ttfts = st.lists(st.floats(0.001, 100.0), min_size=1, max_size=60)


@given(ttfts, st.floats(0.01, 100.0), st.integers(4, 30))
def test_the_curve_is_exact_at_the_target_however_few_its_points(ttfts_s, limit_s, points):
    frame = table(*(finished(ttft_s=t, latency_s=200.0) for t in ttfts_s), lost("aborted"))
    targets = SloTargets(ttft_s=limit_s)
    limits_s, shares = attainment_curve(frame, "ttft_s", targets, points=points)
    assert len(limits_s) <= points
    assert np.all(np.diff(limits_s) > 0)
    assert np.all(np.diff(shares) >= 0)
    assert shares[limits_s == limit_s].tolist() == pytest.approx([attainment(frame, targets)])
    assert shares[-1] == pytest.approx(
        len(ttfts_s) / (len(ttfts_s) + 1) if limits_s[-1] > max(ttfts_s) else shares[-1]
    )
