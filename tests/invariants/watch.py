"""A simulation under observation: invariants are checked at every event, from sums taken afresh."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from unittest import mock

from simlora.core.adapter import Adapter
from simlora.core.request import Request
from simlora.core.trace import BASE_MODEL
from simlora.engine.cluster.simulation import Simulation
from simlora.engine.replica import Replica
from simlora.engine.roster import Roster
from simlora.memory.pool import Pool
from simlora.memory.prefix_tree import PrefixTree
from simlora.memory.segments import Branch, Node, Segment
from simlora.metrics.recorder import Recorder
from tests.engine.cases import Case


class WatchedPool(Pool):
    """Keeps its own list of what is resident, and counts what comes in."""

    def __init__(self, *args, **kwargs) -> None:
        super().__init__(*args, **kwargs)
        self.given_up: list[tuple[float, int]] = []
        self.resident: dict[int, Adapter] = {}
        self.inserted = 0
        self.landings_s: list[float] = []

    def insert(self, adapter: Adapter, ready_s: float) -> None:
        assert adapter.id not in self.resident, "an adapter that is there, or on its way, is loaded again"
        super().insert(adapter, ready_s)
        self.resident[adapter.id] = adapter
        self.inserted += 1
        self.landings_s.append(ready_s)

    def drop(self, adapters: Iterable[Adapter]) -> None:
        gone = list(adapters)
        self.given_up += [(self.ready_s(adapter), adapter.kv_tokens) for adapter in gone]
        super().drop(gone)
        for adapter in gone:
            del self.resident[adapter.id]


class WatchedTree(PrefixTree):
    """Weighs all KV before and after what may bring some into being, or give some up; keeps what goes to the host."""

    def __init__(self, *args, send: Callable[[int, float, float], float], **kwargs) -> None:
        super().__init__(*args, send=self.send, **kwargs)
        self.sends = send
        self.added_tokens = self.out_tokens = self.back_tokens = self.dropped_tokens = 0
        self.sent_tokens = self.brought_tokens = 0
        self.computes = False
        self.leaving: list[tuple[float, int]] = []
        self.given_up: list[tuple[float, int]] = []

    def everything(self) -> Iterator[Segment]:
        """All segments, of whom each is found where it says."""
        nodes: list[Node] = list(self._branches.values())
        while nodes:
            node = nodes.pop()
            for key, segment in node.children.items():
                assert (segment.parent, segment.key) == (node, key)
                yield segment
                nodes.append(segment)

    def weight(self) -> int:
        """Tokens of all KV, in HBM or on the host."""
        return sum(map(self.size, self.everything()))

    def add(self, request: Request, tokens: int, now_s: float) -> None:
        before, self.computes = self.weight(), True
        super().add(request, tokens, now_s)
        self.computes = False
        added = self.weight() - before
        assert 0 <= added <= tokens
        self.added_tokens += added

    def take_out(self, segment: Segment, now_s: float) -> None:
        before = self.weight()
        self.out_tokens += self.size(segment)
        super().take_out(segment, now_s)
        dropped = before - self.weight()
        assert dropped >= 0
        self.dropped_tokens += dropped

    def enter(self, segment: Segment) -> None:
        super().enter(segment)
        self.back_tokens += self.size(segment)
        self.brought_tokens += 0 if self.computes else self.size(segment)

    def send(self, tokens: int, now_s: float, there_s: float) -> float:
        done_s = self.sends(tokens, now_s, there_s)
        if there_s > now_s:
            assert done_s == now_s, "what has not come yet goes back"
            self.given_up.append((there_s, tokens))
        else:
            assert done_s > now_s
            self.sent_tokens += tokens
            self.leaving.append((done_s, tokens))
        return done_s


class WatchedRoster(Roster):
    """Keeps who was put back while what it waited for was still on its way."""

    def __init__(self, *args, **kwargs) -> None:
        super().__init__(*args, **kwargs)
        self.given_up: list[tuple[float, int]] = []

    def stop(self, request: Request, now_s: float) -> bool:
        if request.id in self.standing.landing.requests:
            own_tokens = self.holdings.own_tokens(request.id, self.batch.step)
            self.given_up.append((self.incoming.ready_s(request), own_tokens))
        return super().stop(request, now_s)


class WatchedReplica(Replica):
    """Checks memory at every event; keeps what was decided, and the iterations that were run."""

    def __init__(self, *args, **kwargs) -> None:
        super().__init__(*args, **kwargs)
        self.decisions: list[tuple[float, tuple[int, ...]]] = []
        self.ran: list[tuple[float, float]] = []
        self.shape = (0, 0)

    def schedule(self) -> None:
        super().schedule()
        if self._prefill:
            self.decisions.append((self.sight.now_s, tuple(request.id for request in self._prefill)))

    def finalize(self) -> None:
        self._recorder.stopped = True
        super().finalize()

    def execute(self) -> float:
        end_s = super().execute()
        assert end_s >= self.sight.now_s
        self.ran.append((self.sight.now_s, end_s))
        self.check_memory()
        self.check_slots_are_free()
        return end_s

    def check_slots_are_free(self) -> None:
        """Nothing is written over KV that is still on its way to the host, when an iteration begins.

        What waits for its weights, and what is still to come over the link, is not there yet. If it is given up before
        it has come, whoever has its slots then does not know that others were still to leave them.
        """
        holdings, pool, tree, run = self.holdings, self.holdings.pool, self.holdings.prefixes, self._run
        if tree is None:
            return
        waits = [tokens for done_s, tokens in holdings._leaving if done_s > self.sight.now_s]
        assert sum(waits) <= pool.free_tokens(holdings.kv_tokens(self._batch.step)), (
            "somebody has slots that are still to be left, and does not wait for them"
        )
        start_s = max(self._start_s, holdings.stalled_s) if run is None else run.end_s(run.done)
        step = self._batch.step
        own_tokens = holdings.reservation.used_tokens(step) + holdings.still_tokens
        own_tokens -= sum(holdings.own_tokens(request.id, step) for request in self._standing.landing)
        kv_tokens = sum(tree.size(s) for s in tree.everything() if s.resident and s.ready_s <= start_s)
        adapters = [] if self.config.divided else pool.resident.values()
        there = [adapter for adapter in adapters if pool.ready_s(adapter) <= start_s]
        there_tokens = own_tokens + kv_tokens + sum(adapter.kv_tokens for adapter in there)
        for later in (tree.leaving, tree.given_up, pool.given_up, self._roster.given_up):
            later[:] = [(until_s, tokens) for until_s, tokens in later if until_s > start_s]
        leaving_tokens = sum(tokens for _, tokens in tree.leaving)
        unknown_tokens = sum(tokens for _, tokens in (*tree.given_up, *pool.given_up, *self._roster.given_up))
        assert there_tokens + leaving_tokens - unknown_tokens <= self.config.kv_token_budget, (
            "slots are written to that are still being copied to the host"
        )

    def record(self, now_s: float, waiting: int) -> None:
        super().record(now_s, waiting)
        self.check_memory()

    def held(self) -> list[int]:
        """Token slots of every request in the batch or in prefill, by the rule of `reserve`."""
        config = self.config
        begun = {request.id: request for request in self.begun()}
        running = [(r, self._batch.context(r) - r.padding_tokens) for r in self._batch]
        # Beside a batch that decodes, those who begin have the slot of their first token when the step is over.
        mixed = self._decision.decode and len(self._batch) > 0
        later = {r.id for r in self._prefill} - self._standing.prefilling.keys() if mixed else set()
        running += [(r, r.prompt_tokens + r.generated_tokens + (id not in later)) for id, r in begun.items()]
        if config.reserve == "padded":
            return [self.longest(running)] * len(running)
        if config.reserve == "full":
            return [
                request.prompt_tokens + request.max_output_tokens - self.shared(request)
                for request, _ in running
            ]
        block = config.block_size if config.reserve == "paged" else 1
        return [-(-(context - self.shared(request)) // block) * block for request, context in running]

    def begun(self) -> list[Request]:
        """Who holds memory beside the batch."""
        return [*self._standing, *self._prefill]

    def shared(self, request: Request) -> int:
        """Tokens of a request whose KV lies in the prefix cache, block by block."""
        prefixes = self.holdings.prefixes
        return 0 if prefixes is None else prefixes.shared_tokens(request)

    def longest(self, running: list[tuple[Request, int]]) -> int:
        """The longest prompt and the longest output since the batch was empty."""
        if not running:
            self.shape = (0, 0)
            return 0
        first = max(r.prompt_tokens + r.generated_tokens + 1 for r, _ in running)
        rest = max(r.max_output_tokens - r.generated_tokens - 1 for r, _ in running)
        self.shape = max(self.shape[0], first), max(self.shape[1], rest)
        return sum(self.shape)

    def check_hosts(self) -> None:
        """Together the hosts hold every adapter, and each what it counts."""
        stores = self.holdings.host_link._stores
        if stores is None:
            return
        assert all(stores.holders) or any(stores._failures), (
            "an adapter that no host holds, and none has failed"
        )
        for host, (held, size_bytes) in enumerate(zip(stores.held, stores.held_bytes, strict=True)):
            own = [a for a in stores._adapters if host in stores.holders[a.id]]
            assert (held, size_bytes) == (len(own), sum(adapter.size_bytes for adapter in own))
            assert held <= stores.most_held[host]

    def check_memory(self) -> None:
        self.check_hosts()
        pool, kv_tokens = self.holdings.pool, sum(self.held())
        adapter_tokens = sum(adapter.kv_tokens for adapter in pool.resident.values())
        own_tokens = self.holdings.reservation.used_tokens(self._batch.step) + self.holdings.still_tokens
        assert own_tokens == kv_tokens
        assert pool.adapter_tokens == adapter_tokens
        kv_tokens += self.check_prefixes()
        capacity = self.config.kv_token_budget
        if self.config.divided:
            assert kv_tokens <= capacity, "KV takes more than its part"
            assert adapter_tokens <= self.config.adapter_region_tokens, "adapters take more than their part"
        else:
            assert kv_tokens + adapter_tokens <= capacity, "more is resident than there is room"
        serving = (*self._batch, *self.begun())
        used = {r.adapter.id: r.adapter for r in serving if r.adapter is not None}
        assert used.keys() <= pool.resident.keys(), "an adapter in use was evicted"
        assert pool.pinned_tokens == sum(adapter.kv_tokens for adapter in used.values())
        assert self.config.max_loras is None or len(used) <= self.config.max_loras
        runs = (request for request in serving if request.id not in self._standing.paused)
        assert self.sight.merged is None or all(request.adapter is self.sight.merged for request in runs)
        self.check_region(used)

    def check_prefixes(self) -> int:
        """Return the slots of cached KV."""
        prefixes = self.holdings.prefixes
        if prefixes is None:
            return 0
        serving = {r.id: r for r in (*self._batch, *self.begun())}
        assert prefixes._held.keys() == serving.keys()
        users: Counter[Segment] = Counter()
        for id, (node, blocks) in prefixes._held.items():
            while isinstance(node, Segment):
                assert node.branch.adapter_id == serving[id].adapter_id, "KV of another adapter"
                users[node] += 1
                blocks -= len(node.blocks)
                node = node.parent
            assert blocks == 0, "a request holds another number of blocks than it knows"
        segments = list(prefixes.everything())
        assert set(users) <= set(segments), "KV that is held has gone"
        assert all(segment.users == users[segment] for segment in segments), "other users than it has"
        size = prefixes.size
        resident = [segment for segment in segments if segment.resident]
        assert all(segment in resident for segment in users), "KV that is held is not in HBM"
        assert prefixes.segments == len(segments)
        assert prefixes.tokens == sum(map(size, resident))
        assert prefixes.held_tokens == sum(map(size, users))
        assert (
            prefixes.host_tokens == sum(map(size, segments)) - prefixes.tokens <= self.config.host_kv_tokens
        )
        there_tokens = prefixes.added_tokens - prefixes.dropped_tokens
        assert prefixes.weight() == there_tokens, "KV from nowhere, or lost"
        on_host = prefixes.out_tokens - prefixes.back_tokens - prefixes.dropped_tokens
        assert prefixes.host_tokens == on_host, "what is on the host has left HBM, and has not come back"
        self.check_copies(prefixes)
        for segment in segments:
            below = segment.children.values()
            assert segment.resident_children == sum(child.resident for child in below)
            assert segment.resident or not segment.resident_children, "HBM holds KV without what it follows"
            assert segment.blocks, "a segment of nothing"
        idle = {s for s in resident if not s.users and not s.resident_children}
        assert idle == set(prefixes.leaves._live)
        branches = prefixes._branches.values()
        invalid = [s for s in resident if not s.branch.resident]
        assert prefixes.invalid_tokens == sum(map(size, invalid))
        pool, swapping = self.holdings.pool, self.holdings.swapping
        for branch in branches:
            assert branch.resident == (branch.adapter_id == BASE_MODEL or pool.holds(branch.adapter_id))
            assert branch.tokens == sum(size(s) for s in resident if s.branch is branch)
        if swapping is not None and swapping.policy.dependencies:
            assert not invalid, "KV in HBM whose adapter is not there"
        if swapping is not None:
            nodes: list[Node] = [*branches, *segments]
            for node in nodes:
                outside = {segment for segment in node.children.values() if not segment.resident}
                found = set() if node.outside is None else set(node.outside._live)
                assert found == outside, "KV on the host that nobody would bring back"
                alone = isinstance(node, Branch) and not swapping.policy.dependencies
                assert (node in prefixes.frontier) == bool(outside and (node.resident or alone))
        return prefixes.tokens

    def check_copies(self, prefixes: WatchedTree) -> None:
        """What goes to the host is copied once, and so is what comes back and is not computed anew."""
        holdings = self.holdings
        ahead_tokens = 0 if holdings.swapping is None else holdings.swapping.kv_tokens_in
        assert holdings.host_link.kv_tokens_out == prefixes.sent_tokens <= prefixes.out_tokens
        assert holdings.host_link.kv_tokens_in + ahead_tokens == prefixes.brought_tokens

    def check_region(self, used: dict[int, Adapter]) -> None:
        region = self.holdings.region
        if region is None:
            return
        assert 0 <= region.largest_free_tokens <= region.capacity
        assert sum(adapter.kv_tokens for adapter in used.values()) <= region.used_tokens <= region.capacity


class WatchedRecorder(Recorder):
    """Checks that time goes forward, over all replicas; when the clock has stopped, at each of them."""

    now_s = 0.0
    stopped = False

    def __init__(self, *args, **kwargs) -> None:
        super().__init__(*args, **kwargs)
        self.of_replica_s: dict[int, float] = {}

    def boundary(self, replica: int, now_s: float, *args: int) -> None:
        before_s = self.of_replica_s.get(replica, 0.0) if self.stopped else self.now_s
        assert now_s >= before_s, "the clock goes back"
        self.now_s = self.of_replica_s[replica] = now_s
        super().boundary(replica, now_s, *args)


def watched(case: Case, *, fast_forward: bool = True) -> Simulation:
    """Return the cluster after the case was run under observation."""
    with (
        mock.patch("simlora.engine.cluster.simulation.Recorder", WatchedRecorder),
        mock.patch("simlora.engine.cluster.simulation.Replica", WatchedReplica),
        mock.patch("simlora.engine.replica.Roster", WatchedRoster),
        mock.patch("simlora.engine.holdings.Pool", WatchedPool),
        mock.patch("simlora.engine.holdings.PrefixTree", WatchedTree),
        mock.patch("simlora.engine.swapping.PrefixTree", WatchedTree),
    ):
        simulation = Simulation(case.scenario(fast_forward=fast_forward))
        simulation.run()
    return simulation
