"""Prompts and answers that belong together: rows of a file, or two distributions that correlate."""

import math
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simlora.core.errors import InputError
from simlora.workload.arrivals import Poisson
from simlora.workload.lengths import Empirical, Fixed, Geometric, Lengths, LogNormal, Quantiles, Uniform
from simlora.workload.pairs import Rows, draw_lengths, following
from simlora.workload.popularity import Uniform as Even
from simlora.workload.synthetic import Synthetic

N = 100_000
FILE = "in,out\n10,1\n20,2\n30,3\n40,400\n5000,5\n0,6\n7,0\n"
WIDE = Quantiles([0, 0.5, 1], [1, 100, 1000])
PLAIN = Synthetic(Poisson(5.0), Even(), WIDE, LogNormal(4, 1, 1, 500), adapters=3)
PUBLISHED = Path(os.environ.get("SIMLORA_TRACE_DIR", "../shared/traces")) / "azure_llm_2023_conv.csv"


@pytest.fixture
def rows(tmp_path):
    file = tmp_path / "lengths.csv"
    file.write_text(FILE)
    return Rows(str(file), "in", "out")


def pairs(rows, n=N):
    return list(zip(*(each.tolist() for each in rows.draw(np.random.default_rng(1), n)), strict=True))


def test_a_prompt_keeps_its_answer(rows):
    drawn = pairs(rows)
    assert set(drawn) == {(10, 1), (20, 2), (30, 3), (40, 400), (5000, 5)}
    assert drawn.count((10, 1)) / N == pytest.approx(0.2, abs=4.5 * math.sqrt(0.2 * 0.8 / N))


def test_longer_rows_are_left_out_not_cut(rows):
    assert set(pairs(replace(rows, prompt_tokens_max=30, output_tokens_max=2))) == {(10, 1), (20, 2)}
    assert set(pairs(replace(rows, output_tokens_max=5))) == {(10, 1), (20, 2), (30, 3), (5000, 5)}


def test_rows_take_the_place_of_both_lengths(rows):
    trace = replace(PLAIN, lengths=rows).build(1)
    found = set(zip(trace.prompt_tokens.tolist(), trace.output_tokens.tolist(), strict=True))
    assert found == set(pairs(rows))
    plain = PLAIN.build(1)
    assert np.array_equal(trace.arrival_s, plain.arrival_s)
    assert np.array_equal(trace.adapter, plain.adapter)


@pytest.mark.parametrize(
    "change, message",
    [
        ({"path": ""}, "workload.lengths.path is empty, must be a file of lengths"),
        ({"path": "gone.csv"}, "gone.csv does not exist; set SIMLORA_TRACE_DIR to its folder or"),
        ({"prompt_column": "inn"}, "lengths.csv has no column inn; did you mean in"),
        ({"prompt_tokens_max": 0}, "workload.lengths.prompt_tokens_max is 0, must be a whole number"),
        ({"prompt_tokens_max": 9}, "no requests left after workload.lengths.prompt_tokens_max and workload"),
    ],
)
def test_rows_that_will_not_do_are_refused(rows, change, message):
    with pytest.raises(InputError, match=message):
        replace(PLAIN, lengths=replace(rows, **change))


# Correlation ---------------------------------------------------------------------------------


@pytest.mark.parametrize("correlation", [-0.9, -0.35, 0.5])
def test_normal_scores_correlate_by_what_was_asked_for(correlation):
    """By Spearman's rho, which for two normals is 6 / pi asin(correlation / 2); its error is under 1 / sqrt(n)."""
    shares = np.random.default_rng(1).random(N)
    others = following(np.random.default_rng(2), shares, correlation)
    rho = np.corrcoef(shares, others)[0, 1]
    assert rho == pytest.approx(6 / math.pi * math.asin(correlation / 2), abs=4.5 / math.sqrt(N))
    assert others.mean() == pytest.approx(0.5, abs=4.5 / math.sqrt(12 * N))
    assert np.histogram(others, 10, (0, 1))[0] / N == pytest.approx(0.1, abs=4.5 * math.sqrt(0.09 / N))


def test_a_correlation_leaves_each_length_s_distribution_as_it_was():
    apart = draw_lengths(1, N, WIDE, PLAIN.output_tokens, None, 0.0)
    together = draw_lengths(1, N, WIDE, PLAIN.output_tokens, None, -0.5)
    assert np.array_equal(apart[0], together[0])
    assert abs(np.corrcoef(apart)[0, 1]) < 4.5 / math.sqrt(N)
    assert np.corrcoef(together)[0, 1] < -0.3
    one, other = (np.percentile(lengths[1], [25, 50, 75]) for lengths in (together, apart))
    assert one == pytest.approx(other, rel=0.03)


@given(seed=st.integers(0, 2**32), n=st.integers(0, 40), correlation=st.floats(-0.99, 0.99))
def test_more_requests_begin_with_the_fewer(seed, n, correlation):
    fewer, more_of_them = (draw_lengths(seed, size, WIDE, WIDE, None, correlation) for size in (n, n + 9))
    for few, more in zip(fewer, more_of_them, strict=True):
        assert np.array_equal(few, more[:n])
        assert all(1 <= length <= 1000 for length in few)


@pytest.mark.parametrize(
    "lengths",
    [
        Fixed(3),
        Uniform(3, 90),
        Geometric(9.5),
        Geometric(1),
        LogNormal(3, 1, 3, 90),
        Quantiles([0, 1], [3, 90]),
    ],
    ids=repr,
)
def test_quantiles_are_those_of_what_is_drawn(lengths):
    shares = np.array([0.0, 0.1, 0.5, 0.9, 0.999, np.nextafter(1, 0)])
    at = lengths.at(shares)
    assert at.dtype == np.int64
    drawn = lengths.draw(np.random.default_rng(5), N)
    assert drawn.min() <= at[1] <= at[2] <= at[3]
    error = 4.5 * np.sqrt(shares * (1 - shares) / N)
    for share, length, off in zip(shares[1:5], at[1:5], error[1:5], strict=True):
        assert np.mean(drawn < length) - off - 0.01 <= share <= np.mean(drawn <= length) + off + 0.01


def test_quantiles_of_a_file_are_its_lengths(tmp_path):
    file = tmp_path / "lengths.csv"
    file.write_text("tokens\n9\n1\n5\n5\n")
    lengths = Empirical(str(file), "tokens")
    assert lengths.at(np.array([0.0, 0.3, 0.6, 0.99])).tolist() == [1, 5, 5, 9]


class Ones(Lengths):
    """A user's own: no quantiles."""

    def draw(self, rng, n):
        return np.ones(n, dtype=np.int64)


@pytest.mark.parametrize(
    "setting, message",
    [
        ({"correlation": 0.1, "prompt_tokens": Ones()}, r"Ones draws lengths .* give it a method"),
    ],
)
def test_a_correlation_that_cannot_be_is_refused(setting, message):
    with pytest.raises(InputError, match=message):
        replace(PLAIN, **setting)
    assert len(replace(PLAIN, prompt_tokens=Ones()).build(1)) > 1000


@pytest.mark.skipif(not PUBLISHED.exists(), reason="the Azure trace is not here; set SIMLORA_TRACE_DIR")
def test_of_the_azure_trace_so_many_requests_are_under_lora_serve_s_limits():
    prompts, outputs = Rows(str(PUBLISHED), "ContextTokens", "GeneratedTokens", 1024, 256).rows
    assert len(prompts) == 8246
    assert (prompts.max(), outputs.max()) == (1024, 255)
    assert (prompts.mean(), outputs.mean()) == pytest.approx((363.05, 107.08), abs=0.01)
    assert np.corrcoef(prompts, outputs)[0, 1] == pytest.approx(-0.301, abs=0.001)
