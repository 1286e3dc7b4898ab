"""From a configuration to a simulation that is ready to run."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import yaml
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from simlora.config.making import factory, make, with_target
from simlora.config.mistakes import in_plain_words
from simlora.config.reading import Tree, as_whole, check_known, flag, section
from simlora.core.adapter import RANK_MAX
from simlora.core.checks import listed, number, shown, whole
from simlora.core.errors import InputError, nearest
from simlora.core.trace import BASE_MODEL, Trace
from simlora.engine.scenario import Failure, Policies, ReplicaConfig, Scenario
from simlora.hardware.budget import ACTIVATION_RESERVE_BYTES, NO_SLOTS, AdapterSlots, kv_token_budget
from simlora.hardware.gpu import Gpu
from simlora.hardware.link import as_link
from simlora.hardware.model import ModelShape
from simlora.latency import calibration as calibrations
from simlora.latency.calibration import Calibration
from simlora.latency.collectives import folded
from simlora.latency.cpu_lora import CpuLora
from simlora.latency.iteration import IterationModel
from simlora.latency.kernels import Kernel
from simlora.latency.transfer import AdapterLoad
from simlora.metrics.slo import SloTargets
from simlora.metrics.window import Window
from simlora.policies.eviction.base import Eviction
from simlora.policies.eviction.on_demand import OnDemand
from simlora.policies.loading.base import Loader
from simlora.policies.migration.base import Migration
from simlora.policies.placement.base import Placement
from simlora.policies.routing.base import Router
from simlora.policies.scheduling.base import Scheduler

POLICIES = ("scheduler", "loader", "eviction", "kernel", "router", "placement", "migration")
OUTPUTS = ("report", "timeline", "progress")
"""Keys that say what is shown, not what is simulated."""
KEYS = (
    "gpu",
    "model",
    "workload",
    *POLICIES,
    "seed",
    "calibration",
    "engine",
    "fast_forward",
    "cluster",
    "host",
    "replica",
    "slo",
    "until_s",
    "speedup",
    "window",
)
CLUSTER_KEYS = (
    "replicas",
    "engines_per_gpu",
    "memory_shares",
    "max_outstanding",
    "status_every_s",
    "adapter_pool",
    "network",
    "storage",
    "failures",
)
REPLICA_KEYS = (
    *(field.name for field in fields(ReplicaConfig) if field.name != "host_kv_tokens"),
    "memory_utilisation",
    "activation_bytes",
    "activation_bytes_per_logit",
    "host_kv_bytes",
    "adapter_region_share",
)
REPLICAS_MAX = 100_000
POOL_MAX = 10**12
ACTIVATIONS_MAX = 10**12
BLOCK_MAX = 65_536
HOST_MAX = 10**15
MEMORY_SHARES = ("equal", "rate")
PREFILL_TOKENS_LEAST = 3072
"""S-LoRA prefills at most max(pool / 6, 3072) tokens at once."""


@dataclass(frozen=True, kw_only=True)
class Setup:
    """A scenario, its SLO, and what a reader of the results wants to know about them.

    `about` says what was chosen, `workload` where the requests come from. `config` is the resolved
    configuration as YAML, `notices` are sentences to be read once. `progress` is None for "on a terminal".
    """

    scenario: Scenario
    targets: SloTargets
    about: dict[str, Any]
    workload: dict[str, Any]
    config: str
    window: Window | None
    notices: tuple[str, ...]
    report: bool
    progress: bool | None


def prepare(config: DictConfig, choices: Mapping[str, str]) -> Setup:
    """Build everything that a configuration describes; `choices` are the names chosen, by group.

    The workload is built last, as it may take long. Raises InputError for the first thing wrong.
    """
    tree = _resolved(config)
    check_known(tree, (*KEYS, *OUTPUTS))
    for key in (*KEYS, *OUTPUTS):
        if key not in tree:
            raise InputError(f"{key} was taken out of the configuration, must be there")
    seed = whole("seed", tree["seed"], least=0)
    gpu, model = make(tree, "gpu", Gpu), make(tree, "model", ModelShape)
    cluster = section(tree, "cluster", CLUSTER_KEYS)
    shares = cluster.get("memory_shares")
    if shares not in MEMORY_SHARES:
        raise InputError(f"cluster.memory_shares is {shown(shares)}; {nearest(str(shares), MEMORY_SHARES)}")
    engines = whole(
        "cluster.engines_per_gpu", cluster.get("engines_per_gpu"), "replicas", least=1, most=REPLICAS_MAX
    )
    most = as_whole(cluster.get("max_outstanding"))
    host = section(tree, "host", ("replicas", "cores", "memory_bytes"))
    replica = _replica(section(tree, "replica", REPLICA_KEYS), gpu, model, engines)
    name = f"{gpu.name}-{model.name}-tp{replica.tp}" + _engine(tree["engine"])
    calibration, notices = _calibration(tree["calibration"], name, gpu.name, model.name, replica.tp)
    folded(calibration, model, replica.target_modules)  # raises for a coefficient that several GPUs need
    policies = _policies(tree, calibration)
    _check_region(replica, policies)
    if policies.scheduler().chunks:
        replica = _in_chunks(replica)
    replicas = whole("cluster.replicas", cluster.get("replicas"), least=1, most=REPLICAS_MAX)
    targets = _targets(section(tree, "slo", [field.name for field in fields(SloTargets)]))
    shows = {"report": flag(tree, "report"), "progress": tree["progress"] and flag(tree, "progress")}
    fast_forward, timeline = flag(tree, "fast_forward"), flag(tree, "timeline")
    until_s = None if tree["until_s"] is None else number("until_s", tree["until_s"], "seconds", above=0)
    speedup = number("speedup", tree["speedup"], above=0)
    trace = _workload(tree).build(seed).sped_up(speedup)
    _check_ranks(replica, trace)
    by_rate = engines > 1 and shares == "rate"
    scenario = Scenario(
        trace=trace,
        model=model,
        calibration=calibration,
        replicas=replicas,
        replica=replica,
        policies=policies,
        seed=seed,
        fast_forward=fast_forward,
        timeline=timeline,
        max_outstanding=most,
        until_s=until_s,
        status_every_s=cluster.get("status_every_s"),
        replicas_per_host=whole("host.replicas", as_whole(host.get("replicas")), "replicas", least=1),
        host_cores=whole("host.cores", as_whole(host.get("cores")), "CPU cores", least=0),
        host_memory_bytes=host.get("memory_bytes"),
        adapter_pool=str(cluster.get("adapter_pool")),
        network=as_link("cluster.network", cluster["network"]),
        storage=as_link("cluster.storage", cluster["storage"]),
        failures=_failures(cluster.get("failures")),
        engines_per_gpu=engines,
        kv_token_budgets=_by_rate(trace, replica.kv_token_budget, replicas, engines) if by_rate else (),
    )
    return Setup(
        scenario=scenario,
        targets=targets,
        about=_about(tree, scenario, gpu, choices),
        workload=_workload_facts(scenario, choices),
        window=_window(section(tree, "window", ("warm_up_s", "drain_s")), trace),
        config=yaml.safe_dump(tree, sort_keys=False, allow_unicode=True),
        notices=(*notices, *trace.notices, *_nothing_to_share(replica, trace)),
        **shows,
    )


def _resolved(config: DictConfig) -> dict[str, Any]:
    try:
        tree = OmegaConf.to_container(config, resolve=True, throw_on_missing=True)
    except OmegaConfBaseException as error:
        raise in_plain_words(error) from error
    assert isinstance(tree, dict)
    return {str(key): value for key, value in tree.items()}


def _replica(tree: dict[str, Any], gpu: Gpu, model: ModelShape, engines_per_gpu: int) -> ReplicaConfig:
    values = {key: as_whole(value) for key, value in tree.items()}
    values["tp"] = whole("replica.tp", values.get("tp"), "GPUs", least=1)
    if model.heads % values["tp"]:
        raise InputError(
            f"replica.tp is {values['tp']}, must divide the {model.heads} attention heads of {model.name}"
        )
    modules = _modules(values.get("target_modules"), model)
    used = number("replica.memory_utilisation", values.pop("memory_utilisation", 0.9), above=0, most=1)
    reserve = whole(
        "replica.activation_bytes",
        as_whole(values.pop("activation_bytes", ACTIVATION_RESERVE_BYTES)),
        "bytes",
        least=0,
        most=ACTIVATIONS_MAX,
    )
    per_logit = number(
        "replica.activation_bytes_per_logit", values.pop("activation_bytes_per_logit", 0.0), "bytes", least=0
    )
    sequences = whole("replica.max_batch_size", values.get("max_batch_size"), "requests", least=1)
    reserve += int(per_logit * sequences * model.vocab)
    adapter_slots = _adapter_slots(values, model, modules)
    region_share = number(
        "replica.adapter_region_share",
        values.pop("adapter_region_share", 0.0),
        "of the slots",
        least=0,
        most=0.99,
    )
    if adapter_slots.slots:
        values["adapter_region_tokens"] = adapter_slots.size_bytes // model.kv_bytes_per_token
    own_memory = values.get("adapter_memory") not in ("unified", "slots")
    if values.get("kv_token_budget") is None or (own_memory and values.get("adapter_region_tokens") is None):
        slots = kv_token_budget(model, gpu, values["tp"], used, reserve, engines_per_gpu, adapter_slots)
        if values.get("full_copies"):  # they are in the pool, and there is no other
            slots += model.weight_bytes // model.kv_bytes_per_token
        region = int(slots * region_share) if own_memory else 0
        if values.get("kv_token_budget") is None:
            values["kv_token_budget"] = slots - region
    budget = whole(
        "replica.kv_token_budget", values["kv_token_budget"], "token slots", least=1, most=POOL_MAX
    )
    if values.get("adapter_region_tokens") is None:
        if own_memory and budget >= slots:
            raise InputError(
                f"replica.kv_token_budget is {budget}, which leaves nothing of the GPU's {slots} token slots to "
                "adapters; must be less, or give replica.adapter_region_tokens"
            )
        values["adapter_region_tokens"] = slots - budget if own_memory else 0
    whole(
        "replica.adapter_region_tokens",
        values["adapter_region_tokens"],
        "token slots",
        least=0,
        most=POOL_MAX,
    )
    host_kv_bytes = number(
        "replica.host_kv_bytes", values.pop("host_kv_bytes", 0.0), "bytes", least=0, most=HOST_MAX
    )
    values["host_kv_tokens"] = int(host_kv_bytes) // model.kv_bytes_per_token
    if host_kv_bytes and not values["host_kv_tokens"]:
        raise InputError(
            f"replica.host_kv_bytes is {host_kv_bytes:g}, must be 0 or at least the "
            f"{model.kv_bytes_per_token:,} bytes of one token's keys and values of {model.name}"
        )
    whole("replica.block_tokens", values.get("block_tokens"), "tokens", least=1, most=BLOCK_MAX)
    if values.get("max_prefill_tokens") is None:
        values["max_prefill_tokens"] = max(budget // 6, PREFILL_TOKENS_LEAST)
    return ReplicaConfig(**(values | {"target_modules": modules}))


def _adapter_slots(values: dict[str, Any], model: ModelShape, modules: tuple[str, ...]) -> AdapterSlots:
    """Return the adapter slots of all GPUs of a replica together."""
    if values.get("adapter_memory") != "slots":
        return NO_SLOTS
    count = whole("replica.max_adapters", values.get("max_adapters"), "adapters (slots)", least=1)
    rank = whole("replica.max_lora_rank", values.get("max_lora_rank"), least=1, most=RANK_MAX)
    return AdapterSlots(count, rank, count * model.slot_bytes(rank, modules))


def _modules(value: Any, model: ModelShape) -> tuple[str, ...]:
    """Return what LoRA adapts; an empty list says that every adapter is merged into a model of its own."""
    if value == []:
        return ()
    modules = tuple(map(str, listed("replica.target_modules", value, "[q,k,v,o]")))
    model.adapter_bytes(1, modules)  # raises for modules that the model does not have
    return modules


def _engine(value: Any) -> str:
    """Return the end of a calibration's name: nothing for S-LoRA's engine, else the engine that was measured."""
    if value is None:
        return ""
    if not isinstance(value, str) or not value.isidentifier():
        raise InputError(f"engine is {shown(value)}, must be the name of a serving engine, or null")
    return f"-{value}"


def _by_rate(trace: Trace, slots: int, replicas: int, engines: int) -> tuple[int, ...]:
    """Return the pools of replicas that share GPUs: what their weights leave, by the requests that each will get.

    Adapter i belongs to replica i, counted round the replicas; the base model's requests go to all alike.
    """
    own = trace.adapter[trace.adapter != BASE_MODEL] % replicas
    requests = np.bincount(own, minlength=replicas) + (len(trace) - len(own)) / replicas
    budgets = []
    for first in range(0, replicas, engines):
        here = requests[first : first + engines] + 1e-9
        budgets += [max(int(slots * len(here) * share), 1) for share in here / here.sum()]
    return tuple(budgets)


def _in_chunks(replica: ReplicaConfig) -> ReplicaConfig:
    """Return limits for a scheduler that prefills in chunks: no prompt is too long for one iteration."""
    if replica.reserve == "padded":
        raise InputError(
            "replica.reserve is padded, must be full, peak or paged where prompts come in chunks"
        )
    return replace(replica, max_prefill_tokens=max(replica.kv_token_budget, replica.max_prefill_tokens))


def _check_ranks(replica: ReplicaConfig, trace: Trace) -> None:
    """Slots hold adapters of up to a rank."""
    if replica.adapter_memory != "slots" or not trace.adapters:
        return
    assert replica.max_lora_rank is not None
    highest = max(trace.adapters, key=lambda adapter: adapter.rank)
    if highest.rank > replica.max_lora_rank:
        raise InputError(
            f"adapter {highest.name} has rank {highest.rank}, must be at most replica.max_lora_rank, which is "
            f"{replica.max_lora_rank}"
        )


def _failures(value: Any) -> tuple[Failure, ...]:
    known = {field.name for field in fields(Failure)}
    example = "such as [{host: 0, at_s: 60, until_s: 120}]"
    if not isinstance(value, list):
        raise InputError(f"cluster.failures is {shown(value)}, must be a list, {example}")
    for each in value:
        if not isinstance(each, dict) or not {"host", "at_s"} <= each.keys() <= known:
            raise InputError(f"cluster.failures has {shown(each)}, must have host and at_s, {example}")
    return tuple(Failure(**(each | {"host": as_whole(each["host"])})) for each in value)


def _nothing_to_share(replica: ReplicaConfig, trace: Trace) -> tuple[str, ...]:
    if replica.host_kv_tokens and not replica.prefix_caching:
        return ("replica.host_kv_bytes keeps nothing: replica.prefix_caching is false.",)
    if not replica.prefix_caching or trace.shares:
        return ()
    return (
        "replica.prefix_caching finds nothing: the workload says neither session nor block_hashes of its requests.",
    )


def _check_region(replica: ReplicaConfig, policies: Policies) -> None:
    """Adapters in memory of their own leave at once: nobody could make room there for another."""
    if policies.eviction().in_turn and replica.adapter_memory != "slots":
        raise InputError(
            "eviction=lru_in_turn throws adapters out of slots, which needs replica.adapter_memory=slots; "
            "choose eviction=lru"
        )
    if policies.scheduler().pauses and replica.reserve == "padded":
        raise InputError(
            "replica.reserve is padded, must be full, peak or paged for a scheduler that pauses requests"
        )
    if not replica.own_region:
        return
    if policies.scheduler().pauses:
        raise InputError(
            f"replica.adapter_memory is {replica.adapter_memory}, must be unified, partition or slots for a scheduler "
            "that pauses requests: their adapters cannot make way there"
        )
    if not isinstance(policies.eviction(), OnDemand):
        raise InputError(f"replica.adapter_memory={replica.adapter_memory} needs eviction=on_demand")
    if type(policies.loader()).ahead is not Loader.ahead:
        raise InputError(
            f"replica.adapter_memory={replica.adapter_memory} needs a loader that does not prefetch"
        )


def _calibration(choice: Any, name: str, gpu: str, model: str, tp: int) -> tuple[Calibration, list[str]]:
    """Return the calibration and notices about what it was not made for."""
    if choice is not None and not isinstance(choice, str):
        raise InputError(f"calibration is {shown(choice)}, must be a name or the path of a YAML file")
    if choice is None and name not in calibrations.names():
        raise InputError(
            f"there is no calibration {name} ({model} on {gpu} with tp {tp}); choose calibration=<path of a YAML file> "
            f"or one of ours: {nearest(name, calibrations.names())}"
        )
    found = calibrations.load(name if choice is None else choice)
    differs = [
        f"{key} {measured} instead of {chosen}"
        for key, measured, chosen in (
            ("gpu", found.gpu, gpu),
            ("model", found.model, model),
            ("tp", found.tp, tp),
        )
        if measured != chosen
    ]
    if differs and choice is None:
        raise InputError(f"calibration {name} is for {', '.join(differs)}")
    if found.tp != tp:
        raise InputError(f"calibration {found.path} is for tp {found.tp}, must be for replica.tp {tp}")
    notice = f"calibration {found.path} is for {', '.join(differs)}; its times are used as they are."
    return found, [notice] if differs else []


def _policies(tree: Tree, calibration: Calibration) -> Policies:
    IterationModel(calibration)  # raises for a coefficient that every run needs
    AdapterLoad(calibration)
    loader = factory(tree, "loader", Loader)
    if loader().assists:
        CpuLora(calibration, layers=1)
    return Policies(
        scheduler=factory(tree, "scheduler", Scheduler),
        loader=loader,
        eviction=factory(tree, "eviction", Eviction),
        kernel=factory(tree, "kernel", Kernel, calibration),
        router=make(tree, "router", Router),
        placement=make(tree, "placement", Placement),
        migration=make(tree, "migration", Migration),
    )


def _targets(tree: dict[str, Any]) -> SloTargets:
    for key, value in tree.items():
        if value is not None:
            number(f"slo.{key}", value, "seconds", above=0)
    return SloTargets(**tree)


def _window(tree: Tree, trace: Trace) -> Window | None:
    """Return what figures are of; None: of all requests."""
    warm_up_s = number("window.warm_up_s", tree.get("warm_up_s"), "seconds", least=0)
    drain_s = number("window.drain_s", tree.get("drain_s"), "seconds", least=0)
    if not warm_up_s and not drain_s:
        return None
    # The last arrival counts where nothing is left out at the end.
    until_s = trace.duration_s - drain_s if drain_s else math.nextafter(trace.duration_s, math.inf)
    inside = (trace.arrival_s >= warm_up_s) & (trace.arrival_s < until_s)
    if not inside.any():
        raise InputError(
            f"window.warm_up_s={warm_up_s:g} and window.drain_s={drain_s:g} leave no request of a workload whose last "
            f"one arrives at {trace.duration_s:g} s; make them shorter, or the workload longer"
        )
    return Window(warm_up_s, until_s)


def _workload(tree: Tree) -> Any:
    made = make(tree, "workload", object)
    if not callable(getattr(made, "build", None)):
        raise InputError(
            f"workload._target_ is {with_target(tree, 'workload')['_target_']}, must have build(seed)"
        )
    return made


def _about(tree: Tree, scenario: Scenario, gpu: Gpu, choices: Mapping[str, str]) -> dict[str, Any]:
    simulated = {key: value for key, value in tree.items() if key not in OUTPUTS}
    text = json.dumps(simulated, sort_keys=True, default=str)
    return {
        "system": choices.get("system") or "custom",
        "model": scenario.model.name,
        "gpu": gpu.name,
        "tp": scenario.replica.tp,
        "replicas": scenario.replicas,
        "kv_token_budget": scenario.replica.kv_token_budget,
        "max_prefill_tokens": scenario.replica.max_prefill_tokens,
        "policies": {slot: with_target(tree, slot)["_target_"] for slot in POLICIES},
        "config_hash": hashlib.sha256(text.encode()).hexdigest()[:16],
    }


def _workload_facts(scenario: Scenario, choices: Mapping[str, str]) -> dict[str, Any]:
    trace = scenario.trace
    return {
        "name": choices.get("workload") or "custom",
        "description": trace.source,
        "adapters": len(trace.adapters),
        "duration_s": trace.duration_s,
        "rate_rps": len(trace) / trace.duration_s if trace.duration_s > 0 else None,
    }
