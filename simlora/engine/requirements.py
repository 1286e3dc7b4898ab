"""What a scenario's parts cannot work with."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain

from simlora.core.errors import InputError
from simlora.engine.parts.adapter_memory import OwnRegion
from simlora.engine.parts.cpu_assist import CpuAssist
from simlora.engine.parts.disk_tier import DiskTier
from simlora.engine.parts.gpu_sharing import GpuSharing
from simlora.engine.parts.kv_handover import KvSending
from simlora.engine.parts.kv_offload import PrefixCaching
from simlora.engine.parts.kv_store import KvStoring
from simlora.engine.parts.lora_server import LoraServing
from simlora.engine.parts.merging import Merging
from simlora.engine.parts.pausing import Pausing
from simlora.engine.parts.slot_reloads import SlotReloads
from simlora.engine.parts.speculation import Speculating
from simlora.engine.parts.unified_swapper import UnifiedSwapper
from simlora.engine.replica.part import Part
from simlora.engine.scenario import Scenario

WITH_REQUIREMENTS: tuple[type[Part], ...] = (
    GpuSharing,
    PrefixCaching,
    UnifiedSwapper,
    SlotReloads,
    Pausing,
    OwnRegion,
    CpuAssist,
    DiskTier,
    KvSending,
    KvStoring,
    LoraServing,
    Merging,
    Speculating,
)


def check(scenario: Scenario) -> None:
    """Raise InputError for the first setting that a part of the scenario's replicas cannot work with."""
    made = [getattr(make, "func", make) for make in scenario.parts]
    own = [part for part in made if isinstance(part, type) and issubclass(part, Part)]
    alike = replace(scenario.cluster, replica_groups=())
    others = dict.fromkeys(kind.replica for kind in scenario.cluster.replica_groups)
    each = [scenario, *(replace(scenario, replica=replica, cluster=alike) for replica in others)]
    for part in (*WITH_REQUIREMENTS, *own):
        for problem in chain.from_iterable(map(part.requires, each)):
            raise InputError(problem)
