"""Lengths of prompts and answers."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simlora.core import libm
from simlora.core.errors import InputError
from simlora.workload import lengths as rooms
from simlora.workload.lengths import Empirical, Fixed, Geometric, LogNormal, Quantiles, Uniform

N = 100_000


def draw(lengths, n=N, seed=11):
    return lengths.draw(np.random.default_rng(seed), n)


def test_fixed_and_uniform_which_leaves_out_its_end():
    assert set(draw(Fixed(128), 10).tolist()) == {128}
    tokens = draw(Uniform(8, 12))
    assert set(tokens.tolist()) == {8, 9, 10, 11}
    assert tokens.mean() == pytest.approx(9.5, abs=4 * math.sqrt(15 / 12 / N))


def test_geometric_goes_on_alike_after_every_one():
    counts = np.bincount(draw(Geometric(2.5)))[1:8]
    assert counts[1:] / counts[:-1] == pytest.approx(0.6, rel=0.05)
    assert draw(Geometric(2.5)).mean() == pytest.approx(2.5, abs=4 * math.sqrt(2.5 * 1.5 / N))
    assert set(draw(Geometric(1)).tolist()) == {1}


def test_a_wide_log_normal_has_its_median_and_spread():
    logs = libm.log(draw(LogNormal(6.0, 0.5, 1, 100_000)))
    assert np.median(logs) == pytest.approx(6.0, abs=4 * 1.2533 * 0.5 / math.sqrt(N))
    assert logs.std() == pytest.approx(0.5, abs=4 * 0.5 / math.sqrt(2 * N))


def test_a_cut_log_normal_is_drawn_from_between_and_does_not_pile_up():
    tokens = draw(LogNormal(5.2, 2.0, 4, 1024))
    assert (tokens.min(), tokens.max()) == (4, 1024)
    assert np.mean(tokens == 1024) < 0.001
    assert tokens.mean() == pytest.approx(218, abs=4)  # what vllm_lora_runs' workload is said to be near


def test_quantiles_are_met_and_between_them_every_length_is_as_likely():
    tokens = draw(Quantiles([0, 0.25, 1], [10, 20, 1000]))
    assert (tokens.min(), tokens.max()) == (10, 1000)
    assert np.mean(tokens <= 20) == pytest.approx(0.25, abs=0.01)
    assert tokens.mean() == pytest.approx(0.25 * 15 + 0.75 * 510, abs=4 * 300 / math.sqrt(N))
    assert np.median(tokens) == pytest.approx(20 + 980 / 3, abs=10)


def test_quantiles_are_scaled_to_another_tokenizer():
    tokens, longer = draw(Quantiles([0, 1], [1, 100])), draw(Quantiles([0, 1], [1, 100], scale=1.5))
    assert longer.mean() / tokens.mean() == pytest.approx(1.5, rel=1e-3)
    assert draw(Quantiles([0, 1], [1, 100], scale=0.001)).min() == 1


def test_empirical_draws_rows_as_often_as_they_stand_there(tmp_path):
    file = tmp_path / "lengths.csv"
    file.write_text("arrival_s,input_tokens\n0.1,10\n0.2,10\n0.3,10\n0.4,99\n")
    tokens = draw(Empirical(str(file), "input_tokens"))
    assert set(tokens.tolist()) == {10, 99}
    assert np.mean(tokens == 99) == pytest.approx(0.25, abs=4 * math.sqrt(0.25 * 0.75 / N))


ALL = [Fixed(3), Uniform(3, 90), LogNormal(3, 2, 3, 90), Quantiles([0, 1], [3, 90])]


@given(lengths=st.sampled_from(ALL), seed=st.integers(0, 2**32), n=st.integers(0, 40))
def test_lengths_stay_in_range_and_a_longer_draw_begins_with_the_shorter(lengths, seed, n):
    tokens = draw(lengths, n, seed)
    assert tokens.dtype == np.int64
    assert all(3 <= t <= 90 for t in tokens)
    assert np.array_equal(tokens, draw(lengths, n + 9, seed)[:n])


@pytest.mark.parametrize(
    "lengths, message",
    [
        (Fixed(0), "workload.prompt_tokens.tokens is 0, must be a whole number of tokens, at least 1"),
        (Uniform(0, 5), "workload.prompt_tokens.lo is 0"),
        (Uniform(5, 5), "workload.prompt_tokens.hi is 5, must be a whole number of tokens, at least 6"),
        (LogNormal(math.inf, 1, 1, 9), "workload.prompt_tokens.mean_log is inf, must be a finite number"),
        (LogNormal(5, 0, 1, 9), "workload.prompt_tokens.sigma_log is 0, must be greater than 0"),
        (LogNormal(50, 0.1, 1, 9), "workload.prompt_tokens.lo and .*hi are 1 and 9, .* no probability"),
        (Quantiles([0, 1], [5]), "tokens has 1 entries, must have one for each of the 2 of workload"),
        (Quantiles([0, 2], [5, 9]), r"workload.prompt_tokens.shares\[1\] is 2, must be .* at most 1"),
        (Quantiles([0, 0.5, 0.5, 1], [5, 6, 7, 9]), "must go up from 0 to 1"),
        (Quantiles([0, 1], [9, 5]), r"workload.prompt_tokens.tokens is \[9, 5\], must not go down"),
        (Quantiles([0, 1], [0, 5]), r"workload.prompt_tokens.tokens\[0\] is 0, must be at least 1"),
        (Quantiles([0, 1], [1, 5], 0), "workload.prompt_tokens.scale is 0, must be greater than 0"),
        (Empirical("", "x"), "workload.prompt_tokens.path is empty"),
        (Empirical("nowhere.csv", "x"), "nowhere.csv does not exist"),
    ],
)
def test_arguments_out_of_range_are_refused_by_their_key(lengths, message):
    with pytest.raises(InputError, match=message):
        lengths.check("workload.prompt_tokens")


@pytest.mark.parametrize(
    "column, message",
    [
        ("input_token", "lengths.csv has no column input_token; did you mean input_tokens"),
        ("zero", "lengths.csv, row 2: zero is 0, must be a whole number of tokens, at least 1"),
    ],
)
def test_a_file_of_lengths_that_will_not_do_is_refused(tmp_path, column, message):
    file = tmp_path / "lengths.csv"
    file.write_text("input_tokens,zero\n10,0\n")
    with pytest.raises(InputError, match=message):
        Empirical(str(file), column).check("workload.prompt_tokens")


@pytest.mark.parametrize("lengths", [LogNormal(2.3, 0.35, 2, 40), LogNormal(5.2, 2.0, 4, 1024)], ids=repr)
def test_log_normal_lengths_are_looked_up_as_they_are_inverted(lengths, monkeypatch):
    shares = np.append(np.random.default_rng(0).random(50_000), [0.0, np.nextafter(1.0, 0.0)])
    looked_up = lengths.at(shares)
    monkeypatch.setattr(rooms, "EDGES_MOST", 0)
    assert np.array_equal(looked_up, lengths.at(shares))
    assert (looked_up[-2], looked_up[-1]) == (lengths.lo, lengths.hi)
