"""What may be tuned of a machine: the values that each key may take, where the search begins, and what is beside it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from simlora.config.engine_flags import MEMORY, PREFIX_CACHING, allowed_rank, engine
from simlora.core.errors import InputError
from simlora.planning.machines import Machine, Traffic

SLOTS, RANK, ON_HOST = "replica.max_loras", "replica.max_lora_rank", "replica.max_cpu_loras"
SEQUENCES, TOKENS, ROUTER = "replica.max_num_seqs", "scheduler.max_batched_tokens", "router"
ROUTERS = ("round_robin", "most_idle", "adapter_affinity", "rank_aware", "gie_lora")
"""The last is what Gateway API's Inference Extension does with adapters; `--tune router=` takes any other."""
UNTUNED = (RANK, ON_HOST)
"""Follow from the adapters: the lowest rank that holds all of them, and room for all on the host."""
TYPICAL_TPOT_S = 0.04
"""The pace of tokens from which the search begins where slo.tpot_s is not set; any other only begins elsewhere."""
Settings = tuple[tuple[str, Any], ...]
"""Values by key, in the order of the ladders."""


@dataclass(frozen=True)
class Tuning:
    """Values that each key may take, from low to high (a router has no order), for a machine and its traffic.

    `configured` are the values with which the search begins where the traffic says nothing.
    """

    ladders: Mapping[str, Sequence[Any]]
    configured: Mapping[str, Any]
    of: Traffic
    stay_s: float

    def start(self, replicas: int) -> Settings:
        """Return the settings with which to begin.

        As many slots as adapters are in use on a replica at once, if tokens come at their target's pace, and room for
        twice the requests that run then (Little's law).
        """
        running = self.of.rate_rps * self.stay_s / replicas
        wanted = {SLOTS: self.of.active(self.stay_s, replicas) + 1, SEQUENCES: 2 * running}
        return tuple(
            (key, next((value for value in ladder if value >= wanted[key]), ladder[-1]))
            if key in wanted
            else (key, self.configured[key] if self.configured[key] in ladder else ladder[-1])
            for key, ladder in self.ladders.items()
        )

    def routed(self, settings: Settings, replicas: int) -> list[Settings]:
        """Return the settings behind every router; of a single replica once."""
        routers = self.ladders.get(ROUTER, ()) if replicas > 1 else ()
        return [
            tuple((key, router if key == ROUTER else value) for key, value in settings) for router in routers
        ] or [settings]

    def beside(self, settings: Settings, replicas: int) -> Iterator[Settings]:
        """Yield settings of which one value is the next lower or higher, or another router if there are replicas."""
        for index, (key, value) in enumerate(settings):
            ladder = list(self.ladders[key])
            at = ladder.index(value)
            near = [*ladder[max(at - 1, 0) : at], *ladder[at + 1 : at + 2]]
            if key == ROUTER:
                near = ladder if replicas > 1 else []
            for other in near:
                if other != value:
                    yield (*settings[:index], (key, other), *settings[index + 1 :])


def fixed(of: Traffic) -> dict[str, Any]:
    """Return what follows from the adapters alone."""
    return {RANK: allowed_rank(max(of.ranks)), ON_HOST: len(of.ranks)} if of.ranks else {}


def tuning(machine: Machine, of: Traffic, asked: Mapping[str, Sequence[Any]], tpot_s: float | None) -> Tuning:
    """Return what may be tuned of a machine: what is asked for, else the engine's flags and the router.

    `tpot_s` is the target of a token's time, None where there is none. Raises InputError for a key that the engine has
    no flag for.
    """
    flags = engine(machine.engine).flags
    for key in asked:
        if key not in flags and key not in (ROUTER, PREFIX_CACHING):
            known = ", ".join((*flags, PREFIX_CACHING))
            raise InputError(f"--tune {key}: {machine.engine} has no such flag; it has {known} and {ROUTER}")
    adapters = len(of.ranks)
    ladders: dict[str, Sequence[Any]] = {}
    if adapters:
        ladders[SLOTS] = [*(2**power for power in range(12) if 2**power < adapters), adapters]
    ladders |= {
        SEQUENCES: [64, 128, 256, 512, 1024],
        TOKENS: [1024, 2048, 4096, 8192],
        MEMORY: [0.85, 0.9, 0.95],
        ROUTER: list(ROUTERS),
    }
    if of.prefixes:
        ladders[PREFIX_CACHING] = [False, True]
    ladders |= {key: list(values) for key, values in asked.items()}
    for key in UNTUNED:
        if key not in asked:
            ladders.pop(key, None)
    configured = {key: machine.setting(key) for key in ladders} | {
        TOKENS: 2048,
        MEMORY: 0.9,
        ROUTER: "most_idle",
    }
    return Tuning(ladders, configured, of, of.output_tokens * (tpot_s or TYPICAL_TPOT_S))
