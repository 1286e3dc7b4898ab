"""The values that random scenarios draw from, as overrides are written."""

from __future__ import annotations

BANDS = ("eviction.busy=0.75", "eviction.busy_to=0.6", "eviction.idle=0.5", "eviction.idle_to=0.6")
ARGUMENTS = {
    ("autoscaler", "by_queue"): (
        "autoscaler.target_requests=3",
        "autoscaler.period_s=0.5",
        "autoscaler.down_window_s=2",
        "autoscaler.up_replicas=1",
        "autoscaler.up_share=null",
        "autoscaler.up_period_s=1",
        "autoscaler.down_replicas=1",
        "autoscaler.down_share=null",
        "autoscaler.down_period_s=1",
    ),
    ("autoscaler", "by_adapters"): (
        "autoscaler.target_adapters=3",
        "autoscaler.period_s=0.5",
        "autoscaler.down_window_s=2",
        "autoscaler.lag_s=1",
    ),
    ("autoscaler", "by_waiting"): (
        "autoscaler.period_s=0.5",
        "autoscaler.lag_s=0.5",
        "autoscaler.down_window_s=2",
    ),
    ("autoscaler", "by_slo"): (
        "autoscaler.ttft_s=0.3",
        "autoscaler.period_s=0.5",
        "autoscaler.window_s=3",
        "autoscaler.down_after_s=2",
    ),
    ("autoscaler", "by_schedule"): (
        "autoscaler.steps=[{at_s: 0, replicas: 1}, {at_s: 2, replicas: 3}, {at_s: 6, replicas: 2}]",
        "autoscaler.period_s=0.5",
    ),
    ("scheduler", "credit"): ("scheduler.starving=20", "scheduler.normal=5", "scheduler.tune_every=25"),
    ("scheduler", "adapter_clustering"): ("scheduler.clusters=2",),
    ("scheduler", "early_abort"): ("scheduler.slo_s=2",),
    ("migration", "selective_ilp"): (
        "migration.period_s=1",
        "migration.more_requests=2",
        "migration.gap=0.1",
    ),
    ("migration", "ilp"): ("migration.period_s=2", "migration.gap=0.3", "migration.most_nodes=20"),
    ("migration", "consolidate"): ("migration.period_s=0.7",),
    ("placement", "rank_demand"): (
        "placement.period_s=1.5",
        "placement.operating_points={8: 5500, 16: 5400, 32: 5250, 64: 5000}",
    ),
    ("router", "rank_aware"): ("router.slo_s=0.03",),
    ("eviction", "cost_model"): BANDS,
    ("eviction", "banded_lru"): BANDS,
}
"""What a choice needs to act within seconds, or at all."""

WORKLOADS = {
    "synthetic": (
        "workload.duration_s=null",
        "workload.requests={requests}",
        "workload.arrivals.rate_rps={rate}",
    ),
    "slora": (
        "workload.rate_rps={rate}",
        "workload.duration_s={seconds}",
        "workload.cv={cv}",
        "workload.seed=null",
    ),
    "functions": (
        "workload.rate_rps={rate}",
        "workload.duration_s={seconds}",
        "workload.cv={cv}",
        "workload.stride=1",
        "workload.length_scale=0.5",
    ),
    "agent": (
        "workload/first_tokens=uniform",
        "workload.first_tokens.hi=900",
        "workload.rate_rps={rate}",
        "workload.duration_s={seconds}",
        "workload.gap_s=2",
    ),
    "chatbot": (
        "workload.turns.mean=3",
        "workload.rate_rps={rate}",
        "workload.duration_s={seconds}",
        "workload.gap_s=2",
    ),
    "translation": (
        "workload/turns=fixed",
        "workload.turns.tokens=5",
        "workload.rate_rps={rate}",
        "workload.duration_s={seconds}",
        "workload.gap_s=1",
    ),
    "maf": ("workload.duration_s=null", "workload.requests={requests}", "workload.arrivals.rate_rps={rate}"),
    "own_adapters": (
        "workload.duration_s=null",
        "workload.requests={requests}",
        "workload.arrivals.rate_rps={rate}",
    ),
    "loraserve_production": ("workload.requests={requests}", "workload.rate_rps={rate}"),
}
"""Workloads, with what makes them small."""
RANKS = ("[8]", "[64,32,16,8]", "[16,64]", "[8,32]")
TALKS = ("agent", "chatbot", "translation")

RESERVES = ("full", "peak", "paged", "paged", "padded")
MEMORIES = ("unified", "unified", "contiguous", "padded", "partition", "slots")
REPLICA = {
    "kv_token_budget": (3000, 4000, 5000, 7000),
    "block_size": (1, 8, 16, 32),
    "watermark": (0, 0.01, 0.1, 0.2),
    "preemption": ("recompute", "swap"),
    "max_wait_tokens": (0, 1, 3, 10, 30),
    "max_num_seqs": (2, 6, 16, 64),
    "max_num_batched_tokens": (2048, 4096, 8000),
    "max_loras": (1, 2, 4, 8),
    "adapter_tokens": (16, 96),
    "lora_communication": ("true", "false"),
    "adapter_tokenizers": ("true", "false"),
    "listed_adapters": (0, 50),
}
"""Limits of a replica, each drawn or left as the system has it."""

FAILURES = (
    "[{host: 0, at_s: 2, until_s: 4}]",
    "[{host: 1, at_s: 1.5}]",
    "[{host: 0, at_s: 1, until_s: 3}, {host: 1, at_s: 2, until_s: 5}]",
    "[{every_s: 6, for_s: 1.5}]",
)
STRAGGLERS = (
    "[{replica: 0, at_s: 1, until_s: 6, factor: 3}]",
    "[{replica: 1, at_s: 0.5, factor: 0.5}]",
    "[{every_s: 3, for_s: 2, factor: 2.5}]",
)
SLOW_LINKS = (
    "[{host: 0, at_s: 1, until_s: 6, factor: 20}]",
    "[{every_s: 2, for_s: 2, factor: 60}]",
)
GROUPS = (
    "[{{gpu: h100_80g, replicas: 1, calibration: '{path}', kv_token_budget: 9000}}]",
    "[{{gpu: a40, replicas: 1, calibration: '{path}'}}]",
)
CLASSES = "slo.classes=[{name: gold, share: 0.3, ttft_s: 1}, {name: free, share: 0.7, ttft_s: 8}]"

INCIDENTS = ("failures", "stragglers", "slow_links")
MODULES = ("[q,v]", "[q,k,v,o,down]", "[q,k,v,o,gate,up,down]")
DRAFT = "llama_7b"
"""A draft that is a model."""
NETWORKS = ("infiniband_hdr", "nvlink_3", "pcie_3_x16")
SPECULATION = {
    "speculation.tokens": (1, 2, 5),
    "speculation.draft": ("ngram", "eagle"),
    "speculation.acceptance": (0.3, 0.7, 1),
    "speculation.adapter_acceptance": ("null", "[0, 0.9]", "{8: 0.9, 16: 0.8, 32: 0.6, 64: 0.4, 128: 0}"),
    "speculation.most_running": ("null", 1, 6),
}
TIERS = {
    "host.kv_disk_bytes": (0, "1.0e+9", "2.0e+10"),
    "cluster.kv_store_bytes": ("5.0e+8", "2.0e+10"),
    "cluster.kv_store_servers": (1, 2),
    "cluster.kv_fetch": ("by_cost", "always"),
}
CLIENTS = {
    "clients.outstanding": ("null", 4, 30),
    "clients.think_s": (0, 0.3),
    "clients.patience_s": ("null", 0.5, 4),
    "clients.retries": (0, 1, 5),
    "clients.backoff_s": (0.05, 0.5),
}
