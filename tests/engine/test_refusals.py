"""Scenarios that cannot be are refused before anything runs, by the key that is wrong and what would be right."""

import re
from math import nan
from typing import Any

import pytest

from simlora.core.errors import InputError
from simlora.engine.clients import Clients
from simlora.engine.cluster.simulation import Simulation
from simlora.engine.incidents import Failure
from simlora.engine.kv_tiers_config import KvTiersConfig
from simlora.engine.replica_config import ReplicaConfig
from simlora.engine.scenario import ClusterConfig
from simlora.engine.speculation import Speculation
from simlora.policies.routing.scored import Scored
from tests.engine.cases import COEFFICIENTS, Case, Row

CASE = Case(rows=(Row(0.0, 0, 9, 5, 5),), ranks=(1, 8), replicas=2)
SLOW = (0, 1.0, None, 2.0)
BY_QUEUE: dict[str, Any] = {"autoscaler": "by_queue"}
OTHERS: dict[str, Any] = {"others": 1}
DISTRIBUTED: dict[str, Any] = {"adapter_pool": "distributed"}
PADDED: dict[str, Any] = {"adapter_memory": "padded", "adapter_region_tokens": 99}
MOVING: dict[str, Any] = {"migrates_every_s": 1.0, "migration": "selective_ilp"}
FAR_SLOTS: dict[str, Any] = {
    "adapter_memory": "slots",
    "eviction": "lru",
    "max_loras": 2,
    "max_lora_rank": 1,
    "adapter_region_tokens": 2 * 4,
    "own": {"max_loras": 1, "max_lora_rank": 8, "adapter_region_tokens": 32},
}
"""The first replica has two slots of rank 1, the second one of rank 8."""

SLOTS: dict[str, Any] = {
    "adapter_memory": "slots",
    "eviction": "lru",
    "max_loras": 3,
    "adapter_region_tokens": 96,
}
DRAFT: dict[str, Any] = {"speculative_tokens": 2}
TIERS: dict[str, Any] = {
    "prefix_caching": True,
    "host_kv_tokens": 20,
    "kv_disk_tokens": 20,
    "reserve": "paged",
}
ASKING: dict[str, Any] = {"router": "asking"}
APART: dict[str, Any] = {"prefill_replicas": 1, "reserve": "paged"}
MIXED = APART | {"mixed_pool_tokens": 40}
SERVER: dict[str, Any] = {"lora_server_gpus": 1, "loader": "cached"}


def without(prefix: str) -> dict[str, object]:
    return {
        "coefficients": {name: value for name, value in COEFFICIENTS.items() if not name.startswith(prefix)}
    }


@pytest.mark.parametrize(
    "changes, message",
    [
        (BY_QUEUE | {"engines_per_gpu": 3}, "an autoscaler needs cluster.engines_per_gpu=1"),
        (BY_QUEUE | {"migrates_every_s": 1.0}, "an autoscaler needs migration=stay"),
        (BY_QUEUE | PADDED, "an autoscaler needs replica.adapter_memory=unified, partition or slots"),
        (BY_QUEUE | {"least_replicas": 3}, "cluster.least_replicas is 3, must be a whole number of"),
        (BY_QUEUE | OTHERS | FAR_SLOTS, "adapter adapter-1 has rank 8, must be at most 1 with an autoscaler"),
        (
            BY_QUEUE | OTHERS | {"least_replicas": 0},
            "cluster.least_replicas=0 needs replicas that are all alike",
        ),
        ({"others": 2}, "cluster.replica_groups has all of the replicas, must leave at least one of"),
        (OTHERS | {"engines_per_gpu": 2}, "cluster.replica_groups needs cluster.engines_per_gpu=1"),
        (OTHERS | {"placement": "rank_demand"}, "cluster.replica_groups needs another placement: "),
        (OTHERS | MOVING, "cluster.replica_groups needs another migration: "),
        ({"failures": ((2, 1.0, None),)}, "cluster.failures has host 2, must be one of the 2 hosts, from 0"),
        ({"failures": ((0, 1.0, None), (0, 2.0, None))}, "cluster.failures has host 0 at 2 s, when what"),
        ({"failures": ((0, 1.0, 3.0), (0, 2.0, 4.0))}, "cluster.failures has host 0 at 2 s, when what began"),
        ({"stragglers": ((2, 1.0, None, 2.0),)}, "cluster.stragglers has replica 2, must be one of the 2"),
        ({"stragglers": (SLOW, (0, 2.0, None, 2.0))}, "cluster.stragglers has replica 0 at 2 s, when what"),
        ({"stragglers": ((0, 1.0, 0.5, 2.0),)}, "until_s of cluster.stragglers is 0.5, must be greater than"),
        ({"stragglers": (SLOW,), "engines_per_gpu": 2}, "cluster.stragglers needs cluster.engines_per_gpu=1"),
        ({"slow_links": ((2, 1.0, None, 2.0),)}, "cluster.slow_links has host 2, must be one of the 2 hosts"),
        ({"slow_links": ((0, 1.0, None, 0.0),)}, "factor of cluster.slow_links is 0.0, must be greater than"),
        ({"adapter_pool": "shared"}, "cluster.adapter_pool is 'shared'; "),
        (DISTRIBUTED | {"loader": "cpu_assisted"}, "loader=cpu_assisted computes with adapters in host"),
        (DISTRIBUTED | {"max_cpu_loras": 4}, "cluster.adapter_pool=distributed limits a host by"),
        (
            ASKING | {"failures": ((0, 1.0, None),)},
            "a router that asks all replicas needs no failures, which a",
        ),
        (ASKING | APART, "a router that asks all replicas needs cluster.prefill_replicas=0"),
        (ASKING | {"status_every_s": 1.0}, "that asks all replicas needs cluster.status_every_s=null"),
        (ASKING | MOVING, "a router that asks all replicas needs migration=stay"),
        (ASKING | BY_QUEUE, "a router that asks all replicas needs autoscaler=fixed"),
        ({"tp": 2, "engines_per_gpu": 2}, "cluster.engines_per_gpu is 2, must be 1 with replica.tp 2"),
        ({"scheduler": "credit", "adapter_bits": 4}, "adapter_bits is 4, must be 16 or null"),
        (DRAFT | {"scheduler": "credit"}, "needs a scheduler that merges no adapters"),
        (DRAFT | {"engines_per_gpu": 2}, "needs cluster.engines_per_gpu=1"),
        (DRAFT | {"reserve": "padded"}, "needs replica.reserve full, peak or paged"),
        (TIERS | {"prefix_caching": False, "host_kv_tokens": 0}, "needs replica.prefix_caching=true"),
        (TIERS | {"host_kv_tokens": 0}, "needs replica.host_kv_bytes above 0"),
        (TIERS | OTHERS | {"own": {"block_size": 8}}, "blocks of one size"),
        (APART | {"prefill_replicas": 2}, "cluster.prefill_replicas is 2, must be"),
        (APART | {"placement": "contiguous"}, "needs placement=replicate_all"),
        (APART | {"prefix_caching": True, "eviction": "cost_model"}, "such as eviction=lru"),
        (
            APART | {"reserve": "padded"},
            "replica.reserve is padded, must be full, peak or paged where prefill",
        ),
        (APART | {"scheduler": "merged_per_batch"}, "needs a scheduler that pauses the requests of other"),
        (APART | {"engines_per_gpu": 2}, "needs cluster.engines_per_gpu=1"),
        (APART | {"failures": ((0, 1.0, 2.0),)}, "needs a cluster without cluster.failures"),
        (APART | {"migrates_every_s": 1.0}, "needs migration=stay"),
        (APART | BY_QUEUE, "needs autoscaler=fixed"),
        (MIXED | {"reserve": "full"}, "cluster.mixed_pool_tokens needs replica.reserve=paged"),
        (MIXED | {"loader": "cpu_assisted"}, "cluster.mixed_pool_tokens needs a loader without CPU cores"),
        (SERVER | {"loader": "blocking"}, "loader=cached: it has all adapters"),
        (SERVER | SLOTS, "replica.adapter_memory=unified"),
        (SERVER | {"scheduler": "credit"}, "a scheduler that merges no adapters"),
        (SERVER | DRAFT, "speculation.tokens=0"),
        (SERVER | {"engines_per_gpu": 2}, "cluster.engines_per_gpu=1"),
        (SERVER | BY_QUEUE, "autoscaler=fixed"),
        (SERVER | {"failures": ((0, 1.0, None),)}, "no failures or stragglers"),
        (SERVER | {"slow_links": ((0, 1.0, None, 2.0),)}, "no cluster.slow_links"),
        (SERVER | MOVING, "does not load adapters"),
        (SERVER | TIERS | {"eviction": "cost_model", "kv_disk_tokens": 0}, "another eviction"),
        (SERVER | {"max_cpu_loras": 2}, "replica.max_cpu_loras=null"),
        (SERVER | DISTRIBUTED | {"placement": "random"}, "adapter_pool=replicated"),
        (SERVER | OTHERS, "replicas that are all alike"),
    ],
)
def test_what_cannot_be_is_said_plainly(changes, message):
    with pytest.raises(InputError, match=re.escape(message)):
        Simulation(CASE.but(**changes).scenario())


@pytest.mark.parametrize(
    "changes",
    [
        BY_QUEUE | OTHERS | FAR_SLOTS | {"least_replicas": 2},
        {"failures": ((0, 1.0, 2.0), (0, 2.0, 4.0))},
        without("merge."),
        {"adapter_memory": "padded", "adapter_region_tokens": 16} | without("adapter_load.flush_s"),
    ],
)
def test_what_can_be_is_not_refused(changes):
    """Every rank is held by replicas that stay on; a host fails again as it is back; a cost that does not occur."""
    Simulation(CASE.but(**changes).scenario())


COPIES: dict[str, Any] = {"full_copies": True, "target_modules": ()}


@pytest.mark.parametrize(
    "kind, arguments, message",
    [
        (Failure, {"host": 0, "at_s": 5.0, "until_s": 3.0}, "until_s of cluster.failures is 3.0, must be"),
        (Clients, {"think_s": 1.0}, "clients.think_s is between the requests of a closed loop"),
        (Scored, {"status_every_s": 0}, "router.status_every_s is 0, must be"),
        (Speculation, {"tokens": -1}, "speculation.tokens is -1"),
        (Speculation, {"acceptance": 1.5}, "speculation.acceptance is 1.5"),
        (Speculation, {"adapter_acceptance": (0.8, 0.2)}, "must have the lower"),
        (Speculation, {"adapter_acceptance": {}}, "must have a probability for each rank"),
        (Speculation, {"most_running": 0}, "speculation.most_running is 0"),
        (KvTiersConfig, {"disk_bytes": -1}, "host.kv_disk_bytes is -1, must be"),
        (KvTiersConfig, {"store_bytes": nan}, "cluster.kv_store_bytes is nan, must be"),
        (KvTiersConfig, {"store_servers": 0}, "cluster.kv_store_servers is 0, must be"),
        (KvTiersConfig, {"fetch": "never"}, "cluster.kv_fetch is 'never'; choose one of"),
        *((ClusterConfig, {"replicas": n}, f"cluster.replicas is {n}, must be") for n in (0, -1, 1.5, True)),
        (ClusterConfig, {"replicas": 1, "status_every_s": -1}, "cluster.status_every_s is -1, must be"),
        (ReplicaConfig, {"kv_token_budget": 0}, "replica.kv_token_budget is 0, must be"),
        (ReplicaConfig, {"max_num_seqs": 0}, "replica.max_num_seqs is 0"),
        (ReplicaConfig, {"max_num_batched_tokens": 1.5}, "replica.max_num_batched_tokens is 1.5"),
        (ReplicaConfig, {"max_wait_tokens": -1}, "replica.max_wait_tokens is -1, must be"),
        (ReplicaConfig, {"max_wait_tokens": True}, "replica.max_wait_tokens is True"),
        (ReplicaConfig, {"block_size": 0}, "replica.block_size is 0"),
        (ReplicaConfig, {"tp": 0}, "replica.tp is 0"),
        (ReplicaConfig, {"watermark": 1.0}, "replica.watermark is 1.0, must be"),
        (ReplicaConfig, {"watermark": nan}, "replica.watermark is nan"),
        (ReplicaConfig, {"reserve": "peek"}, "replica.reserve is 'peek'; did you mean peak?"),
        (ReplicaConfig, {"preemption": "sawp"}, "replica.preemption is 'sawp'; did you mean swap?"),
        (ReplicaConfig, {"max_loras": 2, "max_cpu_loras": 1}, "replica.max_cpu_loras is 1, must be at least"),
        (ReplicaConfig, COPIES | {"adapter_memory": "partition"}, "replica.full_copies is true, which needs"),
        (ReplicaConfig, {"full_copies": 3}, "replica.full_copies is 3, must be true or false"),
    ],
)
def test_so_is_a_part_of_a_scenario(kind, arguments, message):
    known = {"kv_token_budget": 10} if kind is ReplicaConfig else {}
    with pytest.raises(InputError, match=re.escape(message)):
        kind(**(known | arguments))
