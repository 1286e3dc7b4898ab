"""Functions of a serverless cloud, mapped to adapters: their shares, their bursts, their day, and their lengths."""

from __future__ import annotations

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
from simlora.workload.functions import Functions, log_normal_rates, scaled
from simlora.workload.lengths import Fixed, LogNormal, Uniform
from simlora.workload.shape import DIURNAL, as_shape, diurnal, read_shape

PLAIN = Functions(Uniform(8, 512), Uniform(4, 64), adapters=4, functions=20, sigma_log=1.0, rate_rps=20.0)
BUSY = replace(PLAIN, rate_rps=400.0)
COLUMNS = ("arrival_s", "adapter", "prompt_tokens", "output_tokens")
PUBLISHED = Path(os.environ.get("SIMLORA_TRACE_DIR", "../shared/traces")) / "maf1_invocations_40min.csv"


def changed(one, other, seed=1):
    """Return the names of the columns that differ."""
    a, b = one.build(seed), other.build(seed)
    return {name for name in COLUMNS if not np.array_equal(getattr(a, name), getattr(b, name))}


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
    assert changed(drawn, drawn) == set()


def test_requests_come_by_share():
    trace = BUSY.build(1)
    counts = np.bincount(trace.adapter, minlength=4)
    expected = 400 * 100 * BUSY.shares
    assert np.all(np.abs(counts - expected) < 4 * np.sqrt(expected))


def test_an_adapter_without_functions_never_has_a_request():
    trace = replace(BUSY, functions=2).build(1)
    assert set(trace.adapter.tolist()) == {0, 1}
    assert len(trace.adapters) == 4
    assert trace.history_rps[2:].tolist() == [0, 0]


def test_history_is_what_was_to_be_expected_not_what_came():
    trace = PLAIN.build(1)
    assert trace.history_rps == pytest.approx(20.0 * PLAIN.shares)
    assert np.array_equal(trace.history_rps, PLAIN.build(2).history_rps)
    assert np.array_equal(trace.history_rps, replace(PLAIN, cv=5, shape="diurnal").build(1).history_rps)


def test_a_history_is_one_rate_of_every_adapter():
    trace = PLAIN.build(1)
    for wrong in (np.ones(3), np.array([1.0, 2.0, 3.0, -1.0]), np.array([1.0, 2.0, 3.0, np.nan])):
        with pytest.raises(AssertionError, match="trace history"):
            replace(trace, history_rps=wrong)


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


def test_bursts_of_different_adapters_come_at_different_times():
    trace = replace(BUSY, cv=4, duration_s=1000).build(1)
    counts = [np.histogram(trace.arrival_s[trace.adapter == i], 1000)[0] for i in range(4)]
    apart = np.corrcoef(counts)[np.triu_indices(4, 1)]
    assert np.all(np.abs(apart) < 4.5 / math.sqrt(1000))


@pytest.mark.parametrize("cv", [0.0, 1.0, 4.0])
@pytest.mark.parametrize("shape", [None, "diurnal", [0, 1, 5]])
def test_the_rate_is_what_was_asked_for_whatever_the_variation_and_the_shape(cv, shape):
    """64 adapters with 12 requests each in expectation: whole first gaps would bring 480 more at a variation of 4."""
    many = replace(PLAIN, adapters=64, functions=64, sigma_log=0.5, duration_s=38.4, cv=cv, shape=shape)
    found = [len(many.build(seed)) for seed in range(40)]
    assert np.mean(found) == pytest.approx(768, abs=4.5 * np.std(found) / math.sqrt(40) + 0.5)


def test_a_process_seen_from_any_moment_goes_on_as_it_began():
    """The events of a stationary process are spread evenly, also right after the beginning."""
    rng = np.random.default_rng(1)
    events = np.concatenate([renewals.renewals(rng, 3.0, 2.0) for _ in range(20_000)])
    early = np.mean(events < 0.2)
    assert len(events) == pytest.approx(40_000, rel=0.08)
    assert early == pytest.approx(0.1, abs=0.01)


def test_requests_are_in_order_of_arrival_before_the_end_and_of_adapters_when_together():
    trace = replace(BUSY, cv=20, shape=[3, 1]).build(1)
    gaps_s = np.diff(trace.arrival_s)
    assert np.all(gaps_s >= 0)
    assert trace.arrival_s[0] >= 0
    assert trace.arrival_s[-1] < 100
    assert np.all(np.diff(trace.adapter)[gaps_s == 0] >= 0)


def test_a_longer_run_begins_with_the_shorter_one():
    for cv in (0, 1, 4):
        short, long = replace(PLAIN, cv=cv).build(1), replace(PLAIN, cv=cv, duration_s=330).build(1)
        for name in COLUMNS:
            assert np.array_equal(getattr(short, name), getattr(long, name)[: len(short)])


def test_a_run_of_more_whole_days_begins_with_the_first():
    one = replace(PLAIN, shape="diurnal", day_s=100.0)
    short, long = one.build(1), replace(one, duration_s=300.0).build(1)
    assert long.arrival_s[: len(short)] == pytest.approx(short.arrival_s)
    assert np.array_equal(long.adapter[: len(short)], short.adapter)


# The shape of a day --------------------------------------------------------------------------


def slots(workload, count):
    """Return the requests in each of so many equal parts of the run [count]."""
    return np.histogram(workload.build(1).arrival_s, count, (0, workload.duration_s))[0]


def assert_shaped(found, expected):
    expected = found.sum() * np.asarray(expected) / np.sum(expected)
    assert np.all(np.abs(found - expected) < 4.5 * np.sqrt(expected) + 1e-9)


def test_without_a_shape_the_rate_is_the_same_all_day():
    assert_shaped(slots(BUSY, 24), np.ones(24))


def test_numbers_are_the_rates_of_a_day_s_equal_parts_in_any_unit():
    assert_shaped(slots(replace(BUSY, shape=[0, 30, 10, 0, 50]), 5), [0, 3, 1, 0, 5])


def test_within_a_part_the_requests_are_spread_evenly():
    assert_shaped(slots(replace(BUSY, shape=[1, 3]), 10), [1] * 5 + [3] * 5)


def test_a_day_returns():
    assert_shaped(slots(replace(BUSY, shape=[1, 3], day_s=40.0), 5), [1, 3, 1, 3, 1])


def test_of_a_day_that_is_longer_than_the_run_only_its_beginning_is_seen_at_the_rate_asked_for():
    begins = slots(replace(BUSY, shape=[1, 2, 9, 9], day_s=200.0), 2)
    assert_shaped(begins, [1, 2])
    assert begins.sum() == pytest.approx(40_000, abs=4 * 200)


def test_the_diurnal_shape_is_recovered_from_the_arrivals():
    day = diurnal().slots
    assert day.mean() == pytest.approx(1)
    assert (day.argmin() // 60, day.argmax() // 60) == (2, 16)
    found = slots(replace(BUSY, rate_rps=10_000, shape="diurnal"), 36)
    assert_shaped(found, day.reshape(36, 40).mean(axis=1))
    bends, left = experiment.fit(as_shape(found.tolist(), "found"), 2)
    assert bends == pytest.approx(np.array(DIURNAL), abs=0.006)
    assert left < 0.01


def test_bursts_are_bursts_on_a_clock_that_follows_the_shape():
    """Squeezed where more comes, not merely more of them: gaps have the variation that was asked for there too."""
    trace = replace(BUSY, rate_rps=4000, cv=2, shape=[1, 9]).build(1)
    of_one = trace.arrival_s[trace.adapter == 0]
    for half in (of_one[of_one < 50], of_one[of_one >= 50]):
        gaps_s = np.diff(half)
        assert gaps_s.std() / gaps_s.mean() == pytest.approx(2, rel=0.1)


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
    assert_shaped(slots(replace(BUSY, shape=totals), 3), [1, 3, 0])
    assert_shaped(slots(replace(BUSY, shape=totals, day_s=36 * 20.0), 5), [1, 3, 0, 1, 3])


@pytest.mark.parametrize(
    "old, new, message",
    [
        ("invocations", "calls", "has a column 'calls', which is unknown"),
        ("0,1,100", "0,1,-1", "row 2: invocations is -1, must be a whole number of invocations, at least 0"),
        ("1,1,300", "5,1,300", "row 3: slot_40min is 5, must be the rows' number, from 0: one row a slot"),
        ("300", "", "row 3: invocations is empty"),
        ("0,1,100\n1,1,300", "0,1,0\n1,1,0", "has no invocations, must have some"),
    ],
)
def test_a_bad_file_is_refused(totals, old, new, message):
    Path(totals).write_text(TOTALS.replace(old, new))
    with pytest.raises(InputError, match=message):
        replace(PLAIN, shape=totals)


def test_a_missing_file_says_what_it_is_to_be():
    with pytest.raises(
        InputError, match=r"gone.csv does not exist; it is to have one row for every 40 minutes"
    ):
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
    assert_shaped(slots(replace(BUSY, shape=str(PUBLISHED)), 108), shape.slots)


def test_the_command_says_when_there_is_nothing_to_fit(capsys):
    assert experiment.main(["gone.csv"]) == 2
    assert "error: there is no gone.csv; SIMLORA_TRACE_DIR says where" in capsys.readouterr().err


# Lengths -------------------------------------------------------------------------------------


def lengths(prompts, outputs, scale=1.0, context_tokens=None):
    found = scaled(np.array(prompts), np.array(outputs), scale, context_tokens)
    return [each.tolist() for each in found]


def test_lengths_stay_as_they_were_drawn_unless_they_are_to_change():
    trace = replace(PLAIN, context_tokens=None).build(1)
    assert (trace.prompt_tokens.min(), trace.prompt_tokens.max()) == (8, 511)
    assert (trace.output_tokens.min(), trace.output_tokens.max()) == (4, 63)
    assert changed(PLAIN, replace(PLAIN, context_tokens=None)) == set()


def test_both_lengths_are_scaled():
    assert lengths([10, 333], [7, 1], 4) == [[40, 1332], [28, 4]]
    assert lengths([10], [7], 1.5) == [[14], [11]]
    assert changed(PLAIN, replace(PLAIN, length_scale=2)) == {"prompt_tokens", "output_tokens"}


def test_where_the_context_ends_both_are_cut_in_proportion():
    assert lengths([300, 100], [100, 300], 8, 1000) == [[750, 250], [250, 750]]
    assert lengths([1024, 4], [2044, 4], 1, 2048) == [[683, 4], [1365, 4]]


def test_something_always_stays_of_both():
    assert lengths([1, 5000], [5000, 1], 1, 1000) == [[1, 999], [999, 1]]
    assert lengths([1], [1], 0.1) == [[1], [1]]


def test_the_answer_s_length_is_declared_exactly():
    trace = PLAIN.build(1)
    assert np.array_equal(trace.max_output_tokens, trace.output_tokens)


# Seeds ---------------------------------------------------------------------------------------


def test_the_same_seed_gives_the_same_trace_and_another_another():
    assert changed(PLAIN, PLAIN) == set()
    one, other = PLAIN.build(1), PLAIN.build(2)
    for name in COLUMNS:
        assert not np.array_equal(getattr(one, name)[:50], getattr(other, name)[:50])


@pytest.mark.parametrize(
    "part, columns",
    [
        ({"prompt_tokens": LogNormal(5, 1, 1, 900)}, {"prompt_tokens"}),
        ({"output_tokens": Fixed(7)}, {"output_tokens"}),
        ({"shape": "diurnal"}, {"arrival_s"}),
    ],
)
def test_changing_one_part_leaves_the_others_as_they_were(part, columns):
    assert changed(PLAIN, replace(PLAIN, **part)) == columns


def test_ranks_are_given_in_turn():
    assert [spec.rank for spec in replace(PLAIN, ranks=[8, 16]).build(1).adapters] == [8, 16, 8, 16]


# What is refused -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "setting, message",
    [
        ({"adapters": 0}, "workload.adapters is 0, must be a whole number of adapters, at least 1"),
        ({"ranks": [8, 0]}, r"workload.ranks\[1\] is 0"),
        ({"functions": 0}, "workload.functions is 0, must be a whole number of functions, at least 1"),
        ({"functions": 10**7}, "workload.functions is 10000000, .* at most 1,000,000"),
        ({"sigma_log": -1}, "workload.sigma_log is -1, must be at least 0 and at most 20"),
        ({"stride": 0}, "workload.stride is 0, must be a whole number of functions, at least 1"),
        ({"rate_rps": 0}, "workload.rate_rps is 0, must be greater than 0 requests per second"),
        ({"cv": -1}, "workload.cv is -1, must be at least 0 and at most 1,000"),
        ({"duration_s": 0}, "workload.duration_s is 0, must be greater than 0 seconds"),
        (
            {"rate_rps": 1e8},
            "workload.rate_rps x workload.duration_s is .*, must be at most 100,000,000 requests",
        ),
        ({"day_s": 0}, "workload.day_s is 0, must be greater than 0 seconds"),
        ({"shape": "diurnl"}, "workload.shape is 'diurnl', must be diurnal, numbers over a day such as"),
        ({"shape": []}, r"workload.shape is \[\], must be a list with at least one entry"),
        ({"shape": 3}, "workload.shape is 3, must be a list"),
        ({"shape": [1, -2]}, r"workload.shape\[1\] is -2, must be at least 0"),
        ({"shape": [0, 0]}, "workload.shape is all 0, must have at least one number greater than 0"),
        (
            {"shape": [0, 1], "day_s": 1000},
            "workload.shape is 0 for all of workload.duration_s, which is 100 seconds",
        ),
        (
            {"shape": "diurnal", "day_s": 1e-4},
            "workload.day_s is 0.0001 seconds, of which workload.duration_s, 100 seconds, has more than 10,000,000",
        ),
        ({"length_scale": 0}, "workload.length_scale is 0, must be greater than 0 and at most 1,000"),
        ({"context_tokens": 1}, "workload.context_tokens is 1, must be a whole number of tokens, at least 2"),
        ({"prompt_tokens": Fixed(0)}, "workload.prompt_tokens.tokens is 0"),
        ({"output_tokens": Uniform(9, 3)}, "workload.output_tokens.hi is 3"),
        (
            {"prompt_tokens": 5},
            "workload.prompt_tokens is 5, must be chosen with workload/prompt_tokens=<name>",
        ),
    ],
)
def test_a_setting_out_of_range_is_refused_by_its_key(setting, message):
    with pytest.raises(InputError, match=message):
        replace(PLAIN, **setting)


def test_a_run_in_which_nothing_arrives_is_refused():
    with pytest.raises(
        InputError, match=r"workload.duration_s is 1e-06 seconds, in which no request arrives; make it longer"
    ):
        replace(PLAIN, duration_s=1e-6).build(1)


def test_bursts_that_flood_are_stopped(monkeypatch):
    monkeypatch.setattr(renewals, "REQUESTS_MAX", 3000)
    with pytest.raises(
        InputError, match=r"workload.cv is 900, with which more than 3,000 requests come; lower it"
    ):
        renewals.renewals(np.random.default_rng(1), 900.0, 1e9)
