"""Every workload of the configuration can be composed, changed from the command line, and built."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hydra.errors import InstantiationException

import simlora
from simlora.config.composing import choices
from simlora.core.errors import InputError
from simlora.workload.arrivals import Gamma
from simlora.workload.conversations import Conversations
from simlora.workload.lengths import Fixed, LogNormal, Quantiles
from simlora.workload.per_adapter import PerAdapter
from simlora.workload.popularity import Zipf
from simlora.workload.synthetic import Synthetic
from tests import traces
from tests.workload.test_loraserve_workloads import workload


def test_synthetic_parts_are_chosen_and_set_on_the_command_line():
    chosen = workload(
        "workload=synthetic",
        "workload/arrivals=gamma",
        "workload.arrivals.cv=4",
        "workload/popularity=zipf",
        "workload/prompt_tokens=log_normal",
        "workload/output_tokens=fixed",
        "workload.output_tokens.tokens=9",
    )
    assert isinstance(chosen, Synthetic)
    assert (chosen.arrivals, chosen.popularity) == (Gamma(2.0, 4), Zipf(1.0))
    assert (chosen.prompt_tokens, chosen.output_tokens) == (LogNormal(5.2, 2.0, 4, 1024), Fixed(9))
    assert set(chosen.build(0).output_tokens.tolist()) == {9}


def test_lengths_from_a_file_in_the_trace_folder(tmp_path, monkeypatch):
    (tmp_path / "arxiv_summarization_lengths.csv").write_text("num_prefill_tokens,num_decode_tokens\n5,6\n")
    monkeypatch.setenv("SIMLORA_TRACE_DIR", str(tmp_path))
    parts = ("workload/prompt_tokens=empirical", "workload/output_tokens=empirical")
    trace = workload("workload=synthetic", *parts).build(0)
    assert (set(trace.prompt_tokens.tolist()), set(trace.output_tokens.tolist())) == ({5}, {6})


def test_adapters_with_rates_of_their_own_have_share_gpt_s_lengths():
    chosen = workload("workload=per_adapter", "workload.adapters=30", "workload.rates_rps=[9,1]")
    assert isinstance(chosen, PerAdapter)
    assert isinstance(chosen.prompt_tokens, Quantiles)
    trace = chosen.build(0)
    prompts, outputs = trace.prompt_tokens, trace.output_tokens
    assert len(trace) == pytest.approx(150 * 3600, rel=0.01)
    # The marks of the runs that this workload describes: means, bounds, and quartiles in the models' own tokens.
    assert prompts.mean() == pytest.approx(223.1, rel=0.005)
    assert outputs.mean() == pytest.approx(194.2, rel=0.005)
    assert np.percentile(prompts, [0, 25, 75, 100]) == pytest.approx([4, 20.5, 377, 1024], rel=0.03)
    assert np.percentile(outputs, [0, 25, 75]) == pytest.approx([4, 22.7, 301], rel=0.03)
    assert (prompts + outputs).max() <= 2048
    # A request of average place in its answer holds so many tokens: long prompts have short answers.
    held = (outputs * (prompts + outputs / 2)).sum() / outputs.sum()
    assert held == pytest.approx(350, rel=0.03)


def test_functions_of_a_cloud_have_share_gpt_s_lengths_and_a_day_of_one_s_own():
    trace = workload("workload=functions", "workload.shape=[1,3]", "workload.rate_rps=99").build(0)
    assert np.mean(trace.arrival_s < 50) == pytest.approx(0.25, abs=0.02)
    assert trace.prompt_tokens.mean() == pytest.approx(250, rel=0.03)
    assert trace.output_tokens.mean() == pytest.approx(231, rel=0.03)
    # Three standard errors of a quartile of 9,900 draws; where both are cut they have moved a little.
    assert np.percentile(trace.prompt_tokens, [25, 75]) == pytest.approx([23, 423], abs=14)
    assert np.percentile(trace.output_tokens, [25, 75]) == pytest.approx([27, 358], abs=14)
    assert trace.prompt_tokens.max() <= 1024
    assert (trace.prompt_tokens + trace.output_tokens).max() <= 2048
    assert trace.history_rps.sum() == pytest.approx(99)


# FastLibra's scenarios, and what is published about their data: mean turns, message, and answer.
SCENARIOS = {"chatbot": (1.2, 52.3, 189.5), "translation": (1, 20, 20), "agent": (10.6, 11.4, 11.4)}


@pytest.mark.parametrize("name", SCENARIOS)
def test_scenarios_have_the_means_that_are_published(name):
    """Of a run so long that no conversation is cut by its ends to speak of, and without a limit to the context."""
    chosen = workload(f"workload={name}", "workload.duration_s=30000", "workload.context_tokens=null")
    assert isinstance(chosen, Conversations)
    assert (chosen.rate_rps, workload(f"workload={name}").duration_s) == (1.6, 1800)
    turns, message, answer = SCENARIOS[name]
    trace = chosen.build(1)
    sessions = pd.Series(trace.session)
    before = pd.Series(trace.prompt_tokens + trace.output_tokens).groupby(sessions).shift()
    new = (trace.prompt_tokens - before.fillna(0))[~before.isna() | (trace.arrival_s > 1000)]
    assert len(trace) / sessions.nunique() == pytest.approx(turns, rel=0.02)
    assert new.mean() == pytest.approx(message, rel=0.03)
    assert trace.output_tokens.mean() == pytest.approx(answer, rel=0.02)
    assert [spec.rank for spec in trace.adapters] == [32, 64] * 50


def test_of_translation_s_adapters_about_as_many_are_seen_as_fast_libra_saw():
    """41 until 1,100 s and 75 from then on, 58 on average; which of the two halves has more is up to the seed."""
    chosen = workload("workload=translation")
    seen = []
    for seed in range(20):
        trace = chosen.build(seed)
        late = trace.arrival_s >= 1100
        seen += [len(set(trace.adapter[part].tolist())) for part in (late, ~late)]
    assert np.mean(seen) == pytest.approx(58, abs=6)


@pytest.mark.parametrize("name", choices("workload"))
def test_every_workload_can_be_composed_and_built(name, tmp_path):
    """Those of a trace, where it is."""
    _, path_of_file = traces.workload(tmp_path, "0,a,8,1,1")
    chosen = workload(f"workload={name}", *([path_of_file] if name == "file" else []))
    path = getattr(chosen, "path", None)
    if path and not Path(path).exists():
        pytest.skip(f"{path} is not here; set SIMLORA_TRACE_DIR")
    assert len(chosen.build(5)) >= 1


def test_a_bad_setting_comes_out_of_hydra_as_our_own_sentence():
    with pytest.raises(InstantiationException) as error:
        workload("workload=chatbot", "workload.gap_s=0")
    assert isinstance(error.value.__cause__, InputError)
    assert str(error.value.__cause__) == "workload.gap_s is 0, must be greater than 0 seconds"


@pytest.mark.parametrize("part", ["popularity", "arrivals", "prompt_tokens"])
@pytest.mark.parametrize("value", ["zipf", 3])
def test_a_part_given_as_a_value_says_how_it_is_chosen(part, value):
    with pytest.raises(
        InputError, match=f"workload.{part} is .*, must be chosen with workload/{part}=<name>"
    ):
        simlora.simulate(["workload=synthetic", f"workload.{part}={value}"])
