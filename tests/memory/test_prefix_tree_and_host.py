"""PrefixTree with a host behind HBM: what goes there, what comes back, what may follow; and all of it against sets."""

import math

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from simlora.core.adapter import Adapter
from simlora.core.request import Request
from simlora.memory.prefix_tree import PrefixTree
from simlora.memory.segments import Segment
from simlora.policies.eviction.cost_model import CostModel
from tests.memory.trees import A, B, ByRule, blocks, request, running, segments, serve, served, started, walk


def with_host(host_capacity_tokens: int = 1000, **more: object) -> PrefixTree:
    return PrefixTree(4, host_capacity_tokens, **more)  # type: ignore[arg-type]


@pytest.fixture
def tree() -> PrefixTree:
    return with_host()


@pytest.fixture
def returning() -> PrefixTree:
    """One that says what could come back; its adapters are there."""
    tree = with_host(comes_back=True)
    for adapter in (A, B):
        tree.adapter(adapter.id, True)
    return tree


def counts(tree: PrefixTree) -> tuple[int, int, int]:
    return tree.tokens, tree.host_tokens, tree.held_tokens


# Going and coming ---------------------------------------------------------------------------


def test_kv_does_not_come_before_what_it_follows(tree):
    serve(tree, (1, 2), (1,))
    tree.evict(8, 2.0)
    _, second = tree.claim_prefix(request(2, 1, 2))
    with pytest.raises(AssertionError, match="KV comes before what it follows"):
        tree.enter(second)


# The copies ---------------------------------------------------------------------------------


def test_every_segment_that_leaves_is_sent_and_is_there_when_its_copy_is_done():
    sent = []

    def send(tokens: int, now_s: float, there_s: float) -> float:
        sent.append((tokens, now_s, there_s))
        return now_s + 0.5

    tree = with_host(send=send)
    serve(tree, (1, 2, 3), (1,))
    tree.evict(12, 4.0)
    assert sent == [(8, 4.0, 0.0), (4, 4.0, 0.0)]
    assert [segment.ready_s for segment in tree.claim_prefix(request(2, 1, 2, 3))] == [4.5, 4.5]


def test_of_what_was_to_come_back_before_it_had_gone_the_slots_are_told_of():
    """Slots that it was to be written to may still be read by other copies, which it had waited for."""
    told: list[float] = []

    def send(tokens: int, now_s: float, there_s: float) -> float:
        told.append(there_s)
        return now_s if there_s > now_s else now_s + 5.0

    tree = with_host(send=send)
    serve(tree, (1, 2))
    (segment,) = tree.claim_prefix(request(1, 1, 2))
    tree.take_out(segment, 1.0)
    tree.enter(segment)
    segment.ready_s = 9.0
    tree.take_out(segment, 2.0)
    assert (segment.ready_s, told) == (6.0, [0.0, 9.0]), "it comes to the host no sooner than its first copy"


@pytest.mark.parametrize("written_until_s, heard", [(4.0, []), (5.0, [5.0])])
def test_what_the_host_has_no_room_for_is_not_sent_but_slots_that_are_still_written_to_are_told_of(
    written_until_s, heard
):
    sent = []
    tree = with_host(8, send=lambda tokens, now_s, there_s: sent.append(there_s) or now_s)
    served(tree, request(0, 1, 2, 3))
    (segment,) = tree.claim_prefix(request(1, 1, 2, 3))
    segment.ready_s = written_until_s
    tree.take_out(segment, 4.0)
    assert (sent, counts(tree)) == (heard, (0, 0, 0))


def test_kv_is_ready_when_the_last_that_a_request_holds_is(tree):
    """Its own is when it has computed it."""
    served(tree, request(0, 1, 2, 3), now_s=1.0)
    served(tree, request(1, 1), now_s=2.0)
    second = request(2, 1, 2, 3, 4)
    started(tree, second, 3.0)
    first, then = tree.claim_prefix(second)
    assert tree.ready_s(second) == 1.0
    first.ready_s = 5.0
    assert tree.ready_s(second) == 5.0, "a later one does not hide it"
    then.ready_s = 7.0
    assert tree.ready_s(second) == 7.0
    tree.add(second, second.prompt_tokens, 8.0)
    assert tree.ready_s(second) == 8.0
    alone = request(3, 9)
    started(tree, alone, 3.0)
    assert tree.ready_s(alone) == 0.0, "nothing is to come"
    served(tree, request(4, 6, 7), now_s=6.0)
    tree.claim_prefix(request(5, 6))
    assert [part.ready_s for part in tree.claim_prefix(request(6, 6, 7))] == [6.0, 6.0], "when it was cut"


# A host of limited size ---------------------------------------------------------------------


def test_the_host_gives_up_what_is_worth_least():
    """Room for two blocks. They leave HBM in the order of their last use, and so do they leave the host."""
    tree = with_host(8)
    serve(tree, (1,), (2,), (3,))
    tree.evict(8, 3.0)
    assert blocks(tree, resident=False) == {(0, 1), (0, 2)}
    tree.evict(4, 3.0)
    assert blocks(tree, resident=False) == {(0, 2), (0, 3)}
    assert counts(tree) == (0, 8, 0)


def test_be_it_what_comes_just_now():
    """Worth is the number of the block here."""
    tree = with_host(8, worth=ByRule(lambda segment: -segment.blocks[0]))
    serve(tree, (1,), (3,), (2,))
    for block in (2, 1, 3):
        (segment,) = tree.claim_prefix(request(9, block))
        tree.take_out(segment, 3.0)
    assert blocks(tree, resident=False) == {(0, 1), (0, 2)}


def test_the_host_gives_up_leaves_before_what_they_follow():
    """The first block was used longest ago, but those behind it are of no use without it."""
    tree = with_host(16, worth=ByRule(lambda segment: segment.blocks[0]))
    serve(tree, (1, 5), (1, 6), (4,))
    tree.evict(16, 3.0)
    assert blocks(tree, resident=False) == {(0, 1), (0, 1, 5), (0, 1, 6), (0, 4)}
    for id, left in enumerate(({(0, 1), (0, 1, 5), (0, 1, 6)}, {(0, 1), (0, 1, 6)}, {(0, 1)}, set())):
        served(tree, request(10 + id, 7 + id))
        tree.evict(4, 20.0)
        assert blocks(tree, resident=False) == left | {(0, 7 + n) for n in range(id + 1)}


def test_what_lies_behind_kv_in_hbm_is_a_leaf_of_the_host_too():
    tree = with_host(4)
    served(tree, request(0, 1, 2))
    tree.evict(4, 1.0)
    served(tree, request(1, 7))
    tree.evict(4, 2.0)
    assert (blocks(tree), blocks(tree, resident=False)) == ({(0, 7)}, {(0, 1)})
    tree.evict(4, 3.0)
    assert (blocks(tree), blocks(tree, resident=False)) == (set(), {(0, 7)})


# Cut and joined -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "new, names",
    [(request(0, 1, 2, 3, 4), (1, 2, 3, 4)), (request(0, prompt=17, session="s"), (0, 1, 2, 3))],
    ids=["blocks", "numbered blocks of a session"],
)
def test_what_left_bit_by_bit_is_one_segment_again(tree, new, names):
    assert (tree.keeps, PrefixTree(4).keeps) == (True, False)
    served(tree, new)
    for _ in range(3):
        tree.evict(4, 1.0)
    assert segments(tree) == [(names[:1], True), (names[1:], False)]
    tree.evict(4, 1.0)
    assert segments(tree) == [(names, False)]
    assert (tree.segments, *counts(tree)) == (1, 0, 16, 0)


def test_one_that_was_joined_is_ready_when_its_last_part_is():
    done_s = iter((8.0, 6.0))
    tree = with_host(send=lambda tokens, now_s, there_s: next(done_s))
    served(tree, request(0, 1, 2))
    for _ in range(2):
        tree.evict(4, 1.0)
    (segment,) = tree.claim_prefix(request(1, 1, 2))
    assert segment.ready_s == 8.0


def test_parts_of_different_use_stay_apart_and_so_does_one_that_two_follow(tree):
    serve(tree, (1, 2), (1,))
    for gone in (running(tree, request(2, 5, 6)), running(tree, request(3, 5, 7))):
        tree.leave(gone, 2.0)
    tree.evict(20, 3.0)
    assert segments(tree) == [((1,), False), ((2,), False), ((5,), False), ((6,), False), ((7,), False)]


def test_a_segment_on_the_host_is_cut_where_a_request_parts_from_it(tree):
    served(tree, request(0, 1, 2, 3))
    tree.evict(12, 1.0)
    assert started(tree, request(1, 1, 7)) == 4
    assert segments(tree) == [((1,), True), ((2, 3), False)]


# What could come back -----------------------------------------------------------------------


def coming(tree: PrefixTree, now_s: float = 9.0) -> list[tuple[int, ...]]:
    """The blocks of all that can come, one after the other; none of it does."""
    order: list[Segment] = []
    while (first := tree.frontier.best(now_s)) is not None:
        order.append(first[1])
        tree.frontier.discard(first[1])
    for segment in order:
        tree.frontier.add(segment)
    return [tuple(segment.blocks) for segment in order]


def out(tree: PrefixTree, *hashes: int, adapter: Adapter | None = A) -> None:
    """The last segment that such a request would find leaves HBM."""
    tree.take_out(tree.claim_prefix(request(99, *hashes, adapter=adapter))[-1], 9.0)


def test_what_was_used_last_comes_first(returning):
    serve(returning, (1,), (2,), (3,))
    for block in (2, 3, 1):
        out(returning, block)
    assert coming(returning) == [(3,), (2,), (1,)]


def test_where_nothing_comes_back_by_itself_nothing_is_kept_of_what_could(tree):
    serve(tree, (1,), (1, 2))
    out(tree, 1, 2)
    assert segments(tree) == [((1,), True), ((2,), False)]
    assert tree.frontier.node_count == 0


def test_what_waits_for_what_it_follows_waits_at_its_side(returning):
    """It is not looked through before that has come."""
    serve(returning, (1,), *((1, block) for block in range(2, 7)))
    for block in range(2, 7):
        out(returning, 1, block)
    out(returning, 1)
    assert coming(returning) == [(1,)]
    assert returning.frontier.node_count == 1
    (first,) = returning.claim_prefix(request(9, 1))
    returning.enter(first)
    assert coming(returning) == [(6,), (5,), (4,), (3,), (2,)]


def test_an_adapter_that_comes_and_goes_costs_the_same_whatever_lies_behind_it():
    """Thousands of chats of one turn, all on the host: once each has its place, none of them is looked at."""
    asked: list[Segment] = []

    def key(segment: Segment) -> float:
        asked.append(segment)
        return segment.used_s

    tree = PrefixTree(4, 10**6, ByRule(key), comes_back=True)
    for id in range(3000):
        served(tree, request(id, 7 + id))
        out(tree, 7 + id)
    served(tree, request(9000, 1, adapter=None))
    out(tree, 1, adapter=None)
    for _ in range(4):
        before = len(asked)
        tree.adapter(A.id, True)
        assert tree.frontier.best(9999.0) is not None
        tree.adapter(A.id, False)
    assert before > 3000
    assert len(asked) - before < 10


# Against sets -------------------------------------------------------------------------------

Path = tuple[object, ...]
"""A block with all before it, behind its adapter and the name of the first."""


def lies(tree: PrefixTree) -> tuple[set[Path], set[Path]]:
    """What is in HBM, and on the host."""
    in_hbm: set[Path] = set()
    on_host: set[Path] = set()
    for path, segment in walk(tree):
        first: Segment = segment
        while isinstance(first.parent, Segment):
            first = first.parent
        (in_hbm if segment.resident else on_host).add((path[0], first.key, *path[1:]))
    return in_hbm, on_host


def paths(new: Request, tokens: int) -> list[Path]:
    """The whole blocks of a request's first tokens."""
    if new.block_hashes:
        names = new.block_hashes[: min(tokens, new.prompt_tokens) // 4]
        return [(new.adapter_id, names[0], *names[: n + 1]) for n in range(len(names))]
    count = tokens // 4 if new.session is not None else 0
    return [(new.adapter_id, new.session, *range(n + 1)) for n in range(count)]


def connected(known: set[Path]) -> bool:
    return all(len(path) == 3 or path[:-1] in known for path in known)


REQUESTS = st.tuples(
    st.sampled_from((A, B, None)),
    st.sampled_from((None, None, "s", "t")),
    st.lists(st.integers(0, 2), max_size=5),
    st.integers(0, 12),
    st.integers(1, 9),
)
STEPS = st.one_of(
    st.tuples(st.sampled_from(("is served", "starts", "is tried", "is fetched", "is kept")), REQUESTS),
    st.tuples(st.just("is let go"), st.integers(0, 5)),
    st.tuples(st.just("is served"), REQUESTS),
    st.tuples(st.sampled_from(("is prefilled", "is prefilled", "leaves")), st.integers(0, 5)),
    st.tuples(st.sampled_from(("evict", "take out", "bring")), st.integers(0, 20)),
    st.tuples(st.just("adapter"), st.sampled_from((A, B))),
)


class Model:
    """The tree, and the sets that it stands for."""

    def __init__(self, host_tokens: int, ranked: bool, comes_back: bool, alone: bool) -> None:
        self.host_tokens, self.alone, self.comes_back = host_tokens, alone, comes_back
        costs = CostModel(recency_s=2.0)
        worth = ByRule(
            lambda s: costs.key(len(s.blocks), s.visits, s.used_s),
            lambda s, now_s: costs.fade(now_s - s.used_s),
            costs.most_fade,
        )
        more = {"worth": worth} if ranked else {}
        self.tree = with_host(
            host_tokens, comes_back=comes_back, after_adapters=not alone, send=self.send, **more
        )
        self.in_hbm: set[Path] = set()
        self.on_host: set[Path] = set()
        self.sent_tokens = self.dropped = self.added = 0
        self.began: dict[int, Request] = {}  # and is not prefilled
        self.holds: dict[int, tuple[Request, int]] = {}  # how many of its blocks
        self.resident: set[int] = set()
        self.kept: list[Request] = []
        self.now_s, self.next_id = 0.0, 0

    def send(self, tokens: int, now_s: float, there_s: float) -> float:
        assert there_s <= now_s == self.now_s
        self.sent_tokens += tokens
        return now_s + 0.25

    def make(self, kind: tuple[Adapter | None, str | None, list[int], int, int]) -> Request:
        adapter, session, path, unhashed, output_tokens = kind
        hashes = tuple(hash(tuple(path[: n + 1])) for n in range(len(path))) if session is None else ()
        prompt = 4 * len(path) + unhashed + 1
        self.next_id += 1
        return Request(self.next_id - 1, adapter, 0.0, prompt, output_tokens, session, hashes)

    def longest(self, new: Request) -> int:
        """How many of its blocks are there, but for the last token."""
        known = self.in_hbm | self.on_host
        wanted = paths(new, new.prompt_tokens - 1)
        return next((n for n, path in enumerate(wanted) if path not in known), len(wanted))

    def held(self) -> set[Path]:
        return {path for new, count in self.holds.values() for path in paths(new, 4 * count)}

    def is_tried(self, kind: tuple) -> Request:
        new = self.make(kind)
        new.cached_tokens = sum(map(self.tree.size, self.tree.claim_prefix(new)))
        assert new.cached_tokens == 4 * self.longest(new)
        assert self.tree.known_tokens(new, new.prompt_tokens - 1) == new.cached_tokens
        return new

    def is_kept(self, kind: tuple) -> None:
        new = self.make(kind)
        self.tree.keep(new)
        self.kept.append(new)

    def is_let_go(self, which: int) -> None:
        if self.kept:
            self.tree.let_go(self.kept.pop(which % len(self.kept)))

    def is_fetched(self, kind: tuple) -> None:
        """Its prompt comes to the host from elsewhere, as far as it is not here, and may drive others out."""
        new = self.make(kind)
        missing = set(paths(new, new.prompt_tokens)) - self.in_hbm - self.on_host
        self.added += len(missing)
        self.tree.bring_to_host(new, new.prompt_tokens, self.now_s + 0.25, self.now_s)
        in_hbm, on_host = lies(self.tree)
        offered = self.on_host | missing
        assert in_hbm == self.in_hbm
        assert on_host <= offered
        assert on_host == offered or 4 * len(offered) > self.host_tokens, "it gives up what it has room for"
        self.dropped += len(offered) - len(on_host)
        self.on_host = on_host

    def starts(self, kind: tuple) -> None:
        new = self.is_tried(kind)
        wanted = set(paths(new, new.cached_tokens))
        comes = self.tree.hold(new, self.now_s)
        assert sum(map(self.tree.size, comes)) == 4 * len(wanted & self.on_host)
        self.come(wanted)
        self.holds[new.id] = new, len(wanted)
        self.began[new.id] = new

    def come(self, wanted: set[Path]) -> None:
        self.in_hbm |= wanted
        self.on_host -= wanted

    def is_served(self, kind: tuple) -> None:
        """At once, beside the running requests."""
        self.starts(kind)
        others = len(self.holds) - 1
        self.is_prefilled(len(self.began) - 1)
        self.leaves(others)

    def adds(self, new: Request, tokens: int) -> None:
        self.tree.add(new, tokens, self.now_s)
        wanted = paths(new, tokens)
        self.holds[new.id] = new, max(len(wanted), self.holds[new.id][1])
        self.added += len(set(wanted) - self.in_hbm - self.on_host)
        self.come(set(wanted))
        assert self.tree.shared_tokens(new) == 4 * self.holds[new.id][1]

    def is_prefilled(self, which: int) -> None:
        if self.began:
            new = self.began.pop(list(self.began)[which % len(self.began)])
            self.adds(new, new.prompt_tokens)

    def leaves(self, which: int) -> None:
        """It may be preempted before it is prefilled."""
        if self.holds:
            new, _ = self.holds[list(self.holds)[which % len(self.holds)]]
            if self.began.pop(new.id, None) is None:
                self.adds(new, new.prompt_tokens + new.max_output_tokens - 1)
            self.tree.leave(new, self.now_s)
            del self.holds[new.id]

    def evict(self, tokens: int) -> None:
        idle = len(self.in_hbm - self.held())
        gone = self.goes(lambda: self.tree.evict(tokens, self.now_s))
        assert len(gone) == min(-(-tokens // 4), idle), "as few whole blocks as will do"

    def take_out(self, _: int) -> None:
        first = self.tree.leaves.first(self.now_s)
        if first is not None:
            gone = self.goes(lambda: self.tree.take_out(first[1], self.now_s))
            assert len(gone) == len(first[1].blocks)

    def goes(self, does) -> set[Path]:
        """What leaves HBM is on the host, where that has given up no more than it had to; return it."""
        sent_before = self.sent_tokens
        does()
        in_hbm, on_host = lies(self.tree)
        gone, offered = self.in_hbm - in_hbm, self.on_host | (self.in_hbm - in_hbm)
        assert not gone & self.held(), "what is held leaves HBM"
        assert in_hbm == self.in_hbm - gone, "something comes"
        assert on_host <= offered
        if 4 * len(offered) <= self.host_tokens:
            assert on_host == offered, "the host gives up what it has room for"
            assert self.sent_tokens - sent_before == 4 * len(gone)
        assert self.sent_tokens - sent_before <= 4 * len(gone)
        self.dropped += len(offered) - len(on_host)
        self.in_hbm, self.on_host = in_hbm, on_host
        return gone

    def bring(self, _: int) -> None:
        if not self.comes_back:
            assert (self.tree.frontier.node_count, self.tree.frontier.puts) == (0, 0)
            return
        names = {path[1] for path in self.in_hbm | self.on_host}
        there = self.in_hbm | {(id, name) for id in (self.resident | {-1}) for name in names}
        could = {path for path in self.on_host if path[:-1] in there or (self.alone and len(path) == 3)}
        first = self.tree.frontier.best(self.now_s)
        assert (first is None) == (not could), "nothing is said to come that could"
        if first is not None:
            worth, segment = first
            assert math.isfinite(worth)
            self.tree.enter(segment)
            in_hbm, on_host = lies(self.tree)
            came = in_hbm - self.in_hbm
            assert len(came) == len(segment.blocks)
            assert came & could
            assert came == self.on_host - on_host
            self.in_hbm, self.on_host = in_hbm, on_host

    def adapter(self, which: Adapter) -> None:
        self.resident ^= {which.id}
        self.tree.adapter(which.id, which.id in self.resident)

    def check(self) -> None:
        tree, held = self.tree, self.held()
        assert lies(tree) == (self.in_hbm, self.on_host)
        assert not self.in_hbm & self.on_host
        assert connected(self.in_hbm), "a block in HBM without those before it"
        assert connected(self.in_hbm | self.on_host), "a block that cannot be reached"
        assert held <= self.in_hbm
        assert counts(tree) == (4 * len(self.in_hbm), 4 * len(self.on_host), 4 * len(held))
        assert tree.host_tokens <= self.host_tokens
        assert self.added == len(self.in_hbm) + len(self.on_host) + self.dropped, "KV from nowhere"
        invalid = [path for path in self.in_hbm if path[0] not in {*self.resident, -1}]
        assert tree.invalid_tokens == 4 * len(invalid)
        assert tree.segments == len(segments(tree))
        kept = {segment for _, segment in walk(tree) if segment.awaited and not segment.resident}
        assert tree.awaited_tokens == sum(map(tree.size, kept))


@given(
    plan=st.lists(STEPS, min_size=20, max_size=60),
    host_tokens=st.sampled_from((0, 4, 16, 40, 1000)),
    ranked=st.booleans(),
    comes_back=st.booleans(),
    alone=st.booleans(),
)
def test_hbm_and_host_are_sets_of_blocks(plan, host_tokens, ranked, comes_back, alone):
    model = Model(host_tokens, ranked, comes_back, alone)
    for step, what in plan:
        model.now_s += 0.125
        getattr(model, step.replace(" ", "_"))(what)
        model.check()
    event(f"given up by the host: {model.dropped > 0}")
    event(f"on the host: {len(model.on_host) > 0}")
