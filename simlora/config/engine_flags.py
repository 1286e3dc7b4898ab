"""The flags of real engines: which key of simlora's each one is, and the command that starts such an engine."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from simlora.core.errors import InputError, nearest

PREFIX_CACHING = "replica.prefix_caching"
MEMORY = "replica.gpu_memory_utilization"
TODAY = "replica.adapter_tokenizers=false"
"""vLLM from 0.11 on; before, the first request of each adapter waits until its tokenizer is read."""
WITHOUT_LORA = (
    "kernel=merged",
    "eviction=lru",
    "replica.adapter_memory=unified",
    "replica.max_loras=null",
)
"""An engine that is started without LoRA: no slots, and no kernels."""
OF_LORA = ("replica.max_loras", "replica.max_lora_rank", "replica.max_cpu_loras")
CONTEXT_STEP = 256
"""Tokens to a multiple of which the longest request is rounded up."""
RANKS = (8, 16, 32, 64, 128, 256, 320, 512)
"""Values that vLLM's --max-lora-rank may have (vllm/config/lora.py, MaxLoRARanks)."""
NIXL = ("--kv-transfer-config", '{"kv_connector":"NixlConnector","kv_role":"kv_both"}')
"""vLLM's connector between engines that prefill and decode, which a proxy tells apart."""


@dataclass(frozen=True)
class Engine:
    """How an engine is started: the words before its flags, and its flags by simlora's keys.

    `image`, its `tag`, the `port` and what lets it `listen` to others are of its container. `lora` are words that
    serving adapters needs, `environment` are variables that it needs to load them while it runs, and `adapters` says
    how they are named to it. `context` is the flag of the longest request. `module` and `model_flag` are in a command
    that starts it as a module; `spellings` are other names of flags; `defaults` are the engine's own values, by
    simlora's keys, where they are the same on every GPU. `pools` are the words of an engine that only prefills, and of
    one that only decodes. `caches` is whether it caches prefixes without being told.
    """

    start: tuple[str, ...]
    always: tuple[str, ...]
    lora: tuple[str, ...]
    context: str
    flags: Mapping[str, str]
    prefix_caching: Mapping[bool, tuple[str, ...]]
    image: str
    tag: str
    port: int
    listen: tuple[str, ...]
    environment: Mapping[str, str]
    adapters: str
    module: str
    model_flag: str
    spellings: Mapping[str, str]
    defaults: Mapping[str, Any]
    pools: tuple[tuple[str, ...], tuple[str, ...]]
    caches: bool = True


ENGINES = {
    "vllm": Engine(
        start=("vllm", "serve", "{model}"),
        always=(),
        lora=("--enable-lora",),
        context="--max-model-len",
        flags={
            "replica.tp": "--tensor-parallel-size",
            "replica.max_loras": "--max-loras",
            "replica.max_lora_rank": "--max-lora-rank",
            "replica.max_cpu_loras": "--max-cpu-loras",
            "replica.max_num_seqs": "--max-num-seqs",
            "scheduler.max_batched_tokens": "--max-num-batched-tokens",
            MEMORY: "--gpu-memory-utilization",
        },
        prefix_caching={True: ("--enable-prefix-caching",), False: ("--no-enable-prefix-caching",)},
        image="vllm/vllm-openai",
        tag="v0.11.0",
        port=8000,
        listen=(),
        environment={"VLLM_ALLOW_RUNTIME_LORA_UPDATING": "True"},
        adapters="--lora-modules NAME=PATH …, or POST /v1/load_lora_adapter with VLLM_ALLOW_RUNTIME_LORA_UPDATING=True",
        module="vllm.entrypoints.openai.api_server",
        model_flag="--model",
        spellings={"-tp": "--tensor-parallel-size"},
        defaults={"replica.tp": 1, "replica.max_loras": 1, "replica.max_lora_rank": 16, MEMORY: 0.9},
        pools=(NIXL, NIXL),
    ),
    "sglang": Engine(
        start=("python", "-m", "sglang.launch_server", "--model-path", "{model}"),
        always=("--enable-mixed-chunk",),
        lora=("--enable-lora", "--lora-target-modules", "all"),
        context="--context-length",
        flags={
            "replica.tp": "--tp-size",
            "replica.max_loras": "--max-loras-per-batch",
            "replica.max_lora_rank": "--max-lora-rank",
            "replica.max_cpu_loras": "--max-loaded-loras",
            "replica.max_num_seqs": "--max-running-requests",
            "scheduler.max_batched_tokens": "--chunked-prefill-size",
            MEMORY: "--mem-fraction-static",
        },
        prefix_caching={True: (), False: ("--disable-radix-cache",)},
        image="lmsysorg/sglang",
        tag="latest",
        port=30000,
        listen=("--host", "0.0.0.0"),
        environment={},
        adapters="--lora-paths NAME=PATH …, or POST /load_lora_adapter",
        module="sglang.launch_server",
        model_flag="--model-path",
        spellings={"--tp": "--tp-size", "--tensor-parallel-size": "--tp-size", "--model": "--model-path"},
        defaults={"replica.tp": 1, "replica.max_loras": 8},
        pools=(("--disaggregation-mode", "prefill"), ("--disaggregation-mode", "decode")),
    ),
}
"""Sources: vLLM's and SGLang's documentation of their server arguments."""
LISTS = ("--lora-modules", "--lora-paths", "--lora-target-modules", "--served-model-name")
"""Flags of any number of values."""
FLAG = re.compile(r"--?[A-Za-z]")
ASSIGNED = re.compile(r"[A-Za-z_]\w*=")
"""How a flag begins; -1 is a value."""
HUB = {
    "llama_2_7b": "meta-llama/Llama-2-7b-chat-hf",
    "llama_2_13b": "meta-llama/Llama-2-13b-chat-hf",
    "llama_2_70b": "meta-llama/Llama-2-70b-chat-hf",
    "llama_3_1_8b": "meta-llama/Llama-3.1-8B-Instruct",
    "llama_3_3_70b": "meta-llama/Llama-3.3-70B-Instruct",
    "mistral_7b": "mistralai/Mistral-7B-Instruct-v0.3",
    "mixtral_8x7b": "mistralai/Mixtral-8x7B-Instruct-v0.1",
    "qwen_2_5_7b": "Qwen/Qwen2.5-7B-Instruct",
    "qwen3_8b": "Qwen/Qwen3-8B",
    "qwen3_14b": "Qwen/Qwen3-14B",
    "qwen3_32b": "Qwen/Qwen3-32B",
    "qwen3_30b_a3b": "Qwen/Qwen3-30B-A3B",
}
"""Names on the Hugging Face hub of models as simlora names them; the instruction-tuned ones."""
HUB_TOKEN = {
    "name": "HF_TOKEN",
    "valueFrom": {"secretKeyRef": {"name": "hf-token", "key": "token", "optional": True}},
}
"""Where a container finds the token with which models are downloaded whose licence asks for one."""
WINDOWS = {
    **dict.fromkeys(("llama_7b", "llama_13b", "llama_30b"), 2048),
    **dict.fromkeys(("llama_2_7b", "llama_2_13b", "llama_2_70b"), 4096),
    **dict.fromkeys(("llama_3_1_8b", "llama_3_3_70b"), 131072),
    **dict.fromkeys(("mistral_7b", "mixtral_8x7b", "qwen_2_5_7b"), 32768),
    **dict.fromkeys(("qwen3_8b", "qwen3_14b", "qwen3_32b", "qwen3_30b_a3b"), 40960),
}
"""Tokens that a request may have: max_position_embeddings of the models' published config.json."""


def model_named(name: str) -> str | None:
    """Return simlora's name of a model that the hub, a log or a command names; None if it has none of that name.

    `meta-llama/Llama-3.1-8B` is found as its instruction-tuned sibling is: their shapes are the same.
    """
    plain = {_plain(hub): ours for ours, hub in HUB.items()} | {_plain(ours): ours for ours in HUB}
    return plain.get(_plain(name))


def _plain(name: str) -> str:
    last = name.rsplit("/", 1)[-1].lower().replace("_", "-").replace(".", "-")
    return re.sub(r"(-(instruct|chat|it|hf|v0-\d|meta))+$", "", last).removeprefix("meta-")


def engine(name: str) -> Engine:
    """Return how an engine is started. Raises InputError for a system whose flags are not known."""
    if name not in ENGINES:
        raise InputError(f"the flags of {name} are not known; {nearest(name, ENGINES)}")
    return ENGINES[name]


def allowed_rank(rank: int) -> int:
    """Return the lowest --max-lora-rank that holds a rank. Raises InputError where the engines have none so high."""
    for value in RANKS:
        if value >= rank:
            return value
    raise InputError(f"an adapter has rank {rank}; engines take ranks up to {RANKS[-1]}")


def flag(name: str, key: str, value: Any, activation_share: float) -> tuple[str, ...]:
    """Return an engine's flag for a key, and its value as the engine means it; no word for what it does without one.

    SGLang's share of memory is of weights and KV alone; simlora's and vLLM's is of activations too, which take
    `activation_share` of the GPU.
    """
    if key == PREFIX_CACHING:
        return engine(name).prefix_caching[bool(value)]
    if key == MEMORY and name == "sglang":
        value = float(value) - activation_share
    text = f"{round(value, 4):g}" if isinstance(value, float) else str(value)
    return engine(name).flags.get(key, key), text


def activation_share(setting: Callable[[str], Any]) -> float:
    """Return the share of a GPU's memory that activations take, by a configuration's values by key."""
    logits = (setting("replica.max_num_seqs") or 0) * (setting("model.vocab") or 0)
    per_logit = setting("replica.activation_bytes_per_logit") or 0.0
    size_bytes = (setting("replica.activation_bytes") or 0) + per_logit * logits
    return float(size_bytes / setting("gpu.memory_bytes"))


def words(
    name: str,
    model: str,
    settings: Mapping[str, Any],
    activation_share: float = 0.0,
    context_tokens: int | None = None,
    adapters: bool = True,
) -> list[str]:
    """Return the words of the command that starts an engine with the settings, those it has a flag for.

    A setting that is null or not there is left out: the engine has its own default. `context_tokens` are those of the
    longest request, and without `adapters` nothing of LoRA is said.
    """
    one = engine(name)
    found = [word.format(model=HUB.get(model, model)) for word in one.start]
    found += one.always
    found += one.lora if adapters else ()
    for key in one.flags:
        if (value := settings.get(key)) is not None and (adapters or key not in OF_LORA):
            found += flag(name, key, value, activation_share)
    if context_tokens is not None:
        found += one.context, str(-(-context_tokens // CONTEXT_STEP) * CONTEXT_STEP)
    if (caches := settings.get(PREFIX_CACHING)) is not None:
        found += flag(name, PREFIX_CACHING, caches, activation_share)
    return found


def context(model: str, longest_tokens: int, kv_tokens: int) -> int:
    """Return the length that requests may have: the longest, where the model's window and a replica's KV have room."""
    rounded = -(-longest_tokens // CONTEXT_STEP) * CONTEXT_STEP
    return min(rounded, kv_tokens // CONTEXT_STEP * CONTEXT_STEP, WINDOWS.get(model, rounded))


def command(name: str, model: str, settings: Mapping[str, Any], **more: Any) -> str:
    """Return the command, a shell's line."""
    return shlex.join(words(name, model, settings, **more))


@dataclass(frozen=True)
class Started:
    """What a command that starts an engine says, in simlora's terms.

    `model` is the model as the command names it, "" where it names none. `settings` are values by simlora's keys,
    `unknown` flags that simlora has nothing for, `lora` whether adapters may be served, and `left` the keys of flags
    that the command does not have and whose values the engine takes from its version and GPU.
    """

    engine: str
    model: str
    settings: Mapping[str, Any]
    unknown: tuple[str, ...]
    lora: bool
    left: tuple[str, ...]


def started(text: str, activation_share: float = 0.0) -> Started:
    """Read a command such as `vllm serve meta-llama/Llama-3.1-8B-Instruct --enable-lora --max-loras 8`.

    Flags that are not there have the engine's own default. Raises InputError for a command that starts no engine that
    is known.
    """
    try:
        given = _in_a_container(shlex.split(text))
    except ValueError as error:
        raise InputError(f"the command {text!r} cannot be read as a shell's line: {error}") from None
    name = next((one for one in ENGINES if _starts(ENGINES[one], given)), None)
    if name is None:
        raise InputError(
            f"the command {text!r} starts no engine whose flags are known, such as vllm serve MODEL --enable-lora"
        )
    one = ENGINES[name]
    model, flags = _flags(one, given)
    keys = {flag: key for key, flag in one.flags.items()}
    settings: dict[str, Any] = dict(one.defaults)
    caches, unknown = one.caches, []
    for flag, value in flags:
        if flag in keys:
            settings[keys[flag]] = _value(flag, value)
        elif (flag,) in one.prefix_caching.values():
            caches = next(on for on, words in one.prefix_caching.items() if words == (flag,))
        elif flag not in (*one.always, *one.lora, one.model_flag):
            unknown.append(flag if value is None else f"{flag} {value}")
    if name == "vllm":
        settings.setdefault("replica.max_cpu_loras", settings["replica.max_loras"])
    elif MEMORY in settings:
        settings[MEMORY] = round(settings[MEMORY] + activation_share, 4)
    left = tuple(key for key in one.flags if key not in settings)
    lora = any(flag == one.lora[0] for flag, _ in flags)
    return Started(name, model, settings | {PREFIX_CACHING: caches}, tuple(unknown), lora, left)


def _in_a_container(words: Sequence[str]) -> list[str]:
    """Return a command's words without settings of the environment; of `docker run … IMAGE …` what the image runs."""
    given = [*words]
    while given and (ASSIGNED.match(given[0]) or given[0] == "env"):
        del given[0]
    for one in ENGINES.values():
        at = next((at for at, word in enumerate(given) if word.partition(":")[0] == one.image), None)
        if at is not None:
            rest = given[at + 1 :]
            if _starts(one, rest):
                return rest
            named = bool(rest) and not FLAG.match(rest[0])
            return [*(one.start[:2] if named else ("python", "-m", one.module)), *rest]
    return given


def _starts(one: Engine, given: Sequence[str]) -> bool:
    """Return whether words start an engine: by its command, or as a module of Python's."""
    return one.module in given or (one.start[0] != "python" and [*given[:2]] == [*one.start[:2]])


def _flags(one: Engine, given: Sequence[str]) -> tuple[str, list[tuple[str, str | None]]]:
    """Return the model of a command, "" where it has none, and its flags with their values."""
    flags: list[tuple[str, str | None]] = []
    alone: list[str] = []
    switches = {*one.always, *one.lora, *(flag for words in one.prefix_caching.values() for flag in words)}
    for word in given[given.index(one.module) + 1 :] if one.module in given else given[2:]:
        last, has = flags[-1] if flags else ("", None)
        if FLAG.match(word):
            flag, equals, value = word.partition("=")
            flag = flag.replace("_", "-")
            flags.append((one.spellings.get(flag, flag), value if equals else None))
        elif flags and has is None and last not in switches:
            flags[-1] = (last, word)
        elif last in LISTS:
            flags[-1] = (last, f"{has} {word}")
        else:
            alone.append(word)
    if alone and one.module not in given:
        model = alone[0]
    else:
        model = next((value or "" for flag, value in flags if flag == one.model_flag), "")
    return model, flags


def _value(flag: str, text: str | None) -> Any:
    """Return a flag's value as a number. Raises InputError where it is none."""
    try:
        number = float(text or "")
    except ValueError:
        raise InputError(f"the command has {flag} {text or ''}, must be a number") from None
    return int(number) if number.is_integer() else number


def deployment(
    name: str,
    model: str,
    command: Sequence[str],
    replicas: int,
    gpus: int,
    kind: str = "",
) -> dict[str, Any]:
    """Return a Kubernetes Deployment of so many replicas, of `gpus` GPUs each, started with the words of a command.

    `kind` ends its name, where there are others. GPUs of a replica speak to each other through memory that they share,
    of which a container has 64 MB without the volume.
    """
    label = "-".join(part for part in (name, model, kind) if part).replace("_", "-")
    one = engine(name)
    environment = one.environment if one.lora[0] in command else {}
    container = {
        "name": name,
        "image": f"{one.image}:{one.tag}",
        "command": [*command, *one.listen],
        "ports": [{"containerPort": one.port}],
        "readinessProbe": {"httpGet": {"path": "/health", "port": one.port}},
        "resources": {"limits": {"nvidia.com/gpu": gpus}},
        "env": [HUB_TOKEN, *({"name": key, "value": value} for key, value in environment.items())],
    }
    pod: dict[str, Any] = {"containers": [container]}
    if gpus > 1:
        container["volumeMounts"] = [{"name": "shm", "mountPath": "/dev/shm"}]
        pod["volumes"] = [{"name": "shm", "emptyDir": {"medium": "Memory"}}]
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": label},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": label}},
            "template": {"metadata": {"labels": {"app": label}}, "spec": pod},
        },
    }
