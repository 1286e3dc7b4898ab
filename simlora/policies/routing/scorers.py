"""What `scored` adds up: how good each replica is for a request, by one measure."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Hashable, Iterable
from hashlib import blake2b
from itertools import takewhile
from typing import Final

import numpy as np
from numpy.typing import NDArray

from simlora.core.checks import GivenBool, GivenFloat, GivenInt, number, switch, whole
from simlora.core.errors import not_defined
from simlora.core.request import Request
from simlora.core.trace import BASE_MODEL
from simlora.policies.loads import SUMS
from simlora.policies.views import ClusterView

Ids = NDArray[np.int64]
Scores = NDArray[np.float64]
MOST_SESSIONS: Final = 1 << 20
"""Sessions remembered; the least recently used is forgotten first."""
_REQUESTS: Final = SUMS.index("requests")
_PROMPTS: Final = SUMS.index("prompt_tokens")


class Scorer:
    """Scores replicas from 0 to 1, the higher the better; one instance a router."""

    def __init__(self) -> None:
        """Take no parameters; a compiled class without this takes any."""

    def score(self, request: Request, candidates: Ids, view: ClusterView) -> Scores:
        """Return the score of each candidate `[candidates]`."""
        raise not_defined(self, "score")

    def routed(self, request: Request, replica: int, view: ClusterView) -> None:
        """The request goes to this replica."""


class Queue(Scorer):
    """(max - q) / (max - min) of the waiting requests q; 1 if all are equal. Source: llm-d's queue-scorer."""

    def score(self, request: Request, candidates: Ids, view: ClusterView) -> Scores:
        return _fewest(waiting(candidates, view))


class Running(Scorer):
    """The same of the running requests. Source: llm-d's running-requests-size-scorer."""

    def score(self, request: Request, candidates: Ids, view: ClusterView) -> Scores:
        return _fewest(view.outstanding[candidates] - waiting(candidates, view))


class InFlight(Scorer):
    """The same of all requests, as the router counts them itself. Source: AIBrix's least-request."""

    def score(self, request: Request, candidates: Ids, view: ClusterView) -> Scores:
        return _fewest(in_flight(candidates, view))


class LoadAware(Scorer):
    """(1 - min(q, threshold) / threshold) / 2 of the waiting requests q. Source: llm-d's load-aware-scorer."""

    def __init__(self, threshold: GivenInt = 128) -> None:
        self.threshold = whole("router.scorers.load_aware.threshold", threshold, "requests", least=1)

    def score(self, request: Request, candidates: Ids, view: ClusterView) -> Scores:
        found: Scores = 0.5 * (1.0 - np.minimum(waiting(candidates, view), self.threshold) / self.threshold)
        return found


class KvCache(Scorer):
    """The part of the pool that is free or can be evicted. Source: llm-d's kv-cache-utilization-scorer."""

    def score(self, request: Request, candidates: Ids, view: ClusterView) -> Scores:
        return 1.0 - kv_usage(candidates, view)


class LoraAffinity(Scorer):
    """1 where the adapter runs, 0.8 where another adapter has room, 0.6 where the adapter waits, or else 0.

    An adapter runs or waits if a request for it does: vLLM's metric does not say which adapters lie idle in HBM. There
    is room while the adapters that run and those that wait, those that do both counted twice, are fewer than max_loras.
    Source: llm-d's lora-affinity-scorer.
    """

    def score(self, request: Request, candidates: Ids, view: ClusterView) -> Scores:
        id = request.adapter_id if request.adapter is not None else None
        found = [self._tier(id, replica, view) for replica in candidates.tolist()]
        return np.array(found, dtype=np.float64)

    def _tier(self, id: int | None, replica: int, view: ClusterView) -> float:
        running, queued = running_adapters(replica, view), view.loads.waiting.replicas[replica]
        if id in running:
            return 1.0
        if len(running) + queued.adapters < view.max_loras[replica]:
            return 0.8
        return 0.6 if id in queued.users else 0.0


class LoraLoadState(Scorer):
    """By where the adapter lies: its tier, scaled to the range that two bonuses leave, and these.

    Tiers: `resident` in HBM; `free` if a slot of max_loras is; `evictable` if an adapter in a slot has no running
    request; or else 0. The `placement` bonus goes to one replica, which is the same for all requests of the adapter
    (rendezvous hashing), while the adapter is not there; the `headroom` bonus is scaled by the share of free slots,
    which is the whole score of a request for the base model.
    Source: llm-d's lora-load-state-scorer. Its tier for adapters in host memory only is left out, as all adapters of
    simlora are there. An adapter in flight to HBM counts as resident.
    """

    def __init__(
        self,
        resident: GivenFloat = 1.0,
        free: GivenFloat = 0.6,
        evictable: GivenFloat = 0.3,
        placement: GivenFloat = 0.03,
        headroom: GivenFloat = 0.03,
    ) -> None:
        key = "router.scorers.lora_load_state."
        self.resident = number(f"{key}resident", resident, least=0, most=1)
        self.free = number(f"{key}free", free, least=0, most=self.resident)
        self.evictable = number(f"{key}evictable", evictable, least=0, most=self.free)
        self.placement = number(f"{key}placement", placement, least=0, most=1)
        self.headroom = number(f"{key}headroom", headroom, least=0, most=1 - self.placement)

    def score(self, request: Request, candidates: Ids, view: ClusterView) -> Scores:
        loaded = view.resident_adapters[candidates]
        slots, room = view.max_loras[candidates], np.ones(len(candidates))
        limited = np.isfinite(slots)
        room[limited] = np.maximum(slots[limited] - loaded[limited], 0) / slots[limited]
        if request.adapter is None:
            return room
        there = view.resident(request.adapter)[candidates]
        busy = np.array([len(running_adapters(replica, view)) for replica in candidates.tolist()])
        tier = np.where(loaded > busy, self.evictable, 0.0)
        tier[room > 0.0] = self.free
        tier[there] = self.resident
        tier *= 1.0 - self.placement - self.headroom
        home = candidates == pinned(request.adapter.name, candidates)
        found: Scores = tier + self.placement * (home & ~there) + self.headroom * room
        return found


class Prefix(Scorer):
    """The part of the prompt that the router has sent to a replica before, in whole blocks from its start.

    The router remembers prompts by adapter: as many tokens of each replica as its pool has slots, the least recently
    sent forgotten first; all of them if it `forgets` none. A prompt with hashes consists of these blocks; one of a
    session begins with the session's last prompt, in blocks of `block_tokens`.
    Source: llm-d's prefix-cache-scorer over its approx-prefix-cache-producer, which hashes text.
    """

    def __init__(self, block_tokens: GivenInt = 16, forgets: GivenBool = True) -> None:
        self.block_tokens = whole("router.scorers.prefix.block_tokens", block_tokens, "tokens", least=1)
        self.forgets = switch("router.scorers.prefix.forgets", forgets)
        self._sent: dict[int, Sent] = {}  # by replica

    def score(self, request: Request, candidates: Ids, view: ClusterView) -> Scores:
        blocks = self._blocks(request)
        found = [self._of(replica).matching(blocks) for replica in candidates.tolist()]
        return np.array(found, dtype=np.float64) / max(sum(tokens for _, tokens in blocks), 1)

    def routed(self, request: Request, replica: int, view: ClusterView) -> None:
        most = int(view.kv_token_budgets[replica]) if self.forgets else None
        self._of(replica).add(self._blocks(request), most)

    def _of(self, replica: int) -> Sent:
        found = self._sent.get(replica)
        if found is None:
            found = self._sent[replica] = Sent()
        return found

    def _blocks(self, request: Request) -> list[tuple[Hashable, int]]:
        """Return keys of what a prompt is made of, in order, and the tokens of each."""
        adapter, hashes = request.adapter_id, request.block_hashes
        if hashes:
            tokens = max(request.prompt_tokens // len(hashes), 1)
            return [((adapter, each), tokens) for each in hashes]
        tokens = request.prompt_tokens // self.block_tokens * self.block_tokens
        return [((adapter, request.session), tokens)] if request.session is not None and tokens else []


class Sent:
    """The blocks of prompts that a replica was sent, least recently sent first, and the tokens of each."""

    def __init__(self) -> None:
        self._blocks: OrderedDict[Hashable, int] = OrderedDict()
        self._tokens = 0

    def matching(self, blocks: Iterable[tuple[Hashable, int]]) -> int:
        """Return how many leading tokens of these blocks there are."""
        found = 0
        for key, tokens in blocks:
            there = min(self._blocks.get(key, 0), tokens)
            found += there
            if there < tokens:
                break
        return found

    def add(self, blocks: Iterable[tuple[Hashable, int]], most: int | None) -> None:
        """Remember blocks, `most` tokens in all; the first of them longest."""
        for key, tokens in reversed(list(blocks)):
            self._tokens += tokens - self._blocks.get(key, 0)
            self._blocks[key] = tokens
            self._blocks.move_to_end(key)
        while most is not None and self._tokens > most:
            self._tokens -= self._blocks.popitem(last=False)[1]


class CachedKv(Scorer):
    """The tokens of the prompt whose KV is in a replica's HBM, (n - min) / (max - min); 1 if all are equal.

    With `beyond_tokens`, all are 0 if the best replica lacks more tokens of the prompt than that, or has none.
    Source: llm-d's precise-prefix-cache-scorer; with `beyond_tokens` the kvaware routing of vLLM's production stack.
    """

    def __init__(self, beyond_tokens: GivenInt | None = None) -> None:
        self.beyond_tokens: int | None = None
        if beyond_tokens is not None:
            self.beyond_tokens = whole(
                "router.scorers.cached_kv.beyond_tokens", beyond_tokens, "tokens", least=0
            )

    def score(self, request: Request, candidates: Ids, view: ClusterView) -> Scores:
        cached = view.cached_tokens(request)[candidates]
        if self.beyond_tokens is not None:
            best = int(cached.max())
            if not best or best < request.prompt_tokens - self.beyond_tokens:
                return np.zeros(len(candidates))
        return 1.0 - _fewest(cached) if cached.max() > cached.min() else np.ones(len(candidates))


class Session(Scorer):
    """1 for the replica that got the session's last request. Source: llm-d's session-affinity-scorer, AIBrix's."""

    def __init__(self) -> None:
        self._homes: OrderedDict[str, int] = OrderedDict()  # replica by session, least recently used first

    def score(self, request: Request, candidates: Ids, view: ClusterView) -> Scores:
        home = -1 if request.session is None else self._homes.get(request.session, -1)
        return _only(home, candidates)

    def routed(self, request: Request, replica: int, view: ClusterView) -> None:
        if request.session is not None:
            self._homes[request.session] = replica
            self._homes.move_to_end(request.session)
            if len(self._homes) > MOST_SESSIONS:
                self._homes.popitem(last=False)


class SessionHash(Scorer):
    """1 for one replica, which is the same for all requests of a session.

    Source: the session routing of vLLM's production stack. It has a ring of hashes; rendezvous hashing here moves the
    sessions of a lost replica only, as a ring does.
    """

    def score(self, request: Request, candidates: Ids, view: ClusterView) -> Scores:
        home = -1 if request.session is None else pinned(request.session, candidates)
        return _only(home, candidates)


class Rate(Scorer):
    """(max - n) / (max - min) of the n requests sent in the last `window_s`; 1 if all are equal.

    Source: the routing by QPS of vLLM's production stack, for requests without a session or a known prefix.
    """

    def __init__(self, window_s: GivenFloat = 60.0) -> None:
        self.window_s = number("router.scorers.rate.window_s", window_s, "seconds", above=0)
        self._sent: deque[tuple[float, int]] = deque()
        self._counts: dict[int, int] = {}

    def score(self, request: Request, candidates: Ids, view: ClusterView) -> Scores:
        old = list(takewhile(lambda sent: sent[0] <= view.now_s - self.window_s, self._sent))
        for _, replica in old:
            self._sent.popleft()
            self._counts[replica] -= 1
        counts = [self._counts.get(replica, 0) for replica in candidates.tolist()]
        return _fewest(np.array(counts, dtype=np.int64))

    def routed(self, request: Request, replica: int, view: ClusterView) -> None:
        self._sent.append((view.now_s, replica))
        self._counts[replica] = self._counts.get(replica, 0) + 1


class KvCost(Scorer):
    """Minus the KV blocks that a request costs: not from 0 to 1, so meant to be the only scorer.

    cost = prefill_scale * max((p + n - overlap_credit * m) / block_tokens, 0) + d / block_tokens, where n are the
    tokens of the prompt and m those of them whose KV is in the replica's HBM; p are the tokens n - m of the requests
    sent to the replica that have no first token yet, and d the prompts of all requests sent to it. The router counts p
    and d itself.
    Source: Dynamo's KV router. Left out: lower tiers of KV, the softmax of `router_temperature` (0 by default), and
    that blocks shared by requests of a replica are counted once in d. A request that ends without a first token leaves
    p once no more requests are outstanding than p has.
    """

    def __init__(
        self, prefill_scale: GivenFloat = 1.0, overlap_credit: GivenFloat = 1.0, block_tokens: GivenInt = 16
    ) -> None:
        key = "router.scorers.kv_cost."
        self.prefill_scale = number(f"{key}prefill_scale", prefill_scale, least=0)
        self.overlap_credit = number(f"{key}overlap_credit", overlap_credit, least=0)
        self.block_tokens = whole(f"{key}block_tokens", block_tokens, "tokens", least=1)
        self._prefills: dict[int, deque[tuple[Request, int]]] = {}

    def score(self, request: Request, candidates: Ids, view: ClusterView) -> Scores:
        sums = view.sent.all.sums[candidates]
        replicas, outstanding = candidates.tolist(), sums[:, _REQUESTS].tolist()
        prefills = [self._prefill_tokens(*each) for each in zip(replicas, outstanding, strict=True)]
        saved = self.overlap_credit * view.cached_tokens(request)[candidates]
        tokens = np.array(prefills, dtype=np.float64) + request.prompt_tokens - saved
        found: Scores = self.prefill_scale * np.maximum(tokens, 0.0) + sums[:, _PROMPTS]
        return -found / self.block_tokens

    def routed(self, request: Request, replica: int, view: ClusterView) -> None:
        uncached = request.prompt_tokens - int(view.cached_tokens(request)[replica])
        self._prefills.setdefault(replica, deque()).append((request, uncached))

    def _prefill_tokens(self, replica: int, outstanding: int) -> int:
        known = self._prefills.get(replica)
        if not known:
            return 0
        left = deque(each for each in known if each[0].first_token_s < 0.0)
        while len(left) > outstanding:
            left.popleft()
        self._prefills[replica] = left
        return sum(tokens for _, tokens in left)


SCORERS: Final[dict[str, Callable[..., Scorer]]] = {
    "queue": Queue,
    "running": Running,
    "in_flight": InFlight,
    "load_aware": LoadAware,
    "kv_cache": KvCache,
    "lora_affinity": LoraAffinity,
    "lora_load_state": LoraLoadState,
    "prefix": Prefix,
    "cached_kv": CachedKv,
    "session": Session,
    "session_hash": SessionHash,
    "rate": Rate,
    "kv_cost": KvCost,
}


def waiting(candidates: Ids, view: ClusterView) -> Ids:
    """Return the waiting requests of each candidate `[candidates]`."""
    return _requests(view.loads.waiting.sums, candidates)


def in_flight(candidates: Ids, view: ClusterView) -> Ids:
    """Return the requests sent to each candidate that have not ended `[candidates]`."""
    return _requests(view.sent.all.sums, candidates)


def kv_usage(candidates: Ids, view: ClusterView) -> Scores:
    """Return the part of each candidate's pool that is in use `[candidates]`."""
    found: Scores = view.used_tokens[candidates] / view.kv_token_budgets[candidates]
    return found


def running_adapters(replica: int, view: ClusterView) -> set[int]:
    """Return the ids of the adapters that a replica's running requests use."""
    queued = view.loads.waiting.replicas[replica].users
    users = view.loads.all.replicas[replica].users
    return {id for id, count in users.items() if id != BASE_MODEL and count > queued.get(id, 0)}


def pinned(name: str, candidates: Ids) -> int:
    """Return the candidate to which a name belongs: if one is lost, only its names go to others."""
    replicas: list[int] = candidates.tolist()
    return max(replicas, key=lambda replica: blake2b(f"{name}|{replica}".encode(), digest_size=8).digest())


def _only(home: int, candidates: Ids) -> Scores:
    found: Scores = (candidates == home).astype(np.float64)
    return found


def _requests(sums: NDArray[np.int64], candidates: Ids) -> Ids:
    found: Ids = sums[candidates, _REQUESTS]
    return found


def _fewest(counts: Ids) -> Scores:
    least, most = int(counts.min()), int(counts.max())
    if least == most:
        return np.ones(len(counts))
    found: Scores = (most - counts) / (most - least)
    return found
