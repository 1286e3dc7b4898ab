"""Which hosts have which adapters in their memory, and how one gets what another has."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from typing import NamedTuple

from simlora.core.adapter import Adapter
from simlora.core.errors import InputError
from simlora.engine.link import Link, together
from simlora.hardware.link import Link as LinkRate
from simlora.metrics.recorder import Recorder

Hosts = Mapping[int, Set[int]]
"""By adapter id the hosts whose replicas serve it."""


class Loading(NamedTuple):
    """The link over which a host loads into one replica, and how long that takes for so many bytes."""

    link: Link
    copy_s: Callable[[int], float]


class Stores:
    """A pool of adapters over `hosts`: each holds what its replicas serve, and together they hold all.

    What a host needs and does not hold comes from one that does: from its memory over PCIe into its GPU, over the
    `network` into the GPU that asked, shard by shard, each GPU with a network card of its own; and from there into the
    memory of the asking host. If nobody holds it, as those who did have failed, it is read from `storage`. Once
    somebody who serves an adapter holds it, those who do not give it up; the last copy stays.
    `memory_bytes` is what adapters may take of a host's memory. What a host has no room for it fetches each time.
    `host_of` says on which host a replica lies.
    Source: LoRAServe §IV-B.
    """

    def __init__(
        self,
        adapters: Sequence[Adapter],
        hosts: int,
        host_of: Callable[[int], int],
        network: LinkRate,
        storage: LinkRate,
        memory_bytes: float | None,
        recorder: Recorder,
        later: Callable[[float, Callable[[], None]], None],
    ) -> None:
        self._adapters, self._host_of = adapters, host_of
        self._network, self._storage, self._memory_bytes = network, storage, memory_bytes
        self._recorder, self._later = recorder, later
        self.holders: list[dict[int, None]] = [{} for _ in adapters]  # hosts, by adapter
        self.held_bytes = [0] * hosts
        self.held = [0] * hosts  # adapters
        self.most_bytes, self.most_held = [0] * hosts, [0] * hosts
        self.refused = 0  # copies for which there was no room
        self.remote_loads, self.storage_loads = [0] * hosts, [0] * hosts  # that each has sent for
        self._serving: list[Set[int]] = [frozenset(range(hosts)) for _ in adapters]
        self._sends, self._receives = ([Link() for _ in range(hosts)] for _ in range(2))
        self._reads = [Link() for _ in range(hosts)]
        self._loads: list[dict[int, Loading]] = [{} for _ in range(hosts)]  # PCIe to its GPUs, by replica
        self._times = [0] * hosts  # how often each has failed
        self._slowdowns = [1.0] * hosts  # of the network

    def joins(self, replica: int, link: Link, copy_s: Callable[[int], float]) -> None:
        """A replica brings the link over which its host loads, instead of that of the one whose place it takes."""
        self._loads[self._host_of(replica)][replica] = Loading(link, copy_s)

    def fails(self, host: int) -> int:
        """A host is gone, with what it held and what was on its way there; return how many adapters nobody has now."""
        lost = 0
        for holders in self.holders:
            if host in holders:
                del holders[host]
                lost += not holders
        self.held[host] = self.held_bytes[host] = 0
        self._loads[host] = {}
        self._times[host] += 1
        self._sends[host], self._receives[host], self._reads[host] = Link(), Link(), Link()
        self.slow_down(host, self._slowdowns[host])
        return lost

    def slow_down(self, host: int, factor: float) -> None:
        """What goes over a host's network cards takes `factor` times as long from now on."""
        self._slowdowns[host] = factor
        self._sends[host].slowdown = self._receives[host].slowdown = factor

    # What the placement says --------------------------------------------------------------

    def serve(self, serving: Hosts, at_first: bool = False) -> None:
        """The placement says who serves what from now on; at first they hold it, too."""
        for adapter in self._adapters:
            hosts = self._serving[adapter.id] = serving[adapter.id]
            if at_first:
                for host in sorted(hosts):
                    if not self._fits(host, adapter):
                        raise InputError(
                            f"host.memory_bytes is {self._memory_bytes:,.0f}, which is too little for the adapters "
                            f"that host {host} holds at first; take more hosts, or another placement"
                        )
                    self._hold(host, adapter)
            else:
                self._give_up(adapter)

    # Fetching -----------------------------------------------------------------------------

    def holds(self, replica: int, adapter: Adapter) -> bool:
        """Whether the host of a replica has an adapter in its memory."""
        return self._host_of(replica) in self.holders[adapter.id]

    def fetch(self, replica: int, adapter: Adapter, shard_bytes: int, now_s: float, out: Link) -> float:
        """Send for an adapter that a replica's host does not hold; return when it is in the replica's HBM.

        Its host keeps it as soon as it has been copied there over `out`.
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
        _, source, (link, copy_s) = min(
            (
                (each.link.free_at_s, holder, each)
                for holder in holders
                for each in self._loads[holder].values()
            ),
            key=lambda found: found[:2],
        )
        there_s = link.transfer(now_s, copy_s(shard_bytes), what=adapter)
        cards = (self._sends[source], self._receives[host])
        lands_s = together(cards, there_s, self._network.transfer_s(shard_bytes))
        out_s = self._loads[host][replica].copy_s(shard_bytes)
        self._keep(out.transfer(lands_s, out_s, what=adapter), host, adapter)
        return lands_s

    def _keep(self, time_s: float, host: int, adapter: Adapter) -> None:
        """A copy is in a host's memory from then on, if that does not fail before."""
        times = self._times[host]
        self._later(time_s, lambda: self._arrives(host, adapter) if times == self._times[host] else None)

    def _arrives(self, host: int, adapter: Adapter) -> None:
        """A host has an adapter in its memory, if there is room; others who do not serve it need it no longer."""
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
        self._give_up(adapter)

    # Memory -------------------------------------------------------------------------------

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
        """A host gives up an adapter, unless nobody else has it."""
        holders = self.holders[adapter.id]
        if len(holders) > 1:
            del holders[host]
            self.held[host] -= 1
            self.held_bytes[host] -= adapter.size_bytes

    def _give_up(self, adapter: Adapter) -> None:
        """Who does not serve an adapter gives it up once somebody who does holds it."""
        serving, holders = self._serving[adapter.id], self.holders[adapter.id]
        if any(host in serving for host in holders):
            for host in [host for host in holders if host not in serving]:
                self._drop(host, adapter)
