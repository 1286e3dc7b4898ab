"""What a replica needs of the cluster above it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from simlora.core.adapter import Adapter
from simlora.core.request import Request
from simlora.engine.link import Link


class QueueLoad(Protocol):
    """The sums over waiting requests, by replica, that routers see."""

    def add(self, replica: int, request: Request) -> None: ...
    def take(self, replica: int, request: Request) -> None: ...


class AdapterSource(Protocol):
    """Adapters in the memory of several hosts; see `cluster/adapter_store.py`."""

    def connect(self, replica: int, link: Link, copy_s: Callable[[int], float]) -> None: ...
    def holds(self, replica: int, adapter: Adapter) -> bool: ...
    def fetch(self, replica: int, adapter: Adapter, shard_bytes: int, now_s: float, out: Link) -> float: ...
