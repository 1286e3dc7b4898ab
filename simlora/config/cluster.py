"""How many replicas there are and what lies between them: the sections `cluster` and `host`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from simlora.config.incidents import Incident, incidents
from simlora.config.reading import Tree, as_whole, section
from simlora.core.checks import number, shown, whole
from simlora.core.errors import InputError, nearest
from simlora.engine.incidents import Failure, SlowLink, Straggler
from simlora.engine.scenario import ClusterConfig, Kind, ScalingConfig
from simlora.hardware.link import Link, as_link
from simlora.hardware.model import ModelShape
from simlora.policies.scaling.base import Autoscaler

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
    "replica_groups",
    "least_replicas",
    "start_s",
    "warm_up_adapters",
)
HOST_KEYS = ("replicas", "cores", "memory_bytes")
REPLICAS_MAX = 100_000
MEMORY_SHARES = ("equal", "rate")


@dataclass(frozen=True, kw_only=True)
class ClusterKeys:
    """What the two sections say, checked but for what a Scenario checks itself.

    `replica_groups` and the incidents (`failures`, `stragglers`, `slow_links`) are as they are written: to read them
    takes more than these sections.
    """

    replicas: int
    engines_per_gpu: int
    memory_shares: str
    max_outstanding: Any
    status_every_s: Any
    adapter_pool: str
    network: Link
    storage: Link
    failures: Any
    stragglers: Any
    slow_links: Any
    replica_groups: Any
    least_replicas: Any
    start_s: float
    warm_up_adapters: Any
    replicas_per_host: int
    host_cores: int
    host_memory_bytes: Any

    @property
    def shares_by_rate(self) -> bool:
        """Whether the engines of a GPU get of its memory what their requests make of all."""
        return self.engines_per_gpu > 1 and self.memory_shares == "rate"

    def scaling(self, autoscaler: Autoscaler, model: ModelShape) -> ScalingConfig:
        """Return what it takes to add a replica of this model."""
        return ScalingConfig(
            autoscaler=autoscaler,
            least_replicas=self.least_replicas,
            boot_s=self.start_s + self.storage.transfer_s(model.weight_bytes),
            warm_up_adapters=self.warm_up_adapters,
        )

    def config(
        self, groups: tuple[Kind, ...], kv_token_budgets: tuple[int, ...], seed: int, until_s: float
    ) -> ClusterConfig:
        """Return the cluster, with what goes wrong in it up to a time. Raises InputError."""
        found = ClusterConfig(
            replicas=self.replicas,
            engines_per_gpu=self.engines_per_gpu,
            kv_token_budgets=kv_token_budgets,
            max_outstanding=self.max_outstanding,
            replicas_per_host=self.replicas_per_host,
            host_cores=self.host_cores,
            status_every_s=self.status_every_s,
            adapter_pool=self.adapter_pool,
            host_memory_bytes=self.host_memory_bytes,
            network=self.network,
            storage=self.storage,
            replica_groups=groups,
        )

        def of(key: str, kind: type[Incident], count: int) -> tuple[Incident, ...]:
            return incidents(f"cluster.{key}", getattr(self, key), kind, count, seed, until_s)

        return replace(
            found,
            failures=of("failures", Failure, found.hosts),
            stragglers=of("stragglers", Straggler, found.replicas),
            slow_links=of("slow_links", SlowLink, found.hosts),
        )


def cluster_keys(tree: Tree) -> ClusterKeys:
    """Return what a configuration says of its cluster and hosts. Raises InputError."""
    cluster, host = section(tree, "cluster", CLUSTER_KEYS), section(tree, "host", HOST_KEYS)
    shares = cluster.get("memory_shares")
    if shares not in MEMORY_SHARES:
        raise InputError(f"cluster.memory_shares is {shown(shares)}; {nearest(str(shares), MEMORY_SHARES)}")
    return ClusterKeys(
        engines_per_gpu=whole(
            "cluster.engines_per_gpu", cluster.get("engines_per_gpu"), "replicas", least=1, most=REPLICAS_MAX
        ),
        replicas=whole("cluster.replicas", cluster.get("replicas"), least=1, most=REPLICAS_MAX),
        memory_shares=shares,
        max_outstanding=as_whole(cluster.get("max_outstanding")),
        status_every_s=cluster.get("status_every_s"),
        adapter_pool=str(cluster.get("adapter_pool")),
        network=as_link("cluster.network", cluster["network"]),
        storage=as_link("cluster.storage", cluster["storage"]),
        failures=cluster.get("failures"),
        stragglers=cluster.get("stragglers"),
        slow_links=cluster.get("slow_links"),
        replica_groups=cluster.get("replica_groups"),
        least_replicas=as_whole(cluster.get("least_replicas")),
        start_s=number("cluster.start_s", cluster.get("start_s"), "seconds", least=0),
        warm_up_adapters=as_whole(cluster.get("warm_up_adapters")),
        replicas_per_host=whole("host.replicas", as_whole(host.get("replicas")), "replicas", least=1),
        host_cores=whole("host.cores", as_whole(host.get("cores")), "CPU cores", least=0),
        host_memory_bytes=host.get("memory_bytes"),
    )
