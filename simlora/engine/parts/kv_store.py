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
from simlora.engine.scenario import Scenario
from simlora.latency.kernels import NO_LORA, LoraWork
from simlora.latency.models import LatencyModels
from simlora.memory.segments import Chain
from simlora.memory.stored_prefixes import StoredPrefixes


class KvStore:
    """Where KV is kept, with a link in each direction, over which a token takes `token_s`, and a copy `latency_s` more.

    `tokens_in` have been written, and `tokens_out` fetched.
    """

    def __init__(self, prefixes: StoredPrefixes, token_s: float, latency_s: float) -> None:
        self.prefixes, self.token_s, self.latency_s = prefixes, token_s, latency_s
        self.writes, self.reads = Link(), Link()
        self.tokens_in = self.tokens_out = 0


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
        store = self.store
        store.tokens_in += tokens
        return self._copy(self._out, store.writes, tokens, now_s)

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

    KV is written as soon as it is computed, through the host's memory. What a request begins with is looked for when it
    joins the queue: here first, then in the `accesses` in their order. It is fetched if that takes less time than
    computing it (`by_cost`), or always; a request that is admitted meanwhile waits for it. `tokens_fetched` and
    `tokens_recomputed` count what was found in a store, and fetched or, as that is faster, not.

    Source: SGLang's HiCache, which prefetches from its third tier to the host when a request is queued, and writes
    through (write_through); LMCache, which writes to all of its tiers; vLLM's hashes of blocks, which have the adapter
    in them. Fetching by cost: Mooncake (FAST'25), whose scheduler compares the time of a transfer with that of a
    prefill. Differs: a fetch is not given up when it is late (HiCache's wait_complete); KV that is written to a store
    and leaves HBM later is copied to the host twice.
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
        elif replica.reserve in ("full", "paged"):
            blocks = {scenario.cache_block_tokens_with(kind.replica) for kind in scenario.kinds}
            if len(blocks) > 1:
                yield f"{keys} blocks of one size; they have {' and '.join(map(str, sorted(blocks)))} tokens"

    def __init__(
        self,
        replica: Replica,
        kv: PrefixCachingKV,
        outputs: Sequence[int],
        accesses: Sequence[StoreAccess],
        by_cost: bool,
    ) -> None:
        self._replica, self._clock, self._tree, self._link = replica, replica.clock, kv.tree, kv.host_link
        self._outputs, self._accesses, self._by_cost = outputs, accesses, by_cost
        self._latency = replica.runner.latency
        self._sent: dict[int, int] = {}  # tokens that are stored, or on the way, by running request
        self.tokens_fetched = self.tokens_recomputed = 0

    def slow_down(self, factor: float) -> None:
        """Copies over the network take `factor` times as long from now on."""
        for access in self._accesses:
            access.slow_down(factor)

    def inherit_counters(self, failed: Part) -> None:
        assert isinstance(failed, KvStoring), "replicas of one number have the same parts"
        self.tokens_fetched, self.tokens_recomputed = failed.tokens_fetched, failed.tokens_recomputed

    # Fetching ---------------------------------------------------------------------------

    def on_queue(self, request: Request, waits: bool) -> None:
        if not waits:
            return
        now_s, tree, limit = self._clock.now, self._tree, _tokens(request) - request.host_tokens - 1
        known = tree.known_tokens(request, limit)
        for access in self._accesses:
            found = access.store.prefixes.found_tokens(request, limit)
            if found <= known:
                continue
            if self._by_cost:
                there_s = access.fetched_s(found - known, now_s) + self._link.kv_s(found - known)
                if there_s - now_s >= saved_s(self._latency, request, known, found):
                    self.tokens_recomputed += found - known
                    continue
            ready_s = access.fetch(found - known, now_s)
            access.store.prefixes.add(request, found, now_s)  # used last now
            tree.bring_to_host(request, found, ready_s, now_s)
            self.tokens_fetched += found - known
            known = found

    # Writing ----------------------------------------------------------------------------

    def after_prefill(self, request: Request, now_s: float) -> None:
        self._write(request, _tokens(request), now_s)

    def before_finish(self, request: Request, now_s: float) -> None:
        # The KV of the last token is never computed.
        self._write(request, request.prompt_tokens + self._outputs[request.id] - 1, now_s)

    def on_release(self, request: Request, now_s: float) -> None:
        self._sent.pop(request.id, None)

    def _write(self, request: Request, tokens: int, now_s: float) -> None:
        """Copy what a store has not of a request's first tokens to the host, and from there to the store."""
        block_size = self._tree.block_size
        tokens = Chain(request, tokens, block_size).count * block_size
        sent, starts = self._sent.get(request.id, 0), list[int]()
        for access in self._accesses:
            starts.append(max(sent, access.store.prefixes.found_tokens(request, tokens)))
        if min(starts) < tokens:
            on_host_s = self._link.send_kv(tokens - min(starts), now_s)
            self._call(on_host_s, partial(self._from_host, request, tokens, starts))
        self._sent[request.id] = tokens

    def _from_host(self, request: Request, tokens: int, starts: Sequence[int]) -> None:
        for access, start in zip(self._accesses, starts, strict=True):
            if start < tokens:
                there_s = access.write(tokens - start, self._clock.now)
                self._call(there_s, partial(self._arrives, access.store, request, tokens, start))

    def _arrives(self, store: KvStore, request: Request, tokens: int, start: int) -> None:
        # What it follows may have left meanwhile; then nothing can begin with it.
        if store.prefixes.found_tokens(request, tokens) >= start:
            store.prefixes.add(request, tokens, self._clock.now)

    def _call(self, time_s: float, then: Callable[[], None]) -> None:
        """Do something at a time, unless the replica has failed by then: it has no parts then."""
        replica = self._replica
        self._clock.call(time_s, STORE, replica.id, lambda: then() if replica.hooks.parts else None)


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
