"""What each command says when it is asked how to be used, and when it is used otherwise."""

import json
from importlib import import_module

import pytest

from tests.cli.command import COMMANDS, sentence

TOLD = {
    "simlora": "seed= fast_forward= calibration= cluster.replicas= hydra.run.dir= replica.kv_token_budget= "
    "replica.max_num_seqs= replica.max_num_batched_tokens= replica.max_wait_tokens= replica.reserve=",
    "simlora-sweep": "examples --seeds --against --backend SIMLORA_CACHE_DIR sweep.parquet",
    "simlora-capacity": "examples --replicas --limit SIMLORA_CACHE_DIR capacity.json",
    "simlora-report": "examples --x --by --figure --out simlora-sweep requests.parquet",
    "simlora-trace": "examples list show info convert --format --picture seed=N import --map --ranks --base-model "
    "--failed --rate",
}
GROUPS = ("system", "model", "gpu", "workload", "scheduler", "loader", "eviction", "kernel", "router")


@pytest.mark.parametrize("command", TOLD)
def test_help_teaches_and_writes_nothing(command, simlora, capsys):
    assert import_module(COMMANDS[command]).main(["--help"]) == 0
    out = capsys.readouterr().out
    assert [word for word in TOLD[command].split() if word not in out] == []
    assert [group for group in GROUPS if command == "simlora" and f"\n{group}: " not in out] == []
    assert simlora.files() == []


def test_so_does_a_version(simlora):
    ended = simlora("--version")
    assert (ended.status, ended.out.partition(" ")[0], simlora.files()) == (0, "simlora", [])


PLAN = (
    "model=llama_3_1_8b",
    "workload=per_adapter",
    "workload.adapters=8",
    "workload.duration_s=60",
    "--gpus=l40s",
)
USUAL = {
    "plan": (*PLAN, "workload.rates_rps=[0.2]", "slo.ttft_s=2", "--tp=1", "--seeds=1", "--jobs=1"),
    "serve": ("gpu=a10g", "model=llama_7b", "workload.duration_s=3", "report=false"),
}
"""What is typed before the mistake."""
A_HOST = "and a host, without a path, such as http://localhost:8000"
NO_HOSTS = ("http://", "http://[::1", "http://a:99999", "http://a/v1")
LOG = {"time": 1_769_860_800, "model": "sql", "usage": {"prompt_tokens": 10, "completion_tokens": 4}}
FILES = {
    "log.jsonl": json.dumps(LOG),
    "ranks.csv": "adapter,rank\nsql,16\n",
    "own.csv": "arrival_s,adapter,rank,prompt_tokens,output_tokens\n0,a,8,100,20\n",
    "sums.json": json.dumps({"request_throughput": 3.0, "total_input_tokens": 9}),
}
"""What is there already."""
MISTAKES = {
    "capacity --limit=ttft_s.p95": "--limit 'ttft_s.p95' must be NAME=VALUE, such as ttft_s.p95=10",
    "capacity --limit=ttft_s.p95=soon": "--limit ttft_s.p95 is 'soon', must be a number",
    "capacity --replicas --key=workload.adapters": "--replicas and --key cannot be given together",
    "capacity --limit=ttft_s.p95=1 --limit=ttft_s.p95=2": "--limit is given twice for ttft_s.p95",
    "plan --price=l40s=1 --tp=two": "--tp is 'two', must be a number",
    "serve --speed 0": "--speed is 0.0, must be greater than 0 simulated seconds a second",
    "serve --port 70000": "--port is 70000, must be a whole number, at least 0 and at most 65,535",
    "serve --port 0 --record seen.parquet": "--record seen.parquet has the suffix '.parquet', must be .csv",
    "serve --port 0 --results ranks.csv/out": "--results ranks.csv/out cannot be written: Not a directory",
    "serve --max-model-len 1000000": "--max-model-len is 1000000, must be a whole number of tokens, as KV has room",
    "serve --port 0 --record no/such/seen.csv": "--record no/such/seen.csv cannot be written",
    "serve --tokenizer none.json": "--tokenizer none.json is no file, must be a tokenizer.json",
    "serve --host no.such.host.invalid --port 0": "cannot listen on no.such.host.invalid port 0",
    "serve until_s=5": "until_s ends a run at a time, and a server runs until it is stopped",
    "serve until_missed=0.5": "until_missed counts the requests of a trace",
    "serve --replay own.csv": "give --results",
    "serve --replay own.csv --results again --speed 10": "--speed is of no use with --replay",
    "serve --replay gone.csv --results again": "gone.csv does not exist",
    "serve --per-replica host.replicas=2 cluster.replicas=2": "your router, which needs host.replicas=1",
    "calibrate list h900": "no calibration has h900 in its name",
    "calibrate show": "show takes the name of one calibration",
    "calibrate show l40s-mistral_7b-tp2-vlm": "did you mean l40s-mistral_7b-tp2-vllm",
    "calibrate derive --gpu l40s": "needs --model",
    "calibrate derive --gpu l4os --model mistral_7b": "did you mean l40s",
    "calibrate derive --gpu npu_64g --model mistral_7b": "kernels of npu_64g are not known",
    "calibrate derive --gpu l40s --model mistral_7b --tp 0": "--tp is 0, must be at least 1",
    "trace import": "simlora-trace import needs LOG; see simlora-trace --help",
    "trace import gone.csv": "gone.csv does not exist",
    "trace import .": ". is a folder, must be a file",
    "trace import log.jsonl a.csv b.csv": "simlora-trace import takes no 'b.csv'",
    "trace import log.jsonl out.txt": "out.txt has the suffix '.txt', must be one of .csv, .parquet, .jsonl",
    "trace import log.jsonl log.jsonl": "log.jsonl is the log to be read, must be another",
    "trace import log.jsonl --rank=x": "--rank is 'x', must be a whole number, at least 1 and at most 1,024",
    "trace import log.jsonl --picture=a.png": "simlora-trace import draws no picture; simlora-trace info does",
    "trace import log.jsonl --rate=0": "--rate is 0, must be greater than 0 requests per second",
    "trace import log.jsonl --rank=8 --ranks=ranks.csv": "--ranks and --rank both say which rank an adapter has",
    "trace import log.jsonl --failed=drp": "--failed is 'drp'; did you mean drop?",
    "trace import log.jsonl --map=arrival": "--map has 'arrival', must be ours=theirs, such as arrival=timestamp",
    "trace import log.jsonl --map=arival=time": "--map has no column 'arival' of ours; did you mean arrival?",
    "trace lst": "there is no command 'lst'; did you mean list",
    "trace show": "simlora-trace show needs NAME; see simlora-trace --help",
    "trace show mooncak": "there is no trace 'mooncak' in the catalogue; did you mean mooncake?",
    "trace list all": "simlora-trace list takes no 'all'",
    "trace info": "simlora-trace info needs FILE",
    "trace info own.csv --format=azure": "there is no format 'azure'; did you mean azure_llm_20",
    "trace info own.csv --format=burstgpt": "own.csv has a column 'arrival_s', which is unknown",
    "trace info own.csv --picture=own.txt": "--picture is 'own.txt', must end in .png, .svg or .pdf",
    "trace info own.csv --picture=no/own.png": "no/own.png cannot be written: No such file or",
    "trace info own.csv system=dlora": "'system=dlora' changes no trace, must be a key of its",
    "trace info own.csv seed=-1": "seed is -1, must be a whole number, at least 0",
    "trace convert own.csv": "simlora-trace convert needs FILE and OUT",
    "trace convert own.csv own.csv": "own.csv is the file to be read, must be another",
    "trace convert own.csv out.txt": "out.txt has the suffix '.txt', must be one of .csv, ",
    "trace convert own.csv no/out.csv": "no/out.csv cannot be written: ",
    "trace convert ranks.csv out.csv": "ranks.csv has the columns adapter, rank, which are those of no trace",
    "check Mine": "Mine has no module",
    "check nowhere.Mine": "nowhere.Mine cannot be imported from this folder",
    "check simlora.core.request.Reqest": "simlora.core.request has no Reqest",
    "check simlora.core.request.Request": "is no policy, must be a class below one of",
    "check simlora.policies.scheduling.credit.Credit alpha=-1": "could not be tried at all",
    "record trace.csv --upstream localhost:8000": "--upstream localhost:8000 must be http://",
    **{f"record trace.csv --upstream {address}": A_HOST for address in NO_HOSTS},
    "record trace.txt --upstream http://a": "trace.txt has the suffix '.txt'",
    "record no/trace.csv --upstream http://a --port 0": "cannot be written: No such file",
    "report nowhere": "nowhere does not exist, must be the folder of a run or of a sweep",
    "validate none.json": "none.json does not exist",
    "validate sums.json": "sums.json has 1 fault, which stands in the table above; nothing was written",
    "sweep --out=~nouser/x": "'~nouser/x' cannot be used as a path",
    "capacity system=slora,vllm": "the sides differ in gpu: a10g (slora), h100_64g (vllm); and in model: ",
    "capacity workload.rate_rps=1,2": "workload.rate_rps is what is searched for; give it",
}


@pytest.mark.parametrize("typed", MISTAKES)
def test_a_mistake_is_a_sentence_and_leaves_nothing(typed, at_home, capsys):
    for name, text in FILES.items():
        (at_home / name).write_text(text)
    command, *words = typed.split(" ")
    assert import_module(COMMANDS[f"simlora-{command}"]).main([*USUAL.get(command, ()), *words]) == 2
    assert MISTAKES[typed] in sentence(capsys)
    paths = (path for path in at_home.rglob("*") if path.is_file() and "cache" not in path.parts)
    assert {path.name: path.read_text() for path in paths} == FILES


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("capacity --find=rate", "unrecognized arguments: --find=rate"),
        ("capacity --seed=2", "unrecognized arguments: --seed=2"),
        ("trace list --all", "usage: simlora-trace"),
        ("trace", "usage: simlora-trace"),
        ("report", "usage: simlora-report"),
    ],
)
def test_unknown_options_and_missing_words_are_answered_with_the_usage(typed, said, capsys):
    command, *words = typed.split(" ")
    assert import_module(COMMANDS[f"simlora-{command}"]).main(words) == 2
    assert said in capsys.readouterr().err
