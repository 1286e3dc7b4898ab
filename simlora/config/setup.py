"""From a configuration to a simulation that is ready to run."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any

import yaml
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from simlora.config.calibration import calibration_for, of_lora_server
from simlora.config.cluster import cluster_keys
from simlora.config.engine_flags import ENGINES, PREFIX_CACHING, activation_share, command
from simlora.config.idle_keys import idle_keys
from simlora.config.kinds import other_kinds
from simlora.config.making import factory, make, with_target
from simlora.config.mistakes import in_plain_words
from simlora.config.parts import own_parts
from simlora.config.reading import Tree, as_whole, check_known, plain, section
from simlora.config.replica import REPLICA_KEYS, check_ranks, experts_apart, replica_config
from simlora.config.speculation import speculation_of, speculative_flags, with_calibration
from simlora.config.targets import DECODE_ROUTER, POLICIES, check_targets
from simlora.config.tenants import slo_targets, ttft_targets_s, with_classes
from simlora.config.workloads import workload
from simlora.core.checks import number, switch, whole
from simlora.core.errors import InputError
from simlora.core.trace import Trace
from simlora.core.trees import leaves
from simlora.engine.clients import Clients
from simlora.engine.replica_config import ReplicaConfig
from simlora.engine.requirements import check
from simlora.engine.scenario import Kind, Policies, Scenario
from simlora.hardware.gpu import Gpu
from simlora.hardware.model import ModelShape
from simlora.latency.calibration import Calibration
from simlora.latency.cpu_lora import CpuLora
from simlora.latency.iteration import IterationModel
from simlora.latency.kernels import Kernel
from simlora.latency.transfer import AdapterLoad
from simlora.metrics.missed import MissedMost
from simlora.metrics.slo import TARGETS, SloTargets
from simlora.metrics.window import Window
from simlora.policies.eviction.base import Eviction
from simlora.policies.loading.base import Loader
from simlora.policies.migration.base import Migration
from simlora.policies.placement.base import Placement
from simlora.policies.routing.base import Router
from simlora.policies.scaling.base import Autoscaler
from simlora.policies.scheduling.base import Scheduler
from simlora.workload.facts import longest_tokens

EXPERTS_APART = {"vllm": " --enable-expert-parallel", "sglang": " --ep-size {tp}"}
"""What a command that starts an engine has for expert parallelism, after a blank."""
OUTPUTS = ("report", "timeline", "perfetto", "progress", "cores")
"""Keys that say what is shown, and how the results are computed, not what is simulated."""
KEYS = (
    "gpu",
    "model",
    "workload",
    *POLICIES,
    DECODE_ROUTER,
    "seed",
    "calibration",
    "engine",
    "fast_forward",
    "cluster",
    "clients",
    "speculation",
    "host",
    "replica",
    "slo",
    "until_s",
    "until_missed",
    "speedup",
    "window",
    "parts",
)


@dataclass(frozen=True, kw_only=True)
class Setup:
    """A scenario, its SLO, and what a reader of the results wants to know about them.

    `about` says what was chosen, `workload` where the requests come from. `config` is the resolved
    configuration as YAML, `notices` are sentences to be read once. `progress` is None for "on a terminal". `cores` of
    this machine simulate.
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
    cores: int


def prepare(config: DictConfig, choices: Mapping[str, str]) -> Setup:
    """Build everything that a configuration describes; `choices` are the names chosen, by group.

    The workload is built last, as it may take long; only what depends on it, and what a Scenario checks itself, comes
    after it. Raises InputError for the first thing wrong.
    """
    tree = resolved(config)
    check_targets(tree)
    check_known(tree, (*KEYS, *OUTPUTS))
    for key in (*KEYS, *OUTPUTS):
        if key not in tree:
            raise InputError(f"{key} was taken out of the configuration, must be there")
    seed = whole("seed", tree["seed"], least=0)
    gpu, model = make(tree, "gpu", Gpu), make(tree, "model", ModelShape)
    cluster = cluster_keys(tree)
    scheduler = factory(tree, "scheduler", Scheduler)
    limits, chunks = section(tree, "replica", REPLICA_KEYS), scheduler().chunks
    model = replace(model, adapter_bits=as_whole(limits.get("adapter_bits")))
    apart = experts_apart(limits, model)
    speculation, speculates, draft = speculation_of(tree, model)
    replica = replica_config(limits, gpu, model, cluster.config.engines_per_gpu, chunks, speculates)
    calibration, notices = calibration_for(
        tree["calibration"], gpu, model, replica, tree["engine"], choices.get("system", ""), apart
    )
    others, more = other_kinds(
        tree, limits, gpu, model, chunks, partial(_kernel_with, config), speculates, apart
    )
    policies = _policies(tree, scheduler, [calibration, *(kind.calibration for kind in others)])
    weight_bytes = model.weight_bytes + speculates.memory.weight_bytes
    scaling = cluster.scaling(make(tree, "autoscaler", Autoscaler), weight_bytes)
    slo = section(tree, "slo", (*TARGETS, "classes"))
    targets = slo_targets(slo)
    shows, switches, margins_s = _shows(tree), _switches(tree), _margins_s(tree)
    until_s = None if tree["until_s"] is None else number("until_s", tree["until_s"], "seconds", above=0)
    until_missed = tree["until_missed"]
    if until_missed is not None:
        number("until_missed", until_missed, "of the requests", least=0, most=1)
    speedup = number("speedup", tree["speedup"], above=0)
    trace = workload(tree).build(seed).sped_up(speedup)
    check_ranks([replica, *(kind.replica for kind in others)], trace)
    targets = with_classes(targets, slo.get("classes"), trace.adapters, seed)
    window = _window(*margins_s, trace)
    scenario = Scenario(
        trace=trace,
        cluster=cluster.complete(others, replica.kv_token_budget, trace, seed),
        model=model,
        calibration=calibration,
        replica=replica,
        policies=policies,
        seed=seed,
        until_s=until_s,
        clients=_clients(tree, until_missed),
        until_missed=None if until_missed is None else MissedMost(until_missed, targets, window),
        scaling=scaling,
        lora_communication=switch("replica.lora_communication", limits.get("lora_communication")),
        speculation=with_calibration(speculation, draft, replica, gpu, others, tree["engine"], apart),
        lora_server=of_lora_server(gpu, model, replica, tree["engine"])
        if cluster.config.lora_server_gpus
        else None,
        gpu=gpu,
        ttft_targets_s=ttft_targets_s(targets, trace.adapters),
        parts=own_parts(tree),
        **switches,
    )
    check(scenario)
    return Setup(
        scenario=scenario,
        targets=targets,
        about=_about(tree, scenario, gpu, choices),
        workload=_workload_facts(scenario, choices),
        window=window,
        config=_as_yaml(tree),
        notices=(
            *notices,
            *more,
            *trace.notices,
            *idle_keys(tree, scenario),
            *_nothing_to_share([kind.replica for kind in scenario.kinds], trace),
        ),
        **shows,
    )


def clients_of(tree: Tree) -> Clients:
    """Return what clients do. Raises InputError for a value that cannot be."""
    return Clients(**section(tree, "clients", [field.name for field in fields(Clients)]))


def _clients(tree: Tree, until_missed: float | None) -> Clients:
    found = clients_of(tree)
    if found.react and until_missed is not None:
        raise InputError(
            "until_missed counts the requests of the workload, which clients send again or later; leave it out"
        )
    return found


def _shows(tree: Tree) -> dict[str, Any]:
    """Return what is shown of a run, by the names of Setup's fields."""
    return {
        "report": switch("report", tree.get("report")),
        "progress": tree["progress"] and switch("progress", tree.get("progress")),
        "cores": whole("cores", tree["cores"], "CPU cores", least=1),
    }


def _switches(tree: Tree) -> dict[str, Any]:
    """Return how a run is simulated and what is recorded, by the names of Scenario's fields."""
    fields = {"fast_forward": "fast_forward", "timeline": "timeline", "tracing": "perfetto"}
    return {field: switch(key, tree.get(key)) for field, key in fields.items()}


def lasts(config: DictConfig) -> dict[str, float]:
    """Return what makes a run go on for longer at the same rate: keys, and the values that are multiplied together.

    It is the workload that says so, by a mapping `lasts` such as {"duration_s": 300}; {} of one that does not, as of a
    trace.
    """
    tree = resolved(config)
    check_targets(tree)
    found: Mapping[str, float] = getattr(workload(tree), "lasts", {})
    return {f"workload.{key}": value for key, value in found.items()}


def resolved(config: DictConfig) -> dict[str, Any]:
    """Return a configuration as dicts and lists. Raises InputError for a value that is not set or not resolved."""
    try:
        return plain(config, resolve=True, complete=True)
    except OmegaConfBaseException as error:
        raise in_plain_words(error) from error


def _as_yaml(tree: Tree) -> str:
    """Return a configuration as YAML, by libyaml where PyYAML has it, which is ten times as fast."""
    dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
    try:
        return str(yaml.dump(tree, Dumper=dumper, sort_keys=False, allow_unicode=True))
    except UnicodeEncodeError:  # half a surrogate pair, which PyYAML itself escapes
        return yaml.safe_dump(tree, sort_keys=False, allow_unicode=True)


def _nothing_to_share(replicas: Sequence[ReplicaConfig], trace: Trace) -> tuple[str, ...]:
    """Return a notice if cached KV, which all replicas have or none, is of no use."""
    caches = replicas[0].prefix_caching
    if not caches and any(each.host_kv_tokens for each in replicas):
        return ("replica.host_kv_bytes keeps nothing: replica.prefix_caching is false.",)
    if not caches or trace.has_prefixes:
        return ()
    return (
        "replica.prefix_caching finds nothing: the workload says neither session nor block_hashes of its requests.",
    )


def _policies(
    tree: Tree, scheduler: Callable[[], Scheduler], calibrations: Sequence[Calibration]
) -> Policies:
    loader = factory(tree, "loader", Loader)
    for calibration in calibrations:  # raises for a coefficient that every run needs
        IterationModel(calibration)
        AdapterLoad(calibration)
        if loader().assists:
            CpuLora(calibration, layers=1)
    return Policies(
        scheduler=scheduler,
        loader=loader,
        eviction=factory(tree, "eviction", Eviction),
        kernel=factory(tree, "kernel", Kernel, calibrations[0]),
        router=make(tree, "router", Router),
        placement=make(tree, "placement", Placement),
        migration=make(tree, "migration", Migration),
        decode_router=_decode_router(tree),
    )


def _decode_router(tree: Tree) -> Router:
    try:
        return make(tree, DECODE_ROUTER, Router)
    except InputError as error:  # of a key, as if it were the router's
        raise InputError(re.sub(r"^router\.", f"{DECODE_ROUTER}.", str(error))) from error


def _kernel_with(
    config: DictConfig, limits: Mapping[str, Any], calibration: Calibration
) -> Callable[[Calibration], Kernel]:
    """Return what makes the kernels of replicas whose section `replica` is `limits`: it may refer to that section."""
    own = OmegaConf.create(plain(config, resolve=False))
    own["replica"] = dict(limits)
    kernel = OmegaConf.to_container(own["kernel"], resolve=True)
    return factory({"kernel": kernel}, "kernel", Kernel, calibration)


def _margins_s(tree: Tree) -> tuple[float, float]:
    """Return how much at the beginning of a run figures are not of, and how much at its end."""
    window = section(tree, "window", ("warm_up_s", "drain_s"))
    warm_up_s = number("window.warm_up_s", window.get("warm_up_s"), "seconds", least=0)
    return warm_up_s, number("window.drain_s", window.get("drain_s"), "seconds", least=0)


def _window(warm_up_s: float, drain_s: float, trace: Trace) -> Window | None:
    """Return what figures are of; None: of all requests. Raises InputError if that is of none."""
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


def _about(tree: Tree, scenario: Scenario, gpu: Gpu, choices: Mapping[str, str]) -> dict[str, Any]:
    simulated = {key: value for key, value in tree.items() if key not in OUTPUTS}
    text = json.dumps(simulated, sort_keys=True, default=str)
    slots = (*POLICIES, DECODE_ROUTER) if scenario.cluster.prefill_replicas else POLICIES
    return {
        "system": choices.get("system") or "custom",
        "model": scenario.model.name,
        "gpu": gpu.name,
        "engine": tree["engine"],
        "tp": scenario.replica.tp,
        "replicas": scenario.cluster.replicas,
        "kv_token_budget": scenario.replica.kv_token_budget,
        "max_prefill_tokens": scenario.replica.max_num_batched_tokens,
        "max_loras": _slots(scenario.replica),
        "serve": _serve(dict(leaves(tree)), scenario, choices),
        "others": [
            {
                "gpu": kind.gpu.name if kind.gpu is not None else "",
                "replicas": kind.replicas,
                "tp": kind.replica.tp,
                "kv_token_budget": kind.replica.kv_token_budget,
                "max_prefill_tokens": kind.replica.max_num_batched_tokens,
                "max_loras": _slots(kind.replica),
                "replica": dict(written.get("replica", {})),
                "serve": _serve(dict(leaves(tree)) | _of_kind(kind, written), scenario, choices),
                "calibration": kind.calibration.describe(),
            }
            for kind, written in zip(
                scenario.cluster.replica_groups, tree["cluster"]["replica_groups"], strict=True
            )
        ],
        "policies": {slot: with_target(tree, slot)["_target_"] for slot in slots},
        "config_hash": hashlib.sha256(text.encode()).hexdigest()[:16],
    }


def _slots(replica: ReplicaConfig) -> int | None:
    """Return the adapter slots of a replica; None where adapters do not lie in slots."""
    return replica.max_loras if replica.adapter_memory == "slots" else None


def _of_kind(kind: Kind, written: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values by key that a kind of replica has of its own."""
    memory = {} if kind.gpu is None else {"gpu.memory_bytes": kind.gpu.memory_bytes}
    own = {f"replica.{key}": value for key, value in written.get("replica", {}).items()}
    return {"replica.tp": kind.replica.tp, **memory, **own}


def _serve(values: Mapping[str, Any], scenario: Scenario, choices: Mapping[str, str]) -> str | None:
    """Return the command that starts the engine that is simulated; None where its flags are not known.

    `values` are those of a replica's configuration by key.
    """
    name = choices.get("system", "")
    speculation = speculative_flags(name, scenario.speculation)
    cluster = scenario.cluster
    if name not in ENGINES or cluster.prefill_replicas or cluster.lora_server_gpus or speculation is None:
        return None
    if values.get("replica.adapter_bits") is not None:
        return None
    settings = {key: values.get(key) for key in (*ENGINES[name].flags, PREFIX_CACHING)}
    start = command(
        name,
        scenario.model.name,
        settings,
        activation_share=activation_share(values.get),
        context_tokens=longest_tokens(scenario.trace),
        adapters=bool(scenario.trace.adapters),
    )
    apart = EXPERTS_APART[name] if values["replica.expert_parallel"] else ""
    return start + apart.format(tp=values["replica.tp"]) + speculation


def _workload_facts(scenario: Scenario, choices: Mapping[str, str]) -> dict[str, Any]:
    trace = scenario.trace
    return {
        "name": choices.get("workload") or "custom",
        "description": trace.source,
        "adapters": len(trace.adapters),
        "duration_s": trace.duration_s,
        "rate_rps": len(trace) / trace.duration_s if trace.duration_s > 0 else None,
    }
