"""Means with their intervals, and differences seed by seed, on tables made by hand."""

import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.coverage.intervals import coverage, figures
from simlora.core.errors import InputError
from simlora.sweeps.statistics import (
    aggregate,
    difference_over_seeds,
    interval,
    interval_of_difference,
    interval_of_median,
    interval_of_share,
    interval_of_times,
    over_seeds,
    paired,
)


def table(*rows: tuple[str, int, float], status: str = "ran", load: str = "below") -> pd.DataFrame:
    """Return a sweep's table of (system, seed, ttft_s.mean); NaN did not run."""
    frame = pd.DataFrame(rows, columns=["system", "seed", "ttft_s.mean"])
    lost = frame["ttft_s.mean"].isna()
    return frame.assign(status=np.where(lost, "failed", status), load=np.where(lost, None, load))


def test_the_interval_is_students():
    low, high = interval([1.0, 2.0, 3.0])
    assert (low, high) == pytest.approx((2 - 4.302653 / math.sqrt(3), 2 + 4.302653 / math.sqrt(3)), rel=1e-6)
    assert interval([2.0, math.nan, 2.0]) == (2.0, 2.0)
    assert all(map(math.isnan, interval([1.0])))


def test_the_interval_of_skewed_values_reaches_further_to_where_they_are_rare():
    """By hand, of 1, 1, 1, 5: mean 2, standard deviation 2, cubes that sum up to 3 of its: 3 * 4 / (3 * 2)."""
    low, high = interval([1.0, 1.0, 1.0, 5.0])
    reach, skewness = 3.182446 / 2, 2.0
    for end, value in ((reach, low), (-reach, high)):
        x = (2 - value) / 2
        assert x + skewness * x**2 / 3 + skewness**2 * x**3 / 27 + skewness / 24 == pytest.approx(
            end, rel=1e-6
        )
    assert high - 2 > 2 - low


def test_the_interval_of_a_mean_time_holds_that_of_its_logarithm_too():
    """Five runs without a burst say nothing of one: the mean may be further above them than they are apart."""
    times = [0.27, 0.31, 0.32, 0.32, 0.33]
    low, high = interval_of_times(times)
    mean, reach = 0.31, 2.776445 * np.std(times, ddof=1) / (0.31 * math.sqrt(5))
    ends = [interval(times), (mean * math.exp(-reach), mean * math.exp(reach))]
    assert (low, high) == pytest.approx((min(ends)[0], max(high for _, high in ends)), rel=1e-5)
    assert ends[0][1] < high < 0.35, "skewed the other way by chance"
    assert interval_of_times([0.0, 1.0, 2.0]) == interval([0.0, 1.0, 2.0]), "no time has no logarithm"
    assert over_seeds("ttft_s.mean", times)[1:] == (low, high)
    assert over_seeds("throughput_tps", times)[1:] == interval(times)
    assert difference_over_seeds("ttft_s.mean", times)[1:] == interval(times), (
        "a difference may be of either sign"
    )


def test_the_interval_of_a_median_is_between_order_statistics():
    """Of twenty values the 6th and 15th hold the median with 95.86 %, the 7th and 14th with 88.47 %."""
    assert interval_of_median([5.0, 1.0, 900.0, 2.0, 3.0]) == (1.0, 900.0), "five hold it with 93.75 %"
    low, high = interval_of_median(np.arange(1.0, 21.0))
    assert 6 < low < 6.3
    assert low + high == pytest.approx(21.0)
    low, high = interval_of_median([1.0, 2.0, 3.0])
    assert (low, high) == pytest.approx(2 + np.array([-1, 1]) * 4.302653 * math.sqrt(math.pi / 6), rel=1e-6)
    assert all(map(math.isnan, interval_of_median([1.0, math.nan])))
    low, high = interval_of_median(np.arange(2_001.0))
    assert low == pytest.approx(1000 - 1.96 * math.sqrt(2001) / 2, abs=1)
    assert high == 2000 - low


@given(st.integers(5, 60), st.integers(0, 2**32))
def test_it_holds_the_median_of_any_distribution_as_often_as_it_says(count, seed):
    drawn = np.random.default_rng(seed).pareto(0.5, (400, count))  # its mean is infinite
    ends = np.array([interval_of_median(values) for values in drawn])
    holds = (ends[:, 0] <= 3.0) & (ends[:, 1] >= 3.0)
    assert 0.89 <= holds.mean() <= 0.995


def test_percentiles_are_summed_up_by_their_median_other_figures_by_their_mean():
    values = [1.0, 1.0, 1.0, 1.0, 96.0]
    assert over_seeds("ttft_s.p99", values) == (1.0, 1.0, 96.0)
    assert over_seeds("ttft_s.mean", values)[0] == 20.0


def test_the_interval_of_a_share_stays_within_0_and_1():
    low, high = interval_of_share([0.999, 1.0, 1.0, 1.0, 0.998], [1000] * 5)
    assert 0 < low < 0.9994 < high <= 1
    assert interval_of_share([0.0, 0.0], [10, 10])[0] == 0


def test_runs_without_a_miss_do_not_prove_that_there_is_none():
    """Five runs of a thousand requests, all in time: as many as 5,000 (1.96 / 2.776)² independent ones."""
    low, high = interval_of_share([1.0] * 5, [1000] * 5)
    assert (low, high) == (pytest.approx(0.025 ** (1 / (5000 * (1.959964 / 2.776445) ** 2)), rel=1e-6), 1.0)


def test_runs_that_differ_say_themselves_by_how_much():
    """Past saturation requests are one long burst, but as many of the first meet the SLO in every run."""
    shares = [0.060, 0.065, 0.068, 0.070, 0.075]
    low, high = interval_of_share(shares, [20.0] * 5)
    assert (low, high) == interval_of_share(shares, [1000.0] * 5)
    assert 0.055 < low < 0.0676 < high < 0.083


def test_runs_that_never_differ_do_not_prove_that_none_would():
    """Two hundred independent requests each: the interval is that of a share that none of them has shown."""
    low, high = interval_of_difference([0.0] * 5, [200.0] * 5)
    assert (low, high) == (pytest.approx(-0.0074, abs=1e-4), pytest.approx(0.0074, abs=1e-4))
    assert interval_of_difference([0.1, 0.3], [200.0] * 2) == interval([0.1, 0.3])
    frame = pd.DataFrame({"system": ["slora"] * 5 + ["vllm"] * 5, "seed": [*range(5)] * 2})
    frame = frame.assign(**{"slo.attainment": 1.0, "load.independent_requests": 200.0})
    found = paired(frame, "slo.attainment", "system", "slora").iloc[0]
    assert (found["difference"], found["low"], found["differs"]) == (0.0, low, False)


def test_intervals_of_s_lora_hold_the_mean():
    """`python -m experiments.coverage intervals` has more loads, runs and figures."""
    runs = pd.DataFrame(figures(0.8, 500, seed) for seed in range(60))
    for figure in ("slo.attainment", "ttft_s.mean", "ttft_s.p95", "latency_s.mean"):
        truth = {figure: over_seeds(figure, runs[figure])[0]}
        assert 0.85 <= coverage(runs, truth, 5, 200)[figure] <= 0.995, figure
        assert 0.88 <= coverage(runs, truth, 20, 200)[figure] <= 0.995, figure


def test_what_did_not_run_is_counted_and_not_averaged():
    found = aggregate(table(("slora", 0, 1.0), ("slora", 1, math.nan)), "ttft_s.mean", ["system"])
    assert (found["estimate"][0], found["runs"][0], found["failed"][0]) == (1.0, 1, 1)


def test_the_load_is_the_worst_of_a_seed():
    both = pd.concat([table(("slora", 0, 1.0)), table(("slora", 1, 9.0), load="past")])
    assert list(aggregate(both, "ttft_s.mean", ["system"])["load"]) == ["past"]
    assert list(aggregate(both, "ttft_s.mean", [])["estimate"]) == [5.0]


def test_a_difference_is_seed_by_seed():
    """Systems that differ by 1 for every seed do so for sure, however much seeds differ."""
    rows = [(name, seed, 10.0**seed + (name == "vllm")) for name in ("slora", "vllm") for seed in range(4)]
    found = paired(table(*rows), "ttft_s.mean", "system", "slora")
    assert found["system"].tolist() == ["vllm"]
    row = found.iloc[0]
    assert (row["difference"], row["seeds"], row["differs"]) == (pytest.approx(1.0), 4, True)
    assert row["ratio"] == pytest.approx(1115 / 1111)


def test_noise_is_no_difference():
    rows = [("slora", seed, 1.0) for seed in range(4)] + [
        ("vllm", seed, 1.0 + (-1) ** seed) for seed in range(4)
    ]
    assert not paired(table(*rows), "ttft_s.mean", "system", "slora")["differs"][0]


def test_only_seeds_of_both_count():
    rows = [("slora", 0, 1.0), ("slora", 1, math.nan), ("vllm", 0, 2.0), ("vllm", 1, 2.0)]
    found = paired(table(*rows), "ttft_s.mean", "system", "slora").iloc[0]
    assert (found["seeds"], found["difference"], found["differs"]) == (1, 1.0, False)


def test_what_is_not_there_is_named():
    small = table(("slora", 0, 1.0))
    with pytest.raises(InputError, match=r"the sweep has no ttft_s.p95; did you mean ttft_s.mean"):
        aggregate(small, "ttft_s.p95", ["system"])
    with pytest.raises(InputError, match="system has no 'slor'; did you mean slora"):
        paired(small, "ttft_s.mean", "system", "slor")
