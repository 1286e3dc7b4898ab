"""Everything that one simulation needs, as plain objects."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simlora.core.checks import choice, number, whole
from simlora.core.errors import InputError
from simlora.core.trace import Trace
from simlora.engine.clients import Clients
from simlora.engine.incidents import Failure, SlowLink, Straggler, check_incidents
from simlora.engine.kv_tiers_config import KvTiersConfig
from simlora.engine.pools_config import PoolsConfig
from simlora.engine.replica_config import ReplicaConfig
from simlora.engine.speculation import Acceptance, Speculation
from simlora.hardware.gpu import Gpu
from simlora.hardware.link import LINKS, Link
from simlora.hardware.model import ModelShape
from simlora.latency.calibration import Calibration
from simlora.latency.kernels import Kernel
from simlora.metrics.missed import MissedMost
from simlora.policies.eviction.base import Eviction
from simlora.policies.loading.base import Loader
from simlora.policies.migration.base import Migration
from simlora.policies.migration.stay import Stay
from simlora.policies.placement.base import Placement
from simlora.policies.routing.base import Router
from simlora.policies.scaling.base import Autoscaler
from simlora.policies.scaling.fixed import Fixed
from simlora.policies.scheduling.base import Scheduler

ADAPTER_POOLS = ("replicated", "distributed")


@dataclass(frozen=True, kw_only=True)
class Policies:
    """One choice a slot. Those of a replica are factories: every replica gets its own instance.

    `decode_router` chooses among the replicas that decode, where others prefill.
    """

    scheduler: Callable[[], Scheduler]
    loader: Callable[[], Loader]
    eviction: Callable[[], Eviction]
    kernel: Callable[[Calibration], Kernel]
    router: Router
    placement: Placement
    migration: Migration = Stay()  # noqa: RUF009  # it has no state
    decode_router: Router | None = None

    @cached_property
    def merges(self) -> bool:
        """Whether the scheduler merges adapters into the weights."""
        # Read here, in code that stays interpreted: the flag may be a class's or an instance's.
        return self.scheduler().merges

    @cached_property
    def assists(self) -> bool:
        """Whether CPU cores of the host stand in for weights on their way."""
        return self.loader().assists


@dataclass(frozen=True, kw_only=True)
class Kind:
    """Replicas that are alike: how many, on which GPU, with what limits, and how long things take on it.

    `kernel` is what LoRA adds to an iteration with these limits; None: the policies' kernel, as for the base replica.
    """

    replicas: int
    replica: ReplicaConfig
    calibration: Calibration
    gpu: Gpu | None = None
    kernel: Callable[[Calibration], Kernel] | None = None


@dataclass(frozen=True, kw_only=True)
class ScalingConfig:
    """The autoscaler, which sets the number of replicas, and what it takes to add one.

    At least `least_replicas` stay on; with 0, the first request that finds no replica has one boot. A new replica is
    there `boot_s` later: cluster.start_s, and the seconds in which its weights come from cluster.storage. Then it loads
    the `warm_up_adapters` adapters that were asked for most so far, and takes requests when these are in HBM.
    """

    autoscaler: Autoscaler = Fixed()  # noqa: RUF009  # it has no state
    least_replicas: int = 1
    boot_s: float = 0.0
    warm_up_adapters: int = 0

    def __post_init__(self) -> None:
        whole("cluster.least_replicas", self.least_replicas, "replicas", least=0)
        number("boot_s of ScalingConfig", self.boot_s, "seconds", least=0)
        whole("cluster.warm_up_adapters", self.warm_up_adapters, "adapters", least=0)


@dataclass(frozen=True, kw_only=True)
class ClusterConfig:
    """Replicas and their hosts, what lies between them, and what goes wrong.

    `engines_per_gpu` replicas share the memory and the time of one GPU; 1: each has its own. `kv_token_budgets`: the
    pools of the replicas, where they differ from the replica's. `max_outstanding`: waiting and running requests, beyond
    which an arrival is rejected; None: no limit. `adapter_rps`: requests/s of each adapter that are admitted, up to
    `adapter_burst` at once, where others are rejected; None: no limit. `status_every_s`: how often replicas report
    their load to the router; 0: it is always current; None: as the router says, else always current. `host_cores`: CPU
    cores that `replicas_per_host` replicas share, for a loader that assists. `adapter_pool`: replicated, where every
    host holds all adapters; or distributed, where each host holds those that the placement gives to its replicas, up to
    `host_memory_bytes`, and fetches others over the `network`, or from `storage` if no host holds them.
    `replica_groups`: the last of the `replicas`, group by group, on other GPUs or with other limits.
    `prefill_replicas`: the first of the replicas, which only prefill, while the others decode; 0: each does both. KV
    goes from one to the other over the `network`, as the `pools` say. `lora_server_gpus` hold all adapters and compute
    LoRA for all replicas, which they reach over the `network`; 0: each replica does that. `kv_tiers`: where KV is kept
    below the hosts' memory. `faults_on_request`: what goes wrong is not only listed, but may also be asked for while
    the run is driven.
    """

    replicas: int
    engines_per_gpu: int = 1
    kv_token_budgets: tuple[int, ...] = ()
    max_outstanding: int | None = None
    adapter_rps: float | None = None
    adapter_burst: int = 10
    replicas_per_host: int = 1
    host_cores: int = 128
    status_every_s: float | None = None
    adapter_pool: str = "replicated"
    host_memory_bytes: float | None = None
    network: Link = LINKS["infiniband_hdr"]
    storage: Link = LINKS["nvme_pcie_3_x4"]
    failures: tuple[Failure, ...] = ()
    stragglers: tuple[Straggler, ...] = ()
    slow_links: tuple[SlowLink, ...] = ()
    replica_groups: tuple[Kind, ...] = ()
    prefill_replicas: int = 0
    pools: PoolsConfig = PoolsConfig()  # noqa: RUF009  # it has no state
    lora_server_gpus: int = 0
    kv_tiers: KvTiersConfig = KvTiersConfig()  # noqa: RUF009  # it has no state
    faults_on_request: bool = False

    def __post_init__(self) -> None:
        whole("cluster.replicas", self.replicas, "replicas", least=1)
        whole("cluster.prefill_replicas", self.prefill_replicas, "replicas", least=0, most=self.replicas - 1)
        whole("cluster.lora_server_gpus", self.lora_server_gpus, "GPUs", least=0)
        whole("cluster.engines_per_gpu", self.engines_per_gpu, "replicas", least=1)
        whole("host.replicas", self.replicas_per_host, "replicas", least=1)
        whole("host.cores", self.host_cores, "CPU cores", least=0)
        if self.status_every_s is not None:
            number("cluster.status_every_s", self.status_every_s, "seconds", least=0)
        if self.max_outstanding is not None:
            whole("cluster.max_outstanding", self.max_outstanding, "requests", least=1)
        if self.adapter_rps is not None:
            number("cluster.adapter_rps", self.adapter_rps, "requests/s", above=0)
        whole("cluster.adapter_burst", self.adapter_burst, "requests", least=1)
        choice("cluster.adapter_pool", self.adapter_pool, ADAPTER_POOLS)
        if self.host_memory_bytes is not None:
            number("host.memory_bytes", self.host_memory_bytes, "bytes", above=0)
        check_incidents(self.failures, self.hosts)
        check_incidents(self.stragglers, self.replicas)
        check_incidents(self.slow_links, self.hosts)
        if self.replica_groups and self.alike < 1:
            raise InputError(
                "cluster.replica_groups has all of the replicas, must leave at least one of cluster.replicas"
            )

    @property
    def alike(self) -> int:
        """How many replicas are in none of the `replica_groups`: the first ones."""
        return self.replicas - sum(kind.replicas for kind in self.replica_groups)

    @property
    def mixes(self) -> bool:
        """Whether replicas of either pool may prefill and decode."""
        return self.prefill_replicas > 0 and self.pools.mixed_pool_tokens is not None

    @property
    def may_fail(self) -> bool:
        """Whether a host may fail."""
        return bool(self.failures) or self.faults_on_request

    @property
    def may_straggle(self) -> bool:
        """Whether a replica may be slow for a while."""
        return bool(self.stragglers) or self.faults_on_request

    @property
    def hosts(self) -> int:
        """How many hosts the replicas lie on."""
        return -(-self.replicas // self.replicas_per_host)

    def host_of(self, replica: int) -> int:
        """Return the host that carries a replica."""
        return replica // self.replicas_per_host

    def replicas_of(self, host: int) -> list[int]:
        """Return the replicas that a host carries."""
        first = host * self.replicas_per_host
        return list(range(first, min(first + self.replicas_per_host, self.replicas)))


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """A trace, the cluster that serves it, and the policies that decide.

    `replica`, `calibration` and `gpu` are those of the replicas outside `cluster.replica_groups`; without a `gpu` costs
    are not asked for. `ttft_targets_s` `[adapters + 1]`: the first-token target of each adapter's requests and, last,
    of the base model's, inf where there is none; None: there are none.
    `parts` make parts of the user's own for a replica (engine/replica/part.py), which come after the system's.
    `until_s`: when the run stops; requests that have not ended by then are unfinished. None: when all have ended.
    `lora_communication`: whether the collectives of adapters between the GPUs of a replica take time.
    `listed_adapters`: how many adapters the LoRA manager lists, once for each adapter of a step; None: those of the
    trace.
    `speculation`: what a draft proposes, if there is one.
    `lora_server`: what LoRA takes on a GPU of the cluster's LoRA server, where replicas divide adapters among several
    GPUs; None: what it takes on a replica's.
    `clients`: how they react to what becomes of the trace's requests, if they do.
    `until_missed`: how many requests may miss their SLO before the run stops; None: all of them.
    """

    trace: Trace
    cluster: ClusterConfig
    model: ModelShape
    calibration: Calibration
    replica: ReplicaConfig
    policies: Policies
    seed: int = 0
    fast_forward: bool = True
    timeline: bool = True
    tracing: bool = False
    until_s: float | None = None
    until_missed: MissedMost | None = None
    clients: Clients = Clients()  # noqa: RUF009  # it has no state
    scaling: ScalingConfig = ScalingConfig()
    speculation: Speculation = Speculation()  # noqa: RUF009  # it has no state
    lora_server: Calibration | None = None
    lora_communication: bool = True
    listed_adapters: int | None = None
    gpu: Gpu | None = None
    ttft_targets_s: NDArray[np.float64] | None = None
    parts: tuple[Callable[..., Any], ...] = ()

    def __post_init__(self) -> None:
        policies, cluster = self.policies, self.cluster
        if self.speculation.tokens:
            self.speculation.check_ranks([adapter.rank for adapter in self.trace.adapters])
        if self.scaling.autoscaler.period_s is not None:
            most = cluster.replicas
            whole("cluster.least_replicas", self.scaling.least_replicas, "replicas", least=0, most=most)
            if policies.migration.period_s is not None:
                raise InputError("an autoscaler needs migration=stay")
            if cluster.replica_groups and not self.scaling.least_replicas:
                raise InputError(
                    "cluster.least_replicas=0 needs replicas that are all alike, without cluster.replica_groups"
                )
            self._check_ranks_always_held()
        for slot, policy in ("placement", policies.placement), ("migration", policies.migration):
            if cluster.replica_groups and policy.assumes_alike:
                raise InputError(
                    f"cluster.replica_groups needs another {slot}: this one takes all replicas for alike"
                )
        if policies.router.asks:
            self._check_asking()

    def _check_asking(self) -> None:
        """Raise InputError where a router that asks all replicas may miss one, or requests come from elsewhere."""
        cluster = self.cluster
        missing = {
            "migration=stay": self.policies.migration.period_s is not None,
            "autoscaler=fixed": self.scaling.autoscaler.period_s is not None,
            "no failures, which a live cluster may be asked for": cluster.may_fail,
            "cluster.status_every_s=null": cluster.status_every_s is not None,
            "cluster.prefill_replicas=0": cluster.prefill_replicas,
        }
        for needed, lacks in missing.items():
            if lacks:
                raise InputError(f"a router that asks all replicas needs {needed}")

    def _check_ranks_always_held(self) -> None:
        """Raise InputError if an autoscaler may switch off all replicas that hold the highest rank."""
        least, adapters = self.scaling.least_replicas, self.trace.adapters
        if not self.cluster.replica_groups or not adapters:
            return
        highest = max(adapters, key=lambda adapter: adapter.rank)
        most = max(self.config_of(id).highest_rank for id in range(least))
        if highest.rank > most:
            raise InputError(
                f"adapter {highest.name} has rank {highest.rank}, must be at most {most} with an autoscaler, the "
                f"highest replica.max_lora_rank of the first cluster.least_replicas={least} replicas, which stay on"
            )

    @property
    def routers(self) -> tuple[Router, ...]:
        """The router; where prefill and decode are apart, that of the replicas that decode, too."""
        policies = self.policies
        if not self.cluster.prefill_replicas or policies.decode_router is None:
            return (policies.router,)
        return policies.router, policies.decode_router

    @cached_property
    def acceptance(self) -> Acceptance:
        """How many of the tokens are accepted that a draft proposes."""
        return self.speculation.accepted([adapter.rank for adapter in self.trace.adapters], self.seed)

    @cached_property
    def kinds(self) -> tuple[Kind, ...]:
        """All replicas, by kind, in the order of their numbers."""
        alike = self.cluster.alike
        first = Kind(replicas=alike, replica=self.replica, calibration=self.calibration, gpu=self.gpu)
        return (first, *self.cluster.replica_groups)

    @cached_property
    def kind_of(self) -> NDArray[np.int64]:
        """Of which of the `kinds` each replica is `[replicas]`."""
        return np.repeat(np.arange(len(self.kinds)), [kind.replicas for kind in self.kinds])

    @cached_property
    def firsts(self) -> list[int]:
        """The first replica of each of the `kinds`."""
        found: list[int] = np.unique(self.kind_of, return_index=True)[1].tolist()
        return found

    def config_of(self, replica: int) -> ReplicaConfig:
        """Return the limits of one replica."""
        if self.cluster.kv_token_budgets:
            return replace(self.replica, kv_token_budget=self.cluster.kv_token_budgets[replica])
        return self.kinds[int(self.kind_of[replica])].replica

    @cached_property
    def highest_ranks(self) -> NDArray[np.int64]:
        """The highest rank of an adapter that each replica can hold `[replicas]`."""
        return np.array([kind.replica.highest_rank for kind in self.kinds], dtype=np.int64)[self.kind_of]

    @property
    def cache_block_tokens(self) -> int:
        """Tokens of a block of the base replica's cached KV."""
        return self.cache_block_tokens_with(self.replica)

    def cache_block_tokens_with(self, config: ReplicaConfig) -> int:
        """Return the tokens of a block of cached KV: the trace's where it has hashes, or else those of memory."""
        return self.trace.hash_block_tokens if self.trace.has_hashes else config.block_size
