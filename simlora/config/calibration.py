"""How long things take on a replica: the calibration that a configuration names, or that fits what it chooses."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from simlora.config.engine_flags import ENGINES
from simlora.core.checks import shown
from simlora.core.errors import InputError, nearest
from simlora.engine.replica_config import ReplicaConfig
from simlora.hardware.gpu import Gpu
from simlora.hardware.model import MLP, ModelShape
from simlora.latency import calibration as calibrations
from simlora.latency.adapted import scales
from simlora.latency.calibration import Calibration
from simlora.latency.collectives import folded
from simlora.latency.parts.composed import composed, warning
from simlora.latency.parts.kernel_times import BATCHES


def calibration_for(
    choice: Any,
    gpu: Gpu,
    model: ModelShape,
    replica: ReplicaConfig,
    engine: Any,
    system: str = "",
    apart: bool = False,
) -> tuple[Calibration, list[str]]:
    """Return the calibration and notices about what it was not made for.

    A choice of None is by GPU, model, tp and engine: one that was fitted as a whole if there is one, else one composed
    of parts. `apart`: experts are (replica.expert_parallel). `system` is what is simulated, "" where that is not known.
    Raises InputError if there is neither.
    """
    another = _another(system, engine)
    name = f"{gpu.name}-{model.name}-tp{replica.tp}{'ep' if apart else ''}" + _engine(engine)
    parts = composed(gpu, model, replica.tp, engine, apart) if choice in (None, name) else None
    if parts is not None and name not in calibrations.names():
        warnings = [warning(parts), *_beyond(parts, model, replica), *another]
        return replace(parts, provenance={**parts.provenance, "warnings": warnings}), warnings
    found = _calibration(choice, name, gpu.name, model.name, replica.tp)
    folded(found[0], model, replica.target_modules)  # raises for a coefficient that several GPUs need
    said = [*found[1], *_beyond(found[0], model, replica)]
    if said:
        known = found[0].provenance.get("warnings", ())
        provenance = {**found[0].provenance, "warnings": [*known, *said]}
        return replace(found[0], provenance=provenance), [*said, *another]
    return found[0], another


def of_lora_server(
    choice: Any, gpu: Gpu, model: ModelShape, replica: ReplicaConfig, engine: Any
) -> tuple[Calibration | None, list[str]]:
    """Return the calibration of a GPU of a LoRA server, which has adapters whole, and notices about it.

    None if a replica's GPU has them whole, too: then it is that of the replicas. `choice` is of theirs.
    Raises InputError if there is none.
    """
    if replica.tp == 1:
        return None, []
    try:
        found = calibration_for(None, gpu, model, replace(replica, tp=1), engine)[0]
    except InputError as error:
        raise InputError(f"cluster.lora_server_gpus has adapters whole, as on one GPU: {error}") from error
    if choice is None:
        return found, []
    return found, [
        f"calibration={choice} is of replicas of {replica.tp} GPUs: the LoRA server, whose GPUs have adapters whole, "
        f"takes {gpu.name}-{model.name}-tp1{_engine(engine)}."
    ]


def _another(system: str, engine: Any) -> list[str]:
    """Say that a real engine is simulated with the steps of another one."""
    if system not in ENGINES or engine == system:
        return []
    return [
        f"system={system} takes the kernels and the host of engine {engine}, as none were measured of {system}."
    ]


def _beyond(parts: Calibration, model: ModelShape, replica: ReplicaConfig) -> list[str]:
    """Say what of the replica's limits and adapters lies outside what the parts were measured for."""
    said: list[str] = []
    experts = [module for module in replica.target_modules if module in MLP and model.copies(module) > 1]
    if experts and not scales(parts):
        said.append(
            f"replica.target_modules has {', '.join(experts)} of experts, and the LoRA kernels of calibration "
            f"{parts.path} were measured on models without experts: adapters of experts take memory, but no further "
            "time."
        )
    rank = parts.provenance.get("measured_rank")
    if rank is None:
        return said
    slots = replica.adapter_memory == "slots"
    if slots and replica.max_lora_rank is not None and replica.max_lora_rank > rank:
        said.append(
            f"replica.max_lora_rank is {replica.max_lora_rank}, and the LoRA kernels of calibration {parts.path} were "
            f"measured up to rank {rank}; beyond it they are extrapolated."
        )
    if replica.max_num_seqs > BATCHES[-1]:
        said.append(
            f"replica.max_num_seqs is {replica.max_num_seqs}, and the kernels of calibration {parts.path} are known up "
            f"to a batch of {BATCHES[-1]}; beyond it they are extrapolated."
        )
    return said


def _engine(value: Any) -> str:
    """Return the end of a calibration's name: nothing for S-LoRA's engine, else the engine that was measured."""
    if value is None:
        return ""
    if not isinstance(value, str) or not value.isidentifier():
        raise InputError(f"engine is {shown(value)}, must be the name of a serving engine, or null")
    return f"-{value}"


def _calibration(choice: Any, name: str, gpu: str, model: str, tp: int) -> tuple[Calibration, list[str]]:
    """Return the calibration and notices about what it was not made for."""
    if choice is not None and not isinstance(choice, str):
        raise InputError(f"calibration is {shown(choice)}, must be a name or the path of a YAML file")
    if choice is None and name not in calibrations.names():
        own = [known for known in calibrations.names() if known.startswith(f"{gpu}-{model}-")]
        advice = f"{nearest(name, own)}; " if own else ""  # another GPU's times are not this one's
        raise InputError(
            f"there is no calibration {name} ({model} on {gpu} with tp {tp}); {advice}simlora-calibrate list shows "
            "those that there are, simlora-calibrate derive makes one, and calibration=<path of a YAML file> takes it"
        )
    found = calibrations.load(name if choice is None else choice)
    differs = [
        f"{key} {measured} instead of {chosen}"
        for key, measured, chosen in (
            ("gpu", found.gpu, gpu),
            ("model", found.model, model),
            ("tp", found.tp, tp),
        )
        if measured != chosen
    ]
    if differs and choice is None:
        raise InputError(f"calibration {name} is for {', '.join(differs)}")
    if found.tp != tp:
        raise InputError(f"calibration {found.path} is for tp {found.tp}, must be for replica.tp {tp}")
    notice = f"calibration {found.path} is for {', '.join(differs)}; its times are used as they are."
    return found, [notice] if differs else []
