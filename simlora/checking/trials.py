"""The runs that a policy is tried in: small, and each with something that a policy meets in the field."""

from __future__ import annotations

A10G = ("gpu=a10g", "model=llama_7b")
TRIALS = {
    "one replica, little to do": (*A10G, "workload.rate_rps=1", "workload.duration_s=30"),
    "one replica past saturation, little memory": (
        *A10G,
        "workload.rate_rps=6",
        "workload.duration_s=20",
        "workload.adapters=60",
        "replica.kv_token_budget=6000",
    ),
    "three replicas, bursts, many adapters, requests to the base model": (
        *A10G,
        "cluster.replicas=3",
        "workload.rate_rps=5",
        "workload.cv=4",
        "workload.alpha=0.3",
        "workload.duration_s=30",
        "replica.kv_token_budget=9000",
    ),
    "three replicas that see each other's load late": (
        *A10G,
        "cluster.replicas=3",
        "cluster.status_every_s=2",
        "workload.rate_rps=5",
        "workload.duration_s=20",
    ),
    "adapters on some of four replicas": (
        *A10G,
        "cluster.replicas=4",
        "placement=dedicated",
        "workload.rate_rps=4",
        "workload.duration_s=20",
    ),
    "a replica that fails and comes back": (
        *A10G,
        "cluster.replicas=2",
        "workload.rate_rps=3",
        "workload.duration_s=30",
        "cluster.failures=[{host: 0, at_s: 8, until_s: 14}]",
    ),
    "vLLM's engine, eight slots for adapters": (
        "system=vllm",
        "gpu=h100_64g",
        "model=llama_3_1_8b",
        "cluster.replicas=2",
        "replica.max_loras=8",
        "replica.adapter_tokenizers=false",
        "workload.ranks=[8,16]",
        "workload.rate_rps=10",
        "workload.duration_s=20",
    ),
    "conversations with cached prefixes, KV and adapters in one pool": (
        "system=fastlibra",
        "workload=chatbot",
        "cluster.replicas=2",
        "workload.rate_rps=2",
        "workload.duration_s=60",
    ),
    "requests merged and paused": (
        "system=dlora",
        "cluster.replicas=2",
        "workload=functions",
        "workload.rate_rps=6",
        "workload.duration_s=20",
    ),
}
