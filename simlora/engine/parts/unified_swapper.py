"""Carries out what a `Swapper` decides: adapters and KV are evicted and come back in one order of worth."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Sequence
from math import inf, nextafter
from typing import ClassVar

import numpy as np

from simlora.core import libm
from simlora.core.adapter import Adapter
from simlora.core.request import Request
from simlora.engine.parts.kv_offload import PrefixCachingKV
from simlora.engine.parts.mean_batch import MeanBatch
from simlora.engine.replica.decode_window import DecodeWindow
from simlora.engine.replica.host_link import HostLink
from simlora.engine.replica.part import Part
from simlora.engine.replica.replica import Replica
from simlora.engine.scenario import Scenario
from simlora.memory.order import GreatestFirst, LeastFirst
from simlora.memory.segments import Branch, Segment
from simlora.memory.worth import Worth
from simlora.policies.eviction.swapper import Swapper


class SwappedKV(PrefixCachingKV):
    """Room is made for KV and adapters in one order, by the unified `swapper`."""

    swapper: UnifiedSwapper

    @property
    def used_tokens(self) -> int:
        """The slots of all KV and all adapters."""
        return self.tokens() + self.adapters.adapter_tokens

    def make_room(self, now_s: float, more: int = 0, keep: Container[int] = ()) -> int:
        short = more - self.adapters.free_tokens(self.tokens())
        if short <= 0:
            return 0
        self.swapper.make_room(short, now_s, keep)
        self.note_given_up(now_s)
        return max(more - self.adapters.free_tokens(self.tokens()), 0)

    def steps_until_full(self, most: int, now_s: float) -> int:
        most = self._steps_until_written(most, now_s)
        until_busy = self.swapper.busy_tokens - self.used_tokens
        if until_busy >= 0:
            most = min(most, self.reservation.steps_until_full(until_busy, self.batch.step, most))
        return most


class UnifiedSwapper(Part):
    """Evicts KV and adapters that are worth least, and brings those that are worth most from the host.

    Its own time grows with what it moves, and with the number of adapters, not with the tree.
    `kv_tokens_in` is the KV that was brought ahead of any request. HBM is busy if more than `busy_tokens` are in use.
    `on_check` is called when it is checked whether HBM is busy or idle. With `on_arrival`, an adapter's use counts from
    the arrival of a request on, else from its admission.
    """

    outlives_requests: ClassVar[bool] = True

    @staticmethod
    def requires(scenario: Scenario) -> Iterator[str]:
        if not isinstance(scenario.policies.eviction(), Swapper):
            return
        if not scenario.replica.prefix_caching:
            yield "eviction decides over cached KV too, which needs replica.prefix_caching=true"
        if scenario.replica.writes_through:
            yield "eviction moves KV to the host itself, which needs replica.host_kv_write_policy=write_back"
        if scenario.replica.adapter_memory != "unified" or scenario.replica.full_copies:
            yield (
                "eviction decides over adapters and KV together, which needs replica.adapter_memory=unified and "
                "replica.full_copies=false"
            )

    def __init__(
        self,
        replica: Replica,
        policy: Swapper,
        kv: SwappedKV,
        adapters: Sequence[Adapter],
        on_arrival: bool = False,
    ) -> None:
        self.policy = policy
        self.kv_tokens_in = 0
        self.on_check: tuple[Callable[[float], None], ...] = ()
        self._replica, self._kv, self._tree, self._cache = replica, kv, kv.tree, kv.adapters
        self._host_link = kv.host_link
        self._adapters = adapters
        self._requests = 0
        self._counted = 0  # requests of which `_visits`, by adapter, are
        self._visits = np.zeros(len(adapters), dtype=np.int64)
        self._period = 0.0  # the multiple of the policy's interval at the boundary before
        # The state in which all that could come was too large.
        self._in_vain: tuple[int, int, int] | None = None
        self._batch = MeanBatch()
        self.busy_tokens = int(policy.busy * kv.adapters.capacity)
        self._cache.on_change += (self.adapter,)
        kv.swapper = self
        self._on_arrival = on_arrival
        if not on_arrival:
            replica.loader.on_admit += (self.wanted,)
        worth = AdapterWorth(policy, kv.host_link, adapters)
        self._idle: LeastFirst[Branch] = LeastFirst(worth)
        self._absent: GreatestFirst[Branch] = GreatestFirst(worth)
        for adapter in adapters:
            self._absent.put(self._tree.branch(adapter.id))

    # Hooks and listeners ----------------------------------------------------------------

    def on_queue(self, request: Request, waits: bool) -> None:
        if self._on_arrival and waits:
            self.wanted(request, self._replica.clock.now)

    def wanted(self, request: Request, now_s: float) -> None:
        """A request is admitted or, with `on_arrival`, arrives that uses an adapter, or none."""
        adapter = request.adapter
        self._requests += 1
        if adapter is None:
            return
        branch = self._tree.branch(adapter.id)
        branch.visits += 1
        branch.used_s = now_s
        if self._on_arrival and not self._cache.is_pinned(
            adapter
        ):  # it is in one of the orders, with what is new
            (self._idle if adapter in self._cache else self._absent).put(branch)

    def on_release(self, request: Request, now_s: float) -> None:
        adapter = request.adapter
        if adapter is not None and not self._cache.is_pinned(adapter):
            self._idle.put(self._tree.branch(adapter.id))

    def adapter(self, id: int, resident: bool) -> None:
        """An adapter has come into HBM, or has left it."""
        branch = self._tree.branch(id)
        if resident:
            self._absent.discard(branch)
            self._idle.put(branch)
        else:
            self._idle.discard(branch)
            self._absent.put(branch)

    def on_turn(self, now_s: float) -> None:
        """The running batch is what it will be until the next boundary."""
        self._batch.note(now_s, len(self._replica.table.batch.members))

    def before_last_step(self, window: DecodeWindow, steps: int, now_s: float) -> None:
        every_s = self.policy.every_s
        if steps > 1 and every_s:
            self._period = window.end_s(window.stop - 1) // every_s

    def inherit_counters(self, failed: Part) -> None:
        assert isinstance(failed, UnifiedSwapper), "replicas of one number have the same parts"
        self.kv_tokens_in = failed.kv_tokens_in

    # Checks -----------------------------------------------------------------------------

    def at_boundary(self, now_s: float) -> None:
        """Check whether HBM is busy or idle, if that is due since the boundary before."""
        every_s = self.policy.every_s
        if not every_s:
            self._check(now_s)
            return
        period = now_s // every_s
        if period > self._period:
            self._check(now_s)
        self._period = period

    def _check(self, now_s: float) -> None:
        """Move KV and adapters until HBM is neither busy nor idle."""
        for listener in self.on_check:
            listener(now_s)
        policy, capacity, used_tokens = self.policy, self._cache.capacity, self._kv.used_tokens
        if used_tokens > self.busy_tokens:
            self.make_room(used_tokens - int(policy.busy_to * capacity), now_s)
        elif used_tokens < policy.idle * capacity:
            self._bring(used_tokens, int(policy.idle_to * capacity), now_s)
        self._kv.note_given_up(now_s)

    def next_s(self) -> float:
        """Return when the next check is due that finds something to move; nothing comes while the link is busy."""
        used_tokens, now_s, every_s = self._kv.used_tokens, self._replica.clock.now, self.policy.every_s
        if not self._has_work(used_tokens):
            return inf
        if every_s == 0.0:
            return now_s
        if used_tokens <= self.busy_tokens:
            # Rather too early, by rounding, than too late.
            now_s = max(now_s, self._host_link.to_gpu.booked_until_s - self.policy.backlog_s - 1e-9)
        next_s = (now_s // every_s + 1.0) * every_s
        while next_s // every_s <= now_s // every_s:  # 0.3 // 0.1 is 2
            next_s = nextafter(next_s, inf)
        return next_s

    def _has_work(self, used_tokens: int) -> bool:
        """Return whether a check now would find anything to move."""
        if used_tokens > self.busy_tokens:
            return bool(len(self._tree.leaves) or len(self._idle))
        idle = used_tokens < self.policy.idle * self._cache.capacity
        if not idle or self._state(used_tokens) == self._in_vain:
            return False
        return bool(self._tree.frontier.node_count or len(self._absent))

    def _state(self, used_tokens: int) -> tuple[int, int, int]:
        """Return what stays the same as long as the same KV and adapters could come."""
        return used_tokens, self._tree.frontier.puts, self._absent.puts

    def make_room(self, tokens: int, now_s: float, keep: Container[int] = ()) -> None:
        """Evict idle KV and adapters for at least so many token slots, or all but those adapters to `keep`."""
        tree, cache = self._tree, self._cache
        kept: list[Branch] = []
        batch = self._batch.mean(now_s)
        while tokens > 0:
            leaf, idle = tree.leaves.first(now_s), self._first_idle(now_s, keep, kept)
            resident = len(self._adapters) - len(self._absent)
            if idle is not None and (leaf is None or idle[0] + self._reward(batch, resident) < leaf[0]):
                adapter = self._adapters[idle[1].adapter_id]
                cache.evict((adapter,))
                tokens -= adapter.kv_tokens
            elif leaf is not None:
                tokens -= tree.size(leaf[1])
                parent = leaf[1].parent
                tree.take_out(leaf[1], now_s)
                # Its last KV in HBM may have gone.
                if isinstance(parent, Branch) and not parent.resident_children:
                    if cache.is_idle(parent.adapter_id):
                        self._idle.put(parent)
            else:
                break
        for branch in kept:
            self._idle.put(branch)

    def _first_idle(
        self, now_s: float, keep: Container[int], kept: list[Branch]
    ) -> tuple[float, Branch] | None:
        """Return the worth of the adapter that is worth least of those that may be evicted, and the adapter."""
        while (first := self._idle.first(now_s)) is not None:
            branch = first[1]
            if branch.adapter_id in keep:
                kept.append(branch)
            elif self._cache.is_idle(branch.adapter_id) and not (
                self.policy.dependencies and branch.resident_children
            ):
                return first
            self._idle.discard(branch)
        return None

    def _bring(self, used_tokens: int, until_tokens: int, now_s: float) -> None:
        """Bring the KV and the adapters that are worth most from the host, one after the other."""
        tree, policy, writable_s = self._tree, self.policy, self._kv.claim_writable_s
        later: list[Segment | Branch] = []
        before_tokens = used_tokens
        batch, resident = self._batch.mean(now_s), len(self._adapters) - len(self._absent)
        while used_tokens < until_tokens and self._host_link.to_gpu.booked_until_s < now_s + policy.backlog_s:
            best = tree.frontier.best(now_s)
            absent = self._absent.first(now_s)
            if absent is not None and (best is None or absent[0] + self._reward(batch, resident) >= best[0]):
                branch = absent[1]
                adapter = self._adapters[branch.adapter_id]
                if used_tokens + adapter.kv_tokens > self.busy_tokens:
                    self._absent.discard(branch)
                    later.append(branch)
                    continue
                self._replica.loader.load(adapter, now_s)
                used_tokens += adapter.kv_tokens
                resident += 1
            elif best is not None:
                segment, tokens = best[1], tree.size(best[1])
                if used_tokens + tokens > self.busy_tokens:
                    tree.frontier.discard(segment)
                    later.append(segment)
                    continue
                ready_s = self._host_link.bring_kv(tokens, writable_s(now_s, tokens), segment.ready_s)
                tree.enter(segment)
                segment.ready_s = ready_s
                self.kv_tokens_in += tokens
                used_tokens += tokens
            else:
                break
        for thing in later:
            if isinstance(thing, Branch):
                self._absent.put(thing)
            else:
                tree.frontier.add(thing)
        if used_tokens == before_tokens and self._host_link.to_gpu.booked_until_s < now_s + policy.backlog_s:
            self._in_vain = self._state(used_tokens)

    def _reward(self, batch: float, resident: int) -> float:
        """Return what is added for an adapter while so many are in HBM and a batch is so large.

        Equation 3: as many are needed as such a batch has, by how often each was used. That is no more than it has
        requests, so that it need not be summed up where there are as many adapters.
        """
        needed = 0.0
        if self._requests and max(batch, 1.0) > resident:
            if self._counted != self._requests:
                self._counted = self._requests
                branches = [self._tree.branch(adapter.id) for adapter in self._adapters]
                self._visits = np.array([branch.visits for branch in branches], dtype=np.int64)
            needed = float((1.0 - libm.power(1.0 - self._visits / self._requests, batch)).sum())
        return self.policy.reward(needed, resident)


class AdapterWorth(Worth[Branch]):
    """What the policy says that adapters are worth."""

    def __init__(self, policy: Swapper, link: HostLink, adapters: Sequence[Adapter]) -> None:
        super().__init__(policy.most_fade)
        self._policy, self._link, self._adapters = policy, link, adapters

    def key(self, branch: Branch) -> float:
        cost_s = self._link.adapter_cost_s(self._adapters[branch.adapter_id].size_bytes)
        return self._policy.key(cost_s, branch.visits, branch.used_s)

    def fade(self, branch: Branch, now_s: float) -> float:
        return self._policy.fade(now_s - branch.used_s)


class KvWorth(Worth[Segment]):
    """What the policy says that cached KV is worth: a whole segment, or each of its blocks (`by_block`)."""

    def __init__(self, policy: Swapper, link: HostLink, block_size: int) -> None:
        super().__init__(policy.most_fade)
        self._policy, self._link, self._block_size = policy, link, block_size

    def key(self, segment: Segment) -> float:
        blocks = 1 if self._policy.by_block else segment.count
        cost_s = self._link.kv_cost_s(blocks * self._block_size)
        return self._policy.key(cost_s, segment.visits, segment.used_s)

    def fade(self, segment: Segment, now_s: float) -> float:
        return self._policy.fade(now_s - segment.used_s)
