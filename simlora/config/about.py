"""What results say of their configuration: its names, its sizes, and the command that starts the engine simulated."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from simlora.config.engine_flags import ENGINES, PREFIX_CACHING, activation_share, command
from simlora.config.making import with_target
from simlora.config.reading import Tree
from simlora.config.speculation import speculative_flags
from simlora.config.targets import DECODE_ROUTER, OUTPUTS, POLICIES
from simlora.core.trees import leaves
from simlora.engine.replica_config import ReplicaConfig
from simlora.engine.scenario import Kind, Scenario
from simlora.hardware.gpu import Gpu
from simlora.workload.facts import longest_tokens

EXPERTS_APART = {"vllm": " --enable-expert-parallel", "sglang": " --ep-size {tp}"}
"""What a command that starts an engine has for expert parallelism, after a blank."""


def about_of(tree: Tree, scenario: Scenario, gpu: Gpu, choices: Mapping[str, str]) -> dict[str, Any]:
    """Return what was chosen; `choices` are the names chosen, by group."""
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


def workload_facts(scenario: Scenario, choices: Mapping[str, str]) -> dict[str, Any]:
    """Return where the requests come from, and how many they are a second."""
    trace = scenario.trace
    return {
        "name": choices.get("workload") or "custom",
        "description": trace.source,
        "adapters": len(trace.adapters),
        "duration_s": trace.duration_s,
        "rate_rps": len(trace) / trace.duration_s if trace.duration_s > 0 else None,
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
