"""The adapters in HBM, in token slots of the pool that they share with KV.

Source: S-LoRA (MLSys'24) §5.1, unified paging. Adapters of running requests are pinned. Idle ones stay while KV does
not need their slots; an eviction policy says which leaves first. A load holds its slots from its start.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterable, Set
from math import inf

from simlora.core.adapter import Adapter
from simlora.memory.idle_adapters import IdleAdapters, LoadTime, Now, Use, Waiting

Victims = Callable[[IdleAdapters, int], Iterable[Adapter]]
"""An eviction policy's method: idle adapters (least recently used first), slots short."""


def _no_time() -> float:
    return 0.0


def _loaded_at_once(adapter: Adapter) -> float:
    return 0.0


def _none_waiting(adapter_id: int) -> int:
    return 0


class AdapterCache:
    """Which adapters are resident, in a pool of `capacity` token slots.

    `ready_s` has the time at which each resident adapter's load ends, by id; `pins` those that running requests use.
    `pinned_tokens` are the slots of the pinned adapters, `adapter_tokens` of all resident ones. `on_change` is
    called with each adapter that comes or leaves, (id, whether it is resident now), `on_evict` with all that leave at
    once. With `sweeps` false, the policy keeps all idle adapters while there is room, and is not asked. `waiting` tells
    the policy how many requests wait for an adapter.
    """

    __slots__ = (
        "_idle",
        "_load_s",
        "_now_s",
        "_prefetched",
        "_sweeps",
        "_uses",
        "_victims",
        "adapter_tokens",
        "capacity",
        "on_change",
        "on_evict",
        "pinned_tokens",
        "pins",
        "ready_s",
        "waiting",
    )

    def __init__(
        self,
        capacity: int,
        victims: Victims,
        sweeps: bool = True,
        now_s: Now = _no_time,
        load_s: LoadTime = _loaded_at_once,
    ) -> None:
        self.capacity = capacity
        self._now_s, self._load_s = now_s, load_s
        self.waiting: Waiting = _none_waiting
        self.adapter_tokens = 0
        self.pinned_tokens = 0
        self.pins: dict[int, Use] = {}
        self.ready_s: dict[int, float] = {}
        self.on_change: tuple[Callable[[int, bool], None], ...] = ()
        self.on_evict: tuple[Callable[[list[Adapter]], None], ...] = ()
        self._victims, self._sweeps = victims, sweeps
        self._idle: dict[int, Adapter] = {}  # least recently used first
        self._prefetched: dict[int, Adapter] = {}  # loaded for waiting requests, oldest first
        self._uses: dict[int, Use] = {}  # of all adapters that were ever resident

    def __contains__(self, adapter: Adapter) -> bool:
        return adapter.id in self.ready_s

    def holds(self, id: int) -> bool:
        """Return whether the adapter of that id is resident."""
        return id in self.ready_s

    def adapter(self, id: int) -> Adapter:
        """Return the adapter of that id, which is resident or was."""
        return self._uses[id].adapter

    def requests(self, id: int) -> int:
        """Return how many requests have begun to use the adapter of that id."""
        use = self._uses.get(id)
        return 0 if use is None else use.requests

    def running(self, id: int) -> int:
        """Return how many running requests use the adapter of that id."""
        use = self.pins.get(id)
        return 0 if use is None else use.running

    def last_use_s(self, id: int) -> float:
        """Return when the last request that used the adapter of that id was gone; -inf: none has used it."""
        use = self._uses.get(id)
        return -inf if use is None else use.last_s

    def is_pinned(self, adapter: Adapter) -> bool:
        """Return whether a running request uses the adapter."""
        return adapter.id in self.pins

    def is_idle(self, id: int) -> bool:
        """Return whether the adapter of that id is resident and no running request uses it."""
        return id in self.ready_s and id not in self.pins

    @property
    def pinned(self) -> Set[int]:
        """Ids of the adapters that running requests use."""
        return self.pins.keys()

    @property
    def room(self) -> int:
        """Token slots that adapters can take where there is no KV."""
        return self.capacity

    def insert(self, adapter: Adapter, ready_s: float) -> None:
        """Take slots for an adapter whose load starts now; the caller has made room."""
        id = adapter.id
        assert id not in self.ready_s, f"adapter {adapter.name} is loaded twice"
        self.ready_s[id] = ready_s
        if id not in self._uses:
            self._uses[id] = Use(adapter)
        self._prefetched[id] = adapter
        self.adapter_tokens += adapter.kv_tokens
        for listener in self.on_change:
            listener(id, True)

    def leave_idle(self, adapter: Adapter) -> None:
        """An adapter that was loaded ahead is needed by no waiting request: it is idle, as if it had just been used."""
        self._idle[adapter.id] = self._prefetched.pop(adapter.id)

    def pin(self, adapter: Adapter) -> None:
        """A request that uses this resident adapter starts."""
        id = adapter.id
        use = self.pins.get(id)
        if use is None:
            use = self.pins[id] = self._uses[id]
            if self._idle.pop(id, None) is None:
                del self._prefetched[id]
            self.pinned_tokens += adapter.kv_tokens
        use.running += 1
        use.requests += 1

    def unpin(self, adapter: Adapter, now_s: float) -> None:
        """A request that used this adapter is gone."""
        id = adapter.id
        use = self.pins[id]
        use.running -= 1
        if use.running:
            return
        del self.pins[id]
        self.pinned_tokens -= adapter.kv_tokens
        self._idle[id] = adapter
        use.last_s = now_s

    def sweep(self) -> None:
        """Evict the idle adapters that the policy does not keep; called when requests have finished."""
        if self._sweeps and self._idle:
            self.evict(self._victims(self._among(self._idle.values()), 0))

    def make_room(self, kv_tokens: int, more: int = 0, keep: Container[int] = ()) -> int:
        """Evict until `kv_tokens` of KV, all adapters and `more` slots fit; return the slots still short.

        The policy picks among the idle adapters but those to `keep`; prefetched ones leave last, the latest first.
        """
        short = kv_tokens + self.adapter_tokens + more - self.capacity
        if short <= 0:
            return 0
        return max(max(self._free(short, keep), kv_tokens - self.capacity), 0)

    def _free(self, short: int, keep: Container[int]) -> int:
        """Evict for `short` slots; return how many are still short, or fewer than none."""
        if self._idle:
            before = self.adapter_tokens
            idle = [a for a in self._idle.values() if a.id not in keep] if keep else self._idle.values()
            self.evict(self._victims(self._among(idle), short))
            short += self.adapter_tokens - before
        while short > 0 and self._prefetched:
            adapter = self._prefetched[next(reversed(self._prefetched))]
            self.evict((adapter,))
            short -= adapter.kv_tokens
        return short

    def _among(self, idle: Collection[Adapter]) -> IdleAdapters:
        """Return some of the idle adapters with what is known of them."""
        return IdleAdapters(idle, self._uses, self._now_s, self._load_s, self.waiting)

    def free_tokens(self, kv_tokens: int) -> int:
        """Return the slots that KV can still take without an eviction."""
        return self.capacity - kv_tokens - self.adapter_tokens

    def adapter_room(self, kv_tokens: int, keep: Container[int]) -> int:
        """Return the slots that a prefetched adapter can take, beside so much KV, if the adapters to `keep` stay."""
        return self.capacity - self.adapter_tokens - kv_tokens

    def evict(self, adapters: Iterable[Adapter]) -> None:
        """Let adapters leave that no running request uses."""
        gone = list(adapters)
        for adapter in gone:
            id = adapter.id
            assert id not in self.pins, f"adapter {adapter.name} is pinned and was evicted"
            if self._idle.pop(id, None) is None:
                del self._prefetched[id]
            del self.ready_s[id]
            self.adapter_tokens -= adapter.kv_tokens
            for listener in self.on_change:
                listener(id, False)
        for on_evict in self.on_evict:
            on_evict(gone)


class DividedAdapterCache(AdapterCache):
    """A pool divided once and for all: KV has `capacity` slots, adapters have `adapter_capacity`."""

    __slots__ = ("adapter_capacity",)

    def __init__(
        self,
        capacity: int,
        victims: Victims,
        adapter_capacity: int,
        sweeps: bool = True,
        now_s: Now = _no_time,
        load_s: LoadTime = _loaded_at_once,
    ) -> None:
        super().__init__(capacity, victims, sweeps, now_s, load_s)
        self.adapter_capacity = adapter_capacity

    @property
    def room(self) -> int:
        return self.adapter_capacity

    def make_room(self, kv_tokens: int, more: int = 0, keep: Container[int] = ()) -> int:
        short = self.adapter_tokens + more - self.adapter_capacity
        if short > 0:
            short = self._free(short, keep)
        return max(max(short, kv_tokens - self.capacity), 0)

    def free_tokens(self, kv_tokens: int) -> int:
        return self.capacity - kv_tokens

    def adapter_room(self, kv_tokens: int, keep: Container[int]) -> int:
        """Return the free slots of the adapters' part, and those of its idle adapters but the ones to `keep`."""
        idle = sum(adapter.kv_tokens for adapter in self._idle.values() if adapter.id not in keep)
        return self.adapter_capacity - self.adapter_tokens + idle
