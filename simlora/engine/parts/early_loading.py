"""Loads that begin before a request is admitted: at its arrival, or as a policy asks for adapters ahead."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import inf, nextafter

from simlora.core.adapter import Adapter
from simlora.core.request import Request
from simlora.engine.parts.async_loading import OverlappedLoader
from simlora.engine.replica.kv_cache_manager import InFlightKV
from simlora.engine.replica.part import Part
from simlora.engine.replica.replica import Replica
from simlora.policies.scheduling.base import SchedulerOutput


class ArrivalLoading(Part):
    """Loads the adapters of requests, and brings their KV from the host, as they arrive. Source: FastLibra §4.2, §4.3.

    What is free is known at iteration boundaries only: a copy is entered at the next one, and has gone on since the
    arrival. What does not fit then is left to the admission.
    """

    def __init__(self, replica: Replica, loader: OverlappedLoader) -> None:
        kv = replica.kv
        assert isinstance(kv, InFlightKV), "copies overlap iterations, and their slots are not known"
        self._clock, self._kv, self._cache, self._loader = replica.clock, kv, kv.adapters, loader
        self._arrived: dict[int, tuple[Request, float]] = {}  # since the last boundary, and when

    def on_queue(self, request: Request, waits: bool) -> None:
        if not waits:
            self._arrived.pop(request.id, None)
        elif (request.adapter is not None and request.adapter not in self._cache) or self._kv.is_on_host(
            request
        ):
            self._arrived[request.id] = request, self._clock.now

    def on_arrival(self) -> bool:
        return bool(self._arrived)

    def at_boundary(self, now_s: float) -> None:
        if not self._arrived:
            return
        for request, since_s in self._arrived.values():
            adapter = request.adapter
            if adapter is not None and adapter not in self._cache:
                if not self._loader.fetch(adapter, since_s, now_s):
                    continue
                self._loader.fetched.add(request.id)
            self._kv.fetch(request, since_s, now_s)
        self._arrived.clear()

    def on_release(self, request: Request, now_s: float) -> None:
        self._loader.fetched.discard(request.id)


class Forecasting(Part):
    """Loads, at the end of every period, the adapters that the loading policy says requests are likely to need."""

    def __init__(self, replica: Replica, loader: OverlappedLoader, every_s: float) -> None:
        kv = replica.kv
        assert isinstance(kv, InFlightKV), "copies overlap iterations, and their slots are not known"
        self._clock, self._loader, self._every_s = replica.clock, loader, every_s
        self._kv, self._cache = kv, kv.adapters
        self._due_s = self._after(replica.clock.now)

    def _after(self, now_s: float) -> float:
        """Return the first end of a period after a time."""
        due_s = (now_s // self._every_s + 1.0) * self._every_s
        return due_s if due_s > now_s else nextafter(now_s, inf)

    def on_queue(self, request: Request, waits: bool) -> None:
        if waits and request.adapter is not None and request.admitted_s < 0.0:
            self._loader.policy.asked(request.adapter)

    def at_boundary(self, now_s: float) -> None:
        if now_s < self._due_s:
            return
        periods = 1 + int((now_s - self._due_s) // self._every_s)
        self._due_s = self._after(now_s)
        cache = self._cache
        likely = self._that_fit(self._loader.policy.forecast(periods))
        missing = [adapter for adapter in likely if adapter not in cache]
        self._loader.prefetch(likely, now_s)
        for adapter in missing:
            if adapter in cache:
                cache.leave_idle(adapter)

    def _that_fit(self, likely: Sequence[Adapter]) -> list[Adapter]:
        """Return the likeliest adapters, as many as fit beside all that KV will grow into and what is in use."""
        cache, kv_tokens = self._cache, self._kv.peak_tokens()
        most = room = cache.adapter_room(kv_tokens, ())
        found: list[Adapter] = []
        for adapter in likely:
            # A missing one takes its slots; one that is idle, those that its eviction would have made.
            kept = (
                most - cache.adapter_room(kv_tokens, (adapter.id,)) if adapter in cache else adapter.kv_tokens
            )
            room -= kept
            if room < 0:
                break
            found.append(adapter)
        return found

    def next_s(self) -> float:
        return self._due_s


class Prefetching(Part):
    """Asks the loading policy which adapters to have in HBM, before every decode window and at every arrival."""

    def __init__(self, replica: Replica, loader: OverlappedLoader) -> None:
        self._replica, self._loader = replica, loader

    def on_arrival(self) -> bool:
        """Return whether a load could start at the next boundary, whatever the scheduler has decided."""
        cache = self._replica.kv.adapters
        return any(adapter not in cache for adapter in self._loader.policy.ahead(self._replica.view))

    def prepare(self, output: SchedulerOutput, now_s: float) -> float:
        if not self._replica.table.prefill and (wanted := self._loader.policy.ahead(self._replica.view)):
            self._loader.prefetch(wanted, now_s)
        return 0.0


def early(replica: Replica, loader: OverlappedLoader, beside: bool) -> Iterator[Part]:
    """Yield the parts that a loading policy needs; `beside`: weights can come beside the running batch."""
    policy = loader.policy
    if policy.prefetches:
        yield Prefetching(replica, loader)
    if policy.forecast_s is not None:
        yield Forecasting(replica, loader, policy.forecast_s)
    if policy.on_arrival and beside:
        yield ArrivalLoading(replica, loader)
