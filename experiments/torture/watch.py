"""A simulation under observation: invariants are checked at every boundary, from sums taken afresh.

Each replica has a part of its own that watches it, `Watch`: hooks and listeners tell it what happens.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

from simlora.core.adapter import Adapter
from simlora.core.request import Request
from simlora.core.trace import BASE_MODEL
from simlora.engine.cluster.adapter_store import FetchingLink
from simlora.engine.cluster.client_simulation import ClientSimulation
from simlora.engine.cluster.simulation import Simulation
from simlora.engine.parts.adapter_memory import OwnRegion
from simlora.engine.parts.kv_handover import KvReceiving, KvSending
from simlora.engine.parts.kv_offload import PrefixCachingKV
from simlora.engine.parts.unified_swapper import UnifiedSwapper
from simlora.engine.replica.adapter_loader import LoadPlan
from simlora.engine.replica.part import Part
from simlora.engine.replica.replica import Replica
from simlora.engine.replica.request_table import RequestStatus
from simlora.engine.scenario import Scenario
from simlora.memory.prefix_tree import PrefixTree
from simlora.memory.segments import Branch, Node, Segment
from simlora.memory.tree_listener import TreeListener
from simlora.metrics.recorder import Recorder, Sample

Later = list[tuple[float, int]]
"""Token slots that are in use until a time: (time, slots)."""


class TreeWatch(TreeListener):
    """Counts the KV that comes, leaves and is dropped; keeps what goes to the host."""

    def __init__(self, tree: PrefixTree) -> None:
        self.tree = tree
        tree.listeners += (self,)
        self.added_tokens = self.out_tokens = self.back_tokens = self.dropped_tokens = 0
        self.sent_tokens = self.brought_tokens = self.fetched_tokens = 0
        self.leaving: Later = []

    def everything(self) -> Iterator[Segment]:
        """Yield all segments; each is found where it says."""
        nodes: list[Node] = list(self.tree._branches.values())
        while nodes:
            node = nodes.pop()
            for key, segment in node.children.items():
                assert (segment.parent, segment.key) == (node, key)
                yield segment
                nodes.append(segment)

    def weight(self) -> int:
        """Tokens of all KV, in HBM or on the host."""
        return sum(map(self.tree.size, self.everything()))

    def added(self, tokens: int) -> None:
        assert tokens > 0
        self.added_tokens += tokens
        self.sent_tokens += tokens if self.tree.write is not None else 0

    def left(self, tokens: int) -> None:
        self.out_tokens += tokens

    def given_up(self, tokens: int, until_s: float) -> None:
        self.leaving.append((until_s, tokens))

    def brought(self, tokens: int) -> None:
        assert tokens > 0
        self.fetched_tokens += tokens

    def dropped(self, tokens: int) -> None:
        self.dropped_tokens += tokens

    def came(self, tokens: int, computed: bool) -> None:
        self.back_tokens += tokens
        self.brought_tokens += 0 if computed else tokens

    def sent(self, tokens: int, now_s: float, there_s: float, done_s: float) -> None:
        if there_s > now_s:
            assert done_s == now_s, "KV that has not come yet goes back"
            return
        assert done_s > now_s
        self.sent_tokens += tokens
        self.leaving.append((done_s, tokens))


class Watch(Part):
    """Checks one replica's memory; keeps what was decided, the iterations that were run, and what was loaded.

    Its own list of resident adapters comes from the adapter cache's listener, and the loads from the link's.
    """

    def __init__(self, replica: Replica) -> None:
        self.replica, self.table, self.kv = replica, replica.table, replica.kv
        self.config, self.cache, self.link = replica.config, replica.kv.adapters, replica.host_link
        self.cached = TreeWatch(self.kv.tree) if isinstance(self.kv, PrefixCachingKV) else None
        self.decisions: list[tuple[float, tuple[int, ...]]] = []
        self.ran: list[tuple[float, float]] = []
        self.turned = False  # an iteration may have been launched since the last check
        self.shape = (0, 0)
        self.resident: dict[int, Adapter] = {}
        self.ready_s: dict[int, float] = {}
        self.inserted, self.before = 0, (0, 0, 0)
        self.landings_s: list[float] = []
        self.loaded: list[Adapter] = []
        self.cache.on_change += (self.adapter,)
        self.link.to_gpu.on_transfer += (self.transfer,)

    @property
    def swapper(self) -> UnifiedSwapper | None:
        """What moves KV and adapters in one order of worth; the replica has its parts after this one was made."""
        return self.replica.part(UnifiedSwapper)

    # What happens -----------------------------------------------------------------------

    def adapter(self, id: int, resident: bool) -> None:
        """An adapter has come into HBM, or has left it."""
        if resident:
            assert id not in self.resident, "an adapter that is there, or on its way, is loaded again"
            adapter, ready_s = self.cache.adapter(id), self.cache.ready_s[id]
            self.resident[id], self.ready_s[id] = adapter, ready_s
            self.inserted += 1
            self.landings_s.append(ready_s)
        else:
            del self.ready_s[id], self.resident[id]

    def transfer(self, begin_s: float, until_s: float, what: Adapter | int | None) -> None:
        """A copy from the host to HBM has been started."""
        assert begin_s <= until_s
        if isinstance(what, Adapter):
            self.loaded.append(what)

    def on_plan(self, plan: LoadPlan, now_s: float) -> None:
        """Requests wait for weights and KV of their own, and for slots that a copy still reads."""
        self.landings_s += map(self.replica.loader.ready_s, plan.deferred)

    def on_turn(self, now_s: float) -> None:
        if self.table.prefill:
            self.decisions.append((now_s, tuple(request.id for request in self.table.prefill)))
        self.turned = True

    def at_boundary(self, now_s: float) -> None:
        self.check_memory()

    def on_ran(self, now_s: float) -> None:
        if self.turned:  # no sample is taken after the first turn
            self.sample()
        assert now_s >= self.replica.since_s
        self.ran.append((self.replica.since_s, now_s))

    def sample(self) -> tuple[int, ...]:
        """The iteration of the last turn is launched, or nothing runs."""
        self.check_memory()
        if self.turned and (self.table.prefill or self.table.batch.members):
            self.check_slots_are_free()
        self.turned = False
        return ()

    # The checks -------------------------------------------------------------------------

    def check_slots_are_free(self) -> None:
        """Nothing is written over KV that is still on its way to the host, when an iteration begins.

        What waits for its weights, and what is still to come over the link, is not there yet.
        """
        cached, kv, step, now_s = self.cached, self.kv, self.table.batch.step, self.replica.clock.now
        if cached is None:
            return
        assert isinstance(kv, PrefixCachingKV)
        waits = [tokens for done_s, tokens in kv.copies if done_s > now_s]
        assert sum(waits) <= self.cache.free_tokens(kv.tokens()), (
            "slots that a copy still uses are held, and their holder does not wait for them"
        )
        window = self.table.window
        start_s = max(self.replica.start_s, self.replica.runner.stalled_until_s)
        if window is not None:
            start_s = window.end_s(window.done)
        later = list(self.table.held[RequestStatus.LOADING_ADAPTER].values())
        if (receiving := self.replica.part(KvReceiving)) is not None:
            coming = self.table.held[RequestStatus.RECEIVING].values()
            later += (request for request in coming if not receiving.writes(request))
        own_tokens = kv.reservation.used_tokens(step)
        own_tokens -= sum(kv.own_tokens(request, step) for request in later)
        kv_tokens = sum(kv.tree.size(s) for s in cached.everything() if s.resident and s.ready_s <= start_s)
        adapters = {} if self.config.divided else self.resident
        there_tokens = own_tokens + kv_tokens
        there_tokens += sum(a.kv_tokens for id, a in adapters.items() if self.ready_s[id] <= start_s)
        cached.leaving = [(until_s, tokens) for until_s, tokens in cached.leaving if until_s > start_s]
        leaving_tokens = sum(tokens for _, tokens in cached.leaving)
        assert there_tokens + leaving_tokens <= self.config.kv_token_budget, (
            "slots are written to that are still being copied to the host"
        )

    def held(self) -> list[int]:
        """Return the token slots of every request in the batch or in prefill, by the rule of `reserve`."""
        config, batch, proposed = self.config, self.table.batch, self.config.speculative_tokens
        begun = {request.id: request for request in self.begun()}
        running = [(r, batch.context(r) - r.padding_tokens) for r in batch]
        # Beside a batch that decodes, a prefill has the slots of its first tokens when the step is over.
        mixed = self.replica.output.decode and len(batch) > 0
        prefilling = self.table.held[RequestStatus.PREFILLING]
        later = {r.id for r in self.table.prefill} - prefilling.keys() if mixed else set()
        running += [(r, r.prompt_tokens + r.generated_tokens + (id not in later)) for id, r in begun.items()]
        kept = [r.prompt_tokens + 1 - self.shared(r) for r in self.sent()]
        if config.reserve == "padded":
            return [self.longest(running)] * len(running)
        if config.reserve == "full":
            contexts = [*kept, *(r.prompt_tokens + r.max_output_tokens - self.shared(r) for r, _ in running)]
            return [context + proposed for context in contexts]
        block = config.block_size if config.reserve == "paged" else 1
        contexts = [*kept, *(context - self.shared(request) for request, context in running)]
        return [-(-(context + proposed) // block) * block for context in contexts]

    def begun(self) -> list[Request]:
        """Return the requests that hold memory beside the batch."""
        held = [request for requests in self.table.held.values() for request in requests.values()]
        return [*held, *self.table.prefill]

    def sent(self) -> list[Request]:
        """Return the requests that were handed over and whose KV is still here."""
        sending = self.replica.part(KvSending)
        return [] if sending is None else list(sending.kept.values())

    def shared(self, request: Request) -> int:
        """Return the tokens of a request whose KV lies in the prefix cache, block by block."""
        return 0 if self.cached is None else self.cached.tree.shared_tokens(request)

    def longest(self, running: list[tuple[Request, int]]) -> int:
        """Return the longest prompt and the longest output since the batch was empty."""
        if not running:
            self.shape = (0, 0)
            return 0
        first = max(r.prompt_tokens + r.generated_tokens + 1 for r, _ in running)
        rest = max(r.max_output_tokens - r.generated_tokens - 1 for r, _ in running)
        self.shape = max(self.shape[0], first), max(self.shape[1], rest)
        return sum(self.shape)

    def check_hosts(self) -> None:
        """Together the hosts hold every adapter, and each what it counts."""
        if not isinstance(self.link, FetchingLink):
            return
        store = self.link._store
        assert all(store.holders) or any(store._failures), (
            "an adapter that no host holds, and none has failed"
        )
        for host, (held, size_bytes) in enumerate(zip(store.held, store.held_bytes, strict=True)):
            own = [a for a in store._adapters if host in store.holders[a.id]]
            assert (held, size_bytes) == (len(own), sum(adapter.size_bytes for adapter in own))
            assert held <= store.most_held[host]

    def check_memory(self) -> None:
        """What is counted is what is there, and that fits."""
        self.check_hosts()
        cache, config, kv_tokens = self.cache, self.config, sum(self.held())
        adapter_tokens = sum(adapter.kv_tokens for adapter in self.resident.values())
        assert self.kv.reservation.used_tokens(self.table.batch.step) == kv_tokens
        assert cache.adapter_tokens == adapter_tokens
        kv_tokens += self.check_prefixes()
        assert self.kv.tokens() == kv_tokens
        if config.divided:
            assert kv_tokens <= config.kv_token_budget, "KV takes more than its part"
            assert adapter_tokens <= config.adapter_region_tokens, "adapters take more than their part"
        else:
            assert kv_tokens + adapter_tokens <= config.kv_token_budget, "more is resident than there is room"
        serving = (*self.table.batch, *self.begun())
        used = {r.adapter.id: r.adapter for r in serving if r.adapter is not None}
        assert used.keys() <= self.resident.keys(), "an adapter in use was evicted"
        assert cache.pinned_tokens == sum(adapter.kv_tokens for adapter in used.values())
        assert config.max_loras is None or len(used) <= config.max_loras
        held, merged = self.table.held, self.replica.view.merged
        aside = held[RequestStatus.PAUSED].keys() | held[RequestStatus.RECEIVING].keys()
        assert merged is None or all(r.adapter is merged for r in serving if r.id not in aside)
        self.check_region(used)

    def check_prefixes(self) -> int:
        """Return the slots of cached KV."""
        cached, swapper = self.cached, self.swapper
        if cached is None:
            return 0
        tree = cached.tree
        serving = {r.id: r for r in (*self.table.batch, *self.begun(), *self.sent())}
        assert tree._held.keys() == serving.keys()
        users: Counter[Segment] = Counter()
        for id, node in tree._held.items():
            blocks = tree.shared_tokens(serving[id]) // tree.block_size
            while isinstance(node, Segment):
                assert node.branch.adapter_id == serving[id].adapter_id, "KV of another adapter"
                users[node] += 1
                blocks -= len(node.blocks)
                node = node.parent
            assert blocks == 0, "a request holds another number of blocks than it knows"
        segments = list(cached.everything())
        assert set(users) <= set(segments), "KV that is held has gone"
        assert all(segment.users == users[segment] for segment in segments), "other users than it has"
        size = tree.size
        resident = [segment for segment in segments if segment.resident]
        assert all(segment in resident for segment in users), "KV that is held is not in HBM"
        assert tree.segments == len(segments)
        assert tree.tokens == sum(map(size, resident))
        assert tree.held_tokens == sum(map(size, users))
        assert tree.host_tokens == sum(map(size, segments)) - tree.tokens <= self.config.host_kv_tokens
        awaited = [segment for segment in segments if segment.awaited and not segment.resident]
        assert tree.awaited_tokens == sum(map(size, awaited)), "other KV is kept than is waited for"
        come_tokens = cached.added_tokens + cached.fetched_tokens
        assert cached.weight() == come_tokens - cached.dropped_tokens, "KV from nowhere, or lost"
        on_host = cached.fetched_tokens + cached.out_tokens - cached.back_tokens - cached.dropped_tokens
        assert tree.host_tokens == on_host, "what is on the host has left HBM, and has not come back"
        self.check_copies()
        for segment in segments:
            below = segment.children.values()
            assert segment.resident_children == sum(child.resident for child in below)
            assert segment.resident or not segment.resident_children, "HBM holds KV without what it follows"
            assert segment.blocks, "a segment of nothing"
        idle = {s for s in resident if not s.users and not s.resident_children}
        assert idle == set(tree.leaves)
        branches = tree._branches.values()
        invalid = [s for s in resident if not s.branch.resident]
        assert tree.invalid_tokens == sum(map(size, invalid))
        for branch in branches:
            assert branch.resident == (branch.adapter_id == BASE_MODEL or branch.adapter_id in self.resident)
            assert branch.tokens == sum(size(s) for s in resident if s.branch is branch)
        if swapper is None:
            return tree.tokens
        assert not (swapper.policy.dependencies and invalid), "KV in HBM whose adapter is not there"
        nodes: list[Node] = [*branches, *segments]
        for node in nodes:
            outside = {segment for segment in node.children.values() if not segment.resident}
            found = set() if node.outside is None else set(node.outside)
            assert found == outside, "KV on the host that would never come back"
            alone = isinstance(node, Branch) and not swapper.policy.dependencies
            assert (node in tree.frontier) == bool(outside and (node.resident or alone))
        return tree.tokens

    def check_copies(self) -> None:
        """What goes to the host is copied once, and so is what comes back and is not computed anew."""
        ahead_tokens = 0 if self.swapper is None else self.swapper.kv_tokens_in
        sent, out, brought = self.copied()
        assert self.config.writes_through or sent <= out
        assert self.link.kv_tokens_out == sent, f"{sent} tokens of KV were to be sent to the host"
        assert self.link.kv_tokens_in + ahead_tokens == brought, (
            f"{brought} tokens of KV were to be brought back"
        )

    def copied(self) -> tuple[int, int, int]:
        """Tokens of KV sent to the host, taken out of HBM and brought back, those before the host failed included."""
        seen = self.cached
        own = (0, 0, 0) if seen is None else (seen.sent_tokens, seen.out_tokens, seen.brought_tokens)
        return own[0] + self.before[0], own[1] + self.before[1], own[2] + self.before[2]

    def inherit_counters(self, failed: Part) -> None:
        assert isinstance(failed, Watch)
        self.before = failed.copied()

    def check_region(self, used: dict[int, Adapter]) -> None:
        """The adapters' own memory holds the adapters in use, and no more than it has room for."""
        own = self.replica.part(OwnRegion)
        assert (own is not None) == self.config.own_region
        if own is None:
            return
        region = own.region
        assert 0 <= region.largest_free_tokens <= region.capacity
        assert sum(adapter.kv_tokens for adapter in used.values()) <= region.used_tokens <= region.capacity


class Watched(Simulation):
    """A simulation in which each replica is watched.

    Time goes forward from sample to sample, over all replicas; when the clock has stopped, at each of them.
    """

    def __init__(self, scenario: Scenario) -> None:
        super().__init__(replace(scenario, parts=(*scenario.parts, Watch)))
        self.recorder.on_boundary += (self.boundary,)
        self.last_s, self.of_replica_s, self.stopped = 0.0, Counter(), False

    def boundary(self, sample: Sample) -> None:
        replica, now_s = sample[:2]
        assert now_s >= (self.of_replica_s[replica] if self.stopped else self.last_s), "the clock goes back"
        self.last_s = self.of_replica_s[replica] = now_s

    def _end(self) -> Recorder:
        self.stopped = True
        return super()._end()

    @property
    def watches(self) -> list[Watch]:
        """What watches each replica, in the order of their numbers."""
        found = [replica.part(Watch) for replica in self.fleet.replicas]
        assert None not in found
        return found


class WatchedClients(Watched, ClientSimulation):
    """The same of a run whose clients react."""


def watched(scenario: Scenario) -> Watched:
    """Return the cluster after the scenario was run under observation."""
    simulation = WatchedClients(scenario) if scenario.clients.react else Watched(scenario)
    simulation.run()
    return simulation
