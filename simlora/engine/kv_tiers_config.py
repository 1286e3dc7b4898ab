"""Where KV is kept below the hosts' memory, and how much of it."""

from __future__ import annotations

from dataclasses import dataclass

from simlora.core.checks import choice, number, whole
from simlora.hardware.link import LINKS, Link

KV_FETCHES = ("by_cost", "always")
STORE_MAX = 10**18
STORE_SERVERS_MAX = 10_000


@dataclass(frozen=True, kw_only=True)
class KvTiersConfig:
    """Where KV is kept below the hosts' memory: `disk_bytes` on the `disk` of each host, `store_bytes` on each server.

    The `store_servers` are reached over the cluster's network, each by a card of its own; together they are one store
    that all replicas share. `fetch`: by_cost, if that takes less time than computing the KV anew; or always.
    """

    disk_bytes: float = 0.0
    disk: Link = LINKS["nvme_pcie_3_x4"]
    store_bytes: float = 0.0
    store_servers: int = 1
    fetch: str = "by_cost"

    def __post_init__(self) -> None:
        number("host.kv_disk_bytes", self.disk_bytes, "bytes", least=0, most=STORE_MAX)
        number("cluster.kv_store_bytes", self.store_bytes, "bytes", least=0, most=STORE_MAX)
        whole("cluster.kv_store_servers", self.store_servers, "servers", least=1, most=STORE_SERVERS_MAX)
        choice("cluster.kv_fetch", self.fetch, KV_FETCHES)

    @property
    def used(self) -> bool:
        """Whether KV is kept in any of them."""
        return self.disk_bytes > 0 or self.store_bytes > 0
