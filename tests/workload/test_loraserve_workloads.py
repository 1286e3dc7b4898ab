"""LoRAServe's workloads as the configuration has them: ranks over the run, lengths, and the production trace."""

import os
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hydra.utils import instantiate

from simlora.config.composing import compose
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


@pytest.mark.parametrize(
    "name, popularity",
    [
        ("rank_uniform", PowerLaw([16, 64], 0.0)),
        ("rank_exponential", Exponential([16, 64], 1.0)),
        ("rank_power_law", PowerLaw([16, 64], 1.0)),
        ("shifting_skew", ShiftingSkew([16, 64], 0.5)),
        ("top_heavy", TopHeavy(5, 0.724, 1.0, 0.5)),
    ],
)
def test_popularity_by_rank_takes_the_workload_s_own_ranks_and_arrivals_may_be_even(name, popularity):
    own = ("workload.ranks=[16,64]", "workload.adapters=10", f"workload/popularity={name}")
    chosen = workload("workload=loraserve", *own, "workload/arrivals=even", "workload.arrivals.rate_rps=36")
    assert (chosen.popularity, chosen.arrivals) == (popularity, Gamma(36, 0.0))


def test_exactly_so_many_requests_drift_until_the_last():
    drifting = ("workload=loraserve", "workload/popularity=shifting_skew")
    trace = built(*drifting, "workload.duration_s=null", "workload.requests=20000")
    assert len(trace) == 20_000
    first, last = counts(trace, 100, trace.duration_s)[:, [0, -1]].T
    assert_shares(first, np.array([1 / 8, 1 / 8, 1 / 8, 1 / 8, 1 / 2]))
    assert_shares(last, np.array([1 / 2, 1 / 8, 1 / 8, 1 / 8, 1 / 8]))


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
def test_or_they_are_drawn_from_the_trace_itself(monkeypatch):
    monkeypatch.setenv("SIMLORA_TRACE_DIR", str(FOLDER))
    chosen = workload("workload=loraserve", "workload/lengths=azure_conv")
    trace = chosen.build(1)
    own = chosen.lengths.rows
    pairs = set(zip(*(each.tolist() for each in own), strict=True))
    assert set(zip(trace.prompt_tokens.tolist(), trace.output_tokens.tolist(), strict=True)) <= pairs
    assert marks(trace.prompt_tokens, trace.output_tokens) == pytest.approx(marks(*own), rel=0.02)


# The production trace ------------------------------------------------------------------------


PRODUCTION = "workload=loraserve_production"


def test_250_138_requests_in_eight_hours():
    trace = built(PRODUCTION, "workload.adapters=100")
    assert (len(trace), len(trace.adapters)) == (250_138, 100)
    assert 28_790 < trace.arrival_s[-1] < 28_800
    assert counts(trace, 1, 28_800)[:, 0].tolist() == [110_061, 55_030, 35_019, 27_515, 22_513]


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
