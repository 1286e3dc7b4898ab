"""A LoRA server: GPUs of their own that hold all adapters and compute LoRA for all replicas."""

from __future__ import annotations

from collections.abc import Iterator

from simlora.engine.parts.gpu_sharing import GpuSharing, SharedGpu
from simlora.engine.replica.decode_window import DecodeWindow
from simlora.engine.replica.model_runner import ModelRunner, Pass
from simlora.engine.replica.replica import Replica
from simlora.engine.replica.running_batch import RunningBatch
from simlora.engine.scenario import Scenario
from simlora.hardware.gpu import Gpu
from simlora.latency.kernels import NO_LORA
from simlora.latency.models import LatencyModels
from simlora.latency.remote_lora import RemoteIteration, RemoteLora, beside_s
from simlora.policies.eviction.swapper import Swapper
from simlora.policies.loading.base import Miss


class LoraServer(SharedGpu):
    """So many `gpus`, over which adapters and the work of each pass are spread evenly, and whose time replicas share.

    Each GPU has a network card. Replicas wait for each other at the GPUs and the cards, as beside_s() says of the
    iterations that the busy ones have launched last. `busy_s` is the LoRA work done, in seconds of one GPU.
    """

    def __init__(self, gpus: int) -> None:
        super().__init__()
        self.gpus, self.busy_s = gpus, 0.0
        self._launched: dict[int, RemoteIteration] = {}  # of the busy replicas

    def set_busy(self, id: int, busy: bool) -> None:
        if not busy:
            self._launched.pop(id, None)
        super().set_busy(id, busy)

    def serve(self, id: int, iteration: RemoteIteration) -> float:
        """Return what an iteration takes beside the others; notify them if it asks for other work than before."""
        before = self._launched.get(id)
        if before is None or before.stations_s != iteration.stations_s:
            self._notify(id)
        self._launched[id] = iteration
        return self.asked_s(id, iteration)

    def asked_s(self, id: int, iteration: RemoteIteration) -> float:
        """Return what such an iteration would take, without launching it."""
        return beside_s(iteration, [other for at, other in sorted(self._launched.items()) if at != id])


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
        iteration, self.lora_s = self._pass(work)
        return self._server.serve(self._id, iteration)

    def priced_s(self, work: Pass) -> float:
        return self._server.asked_s(self._id, self._pass(work)[0])

    def decode(self, start_s: float, batch: RunningBatch, host_s: float, adapters: int) -> DecodeWindow:
        size, work, model = len(batch.members), self._decode_work(batch, adapters), self._iteration
        weights_s = model.decode_s(size, 0)
        own_s = weights_s + model.contexts_s(size, batch.context_tokens) + host_s
        self.lora_s = self._kernel.decode_s(work)
        step_s = self._server.serve(
            self._id, self._remote_iteration(own_s, weights_s, work.tokens, self.lora_s)
        )
        return DecodeWindow(start_s, step_s, model.decode_slope_s(size))

    def _pass(self, work: Pass) -> tuple[RemoteIteration, float]:
        """Return a pass, and the server's work for it in seconds of one GPU."""
        total_tokens, total_sq, lora = self._prefill_work(work.requests, work.tokens)
        decoding, model, kernel = work.decoding, self._iteration, self._kernel
        if decoding is None:
            beside = NO_LORA
            weights_s, base_s = model.prefill_s(total_tokens, 0), model.prefill_s(total_tokens, total_sq)
            lora_s = kernel.prefill_s(lora)
        else:
            size, beside = len(decoding.members), self._decode_work(decoding, work.adapters)
            weights_s = model.mixed_s(total_tokens, 0, size, 0)
            base_s = model.mixed_s(total_tokens, total_sq, size, decoding.context_tokens)
            lora_s = kernel.mixed_s(lora, beside)
        own_s = base_s + work.host_s
        return self._remote_iteration(own_s, weights_s, lora.tokens + beside.tokens, lora_s), lora_s

    def _remote_iteration(
        self, own_s: float, weights_s: float, tokens: int, lora_s: float
    ) -> RemoteIteration:
        """Return an iteration, `weights_s` of which are neither attention nor LoRA.

        Each GPU of the server does its share of `lora_s`, and each card its share of what is sent.
        """
        remote, gpus = self._remote, self._server.gpus
        receiving_s, sending_s = remote.cards_s(tokens)
        return RemoteIteration(
            own_s,
            remote.hidden_share * weights_s,
            remote.exchange_s(tokens) + lora_s / gpus,
            (lora_s / gpus, receiving_s / gpus, sending_s / gpus),
        )


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
