"""The HBM left after the base model: token slots shared by KV and adapters.

Source: S-LoRA (MLSys'24) §5.1, unified paging. Adapters of running requests are pinned. The
others may stay as long as KV does not need their slots; an eviction policy says who leaves
first. Loads in flight hold their slots from the start.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from simlora.core.adapter import Adapter
from simlora.memory.adapter_region import AdapterRegion

Victims = Callable[[Iterable[Adapter], int], Iterable[Adapter]]
"""An eviction policy's method: idle adapters (least recently used first), slots short."""


class Pool:
    """Which adapters are resident, in token slots.

    `pinned_tokens` are the adapters that running requests use, `adapter_tokens` all of them. With a
    `region` the weights lie there, and the pool only counts their slots, as the variants of S-LoRA do.
    """

    __slots__ = (
        "_idle",
        "_pins",
        "_prefetched",
        "_ready_s",
        "_victims",
        "adapter_tokens",
        "capacity",
        "pinned_tokens",
        "region",
    )

    def __init__(self, capacity: int, victims: Victims, region: AdapterRegion | None = None) -> None:
        self.capacity = capacity
        self.region = region
        self.adapter_tokens = 0
        self.pinned_tokens = 0
        self._victims = victims
        self._pins: dict[int, int] = {}
        self._idle: dict[int, Adapter] = {}  # least recently used first
        self._prefetched: dict[int, Adapter] = {}  # wanted by waiting requests, oldest first
        self._ready_s: dict[int, float] = {}

    def __contains__(self, adapter: Adapter) -> bool:
        return adapter.id in self._ready_s

    def is_pinned(self, adapter: Adapter) -> bool:
        """Whether a running request uses it."""
        return adapter.id in self._pins

    @property
    def pinned(self) -> int:
        """Number of distinct adapters that running requests use."""
        return len(self._pins)

    def ready_s(self, adapter: Adapter) -> float:
        """When a resident adapter's weights have landed, or will have."""
        return self._ready_s[adapter.id]

    def insert(self, adapter: Adapter, ready_s: float) -> None:
        """Take slots for an adapter whose load starts now; the caller has made room."""
        assert adapter not in self, f"adapter {adapter.name} is loaded twice"
        self._ready_s[adapter.id] = ready_s
        self._prefetched[adapter.id] = adapter
        self.adapter_tokens += adapter.kv_tokens

    def pin(self, adapter: Adapter) -> None:
        """A request that uses this resident adapter starts."""
        users = self._pins.get(adapter.id, 0)
        if users == 0:
            if self._idle.pop(adapter.id, None) is None:
                del self._prefetched[adapter.id]
            self.pinned_tokens += adapter.kv_tokens
        self._pins[adapter.id] = users + 1

    def unpin(self, adapter: Adapter) -> None:
        """A request that used this adapter is gone."""
        users = self._pins[adapter.id] - 1
        if users:
            self._pins[adapter.id] = users
            return
        del self._pins[adapter.id]
        self.pinned_tokens -= adapter.kv_tokens
        self._idle[adapter.id] = adapter

    def sweep(self) -> None:
        """After requests finished: drop the idle adapters that the policy does not keep."""
        if self._idle:
            self._drop(self._victims(self._idle.values(), 0))

    def make_room(self, kv_tokens: int, more: int = 0) -> int:
        """Evict until `kv_tokens` of KV, all adapters and `more` slots fit; return the slots still short.

        The policy picks among idle adapters; prefetched ones go last, the latest first.
        """
        short = kv_tokens + self.adapter_tokens + more - self.capacity
        if short > 0 and self._idle:
            self._drop(self._victims(self._idle.values(), short))
            short = kv_tokens + self.adapter_tokens + more - self.capacity
        while short > 0 and self._prefetched:
            adapter = self._prefetched[next(reversed(self._prefetched))]
            self._drop((adapter,))
            short -= adapter.kv_tokens
        return max(short, 0)

    def free_tokens(self, kv_tokens: int) -> int:
        """Slots that neither KV nor adapters take."""
        return self.capacity - self.adapter_tokens - kv_tokens

    def _drop(self, adapters: Iterable[Adapter]) -> None:
        gone = list(adapters)
        for adapter in gone:
            assert adapter.id not in self._pins, f"adapter {adapter.name} is pinned and was evicted"
            if self._idle.pop(adapter.id, None) is None:
                del self._prefetched[adapter.id]
            del self._ready_s[adapter.id]
            self.adapter_tokens -= adapter.kv_tokens
        if self.region is not None and gone:
            self.region.drop(gone)
