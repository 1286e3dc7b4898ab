"""Cached KV of ended requests, for requests that begin with the same tokens: one tree per adapter."""

from __future__ import annotations

from collections.abc import Callable, Container
from math import inf

from mypy_extensions import i64

from simlora.core.request import Request
from simlora.memory.frontier import Frontier
from simlora.memory.order import LeastFirst
from simlora.memory.segments import Branch, Chain, Node, Segment
from simlora.memory.tree_listener import TreeListener
from simlora.memory.worth import Worth


class PrefixTree:
    """Caches whole blocks of `block_size` tokens. KV computed with one adapter cannot be used with another.

    Blocks with equal hashes have equal tokens, and so do all blocks before them. A request of a session without hashes
    begins with that session's earlier tokens, as far as its prompt reaches; its blocks, including those of its output,
    are identified by their number. Blocks can be matched once their request is prefilled. Blocks that were added
    together form one segment, which is cut where another request diverges.

    Segments that no request holds may leave HBM, leaves first, so that the resident part stays connected. The order is
    by `worth`, by default least recently used first. They go to the host, which has room for
    `host_capacity_tokens` and drops the leaves of least worth. A segment on the host comes back when a request begins
    with it. `send(tokens, now, since)` starts the copy to the host of KV that is in HBM from `since` on, and returns
    when it is complete. With `write(tokens, now)` KV is copied when it is computed instead, and leaves without a copy;
    `give_up(tokens, until, now)` says until when another copy may use its slots. Differs from such caches: what lies in
    HBM as well takes no room of the host.

    `comes_back` keeps the `frontier`, which orders the host's segments whose parent is in HBM (an adapter need not be
    unless KV comes only `after_adapters`). `invalid_tokens` are in HBM while their adapter is not; with `needs_adapter`
    they cannot be matched, nor what a request begins with whose adapter was not in HBM when it arrived: `fetched` are
    those for which it was loaded then. A segment's last use is the end of its last request; with `used_when_found`, the
    last match or, if only the request that added it used it, the end of that request.

    In token slots: `tokens` are in HBM or in flight to it, `held_tokens` of these are held by requests, and
    `host_tokens` are on the host, of which `awaited_tokens` are dropped last, as requests wait that begin with them.
    `segments` is the number of segments in both. `leaves` are the segments in HBM that no request holds and that have
    no child in HBM. `marks` is the last number with which a caller has marked segments. `listeners` are told what
    becomes of KV.

    A lookup costs one step per matched segment, whatever the size of the tree; an eviction costs O(log n).
    Source: vLLM's automatic prefix caching; SGLang (NeurIPS'24) §3, whose tree matches single tokens; FastLibra §4.
    """

    __slots__ = (
        "_awaited_leaves",
        "_awaiting",
        "_branches",
        "_held",
        "_host_capacity_tokens",
        "_host_leaves",
        "_needs_adapter",
        "_send",
        "_used_when_found",
        "awaited_tokens",
        "block_size",
        "fetched",
        "frontier",
        "give_up",
        "held_tokens",
        "host_tokens",
        "invalid_tokens",
        "leaves",
        "listeners",
        "marks",
        "segments",
        "tokens",
        "write",
    )

    def __init__(
        self,
        block_size: int,
        host_capacity_tokens: int = 0,
        worth: Worth[Segment] | None = None,
        comes_back: bool = False,
        send: Callable[[int, float, float], float] | None = None,
        after_adapters: bool = True,
        needs_adapter: bool = False,
        used_when_found: bool = False,
    ) -> None:
        self.block_size: i64 = block_size
        self._needs_adapter, self._used_when_found = needs_adapter, used_when_found
        self.tokens: i64 = 0
        self.held_tokens: i64 = 0
        self.host_tokens: i64 = 0
        self.awaited_tokens: i64 = 0
        self.invalid_tokens: i64 = 0
        self.segments: i64 = 0
        self.marks: i64 = 0
        self._host_capacity_tokens: i64 = host_capacity_tokens
        self._send = send
        self.write: Callable[[int, float], float] | None = None
        self.give_up: Callable[[int, float, float], None] | None = None
        self.listeners: tuple[TreeListener, ...] = ()
        self.fetched: Container[int] = ()
        self._branches: dict[int, Branch] = {}
        self._held: dict[int, Node] = {}  # by request: the last node that it holds
        worth = worth or LastUse()
        self.leaves: LeastFirst[Segment] = LeastFirst(worth)
        self._host_leaves: LeastFirst[Segment] = LeastFirst(worth)
        self._awaited_leaves: LeastFirst[Segment] = LeastFirst(worth)  # those that are awaited
        self._awaiting: dict[int, Node] = {}  # by waiting request: the last node that is kept for it
        self.frontier = Frontier(worth, after_adapters, comes_back)

    @property
    def keeps(self) -> bool:
        """Whether evicted KV goes to the host."""
        return self._host_capacity_tokens > 0

    def size(self, segment: Segment) -> i64:
        """Token slots of a segment."""
        return segment.count * self.block_size

    def branch(self, adapter_id: int) -> Branch:
        """Return the root of an adapter's cached KV."""
        found = self._branches.get(adapter_id)
        if found is None:
            found = self._branches[adapter_id] = Branch(adapter_id)
        return found

    def adapter(self, id: int, resident: bool) -> None:
        """Note that an adapter has entered or left HBM."""
        branch = self.branch(id)
        assert branch.resident != resident, f"adapter {id} comes or leaves twice"
        branch.resident = resident
        self.invalid_tokens += -branch.tokens if resident else branch.tokens
        self.frontier.adapter(branch)

    # Requests ---------------------------------------------------------------------------

    def claim_prefix(self, request: Request) -> list[Segment]:
        """Return the segments that a request begins with, leaving at least one token to prefill.

        The last segment is cut where the request diverges: that changes the tree, but not what it caches.
        """
        own_tokens = request.prompt_tokens + request.generated_tokens
        chain = Chain(request, own_tokens - request.host_tokens - 1, self.block_size)
        node: Node | None = self._branches.get(request.adapter_id)
        path: list[Segment] = []
        done: i64 = 0
        if self._needs_adapter and node is not None and (not node.resident or request.id in self.fetched):
            return path
        while node is not None and done < chain.count:
            segment = node.children.get(chain.key(done))
            if segment is None:
                break
            same = segment.alike(chain)
            if same < segment.count:
                path.append(self._cut(segment, same))
                break
            path.append(segment)
            done += same
            node = segment
        if path:
            path[-1].ends_match = True
        return path

    def matched_tokens(self, request: Request) -> i64:
        """Return the tokens in HBM that a prompt begins with, leaving at least one to prefill; nothing changes."""
        branch = self._branches.get(request.adapter_id)
        if self._needs_adapter and branch is not None and not branch.resident:
            return 0
        return self._reach(request, request.prompt_tokens - 1, resident=True)

    def may_match(self, request: Request) -> bool:
        """Return whether a request could begin with KV that is here; not if its adapter was missing at its arrival."""
        branch = self.branch(request.adapter_id)
        return not self._needs_adapter or (branch.resident and request.id not in self.fetched)

    def known_tokens(self, request: Request, tokens: int) -> i64:
        """Return how many of a request's first `tokens` tokens are in HBM or on the host; nothing changes."""
        return self._reach(request, tokens, resident=False)

    def begins_on_host(self, request: Request) -> bool:
        """Return whether some of the cached KV that a prompt begins with is on the host only; nothing changes."""
        tokens = request.prompt_tokens - 1
        return self._reach(request, tokens, resident=False) > self._reach(request, tokens, resident=True)

    def _reach(self, request: Request, tokens: i64, resident: bool) -> i64:
        """Return how many of a request's first tokens are cached, or cached in HBM (`resident`)."""
        chain = Chain(request, tokens, self.block_size)
        node: Node | None = self._branches.get(request.adapter_id)
        done: i64 = 0
        while node is not None and done < chain.count:
            segment = node.children.get(chain.key(done))
            if segment is None or (resident and not segment.resident):
                break
            same = segment.alike(chain)
            done += same
            node = segment if same == segment.count else None
        return done * self.block_size

    def hold(self, request: Request, now_s: float) -> list[Segment]:
        """Hold the `cached_tokens` found for a request that starts; return the segments to bring from the host."""
        path = self.claim_prefix(request)
        last: Node = path[-1] if path else self.branch(request.adapter_id)
        self._held[request.id] = last
        assert self.shared_tokens(request) == request.cached_tokens, (
            f"request {request.id} counts on cached KV that has gone"
        )
        comes: list[Segment] = []
        for segment in path:
            self._use(segment, now_s)
            if not segment.resident:
                self.enter(segment)
                comes.append(segment)
        return comes

    def holds(self, request: Request) -> bool:
        """Return whether a request has been admitted, even if nothing is cached for it."""
        return request.id in self._held

    def ready_s(self, request: Request) -> float:
        """Return when all KV that a request holds is in HBM."""
        node, ready_s = self._held[request.id], 0.0
        while isinstance(node, Segment):
            if node.ready_s > ready_s:
                ready_s = node.ready_s
            node = node.parent
        return ready_s

    def add(self, request: Request, tokens: int, now_s: float) -> None:
        """Add the KV of a request's first `tokens` tokens; it can be matched from now on, and the request holds it.

        A block that another request has added meanwhile is shared, and this request's copy is dropped.
        """
        chain, node = Chain(request, tokens, self.block_size), self._held[request.id]
        done = self._blocks(node)
        if chain.count <= done:
            return
        while done < chain.count:
            segment = node.children.get(chain.key(done))
            if segment is None:
                node = self._grow(node, chain, done, now_s)
                break
            same = segment.alike(chain)
            if same < segment.count:
                segment = self._cut(segment, same)
            self._use(segment, now_s)
            if not segment.resident:
                self.enter(segment, computed=True)
                segment.ready_s = now_s
            node = segment
            done += same
        self._held[request.id] = node

    def insert(self, request: Request, tokens: int, now_s: float) -> None:
        """Add the KV of a request's first `tokens` tokens, or use it, for a request that does not run here."""
        self._held[request.id] = self.branch(request.adapter_id)
        self.add(request, tokens, now_s)
        self.leave(request, now_s)

    def bring_to_host(self, request: Request, tokens: int, ready_s: float, now_s: float) -> None:
        """The KV of a request's first `tokens` tokens, as far as it is not here, is on the host from `ready_s` on.

        The host may drop other KV for it, or it, where that is worth less.
        """
        chain, branch = Chain(request, tokens, self.block_size), self.branch(request.adapter_id)
        node: Node = branch
        done: i64 = 0
        while done < chain.count and (found := node.children.get(chain.key(done))) is not None:
            same = found.alike(chain)
            node = self._cut(found, same) if same < found.count else found
            done += same
        count = chain.count - done
        if not count:
            return
        hashes = chain.hashes[done : chain.count]
        segment = Segment(node, branch, chain.key(done), done, count, hashes, resident=False)
        segment.visits = 1
        segment.used_s, segment.ready_s = now_s, ready_s
        if self.write is not None:
            segment.copied_s = ready_s
        node.children[segment.key] = segment
        self.segments += 1
        self.host_tokens += self.size(segment)
        for listener in self.listeners:
            listener.brought(self.size(segment))
        if isinstance(node, Segment):
            self._discard_host_leaf(node)
        self._await(segment, 1)  # or it might be dropped at once, as worth least
        self.frontier.add(segment)
        self._fit_host(now_s)
        self._await(segment, -1)

    def keep(self, request: Request) -> None:
        """Keep on the host what a waiting request begins with, as long as others can be dropped, until `let_go`."""
        path = self.claim_prefix(request)
        if not path:
            return
        self._awaiting[request.id] = path[-1]
        for segment in path:
            self._await(segment, 1)

    def let_go(self, request: Request) -> bool:
        """A request waits no longer; return whether something was kept for it."""
        node = self._awaiting.pop(request.id, None)
        found = node is not None
        while isinstance(node, Segment):
            self._await(node, -1)
            node = node.parent
        return found

    def _await(self, segment: Segment, change: i64) -> None:
        """Count a waiting request more or less of a segment, which may have been dropped."""
        before = segment.awaited
        segment.awaited += change
        if segment.resident or not self._is_there(segment) or (before and segment.awaited):
            return
        self.awaited_tokens += change * self.size(segment)
        if not segment.children:
            self._discard_host_leaf(segment)
            self._put_host_leaf(segment)

    def _grow(self, node: Node, chain: Chain, done: i64, now_s: float) -> Segment:
        """Add the blocks of a chain behind those `done` in HBM after a node; return the segment that has them.

        They extend the node if only the adding request has ever used it, and it has no copy on the host.
        """
        count, hashes = chain.count - done, chain.hashes[done : chain.count]
        branch = node.branch if isinstance(node, Segment) else node
        assert isinstance(branch, Branch)
        tokens = count * self.block_size
        self.tokens += tokens
        self.held_tokens += tokens
        branch.tokens += tokens
        if not branch.resident:
            self.invalid_tokens += tokens
        for listener in self.listeners:
            listener.added(tokens)
        unused = self.write is None and node.visits == 1 and not node.children
        if unused and isinstance(node, Segment) and node.users == 1:
            node.count += count
            node.hashes += hashes
            return node
        segment = Segment(node, branch, chain.key(done), done, count, hashes)
        node.children[segment.key] = segment
        segment.users = segment.visits = 1
        segment.used_s = segment.ready_s = now_s
        if self.write is not None:
            segment.copied_s = self.write(tokens, now_s)
        node.resident_children += 1
        self.segments += 1
        return segment

    def copied_s(self, request: Request) -> float:
        """Return when all KV that a request holds is on the host, if it is copied there when it is computed."""
        node, copied_s = self._held[request.id], 0.0
        while isinstance(node, Segment):
            copied_s = max(copied_s, node.copied_s)
            node = node.parent
        return copied_s

    def shared_tokens(self, request: Request) -> i64:
        """Return the tokens of a running request whose KV is in the tree."""
        return self._blocks(self._held[request.id]) * self.block_size

    def _blocks(self, node: Node) -> i64:
        """Return the blocks up to the end of a node."""
        return node.before + node.count if isinstance(node, Segment) else 0

    def leave(self, request: Request, now_s: float) -> None:
        """Release the segments of a request that is gone; those that only it held become idle."""
        node: Node = self._held[request.id]
        del self._held[request.id]
        while isinstance(node, Segment):
            node.users -= 1
            if node.visits == 1 or not self._used_when_found:
                node.used_s = now_s
            if not node.users:
                self.held_tokens -= self.size(node)
                if not node.resident_children:
                    self.leaves.put(node)
            node = node.parent

    def _use(self, segment: Segment, now_s: float) -> None:
        segment.visits += 1
        segment.used_s = now_s
        segment.users += 1
        if segment.users == 1:
            self.held_tokens += self.size(segment)
            self.leaves.discard(segment)

    # HBM and host -----------------------------------------------------------------------

    def evict(self, tokens: int, now_s: float) -> None:
        """Evict idle blocks of at least this many tokens from HBM, or all idle blocks."""
        while tokens > 0:
            first = self.leaves.first(now_s)
            if first is None:
                break
            segment = first[1]
            blocks: i64 = min(-(-tokens // self.block_size), segment.count)
            tokens -= blocks * self.block_size
            rest: Segment | None = None
            if blocks < segment.count:
                place = self.leaves.place(segment)
                rest = self._cut(segment, segment.count - blocks)
            self.take_out(segment, now_s)
            self._join(segment)
            if rest is not None and rest in self.leaves:
                # Among equals the rest stays where it was, so that many small evictions take what a large one takes.
                self.leaves.put_at(rest, place)

    def take_out(self, segment: Segment, now_s: float) -> None:
        """Evict an idle leaf from HBM, to the host or for good."""
        assert not segment.users, "cached KV in use is evicted"
        assert not segment.resident_children, "cached KV is evicted before what lies behind it"
        tokens, parent = self.size(segment), segment.parent
        self.leaves.discard(segment)
        segment.resident = False
        self.tokens -= tokens
        segment.branch.tokens -= tokens
        if not segment.branch.resident:
            self.invalid_tokens -= tokens
        parent.resident_children -= 1
        if isinstance(parent, Segment) and not parent.users and not parent.resident_children:
            self.leaves.put(parent)
        self.host_tokens += tokens
        for listener in self.listeners:
            listener.left(tokens)
        if segment.awaited:
            self.awaited_tokens += tokens
        if not segment.children:
            self._put_host_leaf(segment)
        self.frontier.change(segment)
        self.frontier.add(segment)
        self._fit_host(now_s)
        if segment.copied_s < inf:
            self._leave_copied(segment, now_s)
        elif self._send is not None and (self._is_there(segment) or segment.ready_s > now_s):
            there_s, segment.ready_s = segment.ready_s, self._send(tokens, now_s, segment.ready_s)
            for listener in self.listeners:
                listener.sent(tokens, now_s, there_s, segment.ready_s)
        if segment.host_s > now_s:
            segment.ready_s = segment.host_s  # still on its way to the host: its copy to HBM has not begun

    def _leave_copied(self, segment: Segment, now_s: float) -> None:
        """A segment leaves HBM whose copy to the host has begun: its slots are free when no copy uses them."""
        until_s = max(segment.copied_s, segment.ready_s)
        segment.ready_s = segment.copied_s
        if self.give_up is not None:
            self.give_up(self.size(segment), until_s, now_s)
        for listener in self.listeners:
            listener.given_up(self.size(segment), until_s)

    def enter(self, segment: Segment, computed: bool = False) -> None:
        """Put a segment into HBM, copied or `computed` anew; the caller sets `ready_s`."""
        assert segment.parent.resident or isinstance(segment.parent, Branch), (
            "KV comes before what it follows"
        )
        tokens = self.size(segment)
        segment.resident = True
        segment.host_s = 0.0 if computed else segment.ready_s
        segment.parent.resident_children += 1
        self.tokens += tokens
        self.host_tokens -= tokens
        for listener in self.listeners:
            listener.came(tokens, computed)
        segment.branch.tokens += tokens
        if not segment.branch.resident:
            self.invalid_tokens += tokens
        if segment.awaited:
            self.awaited_tokens -= tokens
        self._discard_host_leaf(segment)
        self.frontier.discard(segment)
        self.frontier.change(segment)
        if isinstance(segment.parent, Segment):
            self.leaves.discard(segment.parent)
        if not segment.users:
            self.leaves.put(segment)

    def _fit_host(self, now_s: float) -> None:
        """Drop the host's leaves of least worth until the rest fits, those that are awaited last."""
        while self.host_tokens > self._host_capacity_tokens:
            first = self._host_leaves.first(now_s) or self._awaited_leaves.first(now_s)
            assert first is not None, "what lies on the host has leaves"
            segment = first[1]
            self._discard_host_leaf(segment)
            if segment.awaited:
                self.awaited_tokens -= self.size(segment)
            self.frontier.discard(segment)
            self.host_tokens -= self.size(segment)
            self.segments -= 1
            for listener in self.listeners:
                listener.dropped(self.size(segment))
            parent = segment.parent
            del parent.children[segment.key]
            if isinstance(parent, Segment) and not parent.resident and not parent.children:
                self._put_host_leaf(parent)

    def _put_host_leaf(self, segment: Segment) -> None:
        (self._awaited_leaves if segment.awaited else self._host_leaves).put(segment)

    def _discard_host_leaf(self, segment: Segment) -> None:
        self._host_leaves.discard(segment)
        self._awaited_leaves.discard(segment)

    def _is_there(self, segment: Segment) -> bool:
        return segment.parent.children.get(segment.key) is segment

    # Cutting and joining ----------------------------------------------------------------

    def _cut(self, segment: Segment, blocks: i64) -> Segment:
        """Cut a segment after this many blocks; return the upper part, whose child is now the given segment."""
        parent, hashes = segment.parent, segment.hashes
        upper = Segment(
            parent, segment.branch, segment.key, segment.before, blocks, hashes[:blocks], segment.resident
        )
        upper.users, upper.visits, upper.mark = segment.users, segment.visits, segment.mark
        upper.awaited = segment.awaited
        upper.used_s, upper.ready_s, upper.host_s = segment.used_s, segment.ready_s, segment.host_s
        upper.copied_s = segment.copied_s
        parent.children[segment.key] = upper
        segment.parent, segment.hashes = upper, hashes[blocks:]
        segment.before += blocks
        segment.count -= blocks
        segment.key = segment.hashes[0] if hashes else segment.before
        upper.children[segment.key] = segment
        upper.resident_children = 1 if segment.resident else 0
        self.segments += 1
        for order in (self.leaves, self._host_leaves, self._awaited_leaves):
            if segment in order:
                order.put(segment)  # it is smaller now and worth less
        if not upper.resident:
            self.frontier.part(upper, segment)
        return upper

    def _join(self, upper: Segment) -> None:
        """Join two segments on the host that were one before they left HBM in parts.

        Not where a request was found to end: a trial that comes again, or does not, would decide what leaves the host.
        """
        if upper.ends_match or len(upper.children) != 1 or not self._is_there(upper):
            return
        (lower,) = upper.children.values()
        if lower.visits != upper.visits or lower.used_s != upper.used_s or lower.awaited or upper.awaited:
            return
        upper.count += lower.count
        upper.ends_match = lower.ends_match
        upper.hashes += lower.hashes
        upper.children = lower.children
        for segment in upper.children.values():
            segment.parent = upper
        upper.ready_s = max(upper.ready_s, lower.ready_s)
        upper.copied_s = max(upper.copied_s, lower.copied_s)
        self._discard_host_leaf(lower)
        if not upper.children:
            self._put_host_leaf(upper)
        upper.outside = lower.outside
        self.frontier.add(upper)
        lower.children = {}
        self.segments -= 1


class LastUse(Worth[Segment]):
    """What was used last is worth most."""

    def key(self, segment: Segment) -> float:
        return segment.used_s
