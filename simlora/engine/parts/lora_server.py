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
from simlora.hardware.gpu import Gpu
from simlora.latency.kernels import NO_LORA
from simlora.latency.models import LatencyModels
from simlora.latency.remote_lora import RemoteLora
from simlora.memory.reservation import UNLIMITED
from simlora.policies.eviction.swapper import Swapper
from simlora.policies.loading.base import Miss


class LoraServer(SharedGpu):
    """So many `gpus`, over which adapters and the work of each pass are spread evenly, and whose time replicas share.

    While a replica makes one iteration, each of the others makes one too: an iteration takes the longer of its own time
    and the sum of all their LoRA work over the GPUs, as engines that share a GPU do (gpu_sharing.py), or of what all
    their activations take the network cards, of which each GPU has one.
    `busy_s` is the LoRA work done, in seconds of one GPU.
    """

    def __init__(self, gpus: int) -> None:
        super().__init__()
        self.gpus, self.busy_s = gpus, 0.0
        self._cards_s: dict[int, float] = {}  # of the busy replicas: the last iteration's part on a card

    def set_busy(self, id: int, busy: bool) -> None:
        if not busy:
            self._cards_s.pop(id, None)
        super().set_busy(id, busy)

    def serve(self, id: int, lora_s: float, card_s: float, prefilling: bool = False) -> float:
        """Return what an iteration takes at least, of which `lora_s` are the work here, and `card_s` a card's."""
        self._gpu_s[id], self._cards_s[id] = lora_s, card_s
        if self._prefilling.get(id) is not prefilling:
            self._prefilling[id] = prefilling
            self._notify(id)
        return max(total(self._gpu_s.values()), total(self._cards_s.values())) / self.gpus

    def asked_s(self, id: int, own_s: float, lora_s: float, card_s: float) -> float:
        """Return what such an iteration would take, without launching it."""
        for seconds, own in ((self._gpu_s, lora_s), (self._cards_s, card_s)):
            others_s = total(each for other, each in seconds.items() if other != id)
            own_s = max(own_s, (own + others_s) / self.gpus)
        return own_s


class RemoteRunner(ModelRunner):
    """Runs the base model, while the server computes the LoRA of its tokens.

    `lora_s` is the server's work for the iteration that was launched last, or for each step of it. The first `level`
    steps of a window take as long as the server is busy; after them contexts have grown so that the replica is slower.
    """

    __slots__ = ("_id", "_remote", "_server", "level", "lora_s")

    def __init__(self, id: int, latency: LatencyModels, remote: RemoteLora, server: LoraServer) -> None:
        super().__init__(latency)
        self._id, self._remote, self._server = id, remote, server
        self.lora_s = 0.0
        self.level = 0

    def prefill_s(self, work: Pass) -> float:
        own_s, self.lora_s, card_s = self._pass_s(work)
        self.level = 0
        return max(own_s, self._server.serve(self._id, self.lora_s, card_s, True))

    def priced_s(self, work: Pass) -> float:
        return self._server.asked_s(self._id, *self._pass_s(work))

    def decode(self, start_s: float, batch: RunningBatch, skipped: int, adapters: int) -> DecodeWindow:
        size, work, iteration = len(batch.members), self._decode_work(batch, adapters), self._iteration
        weights_s = iteration.decode_s(size, 0)
        self.lora_s = self._kernel.decode_s(work)
        own_s = (
            weights_s
            + self._exposed_s(weights_s, work.tokens, self.lora_s)
            + self._skipped_request_s * skipped
        )
        own_s += iteration.contexts_s(size, batch.context_tokens)
        slope_s, card_s = iteration.decode_slope_s(size), self._remote.server_s(work.tokens)
        busy_s = self._server.serve(self._id, self.lora_s, card_s)
        self.level = 0
        if busy_s <= own_s:
            return DecodeWindow(start_s, own_s, slope_s)
        self.level = int((busy_s - own_s) / slope_s) + 1 if slope_s > 0.0 else UNLIMITED
        return DecodeWindow(start_s, busy_s, 0.0)

    def _pass_s(self, work: Pass) -> tuple[float, float, float]:
        """Return the seconds of a pass on a server that has nothing else to do, the server's work, and its card's."""
        total_tokens, total_sq, lora = self._prefill_work(work.requests, work.tokens)
        decoding, iteration, kernel = work.decoding, self._iteration, self._kernel
        if decoding is None:
            beside = NO_LORA
            weights_s, base_s = (
                iteration.prefill_s(total_tokens, 0),
                iteration.prefill_s(total_tokens, total_sq),
            )
            lora_s = kernel.prefill_s(lora)
        else:
            size, beside = len(decoding.members), self._decode_work(decoding, work.adapters)
            weights_s = iteration.mixed_s(total_tokens, 0, size, 0)
            base_s = iteration.mixed_s(total_tokens, total_sq, size, decoding.context_tokens)
            lora_s = kernel.mixed_s(lora, beside)
        tokens = lora.tokens + beside.tokens
        own_s = base_s + self._exposed_s(weights_s, tokens, lora_s) + self._skipped_request_s * work.skipped
        return own_s, lora_s, self._remote.server_s(tokens)

    def _exposed_s(self, weights_s: float, tokens: int, lora_s: float) -> float:
        """Return how much longer an iteration is than the base model's alone.

        Each GPU of the server does its share of `lora_s`. The exchange and that work hide behind a share of
        `weights_s`, which is what the iteration takes without attention.
        """
        hidden_s = self._remote.hidden_share * weights_s
        return max(self._remote.exchange_s(tokens) + lora_s / self._server.gpus - hidden_s, 0.0)


class LoraServing(GpuSharing):
    """Notifies the other replicas of the server whether the replica has work, and counts what the server does."""

    @staticmethod
    def requires(scenario: Scenario) -> Iterator[str]:
        cluster, policies, replica = scenario.cluster, scenario.policies, scenario.replica
        if not cluster.lora_server_gpus:
            return
        for given, instead in (
            (
                policies.loader().answers != (Miss.FREE,),
                "loader=cached: it has all adapters, and a replica none",
            ),
            (
                isinstance(policies.eviction(), Swapper),
                "another eviction, which does not move adapters by their worth",
            ),
            (policies.migration.brings, "a migration that does not load adapters"),
            (policies.merges, "a scheduler that merges no adapters"),
            (cluster.adapter_pool == "distributed", "cluster.adapter_pool=replicated"),
            (replica.adapter_memory != "unified" or replica.full_copies, "replica.adapter_memory=unified"),
            (replica.max_cpu_loras is not None, "replica.max_cpu_loras=null"),
            (
                replica.tp > 1 and scenario.lora_server is None,
                "replica.tp=1, or to be told what LoRA takes where adapters are not divided (Scenario.lora_server)",
            ),
            (cluster.replica_groups, "replicas that are all alike"),
            (cluster.engines_per_gpu > 1, "cluster.engines_per_gpu=1"),
            (scenario.speculation.tokens, "speculation.tokens=0"),
            (scenario.scaling.autoscaler.period_s is not None, "autoscaler=fixed"),
            (
                cluster.may_fail or cluster.may_straggle,
                "no failures or stragglers, which a live cluster may be asked for",
            ),
            (cluster.slow_links, "no cluster.slow_links"),
        ):
            if given:
                yield f"cluster.lora_server_gpus needs {instead}"
        if scenario.gpu is not None:
            yield from _room(scenario, scenario.gpu)

    def __init__(self, replica: Replica, server: LoraServer, runner: RemoteRunner) -> None:
        super().__init__(replica, server)
        self._server, self._runner = server, runner

    def on_ran(self, now_s: float) -> None:
        window = self._replica.table.window
        steps = 1 if window is None else window.stop - window.done
        self._server.busy_s += steps * self._runner.lora_s

    def steps(self, most: int) -> int:
        window, level = self._replica.table.window, self._runner.level
        return most if window is None or not level else min(most, level - window.done)

    def after_decode(self, now_s: float) -> None:
        window, level = self._replica.table.window, self._runner.level
        if window is not None and level and window.done >= level:
            self._replica.table.end_window()


def _room(scenario: Scenario, gpu: Gpu) -> Iterator[str]:
    """Yield a sentence if the server's GPUs cannot hold all adapters."""
    replica, gpus = scenario.replica, scenario.cluster.lora_server_gpus
    sizes = (
        scenario.model.adapter_bytes(adapter.rank, replica.target_modules)
        for adapter in scenario.trace.adapters
    )
    held = sum(sizes)
    if held > gpus * gpu.memory_bytes:
        yield (
            f"cluster.lora_server_gpus is {gpus}, must be at least {-(-held // gpu.memory_bytes)}: the adapters have "
            f"{held / 1e9:.1f} GB, and each {gpu.name} {gpu.memory_bytes / 1e9:.1f} GB"
        )
