"""Gives admitted requests their memory, and loads the adapters that they lack."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from simlora.core.adapter import Adapter
from simlora.core.request import Request
from simlora.engine.replica.host_link import HostLink
from simlora.engine.replica.kv_cache_manager import KVCacheManager
from simlora.metrics.recorder import Recorder
from simlora.policies.loading.base import Loader, Miss


class LoadPlan:
    """When a prefill has what it needs: the KV of its requests, and the weights that the replica waits for.

    The `deferred` requests wait for their own weights or KV, while the replica goes on without them.
    """

    __slots__ = ("deferred", "kv_s", "weights_s")

    def __init__(self, kv_s: float, weights_s: float, deferred: Sequence[Request] = ()) -> None:
        self.kv_s, self.weights_s, self.deferred = kv_s, weights_s, deferred


class AdapterLoader:
    """Loads before the prefill: the whole replica waits until the weights are there.

    Listeners: `on_admit` before a request is charged, `on_missing` before room is made for the missing adapters of a
    prefill, `reload` once they are loaded, which returns when the weights are there. `fetched` are the waiting requests
    for which an adapter was loaded that was missing when they arrived: it is no hit.
    """

    __slots__ = (
        "_cache",
        "_kv",
        "_link",
        "_recorder",
        "fetched",
        "on_admit",
        "on_missing",
        "policy",
        "reload",
    )

    def __init__(self, kv: KVCacheManager, link: HostLink, policy: Loader, recorder: Recorder) -> None:
        self._kv, self._cache, self._link = kv, kv.adapters, link
        self.policy, self._recorder = policy, recorder
        self.fetched: set[int] = set()
        self.on_admit: tuple[Callable[[Request, float], None], ...] = ()
        self.on_missing: tuple[Callable[[Sequence[Adapter], float], None], ...] = ()
        self.reload: tuple[Callable[[Sequence[Adapter], float], float], ...] = ()

    def admit(self, requests: Sequence[Request], step: int, now_s: float) -> LoadPlan:
        """Give requests their memory, and load what they lack; `step` is the batch's at the end of their prefill.

        Resident adapters are pinned before room is made, so that none of them makes room for another.
        """
        kv, cache, recorder = self._kv, self._cache, self._recorder
        missing: list[Adapter] = []
        for request in requests:
            for listener in self.on_admit:
                listener(request, now_s)
            kv.hold(request, step)
            adapter = request.adapter
            if adapter is None:
                continue
            if adapter.id in cache.ready_s:
                fetched = request.id in self.fetched
                recorder.adapter_misses += fetched
                recorder.adapter_hits += not fetched
                cache.pin(adapter)
            else:
                missing.append(adapter)
        # The memory of adapters is as the trial found it only until a request leaves.
        for lay_out in self.on_missing:
            lay_out(missing, now_s)
        kv.make_room(now_s)
        return self._load(requests, missing, now_s)

    def _load(self, requests: Sequence[Request], missing: Sequence[Adapter], now_s: float) -> LoadPlan:
        """Load the missing adapters; the replica waits for the weights of all requests."""
        for adapter in missing:
            self._bring(adapter, now_s)
        weights_s = now_s
        for reload in self.reload:
            weights_s = reload(missing, now_s)
        ready_s = self._cache.ready_s
        for request in requests:
            own = request.adapter
            if own is not None and (own_s := ready_s[own.id]) > now_s:
                if own_s > weights_s:
                    weights_s = own_s
                charge_wait(request, own_s - now_s)
        return LoadPlan(now_s, weights_s)

    def _bring(self, adapter: Adapter, now_s: float) -> None:
        """Load and pin an adapter that was missing.

        It counts as a hit if another request of this prefill has loaded it, or if loading is free.
        """
        cache, recorder = self._cache, self._recorder
        if adapter.id in cache.ready_s:
            recorder.adapter_hits += 1
        else:
            short = self._kv.make_room(now_s, adapter.kv_tokens)
            assert short == 0, f"HBM is {short} token slots too small for adapter {adapter.name}"
            miss = self.policy.on_miss(adapter)
            assert miss in self.policy.answers, (
                f"{type(self.policy).__name__} answers {miss} and does not declare it"
            )
            free = miss is Miss.FREE
            recorder.adapter_hits += free
            recorder.adapter_misses += not free
            self.load(adapter, now_s, free)
        cache.pin(adapter)

    def load(self, adapter: Adapter, now_s: float, free: bool = False) -> None:
        """Load an adapter for which there is room; a `free` load takes no time."""
        self._cache.insert(adapter, now_s if free else self._link.load(adapter, now_s))

    def preload(self, adapter: Adapter) -> bool:
        """Have an adapter in HBM from the start, if it fits; no request waits for it, and no load is counted."""
        cache = self._cache
        if cache.adapter_tokens + adapter.kv_tokens > cache.room:
            return False
        cache.insert(adapter, 0.0)
        cache.pin(adapter)
        cache.unpin(adapter, 0.0)
        return True

    def weights_s(self, request: Request) -> float:
        """Return when the weights of an admitted request are there."""
        return 0.0 if request.adapter is None else self._cache.ready_s[request.adapter.id]

    def ready_s(self, request: Request) -> float:
        """Return when an admitted request can begin: its weights and its KV are there."""
        return self.weights_s(request)


def charge_wait(request: Request, seconds: float) -> None:
    """The replica waits for the weights of a request: its cold start, if it has not begun before."""
    if request.admitted_s < 0.0:
        request.cold_start_s += seconds
    else:
        request.blocked_s += seconds
