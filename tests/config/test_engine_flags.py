"""The flags of real engines, as their users type them."""

import shlex

import pytest

from simlora.config.engine_flags import (
    PREFIX_CACHING,
    RANKS,
    allowed_rank,
    command,
    context,
    deployment,
    model_named,
    started,
    words,
)
from simlora.core.errors import InputError

SETTINGS = {
    "replica.tp": 2,
    "replica.max_loras": 16,
    "replica.max_lora_rank": 32,
    "replica.max_cpu_loras": 60,
    "replica.max_num_seqs": 256,
    "scheduler.max_batched_tokens": 2048,
    "replica.gpu_memory_utilization": 0.9,
    "replica.prefix_caching": True,
}


def test_vllm_is_started_with_the_flags_of_the_settings():
    assert command("vllm", "llama_3_1_8b", SETTINGS) == (
        "vllm serve meta-llama/Llama-3.1-8B-Instruct --enable-lora --tensor-parallel-size 2 --max-loras 16 "
        "--max-lora-rank 32 --max-cpu-loras 60 --max-num-seqs 256 --max-num-batched-tokens 2048 "
        "--gpu-memory-utilization 0.9 --enable-prefix-caching"
    )


@pytest.mark.parametrize(
    ("named", "ours"),
    [
        ("meta-llama/Llama-3.1-8B-Instruct", "llama_3_1_8b"),
        ("llama-2-7b-hf", "llama_2_7b"),
        ("acme/sql-adapter", None),
    ],
)
def test_a_model_is_known_by_the_names_that_people_have_for_it(named, ours):
    assert model_named(named) == ours


def test_sglang_s_share_of_memory_is_without_activations_and_its_cache_is_on_unless_it_is_disabled():
    words = shlex.split(command("sglang", "qwen3_8b", SETTINGS, activation_share=0.05))
    assert words[:5] == ["python", "-m", "sglang.launch_server", "--model-path", "Qwen/Qwen3-8B"]
    assert words[words.index("--mem-fraction-static") + 1] == "0.85"
    assert words[words.index("--max-loras-per-batch") + 1] == "16"
    assert "--disable-radix-cache" not in words
    assert "--disable-radix-cache" in command(
        "sglang", "qwen3_8b", SETTINGS | {"replica.prefix_caching": False}
    )


@pytest.mark.parametrize(("rank", "flag"), [(1, 8), (8, 8), (9, 16), (64, 64), (100, 128), (512, 512)])
def test_an_engine_takes_the_lowest_of_its_ranks_that_holds_an_adapter_s(rank, flag):
    assert allowed_rank(rank) == flag


def test_a_rank_above_all_and_a_system_without_flags_are_refused():
    with pytest.raises(InputError, match=f"rank 600; engines take ranks up to {RANKS[-1]}"):
        allowed_rank(600)
    with pytest.raises(InputError, match="flags of slora are not known"):
        command("slora", "llama_7b", SETTINGS)


def test_a_deployment_has_the_replicas_their_gpus_and_the_command():
    tree = deployment("vllm", "llama_3_1_8b", words("vllm", "llama_3_1_8b", SETTINGS), replicas=3, gpus=2)
    container = tree["spec"]["template"]["spec"]["containers"][0]
    assert tree["spec"]["replicas"] == 3
    assert container["resources"]["limits"]["nvidia.com/gpu"] == 2
    assert shlex.join(container["command"]) == command("vllm", "llama_3_1_8b", SETTINGS)
    assert tree["metadata"]["name"] == "vllm-llama-3-1-8b", "a name that Kubernetes takes"
    assert container["image"] == "vllm/vllm-openai:v0.11.0"
    assert [each["name"] for each in container["env"]] == ["HF_TOKEN", "VLLM_ALLOW_RUNTIME_LORA_UPDATING"]


@pytest.mark.parametrize(
    ("model", "longest", "kv_tokens", "tokens"),
    [
        ("llama_3_1_8b", 1000, 100_000, 1024),
        ("llama_3_1_8b", 60_000, 25_502, 25_344),
        ("llama_2_7b", 6_600, 100_000, 4096),
        ("of_my_own", 6_600, 100_000, 6656),
    ],
)
def test_requests_may_be_as_long_as_window_and_kv_allow(model, longest, kv_tokens, tokens):
    assert context(model, longest, kv_tokens) == tokens


@pytest.mark.parametrize(("gpus", "shared"), [(1, False), (2, True)])
def test_gpus_of_one_replica_share_memory(gpus, shared):
    pod = deployment("sglang", "llama_3_1_8b", words("sglang", "llama_3_1_8b", SETTINGS), 1, gpus)["spec"][
        "template"
    ]["spec"]
    assert ("volumes" in pod) is shared
    assert ("volumeMounts" in pod["containers"][0]) is shared
    assert pod["containers"][0]["command"][-2:] == ["--host", "0.0.0.0"], (
        "it listens to itself alone by default"
    )
    assert pod["containers"][0]["readinessProbe"]["httpGet"] == {"path": "/health", "port": 30000}


def test_a_command_is_read_back_as_its_settings():
    found = started(command("vllm", "llama_3_1_8b", SETTINGS) + " --port 8000 --max-model-len=8192")
    assert (found.engine, found.model) == ("vllm", "meta-llama/Llama-3.1-8B-Instruct")
    assert found.settings == SETTINGS
    assert found.unknown == ("--port 8000", "--max-model-len 8192")
    assert found.left == ()


def test_what_a_command_does_not_say_is_the_engine_s_own_default_or_left():
    found = started("python -m vllm.entrypoints.openai.api_server --model my/own --enable_lora --max_loras 4")
    assert found.model == "my/own"
    assert found.settings == {
        "replica.tp": 1,
        "replica.max_loras": 4,
        "replica.max_lora_rank": 16,
        "replica.gpu_memory_utilization": 0.9,
        "replica.max_cpu_loras": 4,
        "replica.prefix_caching": True,
    }
    assert found.left == ("replica.max_num_seqs", "scheduler.max_batched_tokens")


@pytest.mark.parametrize(
    ("text", "engine"),
    [
        ("CUDA_VISIBLE_DEVICES=0 VLLM_USE_V1=1 vllm serve m/one --max-loras 4", "vllm"),
        ("env A=1 vllm serve m/one", "vllm"),
        ("docker run --gpus all -p 8000:8000 vllm/vllm-openai:latest --model m/one --max-loras 4", "vllm"),
        ("docker run vllm/vllm-openai:v0.11.0 m/one --max-loras 4", "vllm"),
        ("docker run lmsysorg/sglang python3 -m sglang.launch_server --model-path m/one", "sglang"),
    ],
)
def test_a_command_may_be_in_an_environment_or_a_container(text, engine):
    found = started(text)
    assert (found.engine, found.model) == (engine, "m/one")
    assert "--max-loras" not in text or found.settings["replica.max_loras"] == 4


@pytest.mark.parametrize(
    ("text", "model", "tp", "unknown"),
    [
        ("vllm serve m/one --disable-log-requests -tp 2", "m/one", 2, ("--disable-log-requests",)),
        ("vllm serve --model m/one --lora-modules a=/x b=/y", "m/one", 1, ("--lora-modules a=/x b=/y",)),
        ("vllm serve --port 8000 m/one -tp=4 --seed -1", "m/one", 4, ("--port 8000", "--seed -1")),
        ("python3 -m sglang.launch_server --model m/one --tp 2", "m/one", 2, ()),
    ],
)
def test_flags_have_several_spellings_and_some_have_several_values(text, model, tp, unknown):
    found = started(text)
    assert (found.model, found.settings["replica.tp"], found.unknown) == (model, tp, unknown)


def test_sglang_s_command_is_read_with_its_share_of_memory_as_simlora_means_it():
    text = command("sglang", "qwen3_8b", SETTINGS | {PREFIX_CACHING: False}, activation_share=0.05)
    found = started(text, activation_share=0.05)
    assert found.settings["replica.gpu_memory_utilization"] == 0.9
    assert found.settings[PREFIX_CACHING] is False


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("python serve.py", "starts no engine whose flags are known"),
        ("vllm serve 'unclosed", "cannot be read as a shell's line"),
        ("vllm serve m --max-loras many", "has --max-loras many, must be a number"),
    ],
)
def test_a_command_that_cannot_be_read_is_refused(text, said):
    with pytest.raises(InputError, match=said):
        started(text)
