"""The golden cases: every system on three small workloads, and mechanisms of clusters that no system has by itself."""

from pathlib import Path
from typing import NamedTuple

import simlora

SYSTEMS = tuple(sorted(path.stem for path in (Path(simlora.__file__).parent / "conf/system").glob("*.yaml")))
BURSTY = (
    "workload=synthetic",
    "workload/arrivals=gamma",
    "workload.arrivals.rate_rps=12",
    "workload.arrivals.cv=4",
    "workload.adapters=16",
    "workload.duration_s=null",
    "workload.requests=100",
    "workload.output_tokens.hi=256",
    "replica.kv_token_budget=5000",
    "slo.ttft_s=3",
)
"""Bursts of four ranks on few token slots: admission is refused, KV runs out, adapters are evicted."""
TALKS = (
    "workload=agent",
    "workload/first_tokens=uniform",
    "workload.first_tokens.hi=900",
    "workload.adapters=12",
    "workload.rate_rps=9",
    "workload.epochs=2",
    "workload.gap_s=2",
    "workload.duration_s=14",
    "replica.kv_token_budget=6000",
)
"""Dialogs whose prompts repeat all that was said: prefix caching, KV on the host, swapping."""
FUNCTIONS = (
    "workload=functions",
    "workload.adapters=24",
    "workload.ranks=[8,32,64]",
    "workload.stride=2",
    "workload.epochs=3",
    "workload.rate_rps=16",
    "workload.cv=3",
    "workload.duration_s=8",
    "workload.length_scale=0.5",
    "cluster.replicas=3",
    "replica.kv_token_budget=8000",
    "slo.ttft_s=3",
    "slo.latency_per_output_token_s=0.05",
)
"""Adapters of unequal demand on three replicas: routing, placement, migration, merging, fetching from other hosts."""
WORKLOADS = {"bursty": BURSTY, "talks": TALKS, "functions": FUNCTIONS}

CACHED = ("replica.prefix_caching=true",)
SHARED = ("replica.reserve=full", *CACHED)
SMALL_HOST = ("replica.host_kv_bytes=2.0e+9",)
PAUSES = ("workload.rate_rps=6", "workload.gap_s=4", "workload.cv=4", "workload.first_tokens.hi=1200")
"""Between bursts of dialogs HBM is idle, so that a swapper brings adapters and KV back ahead of requests."""
FEW_SLOTS = ("replica.kv_token_budget=4000",)
FAILING = ("cluster.failures=[{host: 1, at_s: 3, until_s: 6}]",)
BANDS = ("eviction.busy=0.75", "eviction.busy_to=0.6", "eviction.idle=0.5", "eviction.idle_to=0.6")
SWAPPING = {"all": SMALL_HOST, "talks": (*PAUSES, *BANDS), "functions": FEW_SLOTS}
PLANNED = ("placement.period_s=2", "placement.operating_points={8: 5500, 32: 5250, 64: 5000}")
PLANNED_BURSTY = ("placement.operating_points={8: 5500, 16: 5400, 32: 5250, 64: 5000}",)
MOVING = ("migration.period_s=1", "migration.more_requests=2")
COPIES = ("replica.kv_token_budget=40000",)
ENGINES = ("workload.adapters=4", "replica.kv_token_budget=3000", "cluster.replicas=4")
CREDITS = ("scheduler.starving=20", "scheduler.normal=5", "scheduler.tune_every=20")
SLOTS = ("replica.max_loras=4",)
OF_SYSTEM: dict[str, dict[str, tuple[str, ...]]] = {
    "cached": {"talks": SHARED},
    "caraserve": {"talks": SHARED},
    "chunked_prefill": {"talks": CACHED},
    "dlora": {"all": CREDITS, "talks": CACHED, "functions": MOVING},
    "dlora_merged_only": {"talks": CACHED, "functions": MOVING},
    "dlora_proactive": {"all": CREDITS, "talks": CACHED},
    "dlora_released": {"all": CREDITS, "talks": CACHED, "functions": MOVING},
    "dlora_round_robin": {"all": CREDITS, "talks": CACHED},
    "dlora_unmerged_only": {"talks": CACHED, "functions": MOVING},
    "fastlibra": SWAPPING,
    "fastlibra_released": SWAPPING,
    "fastlibra_wol": SWAPPING,
    "fastlibra_wom": SWAPPING,
    "fastlibra_wos": SWAPPING,
    "loraserve": {"bursty": PLANNED_BURSTY, "talks": (*SHARED, *PLANNED), "functions": PLANNED},
    "merged_per_batch": {"talks": SHARED},
    "ondemand": {"talks": SHARED},
    "peft_continuous": {"talks": CACHED},
    "punica": {"talks": SHARED, "functions": ("migration.period_s=0.5",)},
    "sglang": {"all": SLOTS},
    "slora": {"talks": SHARED},
    "slora_bmm": {"all": ("replica.adapter_region_tokens=3000",), "talks": SHARED},
    "slora_cluster": {"all": ("scheduler.clusters=2",), "talks": SHARED},
    "slora_contiguous": {"talks": SHARED, "functions": FAILING},
    "slora_early_abort": {"talks": SHARED},
    "slora_lcfs": {"talks": SHARED},
    "slora_no_unify_mem": {"all": ("replica.adapter_region_tokens=1500",), "talks": SHARED},
    "slora_random": {"talks": SHARED, "functions": FAILING},
    "slora_toppings": {"talks": SHARED},
    "toppings": {"talks": SHARED},
    "vllm": {"all": SLOTS, "talks": CACHED},
    "vllm_packed": {"all": ENGINES, "talks": CACHED},
    "vllm_static": {"all": (*SMALL_HOST, "replica.adapter_region_tokens=1500")},
    "vllm_uniform": {"all": COPIES},
}
"""What systems need besides a workload, for their mechanisms to occur: on all of them, and on one."""

FLEET = ("system=slora", *FUNCTIONS)
PAGED = ("system=chunked_prefill", *BURSTY)
APART = (*FUNCTIONS, "cluster.prefill_replicas=1", "cluster.network=pcie_3_x16")
APART_TALKS = (
    "system=vllm",
    *TALKS,
    *CACHED,
    "cluster.replicas=3",
    "router@decode_router=llm_d",
    "cluster.network=pcie_3_x16",
)
SERVED = ("system=vllm", *TALKS, *CACHED, "cluster.replicas=3", "replica.max_loras=4")
LARGE = ("system=vllm", "gpu=h100_80g", *FUNCTIONS, "replica.max_loras=4")
MIXTURE = ("model=qwen3_30b_a3b", "replica.tp=2")
EXTRA: dict[str, tuple[str, ...]] = {
    "host-failure": (*FLEET, "router=most_idle", *FAILING),
    "host-failure-for-good": (
        "system=loraserve",
        *FUNCTIONS,
        *PLANNED,
        "cluster.failures=[{host: 0, at_s: 4}]",
    ),
    "stragglers": (*FLEET, "cluster.stragglers=[{replica: 1, at_s: 2, until_s: 7, factor: 3}]"),
    "slow-links": (*FLEET, "cluster.slow_links=[{host: 0, at_s: 1, until_s: 6, factor: 50}]"),
    "slow-links-async": (
        *FLEET,
        "loader=asynchronous",
        "cluster.slow_links=[{every_s: 3, for_s: 3, factor: 50}]",
    ),
    "by-queue": (
        *FLEET,
        "autoscaler=by_queue",
        "autoscaler.target_requests=4",
        "autoscaler.period_s=1",
        "autoscaler.down_window_s=3",
        "cluster.start_s=0.5",
        "cluster.warm_up_adapters=3",
        "eviction=lru",
    ),
    "by-waiting": (
        *FLEET,
        "autoscaler=by_waiting",
        "autoscaler.target_waiting=2",
        "autoscaler.period_s=0.5",
        "autoscaler.lag_s=0.5",
        "autoscaler.down_window_s=2",
        "cluster.start_s=0.5",
    ),
    "by-queue-slowly": (
        *FLEET,
        "autoscaler=by_queue",
        "autoscaler.target_requests=2",
        "autoscaler.period_s=0.5",
        "autoscaler.up_share=null",
        "autoscaler.up_replicas=1",
        "autoscaler.up_period_s=2",
        "autoscaler.up_window_s=1",
        "autoscaler.down_window_s=1",
        "autoscaler.down_replicas=1",
        "autoscaler.down_share=0.5",
        "autoscaler.down_select=min",
        "autoscaler.down_period_s=2",
        "cluster.start_s=0.5",
    ),
    "by-adapters-to-zero": (
        *FLEET,
        "autoscaler=by_adapters",
        "autoscaler.target_adapters=3",
        "autoscaler.period_s=1",
        "autoscaler.down_window_s=2",
        "autoscaler.lag_s=1",
        "cluster.least_replicas=0",
        "cluster.start_s=0.5",
        "router=adapter_affinity",
    ),
    "compound": ("system=slora", *BURSTY, "loader=prefetching", "eviction=compound"),
    "predictive": (
        *("system=slora", *BURSTY, "eviction=lru", "loader=predictive"),
        *("loader.period_s=0.5", "loader.threshold=0.3"),
    ),
    "stale-status": (*FLEET, "router=rank_aware", "cluster.status_every_s=1.5"),
    "asking": (*FLEET, "scheduler=credit", "router=pending_time", "router.asks=true"),
    "llm-d": (*SERVED, "router=llm_d_lora", "cluster.status_every_s=0.05"),
    "dynamo": (*SERVED, "router=dynamo"),
    "kvaware": (*SERVED, "router=production_stack_kvaware"),
    "kv-tiers": (
        *TALKS,
        *SHARED,
        *SMALL_HOST,
        "loader=asynchronous",
        "cluster.replicas=3",
        "host.replicas=2",
        "host.kv_disk_bytes=3.0e+9",
        "cluster.kv_store_bytes=8.0e+9",
        "cluster.kv_store_servers=2",
        FAILING[0],
    ),
    "speculation": (
        *SERVED,
        "speculation.tokens=3",
        "speculation.draft=eagle",
        "speculation.adapter_acceptance=[0.3,0.9]",
        "speculation.most_running=12",
    ),
    "lora-server": (
        *FLEET,
        "scheduler=chunked_prefill",
        "router=most_idle",
        "loader=cached",
        "cluster.lora_server_gpus=1",
        "cluster.network=ethernet_100g",
        "replica.target_modules=[q,k,v,o,down]",
    ),
    "lora-server-pairs": (
        "system=chunked_prefill",
        "gpu=h100_80g",
        *FUNCTIONS,
        *MIXTURE,
        "loader=cached",
        "cluster.lora_server_gpus=2",
        "cluster.network=infiniband_ndr",
    ),
    "speculation-by-a-model": (
        *LARGE,
        "model=qwen3_32b",
        "speculation.tokens=4",
        "speculation.draft=qwen3_8b",
    ),
    "experts-apart": (
        *LARGE,
        *MIXTURE,
        "replica.expert_parallel=true",
        "replica.target_modules=[q,v,gate,up,down]",
    ),
    "experts-slora": (
        *FUNCTIONS,
        *MIXTURE,
        "system=slora",
        "gpu=h100_80g",
        "eviction=lru",
        "replica.kv_token_budget=90000",
        "replica.target_modules=[q,k,v,o,gate,up,down]",
    ),
    "gdsf": ("system=slora", *BURSTY, "loader=asynchronous", "eviction=gdsf"),
    "adapters-of-4-bits": (*FLEET, "replica.adapter_bits=4", "router=most_idle"),
    "outstanding": (*FLEET, "cluster.max_outstanding=30"),
    "rate-limited": (*FLEET, "cluster.adapter_rps=0.5", "cluster.adapter_burst=2", "clients.retries=2"),
    "closed-loop": (*FLEET, "clients.outstanding=20", "clients.think_s=0.5"),
    "clients-come-back": (
        *FLEET,
        "clients.patience_s=0.2",
        "clients.retries=2",
        "cluster.max_outstanding=30",
    ),
    "replica-groups": (
        *FLEET,
        "gpu=a100_80g",
        "model=llama_2_7b",
        "cluster.replica_groups=[{gpu: h100_80g, replicas: 1, kv_token_budget: 9000}]",
        "placement=by_speed",
        "router=pending_time",
    ),
    "engines-per-gpu": (
        "system=vllm_packed",
        *FUNCTIONS,
        "workload.adapters=8",
        "cluster.replicas=4",
        "cluster.engines_per_gpu=2",
        "cluster.memory_shares=equal",
    ),
    "distributed": (
        *FLEET,
        "placement=rank_demand",
        *PLANNED,
        "cluster.adapter_pool=distributed",
        "router=most_idle",
        "loader=asynchronous",
        *FAILING,
    ),
    "distributed-tight": (
        *FLEET,
        "placement=contiguous",
        "cluster.adapter_pool=distributed",
        "router=routing_table",
        "host.memory_bytes=1.6e+9",
        "loader=asynchronous",
    ),
    "until-s": (*FLEET, "until_s=5"),
    "until-missed": (*FLEET, "until_missed=0.1"),
    "perfetto": ("system=fastlibra", *TALKS, *SMALL_HOST, "perfetto=true"),
    "perfetto-merged": ("system=dlora", *FUNCTIONS, *MOVING, *CREDITS, "perfetto=true"),
    "few-cores": (
        "system=caraserve",
        *FUNCTIONS,
        "host.cores=16",
        "host.replicas=2",
        "workload.ranks=[64,128]",
    ),
    "paged-recompute": (*PAGED, "replica.preemption=recompute"),
    "paged-swap": (*PAGED, "scheduler=fcfs", "replica.preemption=swap"),
    "max-cpu-loras": ("system=vllm", *BURSTY, "replica.max_loras=2", "replica.max_cpu_loras=4"),
    "ilp": (
        "system=dlora_unmerged_only",
        *FUNCTIONS,
        "migration=ilp",
        "migration.period_s=2",
        "migration.gap=0.2",
    ),
    "earliest-deadline": (
        "system=slora",
        *BURSTY,
        "scheduler=earliest_deadline",
        "slo.classes=[{name: gold, share: 0.3, ttft_s: 1}, {name: free, share: 0.7, ttft_s: 10}]",
    ),
    "apart": (*APART, "system=chunked_prefill"),
    "apart-closed-loop": (
        *APART,
        "system=vllm",
        "clients.outstanding=12",
        "clients.retries=2",
        "cluster.max_outstanding=8",
    ),
    "apart-by-layer": (*APART, "system=chunked_prefill", "cluster.kv_handover=by_layer"),
    "apart-mixed": (*APART, "system=chunked_prefill", "cluster.mixed_pool_tokens=1000"),
    "apart-fcfs": (*APART, "system=slora", "loader=asynchronous", "router@decode_router=adapter_affinity"),
    "apart-speculation": (
        *APART,
        "system=vllm",
        "speculation.tokens=3",
        "speculation.draft=eagle",
        "router@decode_router=rank_aware",
    ),
    "apart-prefixes": (*APART_TALKS, "cluster.prefill_replicas=2", "router=llm_d_lora"),
    "apart-prefixes-by-layer": (
        *APART_TALKS,
        "cluster.prefill_replicas=1",
        "router=production_stack_session",
        "cluster.kv_handover=by_layer",
    ),
    "apart-tiers": (
        *APART_TALKS,
        "cluster.prefill_replicas=1",
        *FEW_SLOTS,
        "replica.host_kv_bytes=1.0e+9",
        "cluster.kv_store_bytes=8.0e+9",
    ),
    "apart-kinds": (*APART, "system=vllm", "cluster.replica_groups=[{gpu: h100_80g, replicas: 2}]"),
    "apart-merged": (*APART, "system=dlora", *CREDITS, "migration=stay", "placement=replicate_all"),
    "window": (*FLEET, "window.warm_up_s=2", "window.drain_s=1"),
}
"""Mechanisms of clusters and replicas."""


class Case(NamedTuple):
    """A simulation by its name, and the overrides that describe it."""

    name: str
    overrides: tuple[str, ...]


def cases() -> list[Case]:
    """Return all cases, each with and without fast-forward; the name says which."""
    plain = {f"{system}-{name}": _overrides(system, name) for system in SYSTEMS for name in WORKLOADS} | EXTRA
    speeds = {"fast": "fast_forward=true", "stepwise": "fast_forward=false"}
    return [
        Case(f"{name}-{speed}", (*overrides, key))
        for name, overrides in plain.items()
        for speed, key in speeds.items()
    ]


def _overrides(system: str, workload: str) -> tuple[str, ...]:
    own = OF_SYSTEM.get(system, {})
    return (f"system={system}", *WORKLOADS[workload], *own.get("all", ()), *own.get(workload, ()))
