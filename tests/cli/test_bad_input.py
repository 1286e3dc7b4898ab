"""Bad input is one plain sentence, exit status 2, and nothing left behind."""

import os
from pathlib import Path

import pytest

from simlora.api.preparing import composed
from simlora.cli import capacity, sweep
from simlora.config.setup import prepare
from simlora.core.errors import InputError
from tests.cli.command import CALIBRATION, SHORT, sentence
from tests.traces import HEADER

CASES = {
    "gpu=a10x": "there is no gpu 'a10x'; did you mean … a10",
    "seed=1,2": "seed=1,2 is several values; add -m",
    "cluster.replicas=0": "cluster.replicas is 0, must be a whole number, at least 1",
    "cluster.engines_per_gpu=2 replica.kv_token_budget=9000": "calibration cal.yaml has no host.intercept_s",
    "replica.adapter_memory=contiguous": "calibration cal.yaml has no adapter_load.flush_s",
    "replica.adapter_memory=padded replica.adapter_region_tokens=9": "does not fit replica.adapter_region_",
    "scheduler=merged_per_batch": "calibration cal.yaml has no merge.intercept_s, which this run needs",
    "replica.kv_token_budget=10": "every one of the 20 requests is rejected … do not fit replica.kv_token_budget 10",
    "hydra.run.dir=": "hydra.run.dir is empty",
    "hydra.run.dir=${nope}": "hydra.run.dir cannot be resolved",
    "hydra.run.dir=null": "hydra.run.dir=null cannot be",
    "hydra.run.dir=/proc/simlora": "cannot write results to /proc/simlora",
    "hydra.run.dir=cal.yaml": "cannot write results to cal.yaml",
    "hydra.run.dir=cal.yaml/out": "cannot write results to cal.yaml/out",
    "hydra.run.dir='~nouser/x'": "'~nouser/x' cannot be used as a path",
    "hydra.output_subdir='~/x'": "hydra.output_subdir is '~/x', must be the name of a",
    "--sede=3": "there is no option --sede=3; keys are written without dashes",
    "--cfg": "argument --cfg/-c: expected one argument",
    "--experimental-rerun=x": "would unpickle a file",
    "--config-dir nowhere": "--config-dir 'nowhere' is no folder",
    "--config-name nowhere": "there is no configuration 'nowhere'",
    "-m gpu=a10x,a10g": "there is no gpu 'a10x'",
    "-m cluster.replicas=0,1": "cluster.replicas is 0",
}
"""What is typed, and what the sentence has to say of it, its parts apart by an ellipsis."""
VALUES = {
    "sede=1": "there is no key sede; did you mean seed",
    "seed=[1": "'seed=[1' cannot be read, must be key=value",
    "seed=${nope}": "seed cannot be resolved … nope",
    "scheduler._target_=nowhere.Mine": "is nowhere.Mine … no module nowhere in the current folder",
    "workload=synthetic workload/popularity=zip": "there is no workload/popularity 'zip'; did you mean zipf?",
    "gpu=3": "gpu=3 is no choice; choose one of a10, ",
    "scheduler=null": "scheduler=null is no choice; choose one of adapter_clustering, chunked_prefill",
    "workload.path=x.csv": "there is no key workload.path; workload has _target_, adapters, ranks",
    "+slo.ttft=3": "there is no key slo.ttft; did you mean slo.ttft_s?",
    "workload/popularity=zipf": "workload/popularity has no place in this configuration",
    "+seed=3": "seed is there already; write seed=<value> without a +",
    "~seed": "seed was taken out of the configuration",
    "seed": "'seed' is no override, must be key=value",
    "seed=null": "seed is empty, must be a whole number",
    "seed=abc": "seed is 'abc', must be a whole number, at least 0",
    "seed=-1": "seed is -1, must be a whole number, at least 0",
    f"cluster.replicas=1{'0' * 400}": "cluster.replicas is 1000 … at most 100,000",
    "replica.block_size=1e30": "replica.block_size is … at most",
    "seed=${oc.env:SIMLORA_NOT_SET}": "seed needs the environment variable SIMLORA_NOT_SET",
    "seed=???": "seed is not set, must be given as seed=<value>",
    "cluster=3": "cluster is 3, must have keys such as cluster.replicas=<value>",
    "replica.kv_token_budget=abc": "replica.kv_token_budget is 'abc', must be a whole number",
    "replica.target_modules=q": "replica.target_modules is 'q', must be a list",
    "cluster.engines_per_gpu=0": "cluster.engines_per_gpu is 0, must be a whole number … at least 1",
    "replica.tp=2": "calibration cal.yaml is for tp 1, must be for replica.tp 2",
    "scheduler=chunked_prefill replica.reserve=padded": "padded, must be full, peak or paged where prompts come",
    "cluster.memory_shares=rates": "cluster.memory_shares is 'rates'; did you mean rate?",
    "replica.max_loras=0": "replica.max_loras is 0, must be a whole number of adapters, at least 1",
    "replica.activation_bytes=-1": "replica.activation_bytes is -1 … at least 0 and at most 1,000,000,000,000",
    "replica.activation_bytes=9e9": "llama_7b needs 13.5 GB of weights … 9.0 GB a GPU of it for activations",
    "replica.adapter_memory=contigous": "replica.adapter_memory is 'contigous'; did you mean contiguous?",
    "replica.adapter_memory=padded replica.kv_token_budget=99999999": "leaves nothing of the GPU's 13014 ",
    "replica.adapter_region_tokens=-1": "replica.adapter_region_tokens is -1 … token slots, at least 0",
    "replica.adapter_region_share=1": "replica.adapter_region_share is 1, must be … at most 0.99 of the slots",
    "engine=a-b": "engine is 'a-b', must be the name of a serving engine, or null",
    "calibration=null engine=vllm_pcked": "vllm_pcked … did you mean a10g-llama_7b-tp1-vllm_packed",
    "calibration=null system=vllm_packed workload.adapters=0": "cluster.engines_per_gpu is 0, must be",
    "kernel=padded_bmm": "calibration cal.yaml has no kernels.padded_bmm.decode.intercept_s",
    "system=slora_early_abort slo.ttft_s=null": "scheduler.slo_s is empty, must be a finite number",
    "scheduler=adapter_clustering scheduler.clusters=0": "clusters is 0, must be a whole number … at least 1",
    "scheduler=merged_per_batch scheduler.most_others=-1": "most_others is -1, must be … at least 0",
    "scheduler=chunked_prefill scheduler.max_batched_tokens=0": "max_batched_tokens is 0, must be … at least 1",
    "scheduler=merged_only replica.reserve=padded": "is padded, must be … for a scheduler that pauses requests",
    "system=slora_no_unify_mem scheduler=unmerged_only": "is contiguous, must be unified, partition or slots",
    "scheduler=static_batch +scheduler.round=3": "cannot be made: StaticBatch() got an unexpected … 'round'",
    "workload.ranks=[0]": "workload.ranks[0] is 0, must be a whole number",
    "slo.ttft_s=0": "slo.ttft_s is 0, must be greater than 0 seconds",
    "fast_forward=maybe": "fast_forward is 'maybe', must be true or false",
    "report=1": "report is 1, must be true or false",
    "loader=prefetching loader.depth=abc": "loader.depth is 'abc', must be a whole number",
    "scheduler._target_=fcfs": "scheduler._target_ is 'fcfs', must be a class in a module",
    "scheduler._target_=builtins.dict": "is builtins.dict, must be simlora.policies.scheduling.base.Scheduler",
    "workload._target_=builtins.dict": "workload._target_ is builtins.dict, must have build(seed)",
    "calibration=3": "calibration is 3, must be a name or the path of a YAML file",
    "calibration=null gpu=a40": "no calibration a40-llama_7b-tp1 (llama_7b on a40 with tp 1) … calibration=<path",
}
"""The same of mistakes that are found before a command has any part in it."""


def says(sentence: str, parts: str) -> bool:
    """Whether all parts stand in a sentence."""
    assert sentence.startswith("simlora: error: ")
    return all(part in sentence for part in parts.split(" … "))


@pytest.mark.parametrize("typed", CASES)
def test_one_sentence_and_nothing_left_behind(simlora, typed):
    before = simlora.files()
    ended = simlora(*SHORT, *typed.split(" "))
    assert (ended.status, ended.out) == (2, "")
    assert "Traceback" not in ended.sentence
    assert says(ended.sentence, CASES[typed]), ended.sentence
    assert simlora.files() == before


@pytest.mark.parametrize("typed", VALUES)
def test_a_value_that_cannot_be_is_said_plainly(simlora, typed):
    with pytest.raises(InputError) as refused:
        prepare(*composed(simlora.complete([*SHORT, *typed.split(" ")])))
    assert says(f"simlora: error: {refused.value}", VALUES[typed]), refused.value


FILES = {
    "a time that is none": (
        "workload=file workload.path=t.csv",
        "t.csv",
        f"{HEADER}\n0,a,8,10,5\ninf,a,8,10,5\n",
        "t.csv, row 3 … arrival_s",
    ),
    "an adapter's name that no file can hold": (
        "workload=file workload.path=t.jsonl",
        "t.jsonl",
        '{"arrival_s": 0, "adapter": "\\ud800", "rank": 8, "prompt_tokens": 5, "output_tokens": 5}',
        "t.jsonl, row 1",
    ),
    "an unknown key of a calibration": (
        "calibration=own.yaml",
        "own.yaml",
        CALIBRATION.replace("adapter_load:", "adaptor_load:"),
        "calibration own.yaml has an unknown key 'adaptor_load'",
    ),
    "a configuration that is no YAML": (
        "--config-dir mine system=ours",
        "mine/system/ours.yaml",
        "replica: {max_wait_tokens: [}\n",
        "ours.yaml is not valid YAML (line",
    ),
    "a time of day in a configuration": (
        "--config-dir mine system=ours",
        "mine/system/ours.yaml",
        "# @package _global_\nworkload: {duration_s: 1:30}\n",
        "workload.duration_s is '1:30', must be",
    ),
    "a number that begins with 0": (
        "--config-dir mine system=ours",
        "mine/system/ours.yaml",
        "# @package _global_\nworkload: {duration_s: 010}\n",
        "workload.duration_s is '010', must be",
    ),
}
"""What is typed, of which file, what is in it, and what the sentence says."""


@pytest.mark.parametrize("name", FILES)
def test_a_mistake_in_a_file_is_named_with_the_file_and_the_row_or_key(simlora, name):
    typed, path, text, said = FILES[name]
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_text(text)
    before = simlora.files()
    ended = simlora("report=false", *typed.split(" "))
    assert ended.status == 2
    assert says(ended.sentence, said), ended.sentence
    assert simlora.files() == before


def test_a_failed_run_leaves_earlier_results_alone(simlora):
    simlora(*SHORT, "hydra.run.dir=out")
    before = {path: (simlora.folder / path).read_bytes() for path in simlora.files() if path != "out"}
    assert simlora(*SHORT, "hydra.run.dir=out", "seed=-1").status == 2
    assert simlora(*SHORT, "hydra.run.dir=out", "replica.kv_token_budget=10").status == 2
    assert {path: (simlora.folder / path).read_bytes() for path in simlora.files() if path != "out"} == before


def test_a_folder_that_was_there_and_empty_stays(simlora):
    os.mkdir("out")
    assert simlora(*SHORT, "hydra.run.dir=out/a/b", "seed=-1").status == 2
    assert simlora.files() == ["out"]


def test_a_sweep_keeps_what_was_finished_before_a_mistake(simlora):
    ended = simlora("-m", *SHORT, "seed=1,-1", "hydra.sweep.dir=all")
    assert ended.status == 2
    assert sorted(os.listdir("all")) == ["0", "multirun.yaml"]


NINES, DEEP = "9" * 401, "[" * 3000 + "]" * 3000
LEVELS, MOST = "has more than 100 levels, must have fewer", "at most 999,999,999,999,999,999"
TOO_MUCH = {
    "workload.rate_rps=": (NINES, "workload.rate_rps is 999 … must be a number of at most 308 digits"),
    "seed=": (NINES, f"seed is 999 … {MOST}"),
    "gpu.memory_bytes=": (NINES, f"gpu.memory_bytes is 999 … {MOST}"),
    "cluster.replicas=": ("9" * 5000, "cluster.replicas has a number of 5000 digits, must have at most 640"),
    "slo={ttft_s:[1_": (f"{'9' * 5000}]}}", "slo has a number of 5001 digits, must have at most 640"),
    "parts=": (DEEP, f"parts {LEVELS}"),
    "-m parts=1,": (DEEP, f"parts {LEVELS}"),
    "--cfg job +parts=": (DEEP, f"parts {LEVELS}"),
    "seed=${": ("${" * 3000 + "}" * 3001, f"seed {LEVELS}"),
    "+a": (f"{'.a' * 3000}=1", f"a.a.a...' {LEVELS}"),
    "parts=[": (f"{'[' * 99}{']' * 100}", "parts has [[["),  # as many levels as are read
    "": (DEEP, f"[[[...' {LEVELS}"),
}


@pytest.mark.parametrize("typed", TOO_MUCH)
def test_what_is_too_deep_or_too_long_for_a_parser_or_a_float(simlora, typed):
    more, parts = TOO_MUCH[typed]
    ended = simlora(*SHORT, *f"{typed}{more}".split(" "))
    assert ended.status == 2
    assert says(ended.sentence, parts), ended.sentence
    assert simlora.files() == []


@pytest.mark.parametrize("command", [sweep, capacity], ids=["sweep", "capacity"])
def test_so_it_is_for_many_runs(simlora, command, capsys):
    assert command.main([f"parts={DEEP}", "--out=out"]) == 2
    assert f"parts {LEVELS}" in sentence(capsys)
    assert simlora.files() in ([], ["outputs", "outputs/cache"])


def test_what_simlora_trips_over_itself_keeps_its_traceback(simlora, monkeypatch):
    def broken(*given):
        raise AssertionError("an invariant is broken")

    monkeypatch.setattr("simlora.api.running._result", broken)
    with pytest.raises(AssertionError, match="an invariant is broken"):
        simlora(*SHORT, "hydra.run.dir=out")
    assert not os.path.exists("out")
