"""A LoRA server: GPUs of their own that hold all adapters and compute LoRA for all replicas."""

from __future__ import annotations

from collections.abc import Iterator

from simlora.core.total import total
from simlora.engine.parts.gpu_sharing import GpuSharing, SharedGpu
from simlora.engine.replica.decode_window import DecodeWindow
from simlora.engine.replica.model_runner import ModelRunner, Pass
from simlora.engine.replica.replica import Replica
from simlora.engine.replica.running_batch import RunningBatch
from simlora.engine.scenario import Scenario
from simlora.latency.kernels import NO_LORA
from simlora.latency.models import LatencyModels
from simlora.latency.remote_lora import RemoteLora
from simlora.policies.loading.base import Miss


class LoraServer(SharedGpu):
    """So many `gpus`, over which adapters and their work are spread evenly, and whose time the replicas share.

    While a replica makes one iteration, each of the others makes one too: an iteration takes the longer of its own time
    and the sum of all their LoRA work over the GPUs, as engines that share a GPU do (gpu_sharing.py).
    `busy_s` is the LoRA work done, in seconds of one GPU.
    """

    def __init__(self, gpus: int) -> None:
        super().__init__()
        self.gpus, self.busy_s = gpus, 0.0

    def serve(
        self, id: int, own_s: float, slope_s: float, lora_s: float, prefilling: bool = False
    ) -> tuple[float, float]:
        """Return what an iteration of `own_s` takes, with `lora_s` of work here, and how much longer each step is."""
        self._gpu_s[id] = lora_s
        if self._prefilling.get(id) is not prefilling:
            self._prefilling[id] = prefilling
            self._notify(id)
        crowded_s = total(self._gpu_s.values()) / self.gpus
        return (own_s, slope_s) if crowded_s <= own_s else (crowded_s, 0.0)

    def asked_s(self, id: int, own_s: float, lora_s: float) -> float:
        """Return what such an iteration would take, without launching it."""
        others_s = total(seconds for other, seconds in self._gpu_s.items() if other != id)
        return max(own_s, (lora_s + others_s) / self.gpus)


class RemoteRunner(ModelRunner):
    """Runs the base model, while the server computes the LoRA of its tokens.

    `lora_s` is the server's work for the iteration that was launched last, or for each step of it.
    """

    __slots__ = ("_id", "_remote", "_server", "lora_s")

    def __init__(self, id: int, latency: LatencyModels, remote: RemoteLora, server: LoraServer) -> None:
        super().__init__(latency)
        self._id, self._remote, self._server = id, remote, server
        self.lora_s = 0.0

    def prefill_s(self, work: Pass) -> float:
        own_s, self.lora_s = self._pass_s(work)
        return self._server.serve(self._id, own_s, 0.0, self.lora_s, True)[0]

    def priced_s(self, work: Pass) -> float:
        own_s, lora_s = self._pass_s(work)
        return self._server.asked_s(self._id, own_s, lora_s)

    def decode(self, start_s: float, batch: RunningBatch, skipped: int, adapters: int) -> DecodeWindow:
        size, work = len(batch.members), self._decode_work(batch, adapters)
        base_s = self._iteration.decode_s(size, batch.context_tokens)
        self.lora_s = self._kernel.decode_s(work)
        own_s = base_s + self._exposed_s(base_s, work.tokens, self.lora_s) + self._skipped_request_s * skipped
        slope_s = self._iteration.decode_slope_s(size)
        return DecodeWindow(start_s, *self._server.serve(self._id, own_s, slope_s, self.lora_s))

    def _pass_s(self, work: Pass) -> tuple[float, float]:
        """Return the seconds of a pass on a server that has nothing else to do, and the server's work."""
        total_tokens, total_sq, lora = self._prefill_work(work.requests, work.tokens)
        decoding, iteration, kernel = work.decoding, self._iteration, self._kernel
        if decoding is None:
            base_s, lora_s, beside = (
                iteration.prefill_s(total_tokens, total_sq),
                kernel.prefill_s(lora),
                NO_LORA,
            )
        else:
            size, context_tokens = len(decoding.members), decoding.context_tokens
            beside = self._decode_work(decoding, work.adapters)
            base_s = iteration.mixed_s(total_tokens, total_sq, size, context_tokens)
            lora_s = kernel.mixed_s(lora, beside)
        exposed_s = self._exposed_s(base_s, lora.tokens + beside.tokens, lora_s)
        return base_s + exposed_s + self._skipped_request_s * work.skipped, lora_s

    def _exposed_s(self, base_s: float, tokens: int, lora_s: float) -> float:
        """Return by how much longer than the base model's an iteration is."""
        hidden_s = self._remote.hidden_share * base_s
        return max(self._remote.exchange_s(tokens) + lora_s - hidden_s, 0.0)


class LoraServing(GpuSharing):
    """Notifies the other replicas of the server whether the replica has work, and counts what the server does."""

    @staticmethod
    def requires(scenario: Scenario) -> Iterator[str]:
        cluster, policies = scenario.cluster, scenario.policies
        if not cluster.lora_server_gpus:
            return
        needs = "cluster.lora_server_gpus needs"
        if policies.loader().answers != (Miss.FREE,):
            yield f"{needs} loader=cached: the server has all adapters, and a replica none"
        if scenario.replica.adapter_memory != "unified" or scenario.replica.full_copies:
            yield f"{needs} replica.adapter_memory=unified, of which adapters take nothing, and no full copies"
        if policies.merges:
            yield f"{needs} a scheduler that merges no adapters"
        if scenario.speculation.tokens:
            yield f"{needs} speculation.tokens=0"
        for key in ("failures", "stragglers", "slow_links", "replica_groups"):
            if getattr(cluster, key):
                yield f"{needs} no cluster.{key}"
        if cluster.engines_per_gpu > 1:
            yield f"{needs} cluster.engines_per_gpu=1"
        if scenario.scaling.autoscaler.period_s is not None:
            yield f"{needs} autoscaler=fixed"
        if scenario.gpu is not None:
            modules, bits = scenario.replica.target_modules, scenario.replica.adapter_bits
            ranks = [adapter.rank for adapter in scenario.trace.adapters]
            held = total(float(scenario.model.adapter_bytes(rank, modules, bits)) for rank in ranks)
            has = cluster.lora_server_gpus * scenario.gpu.memory_bytes
            if held > has:
                gpus = -int(-held // scenario.gpu.memory_bytes)
                yield (
                    f"cluster.lora_server_gpus is {cluster.lora_server_gpus}, must be at least {gpus}: the adapters "
                    f"have {held / 1e9:.1f} GB, and each {scenario.gpu.name} {scenario.gpu.memory_bytes / 1e9:.1f} GB"
                )

    def __init__(self, replica: Replica, server: LoraServer, runner: RemoteRunner) -> None:
        super().__init__(replica, server)
        self._server, self._runner = server, runner

    def on_ran(self, now_s: float) -> None:
        window = self._replica.table.window
        steps = 1 if window is None else window.stop - window.done
        self._server.busy_s += steps * self._runner.lora_s
