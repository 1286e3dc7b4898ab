"""What no policy can exceed: the rate at which the GPUs, or their links, have no time left.

A lower bound of the time that the requests of a run take, whatever schedules, caches and routes them, if no pass
ever had to be begun for a prefill alone, no adapter were slowed down by another's rank, and every token that was once
computed were found again. What it leaves out:

* It counts passes of the base model with adapters beside it. dLoRA's that have one adapter merged into them pay nothing
  for it, and could do with less.
* It is of traffic that goes on for ever. A run that begins empty and ends with its last request can exceed it by some
  per cent: what is in flight at its last arrival is computed after it, and placements may put adapters into HBM
  before it begins.
* Turns of one conversation that are served at the same time hold what they share once; here each holds its own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from experiments.cross_table.capacities import settled
from experiments.cross_table.world import System, Workload, World
from simlora.api.preparing import composed, ready
from simlora.core.trace import Trace
from simlora.engine.building import adapters
from simlora.engine.scenario import Scenario
from simlora.latency.iteration import IterationModel
from simlora.latency.kernels import Mbgmv
from simlora.latency.transfer import AdapterLoad

SERVED = 0.95
"""Of the requests: as many as have to meet the SLO."""


class Bound(NamedTuple):
    """Rates that no policy can exceed for long, in requests/s.

    `gpu_rps`: if all requests are served. `cheapest_rps`: if the 5 % that cost most are never served, and a scheduler
    knew which. `link_rps`: if every adapter is loaded once, and no more; infinite where nothing needs loading.
    """

    gpu_rps: float
    cheapest_rps: float
    link_rps: float

    @property
    def served_rps(self) -> float:
        """Of a system that serves all requests."""
        return min(self.gpu_rps, self.link_rps)

    @property
    def most_rps(self) -> float:
        """Of a system that serves as few as the SLO allows."""
        return min(self.cheapest_rps, self.link_rps / SERVED)


def bound(world: World, system: System, workload: Workload, seeds: Sequence[int] = (0,)) -> Bound:
    """Return what no policy can exceed on the GPUs of a system, the mean over seeds.

    Raises InputError for what cannot be built.
    """
    found = [_bound(world, system, workload, seed) for seed in seeds]
    return Bound(*map(fmean, zip(*found, strict=True)))


def _bound(world: World, system: System, workload: Workload, seed: int) -> Bound:
    overrides = [*settled(world, system, workload), workload.at_start, f"seed={seed}"]
    scenario = ready(*composed(overrides)).scenario
    each_s = least_s(scenario)
    load = AdapterLoad(scenario.calibration)
    used = set(scenario.trace.adapter.tolist())
    loads_s = math.fsum(load.load_s(one.size_bytes) for one in adapters(scenario) if one.id in used)
    kept = np.sort(each_s)[: math.ceil(SERVED * len(each_s))]
    most = scenario.cluster.replicas * len(each_s)
    return Bound(
        most / float(each_s.sum()), most / float(kept.sum()), most / loads_s if loads_s else math.inf
    )


def least_s(scenario: Scenario) -> NDArray[np.float64]:
    """Return `[requests]` the least GPU seconds of each request, its share of what a batch costs as a whole included.

    Decode steps that hold C tokens of context and B sequences take `d0 + d1 B + d2 B^2 + c C`. Of n steps that make T
    tokens out of K tokens of context, summed over steps, C is at most the pool, so that n >= K / pool; and the mean of
    squares is at least the square of the mean, so that they take `n d0 + d1 T + d2 T^2 / n + c K` at least. That is
    smallest at n = T sqrt(d2 / d0), or, where the pool does not allow so few, at n = K / pool. There T^2 / K is at
    least its tangent at the mean of all requests, which makes it a sum over requests.
    """
    trace, model = scenario.trace, IterationModel(scenario.calibration)
    kernel = scenario.policies.kernel(scenario.calibration)
    assert isinstance(kernel, Mbgmv), "the bound knows what this kernel charges for a token"
    ranks = np.array([adapter.rank for adapter in trace.adapters], dtype=np.float64)[trace.adapter]
    prompt, steps = trace.prompt_tokens.astype(np.float64), trace.output_tokens - 1.0
    found = np.minimum(known_before(trace), prompt - 1.0)
    prefill_s = (model.prefill_token + kernel.prefill_rank * ranks) * (prompt - found)
    prefill_s += model.prefill_token_sq * (prompt**2 - found**2)
    context = steps * prompt + steps * (steps + 1.0) / 2.0
    lora_s = kernel.decode_sequence * (ranks > 0) + (kernel.decode_rank + kernel.decode_max_rank) * ranks
    decode_s = (model.decode_sequence + lora_s) * steps + model.decode_context * context
    step_s, square_s = model.decode_0 + kernel.decode_0 * (ranks > 0).all(), model.decode_sequence_sq
    if not context.sum():  # every answer is one token, which its prefill makes
        return np.asarray(prefill_s)
    pool, batch = scenario.replica.kv_token_budget, steps.sum() / context.sum()
    if math.sqrt(square_s / step_s) * pool > 1.0 / batch:
        return np.asarray(prefill_s + decode_s + 2.0 * math.sqrt(step_s * square_s) * steps)
    tangent = pool * batch * (2.0 * steps - batch * context)
    held_s = step_s * context / pool + square_s * tangent
    return np.asarray(prefill_s + decode_s + held_s)


def known_before(trace: Trace) -> NDArray[np.float64]:
    """Return `[requests]` how many tokens of each prompt were there in its session before: prompts and answers."""
    assert trace.block_hashes is None, "the bound knows what sessions share, not blocks"
    known = np.zeros(len(trace))
    if trace.session is None:
        return known
    longest: dict[str, int] = {}
    columns = zip(trace.session, trace.prompt_tokens.tolist(), trace.output_tokens.tolist(), strict=True)
    for id, (session, prompt, output) in enumerate(columns):
        if session is not None:
            known[id] = longest.get(session, 0)
            longest[session] = max(longest.get(session, 0), prompt + output)
    return known
