"""Machines that a plan may rent: an engine on some GPUs of a kind, what it costs, and how many are needed at least."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from omegaconf import DictConfig, OmegaConf

from simlora.api.preparing import composed, ready
from simlora.config.engine_flags import PREFIX_CACHING, TODAY, WITHOUT_LORA
from simlora.config.setup import lasts, resolved
from simlora.config.workloads import workload
from simlora.core.errors import DoesNotFit, InputError
from simlora.core.trace import Trace
from simlora.engine.scenario import Scenario
from simlora.latency.iteration import IterationModel
from simlora.report.sides import Side
from simlora.sweeps.outcome import Overrides
from simlora.sweeps.sides import of_tree, sides
from simlora.workload.facts import longest_tokens

BATCHES = tuple(2**power for power in range(13))
"""Sequences of a step and tokens of a pass, at which the least time of one is looked for."""
SLOTS, RANK, ROUTER = "replica.max_loras", "replica.max_lora_rank", "router"
RESAMPLED = "workload.resample_block_s"
DRAINED = 0.9
"""Share of the work that must be done while requests arrive: a run counts as below saturation with a tenth left."""


@dataclass(frozen=True)
class Traffic:
    """What the requests are like: means per second and of a request, and the adapters that they are for.

    `rates_rps` `[adapters]` is the mean rate of each adapter, `ranks` `[adapters]` its rank. `prefixes`: requests may
    share some. `longest_tokens` are of the longest request, with the longest answer that it allows.
    """

    requests: int
    seconds: float
    prompt_tokens: float
    output_tokens: float
    rates_rps: Sequence[float]
    ranks: Sequence[int]
    prefixes: bool
    longest_tokens: int

    @property
    def rate_rps(self) -> float:
        """Requests per second."""
        return self.requests / self.seconds

    def active(self, latency_s: float, replicas: int) -> float:
        """Return how many adapters a replica has at once on average, if each request stays for so long."""
        return float(sum(1.0 - math.exp(-rate * latency_s / replicas) for rate in self.rates_rps))


@dataclass(frozen=True)
class Machine:
    """An engine on `gpus` GPUs; `usd_per_hour` of all of them. At least `least` of these carry the traffic.

    `overrides` are the `user`'s, and what the machine and the traffic add. `settings` is its configuration by key,
    `side` what it runs on and is judged by. `error` is the median error of a step by its calibration, None where that
    does not say. `lasts` are the keys that make a run longer, as configured; runs are `times` as long.
    """

    engine: str
    gpu: str
    gpus: int
    usd_per_hour: float
    least: int
    user: Overrides
    overrides: Overrides
    settings: DictConfig
    side: Side
    error: float | None
    lasts: tuple[tuple[str, float], ...] = ()
    times: int = 1

    @property
    def name(self) -> str:
        """What the machine is called: `vllm on 2 l40s`."""
        return f"{self.engine} on {self.gpus} {self.gpu}"

    @property
    def borrowed(self) -> bool:
        """Whether its steps are those of another engine, as none of its own were measured."""
        return bool(self.engine != self.setting("engine"))

    def setting(self, key: str) -> Any:
        """Return a value of its configuration; None for a key that it does not have."""
        return OmegaConf.select(self.settings, key)

    def lasting(self, times: int) -> Machine:
        """Return the machine with runs so many times as long as configured."""
        return replace(self, times=times)

    def lengths(self, factor: float = 1.0) -> Overrides:
        """Return the overrides that make a run as long as it is to be, and `factor` times as long as that."""
        times = self.times * factor
        if times == 1.0:
            return ()
        return tuple(
            f"{key}={round(times * value) if isinstance(value, int) else float(f'{times * value:.6g}')!r}"
            for key, value in self.lasts
        )


@dataclass(frozen=True)
class Excluded:
    """A machine that is not looked at, and why."""

    name: str
    reason: str


def machine(
    user: Overrides,
    engine: str,
    gpu: str,
    tp: int,
    price: float | None,
    of: Traffic,
    follows: Mapping[str, Any],
) -> Machine | Excluded:
    """Return a machine for a traffic, or why it is not one. Raises InputError for a mistake in the overrides.

    `follows` are the keys that follow from the traffic, with their values; the user's own stand.
    """
    name = f"{engine} on {tp} {gpu}"
    chosen = [f"system={engine}", f"gpu={gpu}", f"replica.tp={tp}", TODAY]
    if price is not None:
        chosen.append(f"gpu.usd_per_hour={price!r}")
    given = {key_of(one) for one in user}
    overrides = (
        *chosen,
        *(() if of.ranks else WITHOUT_LORA),
        *(f"{key}={value}" for key, value in follows.items() if key not in given),
        *user,
    )
    config, choices = composed(overrides)
    per_gpu = OmegaConf.select(config, "gpu.usd_per_hour")
    if per_gpu is None:
        return Excluded(name, f"no price of gpu={gpu} is known; give one with --price {gpu}=USD")
    try:
        setup = ready(config, choices)
    except DoesNotFit as refused:
        one_slot = (*overrides, f"{SLOTS}=1")  # which --max-loras may come down to
        try:
            setup = ready(*composed(one_slot if SLOTS not in given else overrides))
        except InputError:
            return Excluded(name, str(refused))
    except InputError as refused:
        return Excluded(name, str(refused))
    calibration, own = setup.scenario.calibration, OmegaConf.select(config, "gpu.name")
    if calibration.gpu != own:
        return Excluded(name, f"calibration {calibration.path} is for gpu {calibration.gpu}")
    provenance = calibration.provenance
    error = (provenance.get("error") or {}).get("median")
    return Machine(
        engine,
        gpu,
        tp,
        tp * float(per_gpu),
        fewest(setup.scenario, of, bool(OmegaConf.select(config, PREFIX_CACHING)) or of.prefixes),
        user,
        overrides,
        config,
        sides([{**of_tree(resolved(config)), "kind": provenance.get("kind"), "name": name}])[0],
        None if error is None else float(error),
        tuple(lasts(config).items()),
    )


def key_of(override: str) -> str:
    """Return the key of an override, `replica.max_loras` of `+replica.max_loras=8`."""
    return override.partition("=")[0].lstrip("+~")


def traffic_of(user: Overrides, engine: str) -> Traffic:
    """Return what the requests are like that overrides name. Raises InputError for a mistake in them."""
    tree = resolved(composed((f"system={engine}", TODAY, *user))[0])
    return traffic(workload(tree).build(int(tree["seed"])).sped_up(float(tree["speedup"])))


def longest(on: Machine, seeds: Sequence[int], of: Traffic) -> int:
    """Return the tokens of the longest request of any seed in runs as long as the machine's, and of the whole trace."""
    keys = {key_of(one) for one in on.user}
    if not on.lasts and RESAMPLED not in keys:
        return of.longest_tokens
    asked = [(*on.user, *on.lengths(), f"seed={seed}") for seed in seeds]
    if RESAMPLED in keys:
        asked.append((*on.user, f"{RESAMPLED}=null"))
    return max(of.longest_tokens, *(traffic_of(one, on.engine).longest_tokens for one in asked))


def traffic(trace: Trace) -> Traffic:
    """Return what the requests of a trace are like. Raises InputError for less than two requests."""
    if len(trace) < 2 or trace.arrival_s[-1] <= trace.arrival_s[0]:
        raise InputError("a plan needs two requests at least that arrive at different times")
    seconds = float(trace.arrival_s[-1] - trace.arrival_s[0])
    counts = np.bincount(trace.adapter[trace.adapter >= 0], minlength=len(trace.adapters))
    return Traffic(
        len(trace),
        seconds,
        float(trace.prompt_tokens.mean()),
        float(trace.output_tokens.mean()),
        [float(count) / seconds for count in counts],
        [adapter.rank for adapter in trace.adapters],
        trace.session is not None or trace.block_hashes is not None,
        longest_tokens(trace),
    )


def fewest(scenario: Scenario, of: Traffic, cached: bool) -> int:
    """Return how many replicas are needed at least: for the tokens alone, at the best batch, with empty contexts.

    Prompts and answers may be of the same passes, so that the larger of the two counts; prompts not at all where their
    prefixes may be cached.
    """
    model = IterationModel(scenario.calibration)
    prompt_s = min(model.prefill_s(tokens, 0) / tokens for tokens in BATCHES)
    # A proposal that is accepted as a whole gives so many tokens in the time of one step, at least.
    answer_s = min(model.decode_s(sequences, 0.0) / sequences for sequences in BATCHES)
    answer_s /= 1 + scenario.replica.speculative_tokens
    busy_s: float = max(
        0.0 if cached else of.rate_rps * of.prompt_tokens * prompt_s,
        of.rate_rps * max(of.output_tokens - 1.0, 0.0) * answer_s,
    )
    return max(1, math.ceil(DRAINED * busy_s))
