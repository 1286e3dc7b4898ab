"""Cached KV of ended requests, for requests that begin with the same tokens: one tree per adapter."""

from __future__ import annotations

from collections.abc import Callable, Hashable

from mypy_extensions import mypyc_attr

from simlora.core.request import Request
from simlora.memory.frontier import Frontier
from simlora.memory.order import Order
from simlora.memory.segments import Blocks, Branch, Node, Segment, alike, joined


@mypyc_attr(allow_interpreted_subclasses=True)
class PrefixTree:
    """Caches whole blocks of `block_size` tokens. KV computed with one adapter cannot be used with another.

    Blocks with equal hashes have equal tokens, and so do all blocks before them. A request of a session without hashes
    begins with that session's earlier tokens, as far as its prompt reaches; its blocks, including those of its output,
    are identified by their number. Blocks can be matched once their request is prefilled. Blocks that were added
    together form one segment, which is cut where another request diverges.

    Segments that no request holds may leave HBM, leaves first, so that the resident part stays connected. The order is
    by `key` and `fade` (see `Order`), by default least recently used first. They go to the host, which has room for
    `host_capacity_tokens` and drops the leaves of least worth. A segment on the host comes back when a request begins
    with it. `send(tokens, now, since)` starts the copy to the host of KV that is in HBM from `since` on, and returns
    when it is complete. `comes_back` keeps the `frontier`, which orders the host's segments whose parent is in HBM (an
    adapter need not be unless KV comes only `after_adapters`). `invalid_tokens` are in HBM while their adapter is not;
    with `needs_adapter` they cannot be matched. A segment's last use is the end of its last request; with
    `used_when_found`, the last match or, if only the request that added it used it, the end of that request.

    In token slots: `tokens` are in HBM or in flight to it, `held_tokens` of these are held by requests, and
    `host_tokens` are on the host. `segments` is the number of segments in both. `leaves` are the segments in HBM that
    no request holds and that have no child in HBM.

    A lookup costs one step per matched segment, whatever the size of the tree; an eviction costs O(log n).
    Source: vLLM's automatic prefix caching; SGLang (NeurIPS'24) §3, whose tree matches single tokens; FastLibra §4.
    """

    __slots__ = (
        "_branches",
        "_held",
        "_host_capacity_tokens",
        "_host_leaves",
        "_needs_adapter",
        "_send",
        "_used_when_found",
        "block_size",
        "frontier",
        "held_tokens",
        "host_tokens",
        "invalid_tokens",
        "leaves",
        "segments",
        "tokens",
    )

    def __init__(
        self,
        block_size: int,
        host_capacity_tokens: int = 0,
        key: Callable[[Segment], float] | None = None,
        fade: Callable[[Segment, float], float] | None = None,
        most_fade: float = 0.0,
        comes_back: bool = False,
        send: Callable[[int, float, float], float] | None = None,
        after_adapters: bool = True,
        needs_adapter: bool = False,
        used_when_found: bool = False,
    ) -> None:
        self.block_size = block_size
        self._needs_adapter, self._used_when_found = needs_adapter, used_when_found
        self.tokens = self.held_tokens = self.host_tokens = self.invalid_tokens = self.segments = 0
        self._host_capacity_tokens, self._send = host_capacity_tokens, send
        self._branches: dict[int, Branch] = {}
        self._held: dict[
            int, tuple[Node, int]
        ] = {}  # by request: the last node that it holds, and the blocks up to there
        key = key or _last_use
        self.leaves: Order[Segment] = Order(key, fade, most_fade)
        self._host_leaves: Order[Segment] = Order(key, fade, most_fade)
        self.frontier = Frontier(key, fade, most_fade, after_adapters, comes_back)

    @property
    def keeps(self) -> bool:
        """Whether evicted KV goes to the host."""
        return self._host_capacity_tokens > 0

    def size(self, segment: Segment) -> int:
        """Token slots of a segment."""
        return len(segment.blocks) * self.block_size

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
        blocks, first = self._chain(request, own_tokens - request.host_tokens - 1)
        node: Node | None = self._branches.get(request.adapter_id)
        path: list[Segment] = []
        done, most = 0, len(blocks)
        if self._needs_adapter and node is not None and not node.resident:
            return path
        while node is not None and done < most:
            segment = node.children.get(blocks[done] if done else first)
            if segment is None:
                break
            same = alike(segment.blocks, blocks, done)
            if same < len(segment.blocks):
                path.append(self._cut(segment, same))
                break
            path.append(segment)
            done += same
            node = segment
        return path

    def hold(self, request: Request, now_s: float) -> list[Segment]:
        """Hold the `cached_tokens` found for a request that starts; return the segments to bring from the host."""
        path = self.claim_prefix(request)
        tokens = sum(map(self.size, path))
        assert tokens == request.cached_tokens, f"request {request.id} counts on cached KV that has gone"
        comes = [segment for segment in path if not segment.resident]
        for segment in path:
            self._use(segment, now_s)
        for segment in comes:
            self.enter(segment)
        last: Node = path[-1] if path else self.branch(request.adapter_id)
        self._held[request.id] = last, tokens // self.block_size
        return comes

    def ready_s(self, request: Request) -> float:
        """Return when all KV that a request holds is in HBM."""
        node, _ = self._held[request.id]
        ready_s = 0.0
        while isinstance(node, Segment):
            ready_s = max(ready_s, node.ready_s)
            node = node.parent
        return ready_s

    def add(self, request: Request, tokens: int, now_s: float) -> None:
        """Add the KV of a request's first `tokens` tokens; it can be matched from now on, and the request holds it.

        A block that another request has added meanwhile is shared, and this request's copy is dropped.
        """
        blocks, first = self._chain(request, tokens)
        node, done = self._held[request.id]
        if len(blocks) <= done:
            return
        branch = node.branch if isinstance(node, Segment) else node
        assert isinstance(branch, Branch)
        while done < len(blocks):
            key = blocks[done] if done else first
            segment = node.children.get(key)
            if segment is None:
                self._grow(node, branch, key, blocks[done:], now_s)
                node = node.children.get(key, node)
                break
            same = alike(segment.blocks, blocks, done)
            if same < len(segment.blocks):
                segment = self._cut(segment, same)
            self._use(segment, now_s)
            if not segment.resident:
                self.enter(segment)
                segment.ready_s = now_s
            node = segment
            done += same
        self._held[request.id] = node, len(blocks)

    def _grow(self, node: Node, branch: Branch, key: Hashable, blocks: Blocks, now_s: float) -> None:
        """Add blocks in HBM after a node's; they extend the node if only the adding request has ever used it."""
        tokens = len(blocks) * self.block_size
        self.tokens += tokens
        self.held_tokens += tokens
        branch.tokens += tokens
        if not branch.resident:
            self.invalid_tokens += tokens
        if isinstance(node, Segment) and node.users == node.visits == 1 and not node.children:
            node.blocks = joined(node.blocks, blocks)
            return
        segment = node.children[key] = Segment(node, branch, key, blocks)
        segment.users = segment.visits = 1
        segment.used_s = segment.ready_s = now_s
        node.resident_children += 1
        self.segments += 1

    def shared_tokens(self, request: Request) -> int:
        """Return the tokens of a running request whose KV is in the tree."""
        return self._held[request.id][1] * self.block_size

    def leave(self, request: Request, now_s: float) -> None:
        """Release the segments of a request that is gone; those that only it held become idle."""
        node, _ = self._held.pop(request.id)
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
            blocks = min(-(-tokens // self.block_size), len(segment.blocks))
            tokens -= blocks * self.block_size
            if blocks < len(segment.blocks):
                self._cut(segment, len(segment.blocks) - blocks)
            self.take_out(segment, now_s)
            self._join(segment)

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
        if not segment.children:
            self._host_leaves.put(segment)
        self.frontier.change(segment)
        self.frontier.add(segment)
        self._fit_host(now_s)
        if self._send is not None and (self._is_there(segment) or segment.ready_s > now_s):
            segment.ready_s = self._send(tokens, now_s, segment.ready_s)

    def enter(self, segment: Segment) -> None:
        """Put a segment into HBM; the caller sets `ready_s`."""
        assert segment.parent.resident or isinstance(segment.parent, Branch), (
            "KV comes before what it follows"
        )
        tokens = self.size(segment)
        segment.resident = True
        segment.parent.resident_children += 1
        self.tokens += tokens
        self.host_tokens -= tokens
        segment.branch.tokens += tokens
        if not segment.branch.resident:
            self.invalid_tokens += tokens
        self._host_leaves.discard(segment)
        self.frontier.discard(segment)
        self.frontier.change(segment)
        if isinstance(segment.parent, Segment):
            self.leaves.discard(segment.parent)
        if not segment.users:
            self.leaves.put(segment)

    def _fit_host(self, now_s: float) -> None:
        """Drop the host's leaves of least worth until the rest fits."""
        while self.host_tokens > self._host_capacity_tokens:
            first = self._host_leaves.first(now_s)
            assert first is not None, "what lies on the host has leaves"
            segment = first[1]
            self._host_leaves.discard(segment)
            self.frontier.discard(segment)
            self.host_tokens -= self.size(segment)
            self.segments -= 1
            parent = segment.parent
            del parent.children[segment.key]
            if isinstance(parent, Segment) and not parent.resident and not parent.children:
                self._host_leaves.put(parent)

    def _is_there(self, segment: Segment) -> bool:
        return segment.parent.children.get(segment.key) is segment

    # Cutting and joining ----------------------------------------------------------------

    def _cut(self, segment: Segment, blocks: int) -> Segment:
        """Cut a segment after this many blocks; return the upper part, whose child is now the given segment."""
        parent = segment.parent
        upper = Segment(parent, segment.branch, segment.key, segment.blocks[:blocks], segment.resident)
        upper.users, upper.visits, upper.mark = segment.users, segment.visits, segment.mark
        upper.used_s, upper.ready_s = segment.used_s, segment.ready_s
        parent.children[segment.key] = upper
        segment.parent, segment.blocks = upper, segment.blocks[blocks:]
        segment.key = segment.blocks[0]
        upper.children[segment.key] = segment
        upper.resident_children = int(segment.resident)
        self.segments += 1
        for order in (self.leaves, self._host_leaves):
            if segment in order:
                order.put(segment)  # it is smaller now and worth less
        if not upper.resident:
            self.frontier.part(upper, segment)
        return upper

    def _join(self, upper: Segment) -> None:
        """Join two segments on the host that were one before they left HBM in parts."""
        if len(upper.children) != 1 or not self._is_there(upper):
            return
        (lower,) = upper.children.values()
        if (lower.visits, lower.used_s) != (upper.visits, upper.used_s):
            return
        upper.blocks = joined(upper.blocks, lower.blocks)
        upper.children = lower.children
        for segment in upper.children.values():
            segment.parent = upper
        upper.ready_s = max(upper.ready_s, lower.ready_s)
        self._host_leaves.discard(lower)
        if not upper.children:
            self._host_leaves.put(upper)
        upper.outside = lower.outside
        self.frontier.add(upper)
        lower.children = {}
        self.segments -= 1

    def _chain(self, request: Request, tokens: int) -> tuple[Blocks, Hashable]:
        """Return the whole blocks of a request's first `tokens` tokens, and the key of the first."""
        if request.block_hashes:
            blocks = request.block_hashes[: min(tokens, request.prompt_tokens) // self.block_size]
            return blocks, request.block_hashes[0]
        if request.session is None:
            return (), None
        return range(tokens // self.block_size), request.session


def _last_use(segment: Segment) -> float:
    return segment.used_s
