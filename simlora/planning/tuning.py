"""What may be tuned of a machine: the values that each key may take, where the search begins, and what is beside it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from simlora.config.composing import choices
from simlora.config.engine_flags import MEMORY, PREFIX_CACHING, RANKS, allowed_rank, engine
from simlora.config.own_folder import own_choices
from simlora.core.checks import number, whole
from simlora.core.errors import InputError, nearest
from simlora.planning.machines import RANK, ROUTER, SLOTS, Machine, Traffic, key_of

ON_HOST = "replica.max_cpu_loras"
SEQUENCES, TOKENS = "replica.max_num_seqs", "scheduler.max_batched_tokens"
ROUTERS = {
    "round_robin": "any load balancer",
    "most_idle": "fewest requests in flight: NGINX least_conn, Envoy LEAST_REQUEST",
    "adapter_affinity": "replicas that have the adapter, while their load allows: llm-d's LoRA scorers are alike",
    "rank_aware": "CaraServe's Algorithm 1, which no product has",
    "gie_lora": "Gateway API Inference Extension with the LoRA affinity scorer",
}
"""Routers that are tried, and where a user finds one like it; `--tune router=` takes any other."""
RESEARCH = ("rank_aware",)
"""Of these no product has one: another is taken where it keeps the SLO as well."""
SLOTS_USUAL = 8
"""Slots of a machine that is looked at for the first time, if there are as many adapters."""
SEQUENCES_LEAST = 64
"""Room for requests with which a search begins at least: below, a burst waits for room before it waits for the GPU."""
UNTUNED = (RANK, ON_HOST)
"""Follow from the adapters: the lowest rank that holds all of them, and room for all on the host."""
TYPICAL_TPOT_S = 0.04
"""The pace of tokens from which the search begins where slo.tpot_s is not set; any other only begins elsewhere."""
Settings = tuple[tuple[str, Any], ...]
"""Values by key, in the order of the ladders."""


@dataclass(frozen=True)
class Tuning:
    """Values that each key may take, from low to high (a router has no order), for a machine and its traffic.

    `configured` are the values with which the search begins where the traffic says nothing. With `pools`, replicas may
    be divided into those that prefill and those that decode.
    """

    ladders: Mapping[str, Sequence[Any]]
    configured: Mapping[str, Any]
    of: Traffic
    stay_s: float
    pools: bool = False

    def start(self, replicas: int) -> Settings:
        """Return the settings with which to begin.

        As many slots as adapters are in use on a replica at once, if tokens come at their target's pace, and room for
        twice the requests that run then (Little's law).
        """
        running = self.of.rate_rps * self.stay_s / replicas
        sequences = max(2 * running, SEQUENCES_LEAST)
        wanted = {SLOTS: self.of.active(self.stay_s, replicas) + 1, SEQUENCES: sequences}
        found = {
            key: next((value for value in ladder if value >= wanted[key]), ladder[-1])
            if key in wanted
            else (self.configured[key] if self.configured[key] in ladder else ladder[-1])
            for key, ladder in self.ladders.items()
        }
        if not together(found):
            found[SEQUENCES], found[TOKENS] = self.ladders[SEQUENCES][0], self.ladders[TOKENS][-1]
        return tuple(found.items())

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
                changed = (*settings[:index], (key, other), *settings[index + 1 :])
                if other != value and together(dict(changed)):
                    yield changed


def together(settings: Mapping[str, Any]) -> bool:
    """Whether an engine takes the settings together: of every sequence a step has room for a token."""
    return SEQUENCES not in settings or TOKENS not in settings or settings[SEQUENCES] <= settings[TOKENS]


def fixed(of: Traffic, slots: int = 0) -> dict[str, Any]:
    """Return what follows from the adapters alone, and from the most `slots` that are asked for."""
    adapters = len(of.ranks)
    if not adapters:
        return {}
    begin = slots or min(SLOTS_USUAL, adapters)
    return {RANK: allowed_rank(max(of.ranks)), SLOTS: begin, ON_HOST: max(adapters, begin)}


def tuning(
    machine: Machine,
    of: Traffic,
    asked: Mapping[str, Sequence[Any]],
    tpot_s: float | None,
    pools: bool = False,
) -> Tuning:
    """Return what may be tuned of a machine: what is asked for, else the engine's flags and the router.

    A key that the user's overrides set has that value alone. `tpot_s` is the target of a token's time, None where there
    is none. Raises InputError for a key that the engine has no flag for, and for a value that it cannot have.
    """
    given = {key_of(one) for one in machine.user}
    for key, values in asked.items():
        _check(key, values, machine, of)
        if key in given and key not in UNTUNED:
            raise InputError(
                f"{key} is set to {machine.setting(key)} and has --tune {key} as well; leave one of them out"
            )
    adapters = len(of.ranks)
    ladders: dict[str, Sequence[Any]] = {}
    if adapters:
        ladders[SLOTS] = [*(2**power for power in range(12) if 2**power < adapters), adapters]
    ladders |= {
        SEQUENCES: [2**power for power in range(3, 11)],
        TOKENS: [1024, 2048, 4096, 8192],
        MEMORY: [0.85, 0.9, 0.95],
        ROUTER: list(ROUTERS),
    }
    if of.prefixes:
        ladders[PREFIX_CACHING] = [False, True]
    if any(key == "scheduler" or key.startswith("scheduler._target_") for key in given):
        ladders.pop(TOKENS)  # which another scheduler need not have
    if any(key == ROUTER or key.startswith("router.") for key in given):
        ladders.pop(ROUTER)
    ladders |= {key: [machine.setting(key)] for key in ladders if key in given}
    ladders |= {key: list(values) for key, values in asked.items()}
    for key in UNTUNED:
        if key not in asked:
            ladders.pop(key, None)
    if SEQUENCES in ladders and TOKENS in ladders and min(ladders[SEQUENCES]) > max(ladders[TOKENS]):
        raise InputError(
            f"{SEQUENCES} is {min(ladders[SEQUENCES])} and {TOKENS} {max(ladders[TOKENS])}, must be at least as many"
        )
    usual = {TOKENS: 2048, MEMORY: 0.9, ROUTER: "most_idle", PREFIX_CACHING: True}
    configured = {key: usual.get(key, machine.setting(key)) for key in ladders}
    return Tuning(ladders, configured, of, of.output_tokens * (tpot_s or TYPICAL_TPOT_S), pools)


def _check(key: str, values: Sequence[Any], machine: Machine, of: Traffic) -> None:
    """Raise InputError for a key of --tune that is no flag of the engine, or a value that it cannot have."""
    flags = engine(machine.engine).flags
    if key == "replica.tp":
        raise InputError("--tune replica.tp: the GPUs of a replica are what --tp says")
    if key == ROUTER:
        known = [*choices("router"), *own_choices("router", machine.overrides)]
        for value in values:
            if value not in known:
                raise InputError(f"--tune router: there is no router {value!r}; {nearest(str(value), known)}")
        return
    if key == PREFIX_CACHING:
        if not all(isinstance(value, bool) for value in values):
            raise InputError(f"--tune {key}: has {list(values)}, must be true, false or both")
        return
    if key not in flags:
        known = [*flags, PREFIX_CACHING, ROUTER]
        raise InputError(f"--tune {key}: {machine.engine} has no such flag; it has {', '.join(known)}")
    for value in values:
        if key == MEMORY:
            number(f"--tune {key}", value, "of the GPU's memory", above=0, most=1)
        else:
            whole(f"--tune {key}", value, least=1)
        if key == RANK and value not in RANKS:
            raise InputError(f"--tune {key}: is {value}, must be one of {', '.join(map(str, RANKS))}")
        if key == RANK and of.ranks and value < max(of.ranks):
            raise InputError(f"--tune {key}: is {value}, and there are adapters of rank {max(of.ranks)}")
