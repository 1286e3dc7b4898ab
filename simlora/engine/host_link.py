"""What goes between a replica's HBM and the memory of its host: adapters and KV, one copy after the other."""

from __future__ import annotations

from collections.abc import Sequence

from simlora.core.adapter import Adapter
from simlora.engine.host_memory import HostMemory
from simlora.engine.interfaces import AdapterSource
from simlora.engine.link import Link
from simlora.latency.transfer import AdapterLoad
from simlora.metrics.recorder import Recorder
from simlora.metrics.tracing import TO_GPU, TO_HOST, Copied


class HostLink:
    """Two links, `to_gpu` and `to_host`, which do not get in each other's way.

    `kv_tokens_in` and `kv_tokens_out` are cached KV from the host for requests, and to it. KV has `kv_bytes` a token on
    each of the `tp` GPUs. What `memory`, if it is limited, has forgotten comes from disk first; if hosts hold different
    adapters, `stores` fetch what that of replica `id` does not hold.
    """

    __slots__ = (
        "_id",
        "_kv_bytes",
        "_load",
        "_memory",
        "_recorder",
        "_stores",
        "_tp",
        "kv_tokens_in",
        "kv_tokens_out",
        "to_gpu",
        "to_host",
    )

    def __init__(
        self,
        id: int,
        load: AdapterLoad,
        tp: int,
        kv_bytes: int,
        recorder: Recorder,
        memory: HostMemory | None,
        stores: AdapterSource | None,
    ) -> None:
        self.to_gpu, self.to_host = Link(), Link()
        self.kv_tokens_in = self.kv_tokens_out = 0
        self._id, self._load, self._tp, self._kv_bytes = id, load, tp, kv_bytes
        self._recorder, self._memory, self._stores = recorder, memory, stores
        if stores is not None:
            stores.connect(id, self.to_gpu, load.load_s)
        tracing = recorder.tracing
        if tracing is not None:
            for link, name in ((self.to_gpu, TO_GPU), (self.to_host, TO_HOST)):
                link.told = lambda begin_s, until_s, what, name=name: tracing.add(
                    Copied(id, name, begin_s, until_s, what)
                )

    def slow_down(self, factor: float) -> None:
        """What goes either way takes so many times as long from now on."""
        self.to_gpu.slowdown = self.to_host.slowdown = factor

    def follows(self, failed: HostLink, now_s: float) -> None:
        """This takes the place of that of a replica that fails now; what was moved until then counts."""
        self.to_gpu.busy_s = failed.to_gpu.busy_until(now_s)
        self.to_host.busy_s = failed.to_host.busy_until(now_s)
        self.kv_tokens_in, self.kv_tokens_out = failed.kv_tokens_in, failed.kv_tokens_out

    # KV ---------------------------------------------------------------------------------

    def kv_s(self, tokens: int) -> float:
        """Seconds to copy the KV of so many tokens, either way, over an idle link."""
        return self._load.load_s(tokens * self._kv_bytes)

    def bring_kv(self, tokens: int, now_s: float) -> float:
        """Copy the KV of so many tokens from the host; return when that is done."""
        return self._copy(self.to_gpu, tokens, now_s)

    def bring_cached(self, tokens: int, now_s: float) -> float:
        """The same for cached KV that a request begins with, which counts."""
        self.kv_tokens_in += tokens
        return self.bring_kv(tokens, now_s)

    def send_kv(self, tokens: int, now_s: float) -> float:
        """Copy the KV of so many tokens to the host; return when that is done."""
        return self._copy(self.to_host, tokens, now_s)

    def send_cached(self, tokens: int, now_s: float) -> float:
        """The same for KV that stays cached on the host, which counts."""
        self.kv_tokens_out += tokens
        return self.send_kv(tokens, now_s)

    def _copy(self, link: Link, tokens: int, now_s: float) -> float:
        load = self._load
        return link.transfer(now_s, tokens * self._kv_bytes / load.bytes_per_s, load.latency_s, tokens)

    # Adapters ---------------------------------------------------------------------------

    def adapter_s(self, size_bytes: int, from_disk: bool = False) -> float:
        """Seconds to copy an adapter of that size from the host over an idle link, `from_disk` to the host before."""
        load, each = self._load, size_bytes // self._tp
        return load.load_s(each) + (load.disk_s(each) if from_disk else 0.0)

    def load(self, adapter: Adapter, now_s: float) -> float:
        """Send for an adapter, wherever it is; return when it lands."""
        if self._stores is not None and not self._stores.holds(self._id, adapter):
            self._recorder.adapter_load(adapter.size_bytes, from_disk=False)
            return self._stores.fetch(self._id, adapter, adapter.size_bytes // self._tp, now_s, self.to_host)
        from_disk = self._memory is not None and not self._memory.use(adapter)
        self._recorder.adapter_load(adapter.size_bytes, from_disk)
        return self.to_gpu.transfer(now_s, self.adapter_s(adapter.size_bytes, from_disk), what=adapter)

    def load_again(self, sizes_bytes: Sequence[int], from_disk: bool, now_s: float) -> float:
        """Copy adapters of these sizes that were in HBM a moment ago; return when they are there."""
        self._recorder.adapter_reloads(len(sizes_bytes), sum(sizes_bytes), from_disk)
        seconds = sum(self.adapter_s(size_bytes, from_disk) for size_bytes in sizes_bytes)
        return self.to_gpu.transfer(now_s, seconds)
