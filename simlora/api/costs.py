"""What a run costs: GPU hours, rent, energy."""

from __future__ import annotations

from typing import Any

from simlora.core.total import total
from simlora.engine.cluster.simulation import Simulation
from simlora.engine.parts.lora_server import LoraServer
from simlora.engine.scenario import Kind
from simlora.metrics.slo import is_finished
from simlora.metrics.stored import Requests

HOUR_S = 3600.0


def cost_facts(simulation: Simulation, requests: Requests) -> dict[str, Any]:
    """Return GPU hours, USD and joules of all replicas while they were on, and of each kind of GPU.

    Rent is `gpu.usd_per_hour`, paid from the start of a boot until a replica is off. A GPU draws `gpu.busy_w` during
    iterations and `gpu.idle_w` otherwise; as decoding draws less than a data sheet's limit, that is an upper bound.
    Tokens are those of finished requests, prompts included where it says so. What depends on a
    price or power that the GPU does not have is None.
    """
    kinds, first = [], 0
    for kind in simulation.scenario.kinds:
        kinds.append(_kind(simulation, kind, range(first, first + kind.replicas)))
        first += kind.replicas
    if simulation.scenario.cluster.lora_server_gpus:
        kinds.append(_lora_server(simulation))
    done = requests[is_finished(requests)]
    output = int(done["output_tokens"].sum())
    tokens = output + int(done["prompt_tokens"].sum())
    usd, energy_j = _sum([kind["usd"] for kind in kinds]), _sum([kind["energy_j"] for kind in kinds])
    return {
        "gpu_hours": total(kind["gpu_hours"] for kind in kinds),
        "usd": usd,
        "usd_per_million_tokens": _share(usd, tokens / 1e6),
        "usd_per_million_output_tokens": _share(usd, output / 1e6),
        "energy_j": energy_j,
        "energy_j_per_output_token": _share(energy_j, output),
        "each": kinds,
    }


def _kind(simulation: Simulation, kind: Kind, ids: range) -> dict[str, Any]:
    """Return what the replicas of one kind cost."""
    engines = simulation.scenario.cluster.engines_per_gpu
    gpus = kind.replica.tp * -(-len(ids) // engines) / len(ids)  # of a replica; the last GPU may have fewer
    on_s = total(float(simulation.autoscaling.on_s[id]) for id in ids)
    outcomes = simulation.outcomes()
    busy_s = total(outcomes[id].busy_s for id in ids)
    if engines > 1:  # each is also busy while it waits for the others
        busy_s = min(engines * busy_s, on_s)
    hours, gpu = gpus * on_s / HOUR_S, kind.gpu
    usd = energy_j = None
    if gpu is not None and gpu.usd_per_hour is not None:
        usd = hours * gpu.usd_per_hour
    if gpu is not None and gpu.idle_w is not None and gpu.busy_w is not None:
        energy_j = gpus * (gpu.busy_w * busy_s + gpu.idle_w * max(on_s - busy_s, 0.0))
    name = "" if gpu is None else gpu.name
    return {"gpu": name, "gpus": gpus * len(ids), "gpu_hours": hours, "usd": usd, "energy_j": energy_j}


def _lora_server(simulation: Simulation) -> dict[str, Any]:
    """Return what the GPUs cost that compute LoRA for all replicas; they are on as long as the replicas."""
    server, gpu = lora_server(simulation), simulation.scenario.gpu
    on_s = float(simulation.autoscaling.on_s.max())
    hours, usd, energy_j = server.gpus * on_s / HOUR_S, None, None
    if gpu is not None and gpu.usd_per_hour is not None:
        usd = hours * gpu.usd_per_hour
    if gpu is not None and gpu.idle_w is not None and gpu.busy_w is not None:
        idle_s = max(server.gpus * on_s - server.busy_s, 0.0)
        energy_j = gpu.busy_w * server.busy_s + gpu.idle_w * idle_s
    name = "" if gpu is None else f"{gpu.name}, LoRA server"
    return {"gpu": name, "gpus": server.gpus, "gpu_hours": hours, "usd": usd, "energy_j": energy_j}


def lora_server(simulation: Simulation) -> LoraServer:
    """Return the LoRA server of a simulation that has one."""
    server = simulation.gpus[0]
    assert isinstance(server, LoraServer), "there is no LoRA server"
    return server


def _sum(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return total(known) if len(known) == len(values) else None


def _share(amount: float | None, of: float) -> float | None:
    return None if amount is None or not of else amount / of
