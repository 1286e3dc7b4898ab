"""KV below the host: on its disk, or on servers that all replicas share. It is fetched, or computed anew, by cost."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from simlora.core.request import Request
from simlora.engine.clock import STORE
from simlora.engine.parts.kv_offload import PrefixCachingKV
from simlora.engine.replica.link import Link
from simlora.engine.replica.part import Part
from simlora.engine.replica.replica import Replica
from simlora.engine.replica_config import PREFIX_RESERVES
from simlora.engine.scenario import Scenario
from simlora.latency.kernels import NO_LORA, LoraWork
from simlora.latency.models import LatencyModels
from simlora.memory.segments import Chain
from simlora.memory.stored_prefixes import StoredPrefixes


class KvStore:
    """Where KV is kept, with a link in each direction, over which a token takes `token_s`, and a copy `latency_s` more.

    What is `coming` is on its way there. `tokens_in` have been stored, and `tokens_out` fetched.
    """

    def __init__(self, prefixes: StoredPrefixes, token_s: float, latency_s: float) -> None:
        self.prefixes, self.token_s, self.latency_s = prefixes, token_s, latency_s
        self.writes, self.reads = Link(), Link()
        self.coming: dict[Write, None] = {}
        self.tokens_in = self.tokens_out = 0

    def known(self, request: Request, tokens: int) -> tuple[int, Write | None]:
        """Return how many of a request's first tokens are stored or coming, and with which write; O(writes)."""
        known, last = self.prefixes.found_tokens(request, tokens), None
        size = self.prefixes.block_size
        for write in self.coming:
            if known < tokens and write.request.adapter_id == request.adapter_id:
                theirs = size * Chain(request, tokens, size).alike(Chain(write.request, write.tokens, size))
                if theirs > known:
                    known, last = theirs, write
        return known, last


class Write:
    """A copy of a request's first `tokens` tokens, from `start` on, to a store: behind what is there or comes `before`.

    It counts as there no earlier than that; `behind` are the copies that are there, and wait for this one.
    """

    __slots__ = ("access", "before", "behind", "request", "start", "tokens")

    def __init__(self, access: StoreAccess, request: Request, tokens: int) -> None:
        self.access, self.request, self.tokens = access, request, tokens
        self.start, self.before = access.store.known(request, tokens)
        self.behind: list[Write] = []

    def begin(self, now_s: float) -> float:
        """Copy it from the host; return when it is there."""
        return self.access.write(self.tokens - self.start, now_s)

    def end(self, now_s: float) -> None:
        """It is there: it can be found, unless what it follows has left meanwhile."""
        store = self.access.store
        if self.before is not None and self.before in store.coming:
            self.before.behind.append(self)
            return
        del store.coming[self]
        if store.prefixes.found_tokens(self.request, self.tokens) >= self.start:
            store.tokens_in += self.tokens - self.start
            store.prefixes.add(self.request, self.tokens, now_s)
        self.release(now_s)

    def release(self, now_s: float) -> None:
        """It is there, or will not come: those behind it wait no longer."""
        for write in self.behind:
            write.end(now_s)


class StoreAccess:
    """How one replica reaches a store: over its own network cards, on which a token takes `token_s`; 0: it has none.

    A copy takes both links, each as soon as it is free and for its own time, and ends with the later of the two.
    """

    def __init__(self, store: KvStore, token_s: float) -> None:
        self.store, self._token_s = store, token_s
        self._out, self._into = Link(), Link()

    def slow_down(self, factor: float) -> None:
        """Copies over the replica's own cards take `factor` times as long from now on."""
        self._out.slowdown = self._into.slowdown = factor

    def write(self, tokens: int, now_s: float) -> float:
        """Copy the KV of so many tokens to the store; return when it is there."""
        return self._copy(self._out, self.store.writes, tokens, now_s)

    def fetch(self, tokens: int, now_s: float) -> float:
        """Copy the KV of so many tokens to the host; return when it is there."""
        store = self.store
        store.tokens_out += tokens
        return self._copy(self._into, store.reads, tokens, now_s)

    def _copy(self, own: Link, theirs: Link, tokens: int, now_s: float) -> float:
        own_s = own.transfer(now_s, tokens * self._token_s)
        return max(own_s, theirs.transfer(now_s, tokens * self.store.token_s)) + self.store.latency_s

    def fetched_s(self, tokens: int, now_s: float) -> float:
        """Return when the KV of so many tokens would be on the host, if it were fetched now."""
        links = (self._into, self._token_s), (self.store.reads, self.store.token_s)
        ends = [max(link.free_at_s, now_s) + tokens * token_s * link.slowdown for link, token_s in links]
        return max(ends) + self.store.latency_s


class KvStoring(Part):
    """Writes the KV of prompts and answers to the stores, and fetches to the host what a waiting request begins with.

    KV is written as soon as it is computed, through the host's memory, unless it is there or on its way there. What a
    request begins with is looked for once, when it joins the queue: here, and in all stores that are reached over
    `accesses`. It is fetched from the store that saves the most time over computing it, if any does (`by_cost`), or
    always, from the nearest; a request that is admitted meanwhile waits for it. Until then it is kept on the host;
    where there is no room for more, requests have it fetched in the order in which they came, when others are admitted.
    Nothing is looked for of requests whose KV comes from the replica that has computed it (`kept_elsewhere`).
    A boundary is wanted when some has come to the host. `tokens_fetched` and `tokens_recomputed`
    count what was found in a store, and fetched or not: computing it is faster, or the host has no room for all.

    Source: SGLang's HiCache, which prefetches from its third tier to the host when a request is queued, and writes
    through (write_through); LMCache, which writes to all of its tiers; vLLM's hashes of blocks, which have the adapter
    in them. Fetching by cost: Mooncake (FAST'25), whose scheduler compares the time of a transfer with that of a
    prefill. Differs: a fetch is not given up when it is late (HiCache's wait_complete); with
    host_kv_write_policy=write_back, KV that is written to a store and leaves HBM later is copied to the host twice.
    What a prefill takes beside others, and behind them, is not in its price.
    """

    @staticmethod
    def requires(scenario: Scenario) -> Iterator[str]:
        tiers, replica = scenario.cluster.kv_tiers, scenario.replica
        if not tiers.used:
            return
        keys = "host.kv_disk_bytes and cluster.kv_store_bytes keep KV below the host's memory, which needs"
        if not replica.prefix_caching:
            yield f"{keys} replica.prefix_caching=true"
        elif not replica.host_kv_tokens:
            yield f"{keys} replica.host_kv_bytes above 0: what is fetched comes there first"
        elif replica.reserve in PREFIX_RESERVES:
            blocks = {scenario.cache_block_tokens_with(kind.replica) for kind in scenario.kinds}
            if len(blocks) > 1:
                yield f"{keys} blocks of one size; they have {' and '.join(map(str, sorted(blocks)))} tokens"
        if scenario.cluster.engines_per_gpu > 1:
            yield f"{keys} cluster.engines_per_gpu=1"

    def __init__(
        self,
        replica: Replica,
        kv: PrefixCachingKV,
        outputs: Sequence[int],
        accesses: Sequence[StoreAccess],
        by_cost: bool,
        kept_elsewhere: Callable[[Request], bool] | None = None,
    ) -> None:
        self._kept_elsewhere = kept_elsewhere
        self._replica, self._clock, self._tree, self._link = replica, replica.clock, kv.tree, kv.host_link
        self._outputs, self._accesses, self._by_cost = outputs, accesses, by_cost
        self._writes: dict[Write, None] = {}  # under way
        self._unfetched: dict[int, Request] = {}  # the waiting requests for whose KV the host has no room
        self._lost = self._brought = False
        self.tokens_fetched = self.tokens_recomputed = 0

    def slow_down(self, factor: float) -> None:
        """Copies over the network take `factor` times as long from now on."""
        for access in self._accesses:
            access.slow_down(factor)

    def lose(self) -> None:
        """The host has failed: what was being written will not be there."""
        self._lost = True
        for write in self._writes:
            del write.access.store.coming[write]
        for write in self._writes:
            write.release(self._clock.now)

    def inherit_counters(self, failed: Part) -> None:
        assert isinstance(failed, KvStoring), "replicas of one number have the same parts"
        self.tokens_fetched, self.tokens_recomputed = failed.tokens_fetched, failed.tokens_recomputed

    # Fetching ---------------------------------------------------------------------------

    def on_queue(self, request: Request, waits: bool) -> None:
        if waits:
            if self._kept_elsewhere is not None and self._kept_elsewhere(request):
                return
            self._unfetched[request.id] = request
            if next(iter(self._unfetched)) == request.id:
                self._look(request)
        else:
            self._unfetched.pop(request.id, None)
            if self._tree.let_go(request) and self._unfetched:
                # Once the admission that may be under way has what was kept for it.
                self._call(self._clock.now, self._look_again)

    def _look_again(self) -> None:
        """There is room on the host that may do for requests which wait for it."""
        while self._unfetched and self._look(next(iter(self._unfetched.values()))):
            pass
        if self._brought:
            self._brought = False
            self._replica.interrupt()

    def _look(self, request: Request) -> bool:
        """Fetch what the first unfetched request begins with, if worth it; return whether the host has room."""
        tree, others_tokens = self._tree, self._tree.awaited_tokens
        limit = _tokens(request) - request.host_tokens - 1
        known = tree.known_tokens(request, limit)
        found = [access.store.prefixes.found_tokens(request, limit) for access in self._accesses]
        reach = max(found)
        if reach <= known or not tree.may_match(request):
            del self._unfetched[request.id]
            return True
        tree.keep(request)
        room = (
            (self._replica.config.host_kv_tokens - tree.awaited_tokens) // tree.block_size * tree.block_size
        )
        if reach - known > room and others_tokens:
            tree.let_go(request)
            return False
        del self._unfetched[request.id]
        found = [min(tokens, known + room) for tokens in found]
        while (place := self._best(request, known, found)) is not None:
            known = self._fetch(request, known, found[place], self._accesses[place])
        if request.admitted_s < 0.0:
            self.tokens_recomputed += max(reach - known, 0)
        assert tree.known_tokens(request, limit) >= known, (
            f"the host has dropped what request {request.id} fetched"
        )
        return True

    def _best(self, request: Request, known: int, found: Sequence[int]) -> int | None:
        """Return of which access more of a request than what is `known` is to be fetched, by its place; None: none."""
        best, most_s, now_s = None, 0.0, self._clock.now
        for place, access in enumerate(self._accesses):
            tokens = found[place] - known
            if tokens <= 0:
                continue
            if not self._by_cost:
                return place
            there_s = access.fetched_s(tokens, now_s) + self._link.kv_s(tokens)
            gain_s = self._replica.runner.slowdown * saved_s(
                self._replica.runner.latency, request, known, found[place]
            ) - (there_s - now_s)
            if gain_s > most_s:
                best, most_s = place, gain_s
        return best

    def _fetch(self, request: Request, known: int, found: int, access: StoreAccess) -> int:
        """Fetch what is found of a request beyond what is known; return what is found."""
        now_s = self._clock.now
        ready_s = access.fetch(found - known, now_s)
        access.store.prefixes.add(request, found, now_s)  # used last now
        self._tree.let_go(request)
        self._tree.bring_to_host(request, found, ready_s, now_s)
        self._tree.keep(request)
        self.tokens_fetched += found - known
        self._brought = True
        return found

    def on_arrival(self) -> bool:
        """Return whether KV has come to the host, which counts there from the next boundary on.

        A swapper may bring it to HBM then.
        """
        return self._brought

    def at_boundary(self, now_s: float) -> None:
        self._brought = False

    # Writing ----------------------------------------------------------------------------

    def after_prefill(self, request: Request, now_s: float) -> None:
        self._write(request, _tokens(request), now_s)

    def before_finish(self, request: Request, now_s: float) -> None:
        # The KV of the last token is never computed.
        self._write(request, request.prompt_tokens + self._outputs[request.id] - 1, now_s)

    def _write(self, request: Request, tokens: int, now_s: float) -> None:
        """Copy what the stores have not of a request's first tokens to the host, and from there to each of them."""
        block_size = self._tree.block_size
        tokens = Chain(request, tokens, block_size).count * block_size
        writes: list[Write] = []
        for access in self._accesses:
            write = Write(access, request, tokens)
            if write.start < tokens:
                writes.append(write)
                access.store.coming[write] = self._writes[write] = None
        if writes:
            least = min(write.start for write in writes)
            through = self._replica.config.writes_through
            there_s = self._tree.copied_s(request) if through else self._link.send_kv(tokens - least, now_s)
            self._call(max(there_s, now_s), partial(self._from_host, writes))

    def _from_host(self, writes: Sequence[Write]) -> None:
        for write in writes:
            self._call(write.begin(self._clock.now), partial(self._arrives, write))

    def _arrives(self, write: Write) -> None:
        del self._writes[write]
        write.end(self._clock.now)

    def _call(self, time_s: float, then: Callable[[], None]) -> None:
        """Do something at a time, unless the host has failed by then."""
        self._clock.call(time_s, STORE, self._replica.id, lambda: None if self._lost else then())


def _tokens(request: Request) -> int:
    """Return the tokens whose KV a request has, or is to compute, before its next token."""
    return request.prompt_tokens + request.generated_tokens


def saved_s(latency: LatencyModels, request: Request, known: int, found: int) -> float:
    """Return the seconds by which a request's prefill is shorter if `found` tokens are cached instead of `known`."""

    def pass_s(cached: int) -> float:
        tokens = _tokens(request) - cached
        lora = LoraWork(tokens, tokens * request.rank, request.rank, 1, 1) if request.rank else NO_LORA
        base_s = latency.iteration.prefill_s(tokens, tokens * (tokens + 2 * cached))
        return base_s + latency.kernel.prefill_s(lora)

    return pass_s(known) - pass_s(found)
