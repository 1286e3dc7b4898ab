"""The HBM left after the base model: token slots shared by KV and adapters.

Source: S-LoRA (MLSys'24) §5.1, unified paging. Adapters of running requests are pinned. Idle
adapters stay until KV needs their slots; the eviction policy orders their eviction. An adapter in
flight holds its slots from the start of its load.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Set

from simlora.core.adapter import Adapter
from simlora.memory.adapter_region import AdapterRegion

Victims = Callable[[Iterable[Adapter], int], Iterable[Adapter]]
"""An eviction policy's method: (idle adapters, least recently used first; slots short) -> adapters to evict."""


class Pool:
    """The resident adapters and the token slots that they take.

    `adapter_tokens` are the slots of all resident adapters, `pinned_tokens` those of adapters that running requests
    use. With a `region` the weights lie there and only their slots are counted here, as in the variants of S-LoRA.
    With `adapter_capacity` the pool is divided: KV has `capacity`, adapters have `adapter_capacity`, and neither
    borrows from the other. `told(id, resident)` is called when an adapter is inserted or dropped.
    """

    __slots__ = (
        "_adapters",
        "_idle",
        "_pins",
        "_prefetched",
        "_ready_s",
        "_room",
        "_shared",
        "_told",
        "_victims",
        "adapter_capacity",
        "adapter_tokens",
        "capacity",
        "pinned_tokens",
        "region",
    )

    def __init__(
        self,
        capacity: int,
        victims: Victims,
        region: AdapterRegion | None = None,
        adapter_capacity: int | None = None,
        told: Callable[[int, bool], None] | None = None,
    ) -> None:
        self._told = told
        self.capacity = capacity
        self.adapter_capacity = adapter_capacity
        # Adapters share the whole pool with KV, or have their own part whatever KV takes.
        self._room = capacity if adapter_capacity is None else adapter_capacity
        self._shared = adapter_capacity is None
        self.region = region
        self.adapter_tokens = 0
        self.pinned_tokens = 0
        self._victims = victims
        self._pins: dict[int, int] = {}
        self._idle: dict[int, Adapter] = {}  # least recently used first
        self._prefetched: dict[int, Adapter] = {}  # resident and not yet used by a request, oldest first
        self._ready_s: dict[int, float] = {}
        self._adapters: dict[int, Adapter] = {}  # resident, by id

    def __contains__(self, adapter: Adapter) -> bool:
        return adapter.id in self._ready_s

    def holds(self, id: int) -> bool:
        """Whether the adapter with this id is resident."""
        return id in self._ready_s

    def adapter(self, id: int) -> Adapter:
        """The resident adapter with this id."""
        return self._adapters[id]

    def is_pinned(self, adapter: Adapter) -> bool:
        """Whether a running request uses the adapter."""
        return adapter.id in self._pins

    @property
    def pinned(self) -> int:
        """Number of distinct adapters that running requests use."""
        return len(self._pins)

    @property
    def pins(self) -> Set[int]:
        """Ids of the adapters that running requests use."""
        return self._pins.keys()

    def is_idle(self, id: int) -> bool:
        """Whether the adapter with this id is resident and no running request uses it."""
        return id in self._ready_s and id not in self._pins

    @property
    def room(self) -> int:
        """Token slots that adapters can take when there is no KV."""
        return self._room

    def ready_s(self, adapter: Adapter) -> float:
        """Time at which a resident adapter's load is, or was, complete."""
        return self._ready_s[adapter.id]

    def insert(self, adapter: Adapter, ready_s: float) -> None:
        """Take slots for an adapter whose load starts now. The caller has made room."""
        assert adapter not in self, f"adapter {adapter.name} is loaded twice"
        self._ready_s[adapter.id] = ready_s
        self._adapters[adapter.id] = adapter
        self._prefetched[adapter.id] = adapter
        self.adapter_tokens += adapter.kv_tokens
        if self._told is not None:
            self._told(adapter.id, True)

    def pin(self, adapter: Adapter) -> None:
        """Count one more running request that uses this resident adapter."""
        users = self._pins.get(adapter.id, 0)
        if users == 0:
            if self._idle.pop(adapter.id, None) is None:
                del self._prefetched[adapter.id]
            self.pinned_tokens += adapter.kv_tokens
        self._pins[adapter.id] = users + 1

    def unpin(self, adapter: Adapter) -> None:
        """Count one running request less for this adapter; without any it becomes idle."""
        users = self._pins[adapter.id] - 1
        if users:
            self._pins[adapter.id] = users
            return
        del self._pins[adapter.id]
        self.pinned_tokens -= adapter.kv_tokens
        self._idle[adapter.id] = adapter

    def sweep(self) -> None:
        """Drop the idle adapters that the policy does not keep. Called after requests finished."""
        if self._idle:
            self.drop(self._victims(self._idle.values(), 0))

    def make_room(self, kv_tokens: int, more: int = 0, keep: Container[int] = ()) -> int:
        """Evict until `kv_tokens` of KV, all adapters and `more` slots fit; return the slots still short.

        The policy picks among the idle adapters that are not in `keep`. Prefetched adapters are evicted last, the
        latest first.
        """
        beside = kv_tokens if self._shared else 0
        short = beside + self.adapter_tokens + more - self._room
        if short <= 0 and self._shared:
            return 0
        if short > 0 and self._idle:
            idle = [a for a in self._idle.values() if a.id not in keep] if keep else self._idle.values()
            self.drop(self._victims(idle, short))
            short = beside + self.adapter_tokens + more - self._room
        while short > 0 and self._prefetched:
            adapter = self._prefetched[next(reversed(self._prefetched))]
            self.drop((adapter,))
            short -= adapter.kv_tokens
        return max(short, kv_tokens - self.capacity, 0)

    def free_tokens(self, kv_tokens: int) -> int:
        """Slots that KV can still take without an eviction."""
        return self.capacity - kv_tokens - (self.adapter_tokens if self._shared else 0)

    def adapter_room(self, kv_tokens: int, keep: Container[int]) -> int:
        """Slots that a prefetched adapter can take.

        These are the free slots and, in a divided pool, those of idle adapters that are not in `keep`.
        """
        free = self._room - self.adapter_tokens
        if self._shared:
            return free - kv_tokens
        return free + sum(adapter.kv_tokens for adapter in self._idle.values() if adapter.id not in keep)

    def drop(self, adapters: Iterable[Adapter]) -> None:
        """Evict these adapters, none of which a running request uses."""
        gone = list(adapters)
        for adapter in gone:
            assert adapter.id not in self._pins, f"adapter {adapter.name} is pinned and was evicted"
            if self._idle.pop(adapter.id, None) is None:
                del self._prefetched[adapter.id]
            del self._ready_s[adapter.id], self._adapters[adapter.id]
            self.adapter_tokens -= adapter.kv_tokens
            if self._told is not None:
                self._told(adapter.id, False)
        if self.region is not None and gone:
            self.region.drop(gone)
