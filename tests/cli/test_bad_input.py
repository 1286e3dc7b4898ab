"""Bad input is one plain sentence, exit status 2, and nothing left behind."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from simlora.cli import capacity, sweep
from tests.cli.command import CALIBRATION, SHORT

HEADER = "arrival_s,adapter,rank,prompt_tokens,output_tokens\n"

CASES = {
    "gpu=a10x": "there is no gpu 'a10x'; did you mean … a10",
    "model=lama_7b": "there is no model 'lama_7b'; did you mean … llama_7b",
    "system=slor": "there is no system 'slor'; did you mean slora",
    "workload=azur": "there is no workload 'azur'",
    "workload=synthetic workload/popularity=zip": "there is no workload/popularity 'zip'; did you mean zipf?",
    "gpu=3": "gpu=3 is no choice; choose one of a10, ",
    "scheduler=null": "scheduler=null is no choice; choose one of adapter_clustering, chunked_prefill",
    "sede=1": "there is no key sede; did you mean seed",
    "scheduller=fcfs": "there is no key scheduller; did you mean scheduler",
    "max_wait_tokens=3": "there is no key max_wait_tokens; did you mean replica.max_wait_tokens?",
    "replica.max_wait_tokns=3": "no key replica.max_wait_tokns; did you mean replica.max_wait_tokens?",
    "+replica.max_wait_tokns=3": "no key replica.max_wait_tokns; did you mean replica.max_wait_tokens?",
    "workload.path=x.csv": "there is no key workload.path; workload has _target_, adapters, ranks",
    "loader.depth=3": "there is no key loader.depth; loader has _target_",
    "+slo.ttft=3": "there is no key slo.ttft; did you mean slo.ttft_s?",
    "workload/popularity=zipf": "workload/popularity has no place in this configuration",
    "+seed=3": "seed is there already; write seed=<value> without a +",
    "~seed": "seed was taken out of the configuration",
    "seed": "'seed' is no override, must be key=value",
    "seed=[1": "'seed=[1' cannot be read, must be key=value",
    "seed=1,2": "seed=1,2 is several values; add -m",
    "seed=": "seed is '', must be a whole number",
    "seed=null": "seed is empty, must be a whole number",
    "seed=abc": "seed is 'abc', must be a whole number, at least 0",
    "seed=-1": "seed is -1, must be a whole number, at least 0",
    "seed=1.5": "seed is 1.5, must be a whole number",
    f"cluster.replicas=1{'0' * 400}": "cluster.replicas is 1000 … at most 100,000",
    f"replica.kv_token_budget=1{'0' * 400}": "replica.kv_token_budget is 1000 … at most",
    "replica.block_size=1e30": "replica.block_size is … at most",
    "seed=${nope}": "seed cannot be resolved … nope",
    "seed=${oc.env:SIMLORA_NOT_SET}": "seed needs the environment variable SIMLORA_NOT_SET",
    "seed=???": "seed is not set, must be given as seed=<value>",
    "cluster.replicas=0": "cluster.replicas is 0, must be a whole number, at least 1",
    "cluster.replicas=1.5": "cluster.replicas is 1.5, must be a whole number",
    "cluster.replicas=abc": "cluster.replicas is 'abc', must be a whole number",
    "cluster=3": "cluster is 3, must have keys such as cluster.replicas=<value>",
    "replica=null": "replica is empty, must have keys such as",
    "replica.tp=3": "replica.tp is 3, must divide the 32 attention heads",
    "replica.tp=0": "replica.tp is 0, must be a whole number of GPUs, at least 1",
    "replica.kv_token_budget=abc": "replica.kv_token_budget is 'abc', must be a whole number",
    "replica.max_num_seqs=0": "replica.max_num_seqs is 0, must be a whole number of requests, at least 1",
    "replica.gpu_memory_utilization=1.5": "replica.gpu_memory_utilization is 1.5, must be",
    "replica.reserve=peek": "replica.reserve is 'peek'; did you mean peak?",
    "replica.target_modules=[x]": "target module 'x' is unknown",
    "replica.target_modules=[[q]]": "is unknown; choose one of",
    "replica={foo:2}": "there is no key replica.foo; replica has",
    "replica.target_modules=q": "replica.target_modules is 'q', must be a list",
    "model=llama_2_70b": "llama_2_70b needs 138.0 GB of weights on 1 x a10g … use a larger GPU or replica.tp",
    "cluster.engines_per_gpu=0": "cluster.engines_per_gpu is 0, must be a whole number … at least 1",
    "cluster.engines_per_gpu=null": "cluster.engines_per_gpu is empty, must be a whole number",
    f"cluster.engines_per_gpu=1{'0' * 400}": "cluster.engines_per_gpu is 1000 … at most 100,000",
    "cluster.engines_per_gpu=2": "2 copies of llama_7b … 13.5 GB … 1.3 GB for activations … has 10.8 GB; at most 1 fit",
    "cluster.engines_per_gpu=2 replica.kv_token_budget=9000": "calibration cal.yaml has no host.intercept_s",
    "replica.tp=2": "calibration cal.yaml is for tp 1, must be for replica.tp 2",
    "scheduler=chunked_prefill replica.reserve=padded": "padded, must be full, peak or paged where prompts come",
    "cluster.memory_shares=rates": "cluster.memory_shares is 'rates'; did you mean rate?",
    "cluster.memory_shares=null": "cluster.memory_shares is empty; choose one of equal, rate",
    "+cluster.engines=2": "there is no key cluster.engines; cluster has replicas, engines_per_gpu",
    "replica.max_loras=0": "replica.max_loras is 0, must be a whole number of adapters, at least 1",
    "replica.max_loras=few": "replica.max_loras is 'few', must be a whole number",
    "replica.reserve=pad": "replica.reserve is 'pad'; did you mean paged or padded or peak?",
    "replica.activation_bytes=-1": "replica.activation_bytes is -1 … at least 0 and at most 1,000,000,000,000",
    "replica.activation_bytes=null": "replica.activation_bytes is empty, must be a whole number of bytes",
    f"replica.activation_bytes=1{'0' * 400}": "replica.activation_bytes is 1000 … at most",
    "replica.activation_bytes=9e9": "llama_7b needs 13.5 GB of weights … 9.0 GB a GPU of it for activations",
    "replica.adapter_memory=contigous": "replica.adapter_memory is 'contigous'; did you mean contiguous?",
    "replica.adapter_memory=null": "replica.adapter_memory is None; choose one of contiguous, padded",
    "replica.adapter_memory=contiguous": "calibration cal.yaml has no adapter_load.flush_s",
    "replica.adapter_memory=contiguous eviction=lru": "contiguous needs eviction=on_demand",
    "replica.adapter_memory=padded eviction=latest": "padded needs eviction=on_demand",
    "replica.adapter_memory=padded loader=prefetching": "padded needs a loader that does not prefetch",
    "replica.adapter_memory=padded replica.kv_token_budget=0": "replica.kv_token_budget is 0, must be",
    "replica.adapter_memory=padded replica.adapter_region_tokens=9": "does not fit replica.adapter_region_",
    "replica.adapter_memory=padded replica.kv_token_budget=99999999": "leaves nothing of the GPU's 13014 ",
    "replica.adapter_region_tokens=-1": "replica.adapter_region_tokens is -1 … token slots, at least 0",
    "replica.adapter_region_tokens=1e30": "replica.adapter_region_tokens is … at most 1,000,000,000,000",
    "replica.adapter_region_share=1": "replica.adapter_region_share is 1, must be … at most 0.99 of the slots",
    "replica.adapter_region_share=half": "replica.adapter_region_share is 'half', must be a finite number",
    "engine=a-b": "engine is 'a-b', must be the name of a serving engine, or null",
    "engine=3": "engine is 3, must be the name of a serving engine, or null",
    "calibration=null engine=vllm_pcked": "vllm_pcked … did you mean a10g-llama_7b-tp1-vllm_packed",
    "calibration=null system=vllm_packed": "200 copies of llama_7b … 0.5 GB for activations, and has 0.1 GB",
    "calibration=null system=vllm_packed workload.adapters=0": "cluster.engines_per_gpu is 0, must be",
    "scheduler=merged_per_batch": "calibration cal.yaml has no merge.intercept_s, which this run needs",
    "kernel=padded_bmm": "calibration cal.yaml has no kernels.padded_bmm.decode.intercept_s",
    "scheduler=early_abort scheduler.slo_s=0": "scheduler.slo_s is 0, must be greater than 0 seconds",
    "scheduler=early_abort scheduler.margin_s=7": "scheduler.margin_s is 7, must be … at most 6.0 seconds",
    "system=slora_early_abort slo.ttft_s=null": "scheduler.slo_s is empty, must be a finite number",
    "scheduler=adapter_clustering scheduler.clusters=0": "clusters is 0, must be a whole number … at least 1",
    "scheduler=merged_per_batch scheduler.most_others=-1": "most_others is -1, must be … at least 0",
    "scheduler=chunked_prefill scheduler.max_batched_tokens=0": "max_batched_tokens is 0, must be … at least 1",
    "scheduler=merged_only replica.reserve=padded": "is padded, must be … for a scheduler that pauses requests",
    "system=slora_no_unify_mem scheduler=unmerged_only": "is contiguous, must be unified, partition or slots",
    "scheduler=credit scheduler.constants=code": "scheduler.constants is 'code'",
    "replica.full_copies=true": "replica.full_copies is true, which needs",
    "scheduler=static_batch +scheduler.round=3": "cannot be made: StaticBatch() got an unexpected … 'round'",
    "workload.ranks=[0]": "workload.ranks[0] is 0, must be a whole number",
    "workload.ranks=[10000]": "workload.ranks[0] is 10000, must be a whole number",
    "slo.ttft_s=0": "slo.ttft_s is 0, must be greater than 0 seconds",
    "slo.ttft_s=abc": "slo.ttft_s is 'abc', must be a finite number",
    "fast_forward=maybe": "fast_forward is 'maybe', must be true or false",
    "report=1": "report is 1, must be true or false",
    "progress=often": "progress is 'often', must be true or false",
    "loader=prefetching loader.depth=abc": "loader.depth is 'abc', must be a whole number",
    "+scheduler.depth=3": "scheduler cannot be made: Fcfs() got an unexpected keyword argument 'depth'",
    "scheduler._target_=nowhere.Mine": "is nowhere.Mine … no module nowhere in the current folder",
    "scheduler._target_=json.Mine": "scheduler._target_ is json.Mine, which cannot be imported",
    "scheduler._target_=fcfs": "scheduler._target_ is 'fcfs', must be a class in a module",
    "scheduler._target_=a..b": "scheduler._target_ is 'a..b', must be a class in a module",
    "scheduler._target_=builtins.dict": "is builtins.dict, must be simlora.policies.scheduling.base.Scheduler",
    "router._target_=os.getcwd": "is os.getcwd, must be simlora.policies.routing.base.Router or a class below",
    "workload._target_=builtins.dict": "workload._target_ is builtins.dict, must have build(seed)",
    "kernel=bgmv": "calibration cal.yaml has no kernels.bgmv.decode.intercept_s",
    "calibration=nowhere.yaml": "calibration nowhere.yaml cannot be read: No such file",
    "calibration=a10g_llama": "there is no calibration 'a10g_llama'",
    "calibration=''": "there is no calibration ''; choose one of",
    "calibration=3": "calibration is 3, must be a name or the path of a YAML file",
    "calibration=null gpu=a40": "no calibration a40-llama_7b-tp1 (llama_7b on a40 with tp 1) … calibration=<path",
    "replica.kv_token_budget=10": "every one of the 40 requests is rejected … do not fit replica.kv_token_budget 10",
    "hydra.run.dir=": "hydra.run.dir is empty",
    "hydra.run.dir=${nope}": "hydra.run.dir cannot be resolved",
    "hydra.run.dir=null": "hydra.run.dir=null cannot be",
    "hydra.run.dir=/proc/simlora": "cannot write results to /proc/simlora",
    "hydra.run.dir=/proc": "cannot write results to /proc",
    "hydra.run.dir=/dev/full": "cannot write results to /dev/full",
    "hydra.run.dir=cal.yaml": "cannot write results to cal.yaml",
    "hydra.run.dir=cal.yaml/out": "cannot write results to cal.yaml/out",
    "--sede=3": "there is no option --sede=3; keys are written without dashes",
    "--cfg": "argument --cfg/-c: expected one argument",
    "--experimental-rerun=x": "would unpickle a file",
    "--config-dir nowhere": "--config-dir 'nowhere' is no folder",
    "--config-name nowhere": "there is no configuration 'nowhere'",
    "-m gpu=a10x,a10g": "there is no gpu 'a10x'",
    "-m cluster.replicas=0,1": "cluster.replicas is 0",
}
"""What is typed, and what the sentence has to say of it, its parts apart by an ellipsis."""


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


TRACES = {
    "": "t.csv is empty",
    HEADER + "0,a,8,10,5\ninf,a,8,10,5\n": "t.csv, row 3 … arrival_s",
    HEADER + "0,a,8,10,5\n1,a,16,10,5\n": "t.csv, row 3 … adapter 'a' has rank 16, but rank 8 in row 2",
    HEADER + "0,a,8,999999,5\n": "every one of the 1 requests is rejected (t.csv) … prompt of 999999 tokens",
}


@pytest.mark.parametrize("text", TRACES)
def test_a_bad_trace_is_named_with_its_row(simlora, text):
    Path("t.csv").write_text(text)
    ended = simlora("report=false", "workload=file", "workload.path=t.csv")
    assert ended.status == 2
    assert says(ended.sentence, TRACES[text]), ended.sentence
    assert simlora.files() == ["t.csv"]


def test_an_adapter_name_that_no_file_can_hold(simlora):
    row = '{"arrival_s": 0, "adapter": "\\ud800", "rank": 8, "prompt_tokens": 5, "output_tokens": 5}'
    Path("t.jsonl").write_text(row)
    assert "t.jsonl, row 1" in simlora("workload=file", "workload.path=t.jsonl").sentence


def test_a_trace_that_is_not_there(simlora):
    assert "workload.path is not set" in simlora("workload=file").sentence
    assert "nowhere.csv does not exist" in simlora("workload=file", "workload.path=nowhere.csv").sentence
    assert simlora.files() == []


BOMB = "n0: &n0 [1, 1]\n" + "".join(f"n{i + 1}: &n{i + 1} [*n{i}, *n{i}]\n" for i in range(20))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (CALIBRATION.replace("adapter_load:", "adaptor_load:"), "has an unknown key 'adaptor_load'"),
        (CALIBRATION.replace("gpu: a10g", "gpu: ["), "is not valid YAML (line"),
        (BOMB, "has more than 100,000 values where aliases"),
    ],
    ids=["a wrong key", "no YAML", "more than memory holds"],
)
def test_a_bad_calibration_is_named(simlora, text, said):
    Path("cal.yaml").write_text(text)
    ended = simlora(*SHORT)
    assert ended.status == 2
    assert ended.sentence.startswith(f"simlora: error: calibration cal.yaml {said}")
    assert simlora.files() == []


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


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("replica: {max_wait_tokens: [}\n", "ours.yaml is not valid YAML (line"),
        (BOMB, "ours.yaml has more than 100,000 values where aliases"),
        ("seed: 1\nseed: 2\n", "ours.yaml has the key seed twice"),
        ("workload: {duration_s: 1:30}\n", "workload.duration_s is '1:30', must be"),
        ("workload: {duration_s: 010}\n", "workload.duration_s is '010', must be"),
    ],
    ids=["no YAML", "more than memory holds", "a key twice", "a time of day", "a number that begins with 0"],
)
def test_a_mistake_in_a_configuration_file_of_the_users_own(simlora, text, said):
    os.makedirs("mine/system")
    Path("mine/system/ours.yaml").write_text(f"# @package _global_\n{text}")
    ended = simlora("report=false", "--config-dir", "mine", "system=ours")
    assert ended.status == 2
    assert said in ended.sentence


def test_a_number_that_begins_with_0_is_none_on_the_command_line_either(simlora):
    assert "workload.duration_s is '010', must be" in simlora("workload.duration_s=010").sentence


NINES, DEEP = "9" * 401, "[" * 3000 + "]" * 3000
LEVELS, MOST = "has more than 100 levels, must have fewer", "at most 999,999,999,999,999,999"
TOO_MUCH = {
    "workload.rate_rps=": (NINES, "workload.rate_rps is 999 … must be a number of at most 308 digits"),
    "slo.ttft_s=": (NINES, "slo.ttft_s is 999 … must be a number of at most 308 digits"),
    "workload.duration_s=-": (NINES, "workload.duration_s is -999 … of at most 308 digits"),
    "seed=": (NINES, f"seed is 999 … {MOST}"),
    "gpu.memory_bytes=": (NINES, f"gpu.memory_bytes is 999 … {MOST}"),
    "model.vocab=": (NINES, f"model.vocab is 999 … {MOST}"),
    "replica.max_num_seqs=": (NINES, f"replica.max_num_seqs is 999 … {MOST}"),
    "workload.bos_tokens=": (NINES, "workload.bos_tokens is 999 … at most 1,000,000,000"),
    "cluster.replicas=": ("9" * 5000, "cluster.replicas has a number of 5000 digits, must have at most 640"),
    "slo={ttft_s:[1_": (f"{'9' * 5000}]}}", "slo has a number of 5001 digits, must have at most 640"),
    "parts=": (DEEP, f"parts {LEVELS}"),
    "-m parts=1,": (DEEP, f"parts {LEVELS}"),
    "--cfg job +parts=": (DEEP, f"parts {LEVELS}"),
    "seed=${": ("${" * 3000 + "}" * 3001, f"seed {LEVELS}"),
    "+a": (f"{'.a' * 3000}=1", f"a.a.a...' {LEVELS}"),
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
    for typed, part in {
        f"parts={DEEP}": f"parts {LEVELS}",
        f"cluster.replicas={'9' * 5000}": "cluster.replicas has a number of 5000 digits",
        f"workload.duration_s={NINES}": "workload.duration_s is 999",
    }.items():
        assert command.main([typed, "--out=out"]) == 2
        said = capsys.readouterr().err
        assert part in said
        assert said.count("\n") == 1
        assert simlora.files() in ([], ["outputs", "outputs/cache"])


def test_as_many_levels_as_can_be_are_read(simlora):
    assert "parts has [[[" in simlora(*SHORT, f"parts={'[' * 100}{']' * 100}").sentence


def test_what_simlora_trips_over_itself_keeps_its_traceback(simlora):
    Path("breaking.py").write_text(
        "from simlora.api import running\n"
        "from simlora.policies.routing.most_idle import MostIdle as Fine\n"
        "def broken(*given):\n"
        "    raise AssertionError('an invariant is broken')\n"
        "running._result = broken\n"
    )
    ended = simlora.apart(*SHORT, "router._target_=breaking.Fine", "hydra.run.dir=out")
    assert ended.status == 1
    assert "Traceback" in ended.err
    assert not os.path.exists("out")


def test_from_a_shell_it_is_one_sentence_too(simlora):
    ended = simlora.apart("gpu=a10x")
    assert ended.status == 2
    assert ended.sentence.startswith("simlora: error: there is no gpu 'a10x'")
