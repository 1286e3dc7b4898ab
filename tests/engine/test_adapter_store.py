"""Hosts that hold what they serve, and get the rest from each other: which host holds what, and when a copy is there.

Times are sums by hand. A copy over PCIe takes a second for a hundred bytes, over the network for two hundred, from
storage for ten.
"""

from __future__ import annotations

from math import inf, nextafter
from types import SimpleNamespace

import pytest

from simlora.core.adapter import Adapter
from simlora.core.errors import InputError
from simlora.engine.clock import Clock
from simlora.engine.cluster.adapter_store import AdapterStore
from simlora.engine.replica.link import Link, together
from simlora.hardware.link import Link as LinkRate
from simlora.metrics.recorder import Recorder
from tests.engine.by_hand import load_s, prefill_s
from tests.engine.cases import Case, Row

A, B, C = (Adapter(id, name, 8, 1000, 32) for id, name in enumerate("abc"))


class Hosts:
    """Three hosts with a replica each, or more, and a clock that is turned by hand."""

    def __init__(self, hosts: int = 3, per_host: int = 1, memory_bytes: float | None = None) -> None:
        self._per_host = per_host
        self.clock = Clock()
        self.recorder = Recorder(Case(rows=(Row(0.0, 0, 1, 1, 1),)).scenario().trace, hosts)
        cluster = SimpleNamespace(
            hosts=hosts,
            host_of=lambda replica: replica // per_host,
            network=LinkRate("network", 0.0, 200.0),
            storage=LinkRate("storage", 0.0, 10.0),
            host_memory_bytes=memory_bytes,
        )
        self.stores = AdapterStore(
            cluster,  # type: ignore[arg-type]
            (A, B, C),
            self.recorder,
            self.clock,
        )
        self.loads = [Link() for _ in range(hosts * per_host)]
        self.outs = [Link() for _ in range(hosts * per_host)]
        for replica, link in enumerate(self.loads):
            self.stores.connect(replica, link, lambda size_bytes: size_bytes / 100)

    def serve(self, *of: tuple[int, ...], at_first: bool = False) -> None:
        """Which replicas serve the first adapter, the second, the third."""
        hosts = [frozenset(replica // self._per_host for replica in replicas) for replicas in of]
        serving = dict(enumerate(hosts))
        if at_first:
            self.stores.begin(serving)
        else:
            self.stores.serve(serving)

    def fetch(self, replica: int, adapter: Adapter, now_s: float, shard_bytes: int = 1000) -> float:
        return self.stores.fetch(replica, adapter, shard_bytes, now_s, self.outs[replica])

    def until(self, time_s: float) -> None:
        self.clock.run(nextafter(time_s, inf))

    def held(self) -> list[list[int]]:
        return [sorted(hosts) for hosts in self.stores.holders]


@pytest.fixture
def hosts() -> Hosts:
    found = Hosts()
    found.serve((0,), (1,), (1, 2), at_first=True)
    return found


def test_at_first_hosts_hold_what_they_serve(hosts: Hosts) -> None:
    assert hosts.held() == [[0], [1], [1, 2]]
    assert (hosts.stores.held, hosts.stores.held_bytes) == ([1, 2, 1], [1000, 2000, 1000])
    assert hosts.stores.holds(0, A)
    assert not hosts.stores.holds(1, A)


def test_replicas_of_one_host_share_its_memory() -> None:
    hosts = Hosts(hosts=2, per_host=2)
    hosts.serve((0, 1), (3,), (0, 3), at_first=True)
    assert hosts.held() == [[0], [1], [0, 1]]
    assert hosts.stores.holds(2, B)


def test_a_copy_goes_from_memory_to_gpu_to_gpu(hosts: Hosts) -> None:
    """Ten seconds over PCIe there, five over the network; ten more until the host has it, too."""
    assert hosts.fetch(2, A, 100.0) == 115.0
    assert (hosts.loads[0].free_at_s, hosts.outs[2].free_at_s) == (110.0, 125.0)
    hosts.until(124.0)
    assert hosts.held()[A.id] == [0]
    hosts.until(125.0)
    assert hosts.held()[A.id] == [0], "it does not serve it, and the one that does has it"
    assert (hosts.recorder.remote_loads, hosts.recorder.storage_loads) == (1, 0)


def test_each_gpu_of_a_replica_gets_its_shard(hosts: Hosts) -> None:
    assert hosts.fetch(2, A, 100.0, shard_bytes=250) == pytest.approx(100.0 + 2.5 + 1.25)


def test_a_host_that_serves_it_now_has_it_as_soon_as_it_has_asked_and_the_one_that_did_drops_it(
    hosts: Hosts,
) -> None:
    hosts.serve((2,), (1,), (1, 2))
    assert hosts.held()[A.id] == [0], "the last copy stays"
    hosts.fetch(2, A, 0.0)
    hosts.until(24.0)
    assert hosts.held()[A.id] == [0]
    hosts.until(25.0)
    assert hosts.held()[A.id] == [2]
    assert hosts.stores.held == [0, 2, 2]
    assert hosts.stores.most_held == [1, 2, 2]


def test_both_hosts_that_serve_it_keep_it(hosts: Hosts) -> None:
    hosts.serve((0, 2), (1,), (1, 2))
    hosts.fetch(2, A, 0.0)
    hosts.until(25.0)
    assert hosts.held()[A.id] == [0, 2]


def test_what_another_host_that_serves_it_holds_is_dropped_at_once(hosts: Hosts) -> None:
    hosts.serve((0,), (1,), (2,))
    assert hosts.held()[C.id] == [2]


def test_two_hosts_that_fetch_the_same_wait_for_each_other_at_every_link(hosts: Hosts) -> None:
    """Over PCIe until 10 and 20; the network begins with the second at 20."""
    assert [hosts.fetch(replica, A, 0.0) for replica in (1, 2)] == [15.0, 25.0]


def test_a_host_that_fetches_from_two_others_has_one_network_card(hosts: Hosts) -> None:
    """Both are through PCIe at 10, and go over the network one after the other."""
    assert [hosts.fetch(2, adapter, 0.0) for adapter in (A, B)] == [15.0, 20.0]


def test_of_the_hosts_that_hold_it_the_one_is_asked_whose_link_is_free_first(hosts: Hosts) -> None:
    hosts.loads[1].transfer(0.0, 50.0)
    assert hosts.fetch(0, C, 0.0) == 15.0
    assert hosts.loads[2].free_at_s == 10.0


def test_each_link_takes_its_own_time_and_a_replica_in_the_place_of_another_brings_its_own_link() -> None:
    """The first replica's host copies twice as fast as the others; 3 is put in 1's place, whose link is no more."""
    hosts = Hosts()
    hosts.serve((0,), (1,), (2,), at_first=True)
    hosts.stores.connect(0, hosts.loads[0], lambda size_bytes: size_bytes / 200)
    assert hosts.fetch(2, A, 0.0) == 5.0 + 5.0
    assert hosts.outs[2].free_at_s == 10.0 + 10.0, "into its own host's memory at its own speed"
    fresh = Link()
    hosts.stores.connect(1, fresh, lambda size_bytes: size_bytes / 100)
    fresh.transfer(0.0, 50.0)
    assert hosts.fetch(0, B, 0.0) == 50.0 + 10.0 + 5.0
    assert hosts.loads[1].free_at_s == 0.0


def test_what_no_host_holds_is_read_from_storage(hosts: Hosts) -> None:
    """A hundred seconds for all of it, then its shard over PCIe; memory has it before that."""
    hosts.stores.holders[A.id].clear()
    hosts.serve((2,), (1,), (1, 2))
    assert hosts.fetch(2, A, 0.0, shard_bytes=500) == 105.0
    assert (hosts.recorder.remote_loads, hosts.recorder.storage_loads) == (0, 1)
    hosts.until(100.0)
    assert hosts.held()[A.id] == [2]


# Memory -------------------------------------------------------------------------------------


def test_a_host_that_is_full_keeps_no_copy_and_it_is_counted() -> None:
    hosts = Hosts(memory_bytes=1500.0)
    hosts.serve((0,), (1,), (2,), at_first=True)
    hosts.serve((0, 1), (1,), (2,))
    hosts.fetch(1, A, 0.0)
    hosts.until(99.0)
    assert hosts.held() == [[0], [1], [2]]
    assert hosts.stores.refused == 1


def test_but_gives_up_what_it_does_not_serve_and_others_hold() -> None:
    hosts = Hosts(memory_bytes=2500.0)
    hosts.serve((0,), (1,), (1, 2), at_first=True)
    hosts.stores._serving[C.id] = frozenset({0})  # the host that serves it has not asked for it yet
    hosts.stores._serving[A.id] = frozenset({0, 1})
    hosts.fetch(1, A, 0.0)
    hosts.until(99.0)
    assert hosts.held() == [[0, 1], [1], [2]]
    assert hosts.stores.refused == 0


def test_the_last_copy_stays_even_where_it_is_not_served() -> None:
    hosts = Hosts(memory_bytes=1500.0)
    hosts.serve((0,), (1,), (2,), at_first=True)
    hosts.stores._serving[B.id] = frozenset({2})  # which has not asked for it yet
    hosts.stores._serving[A.id] = frozenset({0, 1})
    hosts.fetch(1, A, 0.0)
    hosts.until(99.0)
    assert hosts.held() == [[0], [1], [2]]
    assert hosts.stores.refused == 1


def test_what_does_not_fit_at_first_is_said_plainly() -> None:
    hosts = Hosts(memory_bytes=1500.0)
    with pytest.raises(InputError, match=r"host\.memory_bytes is 1,500, which is too little .* host 1 holds"):
        hosts.serve((0,), (1,), (1, 2), at_first=True)


# Links --------------------------------------------------------------------------------------


def test_how_busy_a_link_was_until_it_broke_off() -> None:
    """Five seconds from 0, and four from 10 on."""
    link = Link()
    link.transfer(0.0, 2.0)
    link.transfer(1.0, 3.0)
    assert [link.busy_until(time_s) for time_s in (0.0, 3.0, 5.0, 8.0)] == [0.0, 3.0, 5.0, 5.0]
    link.transfer(10.0, 4.0)
    assert [link.busy_until(time_s) for time_s in (8.0, 11.0, 20.0)] == [5.0, 6.0, 9.0]


def test_fetches_are_counted_by_host_and_so_is_what_only_a_failed_one_held() -> None:
    hosts = Hosts()
    hosts.serve((0,), (0, 1), (1, 2), at_first=True)
    hosts.fetch(2, A, 0.0)
    assert hosts.stores.fail(0) == 1, "the other one lies elsewhere, too"
    hosts.fetch(1, A, 100.0)
    assert hosts.stores.remote_loads == [0, 0, 1]
    assert hosts.stores.storage_loads == [0, 1, 0]


def test_a_transfer_over_several_links_begins_when_all_are_free() -> None:
    links = [Link(), Link()]
    links[1].transfer(0.0, 7.0)
    assert together(links, 3.0, 2.0) == 9.0
    assert [(link.free_at_s, link.busy_s) for link in links] == [(9.0, 2.0), (9.0, 9.0)]


@pytest.mark.parametrize("fast_forward", [True, False])
def test_an_adapter_that_was_read_while_an_iteration_ran_is_there(fast_forward: bool) -> None:
    """Its request arrives in a long prefill. When that ends, the copy, begun at the arrival, is on the host already."""
    case = Case(
        rows=(Row(2.0, None, 900, 2, 2), Row(2.01, 1, 4, 2, 2)),
        ranks=(1, 1),
        max_wait_tokens=0,
        replicas=2,
        adapter_pool="distributed",
        placement="contiguous",
        failures=((1, 1.0, None),),
        loader="on_arrival",
        eviction="lru",
    )
    assert prefill_s(900) > 2**-6 + 64 / 128 + load_s(1)
    simulation = case.simulation(fast_forward=fast_forward)
    request = simulation.recorder.requests().loc[1]
    assert (request["replica"], request["cold_start_s"]) == (0, 0.0)
    assert simulation.recorder.storage_loads == 1
    assert simulation.store is not None
    assert simulation.store.holders[1].keys() == {0}
