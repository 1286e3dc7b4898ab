"""Copies between a replica's HBM and the memory of its host: adapters and KV, one after the other in each direction."""

from __future__ import annotations

from collections.abc import Sequence

from simlora.core.adapter import Adapter
from simlora.core.total import total
from simlora.engine.replica.link import Link
from simlora.latency.transfer import AdapterLoad
from simlora.metrics.recorder import Recorder


class HostLink:
    """Two links, `to_gpu` and `to_host`, which do not delay each other.

    `kv_tokens_in` and `kv_tokens_out` count the cached KV copied from the host for requests, and to it. A token's KV
    takes `kv_bytes` on each of the `tp` GPUs.
    """

    __slots__ = (
        "_kv_bytes",
        "_load",
        "_recorder",
        "_tp",
        "kv_tokens_in",
        "kv_tokens_out",
        "to_gpu",
        "to_host",
    )

    def __init__(self, load: AdapterLoad, tp: int, kv_bytes: int, recorder: Recorder) -> None:
        self.to_gpu, self.to_host = Link(), Link()
        self.kv_tokens_in = self.kv_tokens_out = 0
        self._load, self._tp, self._kv_bytes, self._recorder = load, tp, kv_bytes, recorder

    def slow_down(self, factor: float) -> None:
        """Copies in both directions take `factor` times as long from now on."""
        self.to_gpu.slowdown = self.to_host.slowdown = factor

    def inherit_counters(self, failed: HostLink, now_s: float) -> None:
        """Count what the link of a failed replica, whose place this takes, had copied until now."""
        self.to_gpu.busy_s = failed.to_gpu.busy_until(now_s)
        self.to_host.busy_s = failed.to_host.busy_until(now_s)
        self.kv_tokens_in, self.kv_tokens_out = failed.kv_tokens_in, failed.kv_tokens_out

    # What a copy is worth ---------------------------------------------------------------

    def kv_cost_s(self, tokens: int) -> float:
        """Return the bytes of so many tokens' KV over the bandwidth: FastLibra's cost of bringing it."""
        return self._load.kv_bytes_s(tokens * self._kv_bytes)

    def adapter_cost_s(self, size_bytes: int) -> float:
        """Return an adapter's bytes over the bandwidth."""
        return self._load.bytes_s(size_bytes // self._tp)

    # KV ---------------------------------------------------------------------------------

    def bring_kv(self, tokens: int, now_s: float, there_s: float = 0.0) -> float:
        """Copy the KV of so many tokens from the host; return when it is in HBM.

        If it is on the host only from `there_s` on, the link copies what else there is until then.
        """
        if there_s <= now_s:
            return self._copy(self.to_gpu, tokens, now_s)
        load = self._load
        return self.to_gpu.transfer_later(there_s, self.kv_cost_s(tokens), load.latency_s, tokens)

    def kv_s(self, tokens: int) -> float:
        """Return the seconds to copy the KV of so many tokens to HBM over an idle link."""
        return self.to_gpu.slowdown * self.kv_cost_s(tokens) + self._load.latency_s

    def send_kv(self, tokens: int, now_s: float) -> float:
        """Copy the KV of so many tokens to the host; return when it is there."""
        return self._copy(self.to_host, tokens, now_s)

    def _copy(self, link: Link, tokens: int, now_s: float) -> float:
        return link.transfer(now_s, self.kv_cost_s(tokens), self._load.latency_s, tokens)

    # Adapters ---------------------------------------------------------------------------

    def adapter_s(self, size_bytes: int, from_disk: bool = False) -> float:
        """Return the seconds to copy an adapter from the host over an idle link, and to read it from disk before."""
        shard_bytes = size_bytes // self._tp
        return self._load.load_s(shard_bytes) + (self._load.disk_s(shard_bytes) if from_disk else 0.0)

    def holds(self, id: int) -> bool:
        """Return whether host memory keeps the adapter of that id, of those that it has room for; this one has all."""
        return False

    def load(self, adapter: Adapter, now_s: float) -> float:
        """Load an adapter; return when it is in HBM."""
        self._recorder.adapter_loads += 1
        self._recorder.adapter_load_bytes += adapter.size_bytes
        return self.to_gpu.transfer(now_s, self._load.load_s(adapter.size_bytes // self._tp), what=adapter)

    def load_again(self, sizes_bytes: Sequence[int], from_disk: bool, now_s: float) -> float:
        """Copy adapters of these sizes that were in HBM a moment ago; return when they are there."""
        self._recorder.adapter_reloads(len(sizes_bytes), sum(sizes_bytes), from_disk)
        return self.to_gpu.transfer(now_s, total(self.adapter_s(size, from_disk) for size in sizes_bytes))
