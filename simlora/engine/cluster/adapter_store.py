"""Which hosts have which adapters in their memory, and how adapters are copied between hosts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from typing import NamedTuple

from simlora.core.adapter import Adapter
from simlora.core.errors import InputError
from simlora.engine.clock import STORE, Clock
from simlora.engine.replica.host_link import HostLink
from simlora.engine.replica.link import Link, together
from simlora.engine.scenario import ClusterConfig
from simlora.latency.transfer import AdapterLoad
from simlora.metrics.recorder import Recorder

Hosts = Mapping[int, Set[int]]
"""By adapter id the hosts whose replicas serve it."""


class Loading(NamedTuple):
    """The link over which a host loads into one replica, and how long that takes for so many bytes."""

    link: Link
    copy_s: Callable[[int], float]


class AdapterStore:
    """A pool of adapters over `hosts`: each holds what its replicas serve, and together they hold all.

    An adapter that a host does not hold comes from a host that does: from its memory over PCIe into its GPU, over the
    `network` into the GPU that asked, shard by shard, each GPU with a network card of its own; and from there into the
    memory of the asking host. If no host holds it, as its holders have failed, it is read from `storage`. Once
    a host that serves an adapter holds it, hosts that do not serve it drop it; the last copy stays.
    `memory_bytes` is what adapters may take of a host's memory; an adapter that does not fit is fetched each time.

    Source: LoRAServe §IV-B.
    """

    def __init__(
        self, cluster: ClusterConfig, adapters: Sequence[Adapter], recorder: Recorder, clock: Clock
    ) -> None:
        self._adapters, self._host_of, hosts = adapters, cluster.host_of, cluster.hosts
        self._network, self._storage = cluster.network, cluster.storage
        self._memory_bytes = cluster.host_memory_bytes
        self._recorder, self._clock = recorder, clock
        self.holders: list[dict[int, None]] = [{} for _ in adapters]  # hosts, by adapter
        self.held_bytes = [0] * hosts
        self.held = [0] * hosts  # adapters
        self.most_bytes, self.most_held = [0] * hosts, [0] * hosts
        self.refused = 0  # copies for which there was no room
        self.remote_loads, self.storage_loads = [0] * hosts, [0] * hosts
        self._serving: Hosts = {}
        self._sends, self._receives, self._reads = ([Link() for _ in range(hosts)] for _ in range(3))
        self._loads: list[dict[int, Loading]] = [{} for _ in range(hosts)]  # PCIe to its GPUs, by replica
        self._failures = [0] * hosts

    def connect(self, replica: int, link: Link, copy_s: Callable[[int], float]) -> None:
        """The host of a replica loads into it over `link`, so many bytes in `copy_s` seconds."""
        self._loads[self._host_of(replica)][replica] = Loading(link, copy_s)

    def fail(self, host: int) -> int:
        """A host fails, with what it held and what was on its way there; return how many adapters no host has now."""
        lost = 0
        for holders in self.holders:
            if host in holders:
                del holders[host]
                lost += not holders
        self.held[host] = self.held_bytes[host] = 0
        self._loads[host] = {}
        self._failures[host] += 1
        factor = self._sends[host].slowdown
        self._sends[host], self._receives[host], self._reads[host] = Link(), Link(), Link()
        self.slow_down(host, factor)
        return lost

    def slow_down(self, host: int, factor: float) -> None:
        """Transfers over a host's network cards take `factor` times as long from now on."""
        self._sends[host].slowdown = self._receives[host].slowdown = factor

    def begin(self, serving: Hosts) -> None:
        """Have each adapter in the memory of the hosts that serve it, before anything runs."""
        self._serving = serving
        for adapter in self._adapters:
            for host in sorted(serving[adapter.id]):
                if not self._fits(host, adapter):
                    raise InputError(
                        f"host.memory_bytes is {self._memory_bytes:,.0f}, which is too little for the adapters "
                        f"that host {host} holds at first; take more hosts, or another placement"
                    )
                self._hold(host, adapter)

    def serve(self, serving: Hosts) -> int:
        """Set which hosts serve each adapter from now on; return the bytes that those new to one do not hold yet."""
        before, self._serving = self._serving, serving
        missing_bytes = 0
        for adapter in self._adapters:
            come = serving[adapter.id] - before[adapter.id]
            missing_bytes += len(come - self.holders[adapter.id].keys()) * adapter.size_bytes
            self._drop_unserved(adapter)
        return missing_bytes

    def holds(self, replica: int, adapter: Adapter) -> bool:
        """Whether the host of a replica has an adapter in its memory."""
        return self._host_of(replica) in self.holders[adapter.id]

    def fetch(self, replica: int, adapter: Adapter, shard_bytes: int, now_s: float, out: Link) -> float:
        """Fetch an adapter that a replica's host does not hold; return when it is in the replica's HBM.

        The host holds it as soon as it has been copied there over `out`.
        """
        host = self._host_of(replica)
        holders = self.holders[adapter.id]
        if not holders:
            self.storage_loads[host] += 1
            self._recorder.fetched(adapter.size_bytes, from_storage=True)
            read_s = self._reads[host].transfer(now_s, self._storage.transfer_s(adapter.size_bytes))
            self._keep(read_s, host, adapter)
            own = min(self._loads[host].values(), key=lambda each: each.link.free_at_s)
            return own.link.transfer(read_s, own.copy_s(shard_bytes), what=adapter)
        self.remote_loads[host] += 1
        self._recorder.fetched(adapter.size_bytes, from_storage=False)
        loads = ((each.link.free_at_s, host, each) for host in holders for each in self._loads[host].values())
        _, source, (link, copy_s) = min(loads, key=lambda found: found[:2])
        sent_s = link.transfer(now_s, copy_s(shard_bytes), what=adapter)
        cards = (self._sends[source], self._receives[host])
        ready_s = together(cards, sent_s, self._network.transfer_s(shard_bytes))
        out_s = self._loads[host][replica].copy_s(shard_bytes)
        self._keep(out.transfer(ready_s, out_s, what=adapter), host, adapter)
        return ready_s

    def _keep(self, time_s: float, host: int, adapter: Adapter) -> None:
        """A copy is in a host's memory from that time on, unless the host fails before.

        One that has gone on since an arrival may be there already, which is known now.
        """
        failures = self._failures[host]
        self._clock.call(
            max(time_s, self._clock.now),
            STORE,
            0,
            lambda: self._arrives(host, adapter) if failures == self._failures[host] else None,
        )

    def _arrives(self, host: int, adapter: Adapter) -> None:
        """A copy has reached a host, which holds it if there is room; hosts that do not serve it may drop theirs."""
        if host in self.holders[adapter.id]:
            return
        if not self._fits(host, adapter):
            for other in self._adapters:
                if host in self.holders[other.id] and host not in self._serving[other.id]:
                    self._drop(host, other)
            if not self._fits(host, adapter):
                self.refused += 1
                return
        self._hold(host, adapter)
        self._drop_unserved(adapter)

    def _fits(self, host: int, adapter: Adapter) -> bool:
        most = self._memory_bytes
        return most is None or self.held_bytes[host] + adapter.size_bytes <= most

    def _hold(self, host: int, adapter: Adapter) -> None:
        self.holders[adapter.id][host] = None
        self.held[host] += 1
        self.held_bytes[host] += adapter.size_bytes
        self.most_held[host] = max(self.most_held[host], self.held[host])
        self.most_bytes[host] = max(self.most_bytes[host], self.held_bytes[host])

    def _drop(self, host: int, adapter: Adapter) -> None:
        """A host drops an adapter, unless it has the last copy."""
        holders = self.holders[adapter.id]
        if len(holders) > 1:
            del holders[host]
            self.held[host] -= 1
            self.held_bytes[host] -= adapter.size_bytes

    def _drop_unserved(self, adapter: Adapter) -> None:
        """Hosts that do not serve an adapter drop it once a host that does holds it."""
        serving, holders = self._serving[adapter.id], self.holders[adapter.id]
        if any(host in serving for host in holders):
            for host in [host for host in holders if host not in serving]:
                self._drop(host, adapter)


class FetchingLink(HostLink):
    """The host link of a replica whose host may not hold an adapter: the `store` fetches it then."""

    __slots__ = ("_replica", "_store")

    def __init__(
        self, store: AdapterStore, replica: int, load: AdapterLoad, tp: int, kv_bytes: int, recorder: Recorder
    ) -> None:
        super().__init__(load, tp, kv_bytes, recorder)
        self._store, self._replica = store, replica
        store.connect(replica, self.to_gpu, load.load_s)

    def load(self, adapter: Adapter, now_s: float) -> float:
        if self._store.holds(self._replica, adapter):
            return super().load(adapter, now_s)
        self._recorder.adapter_load(adapter.size_bytes)
        shard_bytes = adapter.size_bytes // self._tp
        return self._store.fetch(self._replica, adapter, shard_bytes, now_s, self.to_host)
