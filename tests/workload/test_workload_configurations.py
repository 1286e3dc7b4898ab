"""Every workload of the configuration can be composed, changed from the command line, and built."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hydra import compose, initialize_config_dir
from hydra.errors import InstantiationException
from hydra.utils import instantiate

import simlora
from simlora.core.errors import InputError
from simlora.workload.arrivals import Gamma, Poisson
from simlora.workload.azure import AzureLlm
from simlora.workload.conversations import Conversations
from simlora.workload.lengths import Fixed, Geometric, LogNormal, Quantiles, Uniform
from simlora.workload.mooncake import Mooncake
from simlora.workload.per_adapter import PerAdapter
from simlora.workload.popularity import Explicit, Power, Zipf
from simlora.workload.popularity import LogNormal as OfFunctions
from simlora.workload.popularity import Uniform as Even
from simlora.workload.reuse import ideal_reuse
from simlora.workload.slora import SLora
from simlora.workload.synthetic import Synthetic

CONF = str(Path(simlora.__file__).parent / "conf")


def workload(*arguments):
    """Return the workload that these command-line arguments choose."""
    with initialize_config_dir(CONF, version_base="1.3"):
        config = compose(overrides=[f"+{arguments[0]}", *arguments[1:]])
    return instantiate(config.workload)


def test_the_default_is_s_lora_s_own():
    chosen = workload("workload=slora")
    assert isinstance(chosen, SLora)
    built, own = chosen.build(1), SLora().build(1)
    assert built.arrival_s.tolist() == own.arrival_s.tolist()
    assert built.adapter.tolist() == own.adapter.tolist()
    assert built.adapters == own.adapters


def test_s_lora_s_seed_can_be_the_run_s():
    free = workload("workload=slora", "workload.seed=null")
    assert free.build(1).arrival_s[0] != free.build(2).arrival_s[0]


def test_synthetic_parts_have_defaults():
    chosen = workload("workload=synthetic")
    parts = (chosen.arrivals, chosen.popularity, chosen.prompt_tokens, chosen.output_tokens)
    assert parts == (Poisson(2.0), Power(1.0), Uniform(8, 512), Uniform(8, 512))
    assert len(chosen.build(0)) > 400


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


def test_explicit_weights_on_the_command_line():
    explicit = ("workload/popularity=explicit", "workload.popularity.weights=[0,1,0]")
    chosen = workload("workload=synthetic", "workload.adapters=3", *explicit)
    assert isinstance(chosen.popularity, Explicit)
    assert set(chosen.build(0).adapter.tolist()) == {1}


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
    own = ("workload.adapters=32", "workload.shape=[1,3]", "workload.rate_rps=99")
    trace = workload("workload=functions", *own).build(0)
    assert len(trace) == pytest.approx(9900, abs=400)
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


def test_agents_talk_longest_and_translation_drifts_most():
    chosen = {name: workload(f"workload={name}") for name in SCENARIOS}
    drifts = {name: each.epoch_sigma_log for name, each in chosen.items()}
    assert max(drifts, key=drifts.__getitem__) == "translation"
    reuse = {name: ideal_reuse(each.build(1)).of_tokens for name, each in chosen.items()}
    assert reuse["translation"] == 0 < reuse["chatbot"] < reuse["agent"]


def test_of_translation_s_adapters_about_as_many_are_seen_as_fast_libra_saw():
    """41 until 1,100 s and 75 from then on, 58 on average; which of the two halves has more is up to the seed."""
    chosen = workload("workload=translation")
    seen = []
    for seed in range(20):
        trace = chosen.build(seed)
        late = trace.arrival_s >= 1100
        seen += [len(set(trace.adapter[part].tolist())) for part in (late, ~late)]
    assert np.mean(seen) == pytest.approx(58, abs=6)


def test_scenarios_are_lengthened_on_the_command_line():
    longer = (
        "workload/first_tokens=fixed",
        "workload.first_tokens.tokens=700",
        "workload.turns.mean=4",
        "workload/popularity=uniform",
        "workload/prompt_tokens=fixed",
    )
    chosen = workload("workload=chatbot", *longer)
    parts = (chosen.first_tokens, chosen.turns, chosen.popularity, chosen.prompt_tokens)
    assert parts == (Fixed(700), Geometric(4), Even(), Fixed(128))
    assert chosen.build(1).prompt_tokens.min() == 828
    assert workload("workload=translation", "workload.turns.tokens=9").turns == Fixed(9)


def test_the_busiest_functions_are_the_popularity_of_some():
    chosen = workload("workload=agent", "workload.adapters=20")
    assert chosen.popularity == OfFunctions(3.6, 46_412)
    with pytest.raises(InputError, match=r"functions is 46,412, must be at least the 50,000 adapters"):
        chosen.popularity.check("workload.popularity", 50_000)


@pytest.mark.parametrize("group", ["prompt_tokens", "output_tokens"])
def test_both_kinds_of_lengths_offer_the_same_choices(group):
    choices = {file.stem for file in Path(CONF, "workload", group).glob("*.yaml")}
    of_data = {"sharegpt", "alpaca", "arena", "opus", "taskmaster", "azure_conv"}
    assert choices == {"uniform", "log_normal", "empirical", "fixed"} | of_data


LINE = '{"timestamp": 5, "input_length": 5, "output_length": 5, "hash_ids": [0]}\n'
AZURE_LINES = "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46,5,5\n"


@pytest.mark.parametrize(
    "name, kind, file, text",
    [
        ("azure_llm_2023_conv", AzureLlm, "azure_llm_2023_conv.csv", AZURE_LINES),
        ("mooncake_conversation", Mooncake, "mooncake_conversation.jsonl", LINE),
    ],
)
def test_a_published_trace_lies_in_the_trace_folder(name, kind, file, text, tmp_path, monkeypatch):
    assert (
        workload(f"workload={name}").path
        == f"{os.environ.get('SIMLORA_TRACE_DIR', '../shared/traces')}/{file}"
    )
    monkeypatch.setenv("SIMLORA_TRACE_DIR", str(tmp_path))
    chosen = workload(f"workload={name}", "workload.speedup=2")
    assert isinstance(chosen, kind)
    assert (chosen.path, chosen.popularity) == (f"{tmp_path}/{file}", Even())
    with pytest.raises(InputError, match="set SIMLORA_TRACE_DIR to its folder"):
        chosen.build(0)
    (tmp_path / file).write_text(text)
    assert len(chosen.build(0)) == 1


@pytest.mark.parametrize("name", [file.stem for file in Path(CONF, "workload").glob("*.yaml")])
def test_every_workload_can_be_composed_and_built(name, tmp_path):
    """Those of a trace, where it is."""
    file = tmp_path / "trace.csv"
    file.write_text("arrival_s,adapter,rank,prompt_tokens,output_tokens\n0,a,8,1,1\n")
    chosen = workload(f"workload={name}", *([f"workload.path={file}"] if name == "file" else []))
    path = getattr(chosen, "path", None)
    if path and not Path(path).exists():
        pytest.skip(f"{path} is not here; set SIMLORA_TRACE_DIR")
    assert len(chosen.build(5)) >= 1


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["workload=chatbot", "workload.gap_s=0"], "workload.gap_s is 0, must be greater than 0 seconds"),
        (["workload=synthetic", "workload.arrivals.rate_rps=0"], "workload.arrivals.rate_rps is 0"),
        (["workload=file"], "workload.path is not set"),
    ],
)
def test_a_bad_setting_comes_out_of_hydra_as_our_own_sentence(arguments, message):
    with pytest.raises(InstantiationException) as error:
        workload(*arguments)
    assert isinstance(error.value.__cause__, InputError)
    with pytest.raises(InputError, match=message):
        raise error.value.__cause__
