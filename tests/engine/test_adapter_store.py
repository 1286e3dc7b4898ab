"""Hosts that hold what they serve, and get the rest from each other: which host holds what, and when a copy is there.

Times are sums by hand. A copy over PCIe takes a second for a hundred bytes, over the network for two hundred, from
storage for ten.
"""

from itertools import pairwise
from math import inf, nextafter
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simlora.core.adapter import Adapter
from simlora.core.errors import InputError
from simlora.engine.clock import Clock
from simlora.engine.cluster.adapter_store import AdapterStore
from simlora.engine.replica.link import Link, together
from simlora.hardware.link import Link as LinkRate
from simlora.metrics.recorder import Recorder
from tests.engine.cases import Case, Row

A, B, C = (Adapter(id, name, 8, 1000, 32) for id, name in enumerate("abc"))


Serving = tuple[tuple[int, ...], ...]
"""Which replicas serve the first adapter, the second, the third."""
ONE_EACH: Serving = ((0,), (1,), (2,))


class Hosts:
    """Three hosts with a replica each, or more, and a clock that is turned by hand."""

    def __init__(
        self, *serve: tuple[int, ...], hosts: int = 3, per_host: int = 1, memory_bytes: float | None = None
    ) -> None:
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
        self.stores = AdapterStore(cluster, (A, B, C), self.recorder, self.clock)  # type: ignore[arg-type]
        self.loads = [Link() for _ in range(hosts * per_host)]
        self.outs = [Link() for _ in range(hosts * per_host)]
        for replica, link in enumerate(self.loads):
            self.stores.connect(replica, link, lambda size_bytes: size_bytes / 100)
        self.stores.begin(self._hosts(serve))

    def _hosts(self, of: Serving) -> dict[int, frozenset[int]]:
        return {id: frozenset(replica // self._per_host for replica in each) for id, each in enumerate(of)}

    def serve(self, *of: tuple[int, ...]) -> None:
        self.stores.serve(self._hosts(of))

    def fetch(self, replica: int, adapter: Adapter, now_s: float = 0.0, shard_bytes: int = 1000) -> float:
        return self.stores.fetch(replica, adapter, shard_bytes, now_s, self.outs[replica])

    def held(self, until_s: float = 0.0) -> list[list[int]]:
        """The hosts that hold each adapter, at the end of a moment."""
        self.clock.run(nextafter(until_s, inf))
        return [sorted(hosts) for hosts in self.stores.holders]


@pytest.fixture
def hosts() -> Hosts:
    return Hosts((0,), (1,), (1, 2))


def test_at_first_hosts_hold_what_they_serve_and_replicas_of_one_share_its_memory(hosts):
    assert hosts.held() == [[0], [1], [1, 2]]
    assert (hosts.stores.held, hosts.stores.held_bytes) == ([1, 2, 1], [1000, 2000, 1000])
    assert [hosts.stores.holds(replica, A) for replica in range(3)] == [True, False, False]
    pairs = Hosts((0, 1), (3,), (0, 3), hosts=2, per_host=2)
    assert pairs.held() == [[0], [1], [0, 1]]
    assert pairs.stores.holds(2, B)


def test_a_copy_goes_from_memory_to_gpu_to_gpu(hosts):
    """Ten seconds over PCIe there, five over the network; ten more until the host has it, too."""
    assert hosts.fetch(2, A, 100.0) == 115.0
    assert (hosts.loads[0].free_at_s, hosts.outs[2].free_at_s) == (110.0, 125.0)
    assert hosts.held(125.0)[A.id] == [0], "it does not serve it, and the one that does has it"
    assert (hosts.recorder.remote_loads, hosts.recorder.storage_loads) == (1, 0)


def test_each_gpu_of_a_replica_gets_its_shard(hosts):
    assert hosts.fetch(2, A, 100.0, shard_bytes=250) == pytest.approx(100.0 + 2.5 + 1.25)


@pytest.mark.parametrize(
    "serve, held", [((2,), [2]), ((0, 2), [0, 2])], ids=["another serves it now", "both do"]
)
def test_a_host_that_serves_it_now_has_it_as_soon_as_it_has_asked_and_the_one_that_did_drops_it(
    hosts, serve, held
):
    hosts.serve(serve, (1,), (1, 2))
    assert hosts.held()[A.id] == [0], "the last copy stays"
    hosts.fetch(2, A)
    assert hosts.held(24.0)[A.id] == [0]
    assert hosts.held(25.0)[A.id] == held
    assert hosts.stores.held == [len(held) - 1, 2, 2]
    assert hosts.stores.most_held == [1, 2, 2]


@pytest.mark.parametrize(
    "fetches, there_s",
    [(((1, A), (2, A)), [15.0, 25.0]), (((2, A), (2, B)), [15.0, 20.0])],
    ids=["PCIe there until 10 and 20, the network begins with the second at 20", "one network card here"],
)
def test_copies_wait_for_each_other_at_every_link_that_they_share(hosts, fetches, there_s):
    assert [hosts.fetch(*fetch) for fetch in fetches] == there_s


def test_of_the_hosts_that_hold_it_the_one_is_asked_whose_link_is_free_first(hosts):
    hosts.loads[1].transfer(0.0, 50.0)
    assert hosts.fetch(0, C) == 15.0
    assert hosts.loads[2].free_at_s == 10.0


def test_each_link_takes_its_own_time_and_a_replica_in_the_place_of_another_brings_its_own_link():
    """The first replica's host copies twice as fast as the others; 3 is put in 1's place, whose link is no more."""
    hosts = Hosts(*ONE_EACH)
    hosts.stores.connect(0, hosts.loads[0], lambda size_bytes: size_bytes / 200)
    assert hosts.fetch(2, A) == 5.0 + 5.0
    assert hosts.outs[2].free_at_s == 10.0 + 10.0, "into its own host's memory at its own speed"
    fresh = Link()
    hosts.stores.connect(1, fresh, lambda size_bytes: size_bytes / 100)
    fresh.transfer(0.0, 50.0)
    assert hosts.fetch(0, B) == 50.0 + 10.0 + 5.0
    assert hosts.loads[1].free_at_s == 0.0


def test_what_no_host_holds_is_read_from_storage(hosts):
    """A hundred seconds for all of it, then its shard over PCIe; memory has it before that."""
    hosts.stores.holders[A.id].clear()
    hosts.serve((2,), (1,), (1, 2))
    assert hosts.fetch(2, A, shard_bytes=500) == 105.0
    assert (hosts.recorder.remote_loads, hosts.recorder.storage_loads) == (0, 1)
    assert hosts.held(100.0)[A.id] == [2]


# Memory -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "memory_bytes, serve, later, held, refused",
    [
        (1500.0, ONE_EACH, {}, [[0], [1], [2]], 1),
        (2500.0, ((0,), (1,), (1, 2)), {C.id: {0}}, [[0, 1], [1], [2]], 0),
        (1500.0, ONE_EACH, {B.id: {2}}, [[0], [1], [2]], 1),
    ],
    ids=["keeps no copy", "but gives up what it does not serve and others hold", "the last copy stays"],
)
def test_a_host_that_is_full_keeps_no_copy_and_it_is_counted(memory_bytes, serve, later, held, refused):
    """Hosts 0 and 1 serve A now, which 1 fetches; those that serve another one now have not asked for it yet."""
    hosts = Hosts(*serve, memory_bytes=memory_bytes)
    for id, serving in ({A.id: {0, 1}} | later).items():
        hosts.stores._serving[id] = frozenset(serving)
    hosts.fetch(1, A)
    assert hosts.held(99.0) == held
    assert hosts.stores.refused == refused


def test_what_does_not_fit_at_first_is_said_plainly():
    with pytest.raises(InputError, match=r"host\.memory_bytes is 1,500, which is too little .* host 1 holds"):
        Hosts((0,), (1,), (1, 2), memory_bytes=1500.0)


def test_fetches_are_counted_by_host_and_so_is_what_only_a_failed_one_held():
    hosts = Hosts((0,), (0, 1), (1, 2))
    hosts.fetch(2, A)
    assert hosts.stores.fail(0) == 1, "the other one lies elsewhere, too"
    hosts.fetch(1, A, 100.0)
    assert (hosts.stores.remote_loads, hosts.stores.storage_loads) == ([0, 0, 1], [0, 1, 0])


def test_a_host_that_failed_sends_nothing_over_the_links_of_the_replicas_that_it_had():
    """It holds an adapter again, and a replica of another number that it has now sends that, whatever is free."""
    hosts = Hosts((0,), (1, 2), (2,), per_host=2)
    hosts.stores.fail(0)
    link = Link()
    link.transfer(0.0, 50.0)
    hosts.stores.connect(1, link, lambda size_bytes: size_bytes / 100)
    hosts.fetch(1, B, shard_bytes=0)
    hosts.held(100.0)
    hosts.stores.fail(1)
    hosts.fetch(4, B, 100.0)
    assert hosts.loads[0].busy_s == 0.0
    assert link.busy_s > 50.0


# Links --------------------------------------------------------------------------------------


def test_a_transfer_over_several_links_begins_when_all_are_free_and_takes_as_long_as_on_the_slowest():
    links = [Link(), Link()]
    links[1].transfer(0.0, 7.0)
    assert together(links, 3.0, 2.0) == 9.0
    assert [(link.free_at_s, link.busy_s) for link in links] == [(9.0, 2.0), (9.0, 9.0)]
    links[0].slowdown = 8.0
    assert together(links, 10.0, 0.5) == 10.0 + 8 * 0.5
    assert [link.busy_s for link in links] == [6.0, 13.0], "both are taken all the while"


def test_what_is_not_there_yet_leaves_the_link_to_others_as_far_as_they_fit():
    link = Link()
    assert link.transfer_later(10.0, 2.0, 0.5) == 12.5
    assert link.transfer(0.0, 4.0) == 4.0, "it fits before"
    assert link.transfer(1.0, 7.0) == 19.5, "it does not"
    assert link.transfer(1.0, 1.0) == 20.5, "nor does what comes after it, first come, first served"


def test_two_that_are_there_at_once_follow_each_other():
    link = Link()
    assert link.transfer_later(10.0, 2.0, 0.0) == 12.0
    assert link.transfer_later(10.0, 2.0, 0.0) == 14.0
    assert link.transfer_later(3.0, 2.0, 0.0) == 5.0, "booked last, and there first"
    assert [link.busy_until(at_s) for at_s in (0.0, 4.0, 11.0, 20.0)] == [0.0, 1.0, 3.0, 6.0]


@given(
    st.lists(st.tuples(st.booleans(), st.integers(0, 20), st.integers(1, 6)), max_size=25), st.integers(1, 3)
)
def test_copies_never_overlap_and_none_begins_before_it_is_there(copies, slow):
    link, taken = Link(), list[tuple[float, float]]()
    link.on_transfer = (lambda begin_s, end_s, what: taken.append((begin_s, end_s)),)
    link.slowdown = float(slow)
    now_s = 0.0
    for later, wait, duration in copies:
        now_s += wait % 3
        there_s = now_s + wait
        end_s = link.transfer_later(there_s, duration, 0.0) if later else link.transfer(now_s, duration)
        assert taken[-1] == (end_s - duration * slow, end_s)
        assert taken[-1][0] >= (there_s if later else now_s)
    ordered = sorted(taken)
    assert all(one[1] <= other[0] for one, other in pairwise(ordered))
    assert link.busy_until(1e9) == sum(end_s - begin_s for begin_s, end_s in taken)
