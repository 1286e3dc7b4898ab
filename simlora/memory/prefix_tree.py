"""KV that stays when its request is gone, for those that begin with the same tokens: a tree, adapter by adapter."""

from __future__ import annotations

from collections.abc import Callable, Hashable

from simlora.core.request import Request
from simlora.memory.frontier import Frontier
from simlora.memory.order import Order
from simlora.memory.segments import Blocks, Branch, Node, Segment, alike, joined


class PrefixTree:
    """Whole blocks of `block_size` tokens; KV made with one adapter is of no use to another.

    Equal hashes mean equal tokens in the block and in all before it. A request without hashes that belongs to a
    session begins with what was said there before, as far as its prompt reaches; its blocks are known by their
    number, those of its output too. Blocks can be found once their request is prefilled. What requests brought
    together is one segment, cut where others part from it.

    What nobody holds may leave HBM, leaves first, so that what is there hangs together: by `key` and `fade` (see
    `Order`), or else what was used longest ago. It goes to the host, where there is room for `host_capacity_tokens` and
    leaves of the least worth make way; what lies there comes back when a request begins with it.
    `send` (tokens, now, since when they are in HBM) starts the copy and returns when it is done. `comes_back`: whether
    anybody asks the `frontier` for the most worthy on the host of those that could follow what is in HBM, and their
    adapter too if KV comes only `after_adapters`. `invalid_tokens` are in HBM while their adapter is not;
    `needs_adapter`: nobody finds KV then. Something is used until its request ends; or, with `used_when_found`, when it
    is found, and by whoever brought it until the end.

    In token slots: `tokens` are in HBM or on their way there, of which requests hold `held_tokens`; `host_tokens` are
    on the host. `segments` is how many segments there are in both; `leaves` are those in HBM that nobody holds and
    behind which HBM has nothing.

    A lookup costs a step for each segment on its way, whatever the tree holds; leaving, O(log n).
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
        ] = {}  # by request: the last segment that it holds, and blocks until there
        key = key or _last_use
        self.leaves: Order[Segment] = Order(key, fade, most_fade)
        self._host_leaves: Order[Segment] = Order(key, fade, most_fade)
        self.frontier = Frontier(key, fade, most_fade, after_adapters, comes_back)

    @property
    def keeps(self) -> bool:
        """Whether anything goes to the host."""
        return self._host_capacity_tokens > 0

    def size(self, segment: Segment) -> int:
        """Token slots of a segment."""
        return len(segment.blocks) * self.block_size

    def branch(self, adapter_id: int) -> Branch:
        """Return what is cached of an adapter."""
        found = self._branches.get(adapter_id)
        if found is None:
            found = self._branches[adapter_id] = Branch(adapter_id)
        return found

    def adapter(self, id: int, resident: bool) -> None:
        """An adapter has come into HBM, or has left it."""
        branch = self.branch(id)
        assert branch.resident != resident, f"adapter {id} comes or leaves twice"
        branch.resident = resident
        self.invalid_tokens += -branch.tokens if resident else branch.tokens
        self.frontier.adapter(branch)

    # Requests ---------------------------------------------------------------------------

    def found(self, request: Request) -> list[Segment]:
        """Return what a request begins with, from the first token on; one token at least is left to prefill.

        The last segment is cut where the request parts from it: that changes the tree, though not what it holds.
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
        """A request starts with the `cached_tokens` that were found for it; return what comes from the host."""
        path = self.found(request)
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
        """When the KV is there that a request holds."""
        node, _ = self._held[request.id]
        ready_s = 0.0
        while isinstance(node, Segment):
            ready_s = max(ready_s, node.ready_s)
            node = node.parent
        return ready_s

    def add(self, request: Request, tokens: int, now_s: float) -> None:
        """The KV of a request's first `tokens` tokens is there: it can be found, and is held by the request.

        A block that another request has brought meanwhile is shared, and its copy given up.
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
        """Blocks come into HBM behind those of a node, which they become part of if nobody else knows it."""
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
        """Tokens of a running request whose KV lies here."""
        return self._held[request.id][1] * self.block_size

    def leave(self, request: Request, now_s: float) -> None:
        """A request is gone; what only it held is idle."""
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
        """Give up idle blocks of at least so many tokens, or all."""
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
        """An idle leaf leaves HBM, for the host or for good."""
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
        """A segment comes into HBM; who brings it says when it is there."""
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
        """The host gives up what is worth least until it has room for the rest."""
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
        """Part a segment behind that many blocks; return the upper part, of which the given one is now the child."""
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
                order.put(segment)  # it is smaller now, and worth less
        if not upper.resident:
            self.frontier.part(upper, segment)
        return upper

    def _join(self, upper: Segment) -> None:
        """Make one segment on the host out of two that were one before they left HBM bit by bit."""
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
        """Return the whole blocks of a request's first `tokens` tokens, and by what the first of them is found."""
        if request.block_hashes:
            blocks = request.block_hashes[: min(tokens, request.prompt_tokens) // self.block_size]
            return blocks, request.block_hashes[0]
        if request.session is None:
            return (), None
        return range(tokens // self.block_size), request.session


def _last_use(segment: Segment) -> float:
    return segment.used_s
