"""From a configuration to a simulation that is ready to run."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import yaml
from omegaconf import DictConfig
from omegaconf.errors import OmegaConfBaseException

from simlora.config.incidents import Incident, incidents
from simlora.config.kinds import other_kinds
from simlora.config.making import factory, make, with_target
from simlora.config.mistakes import in_plain_words
from simlora.config.reading import Tree, as_whole, check_known, plain, section
from simlora.config.replica import REPLICA_KEYS, budgets_by_rate, calibration_for, check_ranks, replica_config
from simlora.config.tenants import slo_targets, ttft_targets_s, with_classes
from simlora.core.checks import number, shown, switch, whole
from simlora.core.errors import InputError, nearest
from simlora.core.trace import Trace
from simlora.engine.incidents import Failure, SlowLink, Straggler
from simlora.engine.replica_config import ReplicaConfig
from simlora.engine.scenario import Policies, ScalingConfig, Scenario
from simlora.hardware.gpu import Gpu
from simlora.hardware.link import as_link
from simlora.hardware.model import ModelShape
from simlora.latency.calibration import Calibration
from simlora.latency.cpu_lora import CpuLora
from simlora.latency.iteration import IterationModel
from simlora.latency.kernels import Kernel
from simlora.latency.transfer import AdapterLoad
from simlora.metrics.slo import TARGETS, SloTargets
from simlora.metrics.window import Window
from simlora.policies.eviction.base import Eviction
from simlora.policies.eviction.on_demand import OnDemand
from simlora.policies.loading.base import Loader
from simlora.policies.migration.base import Migration
from simlora.policies.placement.base import Placement
from simlora.policies.routing.base import Router
from simlora.policies.scaling.base import Autoscaler
from simlora.policies.scheduling.base import Scheduler

POLICIES = ("scheduler", "loader", "eviction", "kernel", "router", "placement", "migration", "autoscaler")
OUTPUTS = ("report", "timeline", "perfetto", "progress")
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
    "stragglers",
    "slow_links",
    "others",
    "least_replicas",
    "start_s",
    "warm_up_adapters",
)
REPLICAS_MAX = 100_000
MEMORY_SHARES = ("equal", "rate")


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
    limits, chunks = section(tree, "replica", REPLICA_KEYS), factory(tree, "scheduler", Scheduler)().chunks
    replica = replica_config(limits, gpu, model, engines, chunks)
    calibration, notices = calibration_for(tree["calibration"], gpu, model, replica, tree["engine"])
    others, more = other_kinds(cluster.get("others"), limits, model, tree["engine"], chunks)
    policies = _policies(tree, [calibration, *(kind.calibration for kind in others)])
    _check_region(replica, policies)
    replicas = whole("cluster.replicas", cluster.get("replicas"), least=1, most=REPLICAS_MAX)
    slo = section(tree, "slo", (*TARGETS, "classes"))
    targets = slo_targets(slo)
    shows = {
        "report": switch("report", tree.get("report")),
        "progress": tree["progress"] and switch("progress", tree.get("progress")),
    }
    fast_forward, timeline = (
        switch("fast_forward", tree.get("fast_forward")),
        switch("timeline", tree.get("timeline")),
    )
    until_s = None if tree["until_s"] is None else number("until_s", tree["until_s"], "seconds", above=0)
    speedup = number("speedup", tree["speedup"], above=0)
    trace = _workload(tree).build(seed).sped_up(speedup)
    check_ranks(replica, trace)
    targets = with_classes(targets, slo.get("classes"), trace.adapters, seed)
    by_rate = engines > 1 and shares == "rate"
    per_host = whole("host.replicas", as_whole(host.get("replicas")), "replicas", least=1)
    storage = as_link("cluster.storage", cluster["storage"])

    def incident(key: str, kind: type[Incident], count: int) -> tuple[Incident, ...]:
        return incidents(f"cluster.{key}", cluster.get(key), kind, count, seed, trace.duration_s)

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
        tracing=switch("perfetto", tree.get("perfetto")),
        max_outstanding=most,
        until_s=until_s,
        status_every_s=cluster.get("status_every_s"),
        replicas_per_host=per_host,
        host_cores=whole("host.cores", as_whole(host.get("cores")), "CPU cores", least=0),
        host_memory_bytes=host.get("memory_bytes"),
        adapter_pool=str(cluster.get("adapter_pool")),
        network=as_link("cluster.network", cluster["network"]),
        storage=storage,
        failures=incident("failures", Failure, -(-replicas // per_host)),
        stragglers=incident("stragglers", Straggler, replicas),
        slow_links=incident("slow_links", SlowLink, -(-replicas // per_host)),
        scaling=ScalingConfig(
            autoscaler=make(tree, "autoscaler", Autoscaler),
            least_replicas=as_whole(cluster.get("least_replicas")),
            boot_s=number("cluster.start_s", cluster.get("start_s"), "seconds", least=0)
            + storage.transfer_s(model.weight_bytes),
            warm_up_adapters=as_whole(cluster.get("warm_up_adapters")),
        ),
        gpu=gpu,
        others=others,
        ttft_targets_s=ttft_targets_s(targets, trace.adapters),
        engines_per_gpu=engines,
        kv_token_budgets=budgets_by_rate(trace, replica.kv_token_budget, replicas, engines)
        if by_rate
        else (),
    )
    return Setup(
        scenario=scenario,
        targets=targets,
        about=_about(tree, scenario, gpu, choices),
        workload=_workload_facts(scenario, choices),
        window=_window(section(tree, "window", ("warm_up_s", "drain_s")), trace),
        config=yaml.safe_dump(tree, sort_keys=False, allow_unicode=True),
        notices=(*notices, *more, *trace.notices, *_nothing_to_share(replica, trace)),
        **shows,
    )


def _resolved(config: DictConfig) -> dict[str, Any]:
    try:
        return plain(config, resolve=True, complete=True)
    except OmegaConfBaseException as error:
        raise in_plain_words(error) from error


def _nothing_to_share(replica: ReplicaConfig, trace: Trace) -> tuple[str, ...]:
    if replica.host_kv_tokens and not replica.prefix_caching:
        return ("replica.host_kv_bytes keeps nothing: replica.prefix_caching is false.",)
    if not replica.prefix_caching or trace.has_prefixes:
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


def _policies(tree: Tree, calibrations: Sequence[Calibration]) -> Policies:
    loader, kernel = factory(tree, "loader", Loader), None
    for calibration in calibrations:  # raises for a coefficient that every run needs
        IterationModel(calibration)
        AdapterLoad(calibration)
        if loader().assists:
            CpuLora(calibration, layers=1)
        kernel = factory(tree, "kernel", Kernel, calibration)
    assert kernel is not None, "there are replicas of at least one kind"
    return Policies(
        scheduler=factory(tree, "scheduler", Scheduler),
        loader=loader,
        eviction=factory(tree, "eviction", Eviction),
        kernel=kernel,
        router=make(tree, "router", Router),
        placement=make(tree, "placement", Placement),
        migration=make(tree, "migration", Migration),
    )


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
        "others": [
            {
                "gpu": kind.gpu.name if kind.gpu is not None else "",
                "replicas": kind.replicas,
                "tp": kind.replica.tp,
                "kv_token_budget": kind.replica.kv_token_budget,
                "calibration": kind.calibration.describe(),
            }
            for kind in scenario.others
        ],
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
