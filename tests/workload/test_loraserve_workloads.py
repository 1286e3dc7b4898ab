"""LoRAServe's workloads as the configuration has them: ranks over the run, lengths, and the production trace."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hydra.errors import InstantiationException
from hydra.utils import instantiate

from simlora.config.composing import compose
from simlora.core import libm
from simlora.core.errors import InputError
from simlora.workload.arrivals import Gamma, Poisson
from simlora.workload.by_rank import Exponential, PowerLaw, ShiftingSkew
from simlora.workload.pairs import Rows
from simlora.workload.popularity import TopHeavy

RANKS = (8, 16, 32, 64, 128)
FOLDER = Path(os.environ.get("SIMLORA_TRACE_DIR", "../shared/traces"))
PUBLISHED = FOLDER / "azure_llm_2023_conv.csv"
needs_the_trace = pytest.mark.skipif(
    not PUBLISHED.exists(), reason="the Azure trace is not here; set SIMLORA_TRACE_DIR"
)


def workload(*overrides):
    """Return the workload that these command-line arguments choose."""
    return instantiate(compose(overrides)[0].workload)


@cache
def built(*overrides):
    """Return the trace of that workload, with the seed 1."""
    return workload(*overrides).build(1)


def refused(*overrides):
    """Return what is said where these cannot be a workload."""
    with pytest.raises(InstantiationException) as error:
        workload(*overrides)
    assert isinstance(error.value.__cause__, InputError)
    return str(error.value.__cause__)


def counts(trace, windows=1, span_s=1800.0):
    """Return the requests of each rank [5, windows], the lowest rank's first, in equal parts of the run."""
    rank = np.array([spec.rank for spec in trace.adapters])[trace.adapter]
    return np.array([np.histogram(trace.arrival_s[rank == r], windows, (0, span_s))[0] for r in RANKS])


def assert_shares(found, shares):
    """Within 4.5 standard errors of a binomial share, in every window."""
    total = found.sum(axis=0)
    error = np.sqrt(total * shares * (1 - shares))
    assert np.all(np.abs(found - total * shares) <= 4.5 * error)


# Rank popularity over a run ------------------------------------------------------------------


def test_by_default_poisson_arrivals_of_25_adapters_of_five_ranks_all_alike_under_lora_serve_s_limits():
    assert workload("workload=loraserve").arrivals == Poisson(32.0)
    trace = built("workload=loraserve")
    assert [spec.rank for spec in trace.adapters] == list(RANKS) * 5
    assert len(trace) == pytest.approx(32 * 1800, abs=4.5 * np.sqrt(32 * 1800))
    assert_shares(np.bincount(trace.adapter, minlength=25), np.full(25, 1 / 25))
    assert (trace.prompt_tokens.min(), trace.prompt_tokens.max()) == (2, 1024)
    assert (trace.output_tokens.min(), trace.output_tokens.max()) == (7, 255)


def test_even_arrivals_have_equal_gaps():
    even = ("workload=loraserve", "workload/arrivals=even", "workload.arrivals.rate_rps=36")
    assert workload(*even).arrivals == Gamma(36, 0.0)
    trace = built(*even)
    assert np.diff(trace.arrival_s) == pytest.approx(1 / 36)
    assert 36 * 1800 - len(trace) in (0, 1)  # the last comes as the run ends


@pytest.mark.parametrize("arrivals", ["poisson", "even"])
@pytest.mark.parametrize("popularity", ["rank_uniform", "shifting_skew", "rank_exponential"])
def test_the_six_traces_have_their_shares_at_every_moment(arrivals, popularity):
    trace = built("workload=loraserve", f"workload/arrivals={arrivals}", f"workload/popularity={popularity}")
    middles = (np.arange(6) + 0.5) / 6
    low, high = 1 / 8 + 3 / 8 * middles, 1 / 2 - 3 / 8 * middles
    expected = {
        "rank_uniform": np.full((5, 6), 1 / 5),
        "shifting_skew": np.array([low, *np.full((3, 6), 1 / 8), high]),
        "rank_exponential": np.tile((libm.exp(-np.arange(5)) / libm.exp(-np.arange(5)).sum())[:, None], 6),
    }
    assert_shares(counts(trace, 6), expected[popularity])


@pytest.mark.parametrize("alpha", [1 / 3, 1, 3])
def test_figure_22_has_100_adapters_and_a_power_law(alpha):
    power_law = ("workload/popularity=rank_power_law", f"workload.popularity.alpha={alpha}")
    trace = built("workload=loraserve", "workload.adapters=100", *power_law)
    assert [spec.rank for spec in trace.adapters].count(128) == 20
    weights = np.arange(1.0, 6.0) ** -alpha
    assert_shares(counts(trace)[:, 0], weights / weights.sum())


@pytest.mark.parametrize(
    "name, kind", [("uniform", PowerLaw), ("exponential", Exponential), ("shifting_skew", ShiftingSkew)]
)
def test_popularity_by_rank_takes_the_workload_s_own_ranks(name, kind):
    chosen = f"workload/popularity={name if name == 'shifting_skew' else f'rank_{name}'}"
    popularity = workload(
        "workload=loraserve", "workload.ranks=[16,64]", "workload.adapters=10", chosen
    ).popularity
    assert isinstance(popularity, kind)
    assert list(popularity.ranks) == [16, 64]


def test_exactly_so_many_requests_drift_until_the_last():
    drifting = ("workload=loraserve", "workload/popularity=shifting_skew")
    trace = built(*drifting, "workload.duration_s=null", "workload.requests=20000")
    assert len(trace) == 20_000
    first, last = counts(trace, 100, trace.duration_s)[:, [0, -1]].T
    assert_shares(first, np.array([1 / 8, 1 / 8, 1 / 8, 1 / 8, 1 / 2]))
    assert_shares(last, np.array([1 / 2, 1 / 8, 1 / 8, 1 / 8, 1 / 8]))


def test_a_week_s_top_five_is_a_popularity():
    week = ("workload=loraserve", "workload/popularity=top_heavy", "workload.adapters=1000")
    assert workload(*week).popularity == TopHeavy(5, 0.724, 1.0, 0.5)
    assert np.mean(built(*week).adapter < 5) == pytest.approx(
        0.724, abs=4.5 * np.sqrt(0.2 / len(built(*week)))
    )


@needs_the_trace
def test_a_published_trace_s_requests_shift_by_their_own_arrivals(monkeypatch):
    monkeypatch.setenv("SIMLORA_TRACE_DIR", str(FOLDER))
    chosen = workload("workload=azure_llm_2023_conv", "workload/popularity=shifting_skew")
    trace = chosen.build(1)
    late = trace.arrival_s > 0.9 * trace.arrival_s[-1]
    rank = np.array([spec.rank for spec in trace.adapters])[trace.adapter]
    moments = trace.arrival_s[late] / trace.arrival_s[-1]
    mean = (1 / 6 + moments / 3).mean()  # of four ranks
    assert np.mean(rank[late] == 8) == pytest.approx(mean, abs=4.5 * np.sqrt(mean * (1 - mean) / late.sum()))


# Lengths -------------------------------------------------------------------------------------


def marks(prompts, outputs):
    """Return means, quartiles, standard deviations, and the context of a token of average place in an answer."""
    held = (outputs * (prompts + outputs / 2)).sum() / outputs.sum()
    each = [(x.mean(), *np.percentile(x, [25, 50, 75]), x.std()) for x in (prompts, outputs)]
    return np.array([*each[0], *each[1], held])


@needs_the_trace
def test_the_twin_has_the_trace_s_means_quartiles_and_correlation():
    """Within 2 %: the standard errors of 250,000 draws are 0.1 to 0.5 %, the rest is straight lines for a table."""
    own = Rows(str(PUBLISHED), "ContextTokens", "GeneratedTokens", 1024, 256).rows
    trace = built("workload=loraserve", "workload.duration_s=null", "workload.requests=250000")
    assert marks(trace.prompt_tokens, trace.output_tokens) == pytest.approx(marks(*own), rel=0.02)
    correlation = np.corrcoef(trace.prompt_tokens, trace.output_tokens)[0, 1]
    assert correlation == pytest.approx(np.corrcoef(*own)[0, 1], abs=0.02)


@needs_the_trace
@pytest.mark.parametrize("name", ["loraserve", "loraserve_production"])
def test_or_they_are_drawn_from_the_trace_itself(name, monkeypatch):
    monkeypatch.setenv("SIMLORA_TRACE_DIR", str(FOLDER))
    chosen = workload(f"workload={name}", "workload/lengths=azure_conv")
    trace = chosen.build(1)
    own = chosen.lengths.rows
    pairs = set(zip(*(each.tolist() for each in own), strict=True))
    assert set(zip(trace.prompt_tokens.tolist(), trace.output_tokens.tolist(), strict=True)) <= pairs
    assert marks(trace.prompt_tokens, trace.output_tokens) == pytest.approx(marks(*own), rel=0.02)


def test_without_the_trace_its_lengths_are_refused_and_the_twin_is_not(monkeypatch, tmp_path):
    monkeypatch.setenv("SIMLORA_TRACE_DIR", str(tmp_path))
    assert len(workload("workload=loraserve").build(1)) > 50_000
    assert "azure_llm_2023_conv.csv does not exist" in refused(
        "workload=loraserve", "workload/lengths=azure_conv"
    )


# The production trace ------------------------------------------------------------------------


PRODUCTION = "workload=loraserve_production"


@pytest.mark.parametrize("adapters", [50, 100, 200])
def test_250_138_requests_in_eight_hours(adapters):
    trace = built(PRODUCTION, f"workload.adapters={adapters}")
    assert (len(trace), len(trace.adapters)) == (250_138, adapters)
    assert 28_790 < trace.arrival_s[-1] < 28_800
    assert counts(trace, 1, 28_800)[:, 0].tolist() == [110_061, 55_030, 35_019, 27_515, 22_513]
    of_first = np.mean(trace.adapter[trace.adapter % 5 == 0] == 0)
    share = 1 / (1 / np.arange(1, adapters // 5 + 1)).sum()
    assert of_first == pytest.approx(share, abs=4.5 * np.sqrt(share / 110_061))


def test_five_trends_two_vary_one_is_stable_one_surges_one_is_a_day():
    """Figure 10, in half hours."""
    rates = counts(built(PRODUCTION, "workload.adapters=100"), 16, 28_800)
    level = rates / rates.mean(axis=1, keepdims=True)
    first, stable, third, surging, day = level
    noise = 1 / np.sqrt(rates.mean(axis=1))
    assert stable.std() < 1.7 * noise[1]  # 4.5 standard errors of the deviation of 16
    for varying in (first, third):
        turns = np.diff(np.sign(np.diff(varying[::2])))
        assert varying.std() > 0.1
        assert np.count_nonzero(turns) >= 2
    assert surging[:12].std() < 1.7 * noise[3]
    assert surging[-2:].min() > 2 * surging[:12].mean()
    assert day.argmax() in (6, 7, 8, 9)
    assert day[[0, -1]].max() < 0.6 * day.max()


def test_its_ranks_are_named_with_their_shares_and_trends():
    ranks = (PRODUCTION, "workload.ranks=[16,64]")
    named = ("workload.shares=[1,3]", "workload.trends=[[1],[1,2]]")
    chosen = workload(*ranks, *named, "workload.adapters=10", "workload.requests=400")
    assert chosen.requests_of.tolist() == [100, 300]
    assert "workload.shares has 5 entries, must have one for each of the 2 of" in refused(*ranks)
