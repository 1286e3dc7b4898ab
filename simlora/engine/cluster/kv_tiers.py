"""The stores of KV below the hosts' memory: one on the disk of each host, and one that all replicas share."""

from __future__ import annotations

from collections.abc import Sequence

from simlora.engine.parts.kv_store import KvStore, StoreAccess
from simlora.engine.scenario import Scenario
from simlora.memory.stored_prefixes import StoredPrefixes


class KvTiers:
    """`disks` are by host, none if none keeps KV; `shared` is over the network; each GPU has a card of its own."""

    def __init__(self, scenario: Scenario) -> None:
        cluster, model, tiers = scenario.cluster, scenario.model, scenario.cluster.kv_tiers
        self._scenario, self._token_bytes = scenario, model.kv_bytes_per_token
        self.disks: list[KvStore] = []
        self.shared: KvStore | None = None
        self._made: set[int] = set()
        if tiers.disk_bytes:
            self.disks = [self._disk() for _ in range(cluster.hosts)]
        if tiers.store_bytes:
            token_s = self._token_bytes / (cluster.network.bytes_per_s * tiers.store_servers)
            prefixes = self._prefixes(tiers.store_bytes * tiers.store_servers)
            self.shared = KvStore(prefixes, token_s, cluster.network.latency_s)

    def _prefixes(self, size_bytes: float) -> StoredPrefixes:
        return StoredPrefixes(self._scenario.cache_block_tokens, int(size_bytes // self._token_bytes))

    def _disk(self) -> KvStore:
        tiers = self._scenario.cluster.kv_tiers
        return KvStore(
            self._prefixes(tiers.disk_bytes), self._token_bytes / tiers.disk.bytes_per_s, tiers.disk.latency_s
        )

    def facts(self) -> dict[str, int]:
        """Return the tokens of KV that were written to the stores, and fetched from them."""
        shared = () if self.shared is None else (self.shared,)
        return {
            "tokens_to_disk": sum(disk.tokens_in for disk in self.disks),
            "tokens_from_disk": sum(disk.tokens_out for disk in self.disks),
            "tokens_to_store": sum(store.tokens_in for store in shared),
            "tokens_from_store": sum(store.tokens_out for store in shared),
        }

    def fail(self, replicas: Sequence[int]) -> None:
        """The host of these replicas is gone, and its disk with it."""
        if self.disks:
            host = self._scenario.cluster.host_of(replicas[0])
            failed, self.disks[host] = self.disks[host], self._disk()
            self.disks[host].tokens_in, self.disks[host].tokens_out = failed.tokens_in, failed.tokens_out

    def of(self, replica: int) -> list[StoreAccess]:
        """Return how a replica that is made reaches the stores, the nearest first.

        One that is made again, alone on its host, has another machine.
        """
        cluster, found = self._scenario.cluster, list[StoreAccess]()
        if replica in self._made and cluster.replicas_per_host == 1:
            self.fail([replica])
        self._made.add(replica)
        if self.disks:
            found.append(StoreAccess(self.disks[cluster.host_of(replica)], 0.0))
        if self.shared is not None:
            shard_bytes = self._scenario.model.kv_bytes_per_gpu(self._scenario.config_of(replica).tp)
            found.append(StoreAccess(self.shared, shard_bytes / cluster.network.bytes_per_s))
        return found
