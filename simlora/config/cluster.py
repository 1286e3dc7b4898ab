"""How many replicas there are and what lies between them: the sections `cluster` and `host`."""

from __future__ import annotations

from dataclasses import dataclass, replace

from simlora.config.incidents import Incident, incidents
from simlora.config.reading import Tree, as_whole, section
from simlora.config.replica import budgets_by_rate
from simlora.core.checks import number, shown, whole
from simlora.core.errors import InputError, nearest
from simlora.core.trace import Trace
from simlora.engine.incidents import Failure, SlowLink, Straggler
from simlora.engine.kv_tiers_config import KvTiersConfig
from simlora.engine.pools_config import PoolsConfig
from simlora.engine.scenario import ClusterConfig, Kind, ScalingConfig
from simlora.hardware.link import as_link
from simlora.policies.scaling.base import Autoscaler

CLUSTER_KEYS = (
    "replicas",
    "engines_per_gpu",
    "memory_shares",
    "max_outstanding",
    "adapter_rps",
    "adapter_burst",
    "status_every_s",
    "adapter_pool",
    "network",
    "storage",
    "failures",
    "stragglers",
    "slow_links",
    "replica_groups",
    "prefill_replicas",
    "kv_handover",
    "mixed_pool_tokens",
    "lora_server_gpus",
    "kv_store_bytes",
    "kv_store_servers",
    "kv_fetch",
    "least_replicas",
    "start_s",
    "warm_up_adapters",
)
HOST_KEYS = ("replicas", "cores", "memory_bytes", "kv_disk_bytes", "disk")
REPLICAS_MAX = 100_000
MEMORY_SHARES = ("equal", "rate")


@dataclass(frozen=True, kw_only=True)
class ClusterKeys:
    """What the two sections say, checked.

    `config` is without `replica_groups` and incidents: to read them takes more than these sections. `written` is the
    section `cluster` as it is.
    """

    config: ClusterConfig
    written: Tree
    start_s: float

    def scaling(self, autoscaler: Autoscaler, weight_bytes: float) -> ScalingConfig:
        """Return what it takes to add a replica that has so many bytes of weights."""
        return ScalingConfig(
            autoscaler=autoscaler,
            least_replicas=as_whole(self.written.get("least_replicas")),
            boot_s=self.start_s + self.config.storage.transfer_s(weight_bytes),
            warm_up_adapters=as_whole(self.written.get("warm_up_adapters")),
        )

    def complete(
        self, groups: tuple[Kind, ...], kv_token_budget: int, trace: Trace, seed: int
    ) -> ClusterConfig:
        """Return the cluster with groups of replicas, incidents during the trace, and the engines' shares of memory.

        Raises InputError.
        """
        config, budgets = self.config, tuple[int, ...]()
        if config.engines_per_gpu > 1 and self.written["memory_shares"] == "rate":
            budgets = budgets_by_rate(trace, kv_token_budget, config.replicas, config.engines_per_gpu)
        config = replace(config, replica_groups=groups, kv_token_budgets=budgets)

        def of(key: str, kind: type[Incident], count: int) -> tuple[Incident, ...]:
            return incidents(f"cluster.{key}", self.written.get(key), kind, count, seed, trace.duration_s)

        return replace(
            config,
            failures=of("failures", Failure, config.hosts),
            stragglers=of("stragglers", Straggler, config.replicas),
            slow_links=of("slow_links", SlowLink, config.hosts),
        )


def cluster_keys(tree: Tree) -> ClusterKeys:
    """Return what a configuration says of its cluster and hosts. Raises InputError."""
    cluster, host = section(tree, "cluster", CLUSTER_KEYS), section(tree, "host", HOST_KEYS)
    shares = cluster.get("memory_shares")
    if shares not in MEMORY_SHARES:
        raise InputError(f"cluster.memory_shares is {shown(shares)}; {nearest(str(shares), MEMORY_SHARES)}")
    engines = cluster.get("engines_per_gpu")
    config = ClusterConfig(
        engines_per_gpu=whole("cluster.engines_per_gpu", engines, "replicas", least=1, most=REPLICAS_MAX),
        prefill_replicas=as_whole(cluster.get("prefill_replicas")),
        pools=PoolsConfig(
            kv_handover=str(cluster.get("kv_handover")), mixed_pool_tokens=cluster.get("mixed_pool_tokens")
        ),
        lora_server_gpus=as_whole(cluster.get("lora_server_gpus")),
        replicas=whole("cluster.replicas", cluster.get("replicas"), least=1, most=REPLICAS_MAX),
        max_outstanding=as_whole(cluster.get("max_outstanding")),
        adapter_rps=cluster.get("adapter_rps"),
        adapter_burst=as_whole(cluster.get("adapter_burst")),
        status_every_s=cluster.get("status_every_s"),
        adapter_pool=str(cluster.get("adapter_pool")),
        network=as_link("cluster.network", cluster["network"]),
        storage=as_link("cluster.storage", cluster["storage"]),
        replicas_per_host=as_whole(host.get("replicas")),
        host_cores=as_whole(host.get("cores")),
        host_memory_bytes=host.get("memory_bytes"),
        kv_tiers=KvTiersConfig(
            disk_bytes=number("host.kv_disk_bytes", host.get("kv_disk_bytes"), "bytes", least=0),
            disk=as_link("host.disk", host["disk"]),
            store_bytes=number("cluster.kv_store_bytes", cluster.get("kv_store_bytes"), "bytes", least=0),
            store_servers=as_whole(cluster.get("kv_store_servers")),
            fetch=str(cluster.get("kv_fetch")),
        ),
    )
    start_s = number("cluster.start_s", cluster.get("start_s"), "seconds", least=0)
    return ClusterKeys(config=config, written=cluster, start_s=start_s)
