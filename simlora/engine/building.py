"""What a scenario is built into before it runs: latency models, adapters, requests."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain, repeat

import numpy as np
from numpy.typing import NDArray

from simlora.core.adapter import Adapter
from simlora.core.errors import InputError
from simlora.core.request import Request
from simlora.core.trace import AdapterSpec
from simlora.engine.replica_config import ReplicaConfig
from simlora.engine.scenario import Kind, Scenario
from simlora.engine.speculation import EAGLE
from simlora.latency.adapted import adapted
from simlora.latency.calibration import Calibration
from simlora.latency.collectives import folded
from simlora.latency.cpu_lora import CpuLora
from simlora.latency.draft import Draft, eagle
from simlora.latency.iteration import HostTime, IterationModel
from simlora.latency.models import LatencyModels
from simlora.latency.remote_lora import RemoteLora
from simlora.latency.transfer import AdapterLoad, Merge

CHUNK = 1 << 11
"""Requests taken out of the trace at a time: the numbers of so many fit the processor's cache."""


def latency_models(scenario: Scenario, kind: Kind) -> LatencyModels:
    """Return how long things take on replicas of a kind."""
    config, own = kind.replica, kind.calibration
    model, modules = scenario.model, config.target_modules
    calibration = folded(adapted(own, model, modules), model, modules, scenario.lora_communication)
    server = scenario.lora_server
    links = min(config.tp, scenario.cluster.lora_server_gpus)
    lora = calibration if server is None else adapted(server, model, modules)
    return LatencyModels(
        iteration=IterationModel(calibration),
        kernel=(kind.kernel or scenario.policies.kernel)(lora),
        load=AdapterLoad(own, None if kind.gpu is None else kind.gpu.host_link),
        merge=Merge(own) if scenario.policies.merges else None,
        flush_s=own.need("adapter_load.flush_s") if config.adapter_memory == "contiguous" else 0.0,
        host=HostTime(own) if scenario.cluster.engines_per_gpu > 1 else None,
        cpu_lora=CpuLora(calibration, scenario.model.layers) if scenario.policies.assists else None,
        draft=_draft(scenario, calibration),
        remote=RemoteLora(scenario.model, config.target_modules, links, scenario.cluster.network)
        if scenario.cluster.lora_server_gpus
        else None,
        skipped_request_s=calibration.coefficients.get("scheduler.per_passed_request_s", 0.0),
        listing_s=listing_s(scenario, config, own),
    )


def listing_s(scenario: Scenario, config: ReplicaConfig, calibration: Calibration) -> float:
    """Return the time in which an engine's LoRA manager lists the adapters that it knows.

    vLLM's does so for each distinct adapter of a step, to see whether that one is among them (its
    `LRUCacheWorkerLoRAManager.add_adapter`, since pull request 15481). It knows all adapters of the trace, or as many
    as the host's memory holds: a server registers those of `--lora-modules` when it starts. `listed_adapters` of a
    scenario is another number.
    """
    known = scenario.listed_adapters
    if known is None:
        known = len(scenario.trace.adapters)
    if config.max_cpu_loras is not None:
        known = min(known, config.max_cpu_loras)
    return calibration.coefficients.get("lora_manager.per_listed_adapter_s", 0.0) * known


def _draft(scenario: Scenario, target: Calibration) -> Draft | None:
    """Return what proposes tokens on replicas with that calibration; None: nothing, or it takes no time."""
    speculation = scenario.speculation
    if not speculation.tokens:
        return None
    if speculation.calibration is not None:
        return Draft(speculation.tokens, speculation.calibration)
    return eagle(speculation.tokens, scenario.model, target) if speculation.draft == EAGLE else None


def adapters(scenario: Scenario, config: ReplicaConfig | None = None) -> tuple[Adapter, ...]:
    """Return the adapters of the trace, by id, as large as a replica's memory lays them out; None: the base one's."""
    config, model = config or scenario.replica, scenario.model
    specs = scenario.trace.adapters
    first = {spec.rank: spec for spec in reversed(specs)}
    alike = {rank: model.adapter(0, spec.name, rank, config.target_modules) for rank, spec in first.items()}
    found = tuple(
        Adapter(id, spec.name, spec.rank, alike[spec.rank].size_bytes, alike[spec.rank].kv_tokens)
        for id, spec in enumerate(specs)
    )
    if config.full_copies:
        slots = -(-model.weight_bytes // model.kv_bytes_per_token)
        return tuple(replace(each, size_bytes=model.weight_bytes, kv_tokens=slots) for each in found)
    tokens: int | None
    if scenario.cluster.lora_server_gpus:
        return tuple(replace(each, kv_tokens=0) for each in found)
    if isinstance(config.adapter_tokens, str):  # the highest rank's
        tokens = max((each.kv_tokens for each in found), default=0)
    else:
        tokens = config.adapter_tokens
    if tokens is None and config.adapter_memory == "slots":
        assert config.max_loras is not None, "slots are counted by max_loras"
        tokens = config.adapter_region_tokens // config.max_loras
    return found if tokens is None else tuple(replace(each, kv_tokens=tokens) for each in found)


def further_adapter(
    scenario: Scenario, config: ReplicaConfig, spec: AdapterSpec, known: Sequence[Adapter]
) -> Adapter:
    """Return an adapter beside those that are `known`, as large as a replica's memory lays it out.

    Raises InputError for a rank that changes how the known ones are laid out.
    """
    made = scenario.model.adapter(len(known), spec.name, spec.rank, config.target_modules)
    if scenario.cluster.lora_server_gpus:
        return replace(made, kv_tokens=0)
    if config.full_copies or config.adapter_memory == "slots":
        if not known:
            raise InputError(f"adapter {spec.name} is the first one, must join others, whose layout it takes")
        size_bytes = known[0].size_bytes if config.full_copies else made.size_bytes
        return replace(made, size_bytes=size_bytes, kv_tokens=known[0].kv_tokens)
    if isinstance(config.adapter_tokens, str):
        tokens = max((each.kv_tokens for each in known), default=0)
        if made.kv_tokens > tokens:
            raise InputError(
                f"adapter {spec.name} has rank {spec.rank}, must have at most the highest rank of the adapters "
                "known at the start, by which replica.adapter_tokens=highest lays all of them out"
            )
        return replace(made, kv_tokens=tokens)
    return made if config.adapter_tokens is None else replace(made, kv_tokens=config.adapter_tokens)


def requests(
    scenario: Scenario,
    adapters: Sequence[Adapter],
    entered_s: NDArray[np.float64],
    ids: NDArray[np.int64] | None = None,
) -> Iterator[Request]:
    """Make the requests of a trace, or those with some ids, as they are needed; each comes when it has `entered_s`."""
    trace = scenario.trace
    session, hashes = trace.session, trace.block_hashes
    served = (*adapters, None)  # index -1 is the base model

    def chunk(start: int) -> Iterator[Request]:
        stop = start + CHUNK
        some = np.arange(start, min(stop, len(trace))) if ids is None else ids[start:stop]
        numbers = some.tolist()
        return map(
            Request,
            numbers,
            map(served.__getitem__, trace.adapter[some].tolist()),
            entered_s[some].tolist(),
            trace.prompt_tokens[some].tolist(),
            trace.max_output_tokens[some].tolist(),
            repeat(None) if session is None else map(session.__getitem__, numbers),
            repeat(()) if hashes is None else map(hashes.__getitem__, numbers),
        )

    return chain.from_iterable(map(chunk, range(0, len(trace) if ids is None else len(ids), CHUNK)))
