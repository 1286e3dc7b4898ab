"""Short runs of every kind of system, to be traced."""

SHORT = ("workload.duration_s=30", "report=false", "progress=false")
LONGER = "workload.duration_s=300"
SYSTEMS: dict[str, tuple[str, ...]] = {
    "slora": ("system=slora", "workload.rate_rps=2", *SHORT),
    "plain_loop": ("system=slora", "workload.rate_rps=1", "fast_forward=false", *SHORT),
    "dlora": ("system=dlora", "cluster.replicas=2", "workload.rate_rps=6", "workload.adapters=20", *SHORT),
    "dlora_merged_only": ("system=dlora_merged_only", "workload.rate_rps=2", "workload.adapters=3", *SHORT),
    "merged_per_batch": ("system=merged_per_batch", "workload.rate_rps=1", "workload.adapters=5", *SHORT),
    "swap": (
        "system=slora",
        "replica.reserve=paged",
        "replica.preemption=swap",
        "replica.kv_token_budget=6000",
        "workload.rate_rps=3",
        *SHORT,
    ),
    "reloads": ("system=vllm", "workload.rate_rps=3", *SHORT),
    "tree": ("system=fastlibra", "workload=chatbot", "replica.kv_token_budget=9000", *SHORT[1:], LONGER),
    "loader": ("system=caraserve", "workload.rate_rps=2", *SHORT),
    "chunks": ("system=sglang", "workload.rate_rps=2", *SHORT),
    "pool": (
        "placement=contiguous",
        "cluster.adapter_pool=distributed",
        "router=routing_table",
        "cluster.replicas=4",
        "workload.rate_rps=4",
        *SHORT,
    ),
    "failure": (
        "system=slora",
        "cluster.replicas=2",
        "cluster.failures=[{host: 0, at_s: 10, until_s: 20}]",
        "workload.rate_rps=3",
        *SHORT,
    ),
    "stopped": ("system=slora", "until_s=15", "workload.rate_rps=3", *SHORT),
}
