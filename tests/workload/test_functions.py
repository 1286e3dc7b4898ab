"""Functions of a serverless cloud, mapped to adapters: their shares, their bursts, their day, and their lengths."""

import math
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from experiments.dlora import shape as experiment
from simlora.core import libm
from simlora.core.errors import InputError
from simlora.workload import renewals
from simlora.workload.functions import log_normal_rates, scaled
from simlora.workload.shape import DIURNAL, as_shape, diurnal, read_shape
from tests.workload.test_every_workload import WORKLOADS

PLAIN = WORKLOADS["functions"]
BUSY = replace(PLAIN, rate_rps=400.0)
PUBLISHED = Path(os.environ.get("SIMLORA_TRACE_DIR", "../shared/traces")) / "maf1_invocations_40min.csv"


# Shares --------------------------------------------------------------------------------------


def test_a_function_s_rate_is_its_quantile_of_a_log_normal():
    z = np.array([1.2815515655446004, 0.5244005127080407, 0.0, -0.5244005127080407, -1.2815515655446004])
    rates = libm.exp(1.5 * z)  # the 90th, 70th, 50th, 30th and 10th percentile
    assert log_normal_rates(5, 1.5) == pytest.approx(rates / rates[0])


@pytest.mark.parametrize(
    "stride, mapped",
    [
        (1, [[0, 3, 6], [1, 4], [2, 5]]),
        (2, [[0, 1, 6], [2, 3], [4, 5]]),
        (3, [[0, 1, 2], [3, 4, 5], [6]]),
        (4, [[0, 1, 2, 3], [4, 5, 6], []]),
    ],
)
def test_functions_are_mapped_round_robin_so_many_at_a_time(stride, mapped):
    rates = log_normal_rates(7, 1.0)
    expected = np.array([rates[own].sum() for own in map(np.array, mapped) if len(own)] + [0.0])[:3]
    found = replace(PLAIN, adapters=3, functions=7, stride=stride).shares
    assert found == pytest.approx(expected / rates.sum())


def test_a_larger_stride_is_more_skewed():
    strides = (1, 4, 8, 16, 32)
    found = [
        replace(PLAIN, adapters=8, functions=46_412, sigma_log=4.08, stride=each).shares for each in strides
    ]
    # What dLoRA's Figure 10 varies, as this workload has it.
    assert [round(float(shares[0]), 2) for shares in found] == [0.33, 0.49, 0.58, 0.66, 0.74]
    for shares in found:
        assert shares.sum() == pytest.approx(1)
        assert np.all(np.diff(shares) < 0)


def test_functions_that_are_not_sorted_are_mapped_in_an_order_drawn_at_random():
    """With one function an adapter only the order differs, and what placements know of the days before follows it."""
    by_rate = replace(BUSY, functions=4)
    drawn = replace(by_rate, sort=False)
    found = [drawn.build(seed) for seed in range(5)]
    for trace in found:
        assert sorted(trace.history_rps, reverse=True) == pytest.approx(400 * by_rate.shares)
        counts = np.bincount(trace.adapter, minlength=4) / 100
        assert counts == pytest.approx(trace.history_rps, rel=0.2)
    assert len({tuple(trace.history_rps) for trace in found}) > 1
    assert np.array_equal(drawn.build(1).adapter, found[1].adapter)


def test_requests_come_by_share_and_an_adapter_without_functions_has_none():
    expected = 400 * 100 * BUSY.shares
    assert np.all(np.abs(np.bincount(BUSY.build(1).adapter, minlength=4) - expected) < 4 * np.sqrt(expected))
    trace = replace(BUSY, functions=2).build(1)
    assert set(trace.adapter.tolist()) == {0, 1}
    assert len(trace.adapters) == 4
    assert trace.history_rps[2:].tolist() == [0, 0]


def test_history_is_what_was_to_be_expected_not_what_came():
    trace = PLAIN.build(1)
    assert trace.history_rps == pytest.approx(20.0 * PLAIN.shares)
    assert np.array_equal(trace.history_rps, PLAIN.build(2).history_rps)
    assert np.array_equal(trace.history_rps, replace(PLAIN, cv=5, shape="diurnal").build(1).history_rps)


# Arrivals ------------------------------------------------------------------------------------


@pytest.mark.parametrize("cv", [0.0, 0.3, 1.0, 3.0])
def test_every_adapter_has_gaps_of_its_own_of_that_variation(cv):
    trace = replace(BUSY, cv=cv).build(1)
    for adapter, rate_rps in enumerate(400 * BUSY.shares):
        gaps_s = np.diff(trace.arrival_s[trace.adapter == adapter])
        n = len(gaps_s)
        assert gaps_s.mean() * rate_rps == pytest.approx(1, abs=4.5 * cv / math.sqrt(n) + 0.001)
        assert gaps_s.std() / gaps_s.mean() == pytest.approx(cv, abs=4 * cv * (1 + cv) / math.sqrt(n) + 1e-9)
        if cv:
            later = np.corrcoef(gaps_s[1:], gaps_s[:-1])[0, 1]
            assert later == pytest.approx(0, abs=4.5 / math.sqrt(n))


@pytest.mark.parametrize("cv, shape", [(0.0, None), (4.0, None), (1.0, "diurnal"), (4.0, [0, 1, 5])])
def test_the_rate_is_what_was_asked_for_whatever_the_variation_and_the_shape(cv, shape):
    """64 adapters with 12 requests each in expectation: whole first gaps would bring 480 more at a variation of 4."""
    many = replace(PLAIN, adapters=64, functions=64, sigma_log=0.5, duration_s=38.4, cv=cv, shape=shape)
    found = [len(many.build(seed)) for seed in range(40)]
    assert np.mean(found) == pytest.approx(768, abs=4.5 * np.std(found) / math.sqrt(40) + 0.5)


def test_a_run_of_more_whole_days_begins_with_the_first():
    one = replace(PLAIN, shape="diurnal", day_s=100.0)
    short, long = one.build(1), replace(one, duration_s=300.0).build(1)
    assert long.arrival_s[: len(short)] == pytest.approx(short.arrival_s)
    assert np.array_equal(long.adapter[: len(short)], short.adapter)


# The shape of a day --------------------------------------------------------------------------


def assert_shaped(workload, expected):
    """Assert that requests come in equal parts of the run in these proportions; return how many do [parts]."""
    found = np.histogram(workload.build(1).arrival_s, len(expected), (0, workload.duration_s))[0]
    wanted = found.sum() * np.asarray(expected) / np.sum(expected)
    assert np.all(np.abs(found - wanted) < 4.5 * np.sqrt(wanted) + 1e-9)
    return found


@pytest.mark.parametrize(
    "setting, parts",
    [
        pytest.param({}, [1] * 24, id="no shape: the same all day"),
        pytest.param({"shape": [0, 30, 10, 0, 50]}, [0, 3, 1, 0, 5], id="rates of equal parts in any unit"),
        pytest.param({"shape": [1, 3]}, [1] * 5 + [3] * 5, id="even within a part"),
        pytest.param({"shape": [1, 3], "day_s": 40.0}, [1, 3, 1, 3, 1], id="a day returns"),
        pytest.param({"shape": [1, 2, 9, 9], "day_s": 200.0}, [1, 2], id="the beginning of a long day"),
    ],
)
def test_requests_come_by_the_shape_of_the_day_at_the_rate_asked_for(setting, parts):
    assert assert_shaped(replace(BUSY, **setting), parts).sum() == pytest.approx(40_000, abs=4 * 200)


def test_the_diurnal_shape_is_recovered_from_the_arrivals():
    day = diurnal().slots
    assert day.mean() == pytest.approx(1)
    assert (day.argmin() // 60, day.argmax() // 60) == (2, 16)
    found = assert_shaped(replace(BUSY, rate_rps=10_000, shape="diurnal"), day.reshape(36, 40).mean(axis=1))
    bends, left = experiment.fit(as_shape(found.tolist(), "found"), 2)
    assert bends == pytest.approx(np.array(DIURNAL), abs=0.006)
    assert left < 0.01


TOTALS = "slot_40min,day,invocations\n0,1,100\n1,1,300\n2,1,0\n"


@pytest.fixture
def totals(tmp_path):
    file = tmp_path / "maf1_invocations_40min.csv"
    file.write_text(TOTALS)
    return str(file)


def test_a_file_s_days_come_one_after_the_other_as_they_are(totals):
    shape = read_shape(totals)
    assert shape.slots.tolist() == [100, 300, 0]
    assert shape.days == pytest.approx(3 / 36)
    assert_shaped(replace(BUSY, shape=totals), [1, 3, 0])
    assert_shaped(replace(BUSY, shape=totals, day_s=36 * 20.0), [1, 3, 0, 1, 3])


@pytest.mark.parametrize(
    "old, new, message",
    [
        ("0,1,100", "0,1,-1", "row 2: invocations is -1, must be a whole number of invocations, at least 0"),
        ("1,1,300", "5,1,300", "row 3: slot_40min is 5, must be the rows' number, from 0: one row a slot"),
        ("0,1,100\n1,1,300", "0,1,0\n1,1,0", "has no invocations, must have some"),
    ],
)
def test_a_bad_file_is_refused(totals, old, new, message):
    Path(totals).write_text(TOTALS.replace(old, new))
    with pytest.raises(InputError, match=message):
        replace(PLAIN, shape=totals)
    with pytest.raises(InputError, match=r"gone.csv does not exist; .* one row for every 40 minutes"):
        replace(PLAIN, shape="gone.csv")


@pytest.mark.skipif(not PUBLISHED.exists(), reason="the trace's totals are not here; set SIMLORA_TRACE_DIR")
def test_the_diurnal_shape_is_fitted_to_the_published_totals(capsys):
    shape = read_shape(str(PUBLISHED))
    assert (len(shape.slots), shape.days) == (108, 3)
    bends, left = experiment.fit(shape, len(DIURNAL))
    assert bends == pytest.approx(np.array(DIURNAL), abs=5e-5)
    assert left == pytest.approx(0.032, abs=0.001)
    assert min(range(1, 7), key=lambda count: experiment.criterion(shape, count)) == len(DIURNAL)
    assert experiment.main([str(PUBLISHED)]) == 0
    assert f"DIURNAL = {DIURNAL}" in capsys.readouterr().out
    assert_shaped(replace(BUSY, shape=str(PUBLISHED)), shape.slots)


# Lengths and floods --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "drawn, scale, context_tokens, expected",
    [
        pytest.param(([10, 333], [7, 1]), 4, None, [[40, 1332], [28, 4]], id="both are scaled"),
        pytest.param(([10], [7]), 1.5, None, [[14], [11]], id="down and up"),
        pytest.param(([300, 100], [100, 300]), 8, 1000, [[750, 250], [250, 750]], id="cut in proportion"),
        pytest.param(([1024, 4], [2044, 4]), 1, 2048, [[683, 4], [1365, 4]], id="only where too long"),
        pytest.param(([1, 5000], [5000, 1]), 1, 1000, [[1, 999], [999, 1]], id="something stays of both"),
        pytest.param(([1], [1]), 0.1, None, [[1], [1]], id="at least a token"),
    ],
)
def test_lengths_are_scaled_and_cut_where_the_context_ends(drawn, scale, context_tokens, expected):
    found = scaled(*map(np.array, drawn), scale, context_tokens)
    assert [each.tolist() for each in found] == expected


def test_bursts_that_flood_are_stopped(monkeypatch):
    monkeypatch.setattr(renewals, "REQUESTS_MAX", 3000)
    with pytest.raises(InputError, match=r"workload.cv is 900, with which more than 3,000 requests come"):
        renewals.renewals(np.random.default_rng(1), 900.0, 1e9)
