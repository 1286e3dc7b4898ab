"""What a replica did in a run, as plain numbers."""

from __future__ import annotations

from typing import NamedTuple

from simlora.engine.parts.adapter_memory import OwnRegion
from simlora.engine.parts.unified_swapper import UnifiedSwapper
from simlora.engine.replica.replica import Replica


class RegionOutcome(NamedTuple):
    """The adapters' own memory: its slots, and what happened in it; fragmentation is summed over the `changes`."""

    capacity: int
    changes: int
    refusals: int
    flushes: int
    fragmentation_sum: float
    fragmentation_max: float


class Outcome(NamedTuple):
    """`link_busy_s` is of the link to the GPUs; `kv_tokens_ahead` came from the host before a request needed them."""

    iterations: int
    most_running: int
    most_waiting: int
    busy_s: float
    link_busy_s: float
    kv_tokens_in: int
    kv_tokens_out: int
    kv_tokens_ahead: int
    region: RegionOutcome | None


def outcome(replica: Replica) -> Outcome:
    """Return what a replica did until now."""
    link, swapper, own = replica.host_link, replica.part(UnifiedSwapper), replica.part(OwnRegion)
    region = None
    if own is not None:
        one = own.region
        region = RegionOutcome(
            one.capacity,
            one.changes,
            one.refusals,
            one.flushes,
            one.fragmentation_sum,
            one.fragmentation_max,
        )
    return Outcome(
        replica.view.iterations,
        replica.most_running,
        replica.most_waiting,
        replica.busy_s,
        link.to_gpu.busy_s,
        link.kv_tokens_in,
        link.kv_tokens_out,
        0 if swapper is None else swapper.kv_tokens_in,
        region,
    )
