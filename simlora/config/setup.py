"""From a configuration to a simulation that is ready to run."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any

import yaml
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from simlora.config.about import about_of, workload_facts
from simlora.config.calibration import calibration_for, of_lora_server
from simlora.config.cluster import cluster_keys
from simlora.config.idle_keys import idle_keys
from simlora.config.kinds import other_kinds
from simlora.config.making import factory, make
from simlora.config.mistakes import in_plain_words
from simlora.config.parts import own_parts
from simlora.config.reading import Tree, as_whole, check_known, plain, section
from simlora.config.replica import REPLICA_KEYS, check_ranks, experts_apart, replica_config
from simlora.config.speculation import speculation_of, with_calibration
from simlora.config.targets import DECODE_ROUTER, KEYS, OUTPUTS, check_targets
from simlora.config.tenants import slo_targets, ttft_targets_s, with_classes
from simlora.config.workloads import workload
from simlora.core.checks import number, switch, whole
from simlora.core.errors import InputError
from simlora.core.trace import Trace
from simlora.engine.clients import Clients
from simlora.engine.replica_config import ReplicaConfig
from simlora.engine.requirements import check
from simlora.engine.scenario import Policies, Scenario
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
    lora_server: Calibration | None = None
    if cluster.config.lora_server_gpus:
        lora_server, said = of_lora_server(tree["calibration"], gpu, model, replica, tree["engine"])
        more = [*more, *said]
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
        listed_adapters=_listed(limits.get("listed_adapters")),
        speculation=with_calibration(speculation, draft, replica, gpu, others, tree["engine"], apart),
        lora_server=lora_server,
        gpu=gpu,
        ttft_targets_s=ttft_targets_s(targets, trace.adapters),
        parts=own_parts(tree),
        **switches,
    )
    check(scenario)
    return Setup(
        scenario=scenario,
        targets=targets,
        about=about_of(tree, scenario, gpu, choices),
        workload=workload_facts(scenario, choices),
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


def _listed(adapters: Any) -> int | None:
    return None if adapters is None else whole("replica.listed_adapters", adapters, "adapters", least=0)


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
