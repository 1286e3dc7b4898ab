"""What hours say of a step where no request waits for a slot: what LoRA adds to it, without a simulation.

Where every adapter in use has a slot, no request is passed over, and a row's own figures say what its steps held
on average. By Little's law, tokens per second times the time of a token is the number of running requests; prompt
tokens come in the proportion of the row's totals; and requests' adapters are drawn by their rates. Steps of that
content are drawn from the row's requests. What they take beyond a step of the base model is linear in the
coefficients of the LoRA kernels and of the LoRA manager, and non-negative least squares of relative errors, over all
models together, finds these. What steps wait for loads is known: the adapter used least recently gives up its slot,
and a load takes what its authors measured (plan.yaml).

Two kinds of hours are read: those with a slot for each adapter, and those whose adapters take turns in slots of which
some are idle. Only the second tell the manager's lists from the kernels, as they have more adapters than slots.

The time of a token is a request's mean time per output token. Beyond 128 running requests it is the
inter-token latency, which weighs requests by their tokens, as a step's mean does, and there no chunks are
merged (scrapes.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import nnls

from experiments.fidelity.cells import number
from experiments.fidelity.vllm.pools import LINES
from experiments.fidelity.vllm.predict import GPU, STEP_TOKENS, Row, overrides
from experiments.fidelity.vllm.scrapes import MERGED
from experiments.scenarios import scenario
from simlora.core.arrays import Floats
from simlora.engine.building import adapters
from simlora.latency.calibration import LEAVES, Calibration
from simlora.latency.iteration import IterationModel
from simlora.latency.kernels import LoraWork, Vllm
from simlora.latency.transfer import AdapterLoad

OWN = tuple(f"kernels.vllm.{name}" for name in ("intercept_s", "per_slot_s", "per_token_s"))
"""Coefficients that each model has for itself: programs and activations go by the widths of its layers."""
STEPS = 800
"""Drawn for each row."""
KERNELS = tuple(f"kernels.vllm.{name}" for name in LEAVES["kernels.vllm"])
LISTS = "lora_manager.per_listed_adapter_s"
COEFFICIENTS = (*KERNELS, LISTS)
SLOTS = 32
"""From so many on adapters take turns without evicting each other in use: with fewer, all are in use now and then."""
IN_USE = 0.75
"""Share of the slots that 99 % of the steps of such hours use at most."""


@dataclass(frozen=True)
class Step:
    """What one step has: running requests and their contexts together, prompt tokens, and distinct adapters."""

    running: int
    context_tokens: int
    prompt_tokens: int
    adapters: int


def chosen(rows: Sequence[Row], model: str, plan: Mapping[str, Any]) -> list[Row]:
    """Return a model's rows of the plan's workloads in which no request waits for a slot.

    Each has a slot for every adapter and the pool that the row names, or adapters that take turns.
    """
    workloads = [{name: str(value) for name, value in where.items()} for where in plan["hours"][model]]
    return [
        row
        for row in rows
        if row.model == model
        and row.line not in LINES
        and any(all(row.columns.get(name) == value for name, value in each.items()) for each in workloads)
        and (row.counts["max_loras"] >= row.counts["adapters"] or takes_turns(row))
    ]


def takes_turns(row: Row) -> bool:
    """Whether an hour is below saturation, and has more adapters than slots, of which some are idle."""
    slots = row.counts["max_loras"]
    return (
        row.load == "below"
        and SLOTS <= slots < row.counts["adapters"]
        and np.quantile([step.adapters for step in drawn(row)], 0.99) < IN_USE * slots
    )


def coefficients(
    rows: Mapping[str, Sequence[Row]], given: Mapping[str, Mapping[str, float]]
) -> dict[str, dict[str, float]]:
    """Return what LoRA adds to a step, by model and coefficient; `given` has those of the base models and of loads.

    The kernels' coefficients but OWN are the same for each layer of all models, since each layer has the same launches.
    The lists are those of the engine. Models count alike, however many rows they have.
    """
    unknowns = [name for name in COEFFICIENTS if name not in OWN]
    unknowns += [f"{model} {name}" for model in rows for name in OWN]
    layers = {model: scenario(overrides(own[0])).model.layers for model, own in rows.items()}

    def times(model: str, name: str) -> int:
        return 1 if name in OWN or name == LISTS else layers[model]

    columns, rest = [], []
    for model, own in rows.items():
        for row in own:
            steps, column = drawn(row), dict.fromkeys(unknowns, 0.0)
            for name in COEFFICIENTS:
                key = f"{model} {name}" if name in OWN else name
                column[key] = times(model, name) * added_s(steps, row, name) / token_s(row)
            weight = len(own) ** -0.5
            columns.append([weight * value for value in column.values()])
            base = base_s(steps, given[model]) / token_s(row)
            rest.append(weight * (1.0 - base - loading(row, given[model])))
    largest = np.max(columns, axis=0)
    solved, _ = nnls(np.array(columns) / largest, np.array(rest))
    found = dict(zip(unknowns, (solved / largest).tolist(), strict=True))
    return {
        model: {
            name: times(model, name) * found[f"{model} {name}" if name in OWN else name]
            for name in COEFFICIENTS
        }
        for model in rows
    }


def errors(rows: Sequence[Row], calibration: Calibration) -> Floats:
    """Return the relative errors of a calibration's steps [rows] of the content that the rows' figures imply."""
    found = []
    for row in rows:
        steps, given = drawn(row), calibration.coefficients
        lora_s = sum(given.get(name, 0.0) * added_s(steps, row, name) for name in COEFFICIENTS)
        found.append((base_s(steps, given) + lora_s) / token_s(row) + loading(row, given) - 1.0)
    return np.array(found)


def running(row: Row) -> float:
    """Return how many requests ran on average."""
    return row.measured["output_tokens_per_s"] * token_s(row)


def token_s(row: Row) -> float:
    """Return the mean time of a token."""
    each_s = number(row.columns, "tpot_mean_ms", row.place) / 1000
    if row.measured["output_tokens_per_s"] * each_s > MERGED:
        return row.measured["itl_mean_ms"] / 1000
    return each_s


def drawn(row: Row) -> list[Step]:
    """Return steps as the row's figures imply them; prompts beyond a step's tokens go on in the next one."""
    trace, draw = scenario(overrides(row)).trace, np.random.default_rng(row.seed)
    prompts, answers, adapters = trace.prompt_tokens, trace.output_tokens, trace.adapter
    context = float((answers * (prompts + answers / 2)).sum() / answers.sum())
    begun = running(row) / number(row.columns, "output_tokens", row.place)
    begun *= number(row.columns, "prompt_tokens", row.place) / float(prompts.mean())
    # Past saturation memory limits the running requests, below it chance varies them.
    sizes = np.full(STEPS, round(running(row))) if row.load == "past" else draw.poisson(running(row), STEPS)
    found: list[Step] = []
    left: list[tuple[int, int]] = []
    for size, new in zip(np.maximum(sizes, 1).tolist(), draw.poisson(begun, STEPS).tolist(), strict=True):
        left += [(adapters[at], int(prompts[at])) for at in draw.integers(0, len(trace), new)]
        used = set(adapters[draw.integers(0, len(trace), size)].tolist())
        room = STEP_TOKENS - size
        while left and room > 0:
            adapter, tokens = left.pop(0)
            used.add(int(adapter))
            if tokens > room:
                left.insert(0, (adapter, tokens - room))
            room -= min(tokens, room)
        found.append(Step(size, round(size * context), STEP_TOKENS - size - room, len(used)))
    return found


def base_s(steps: Sequence[Step], given: Mapping[str, float]) -> float:
    """Return the seconds of the base model's step, as its tokens see it."""
    iteration = IterationModel(Calibration("hours", GPU, "", 1, {}, dict(given)))
    return _mean(
        steps,
        [
            iteration.mixed_s(step.prompt_tokens, 0, step.running, step.context_tokens)
            if step.prompt_tokens
            else iteration.decode_s(step.running, step.context_tokens)
            for step in steps
        ],
    )


def added_s(steps: Sequence[Step], row: Row, name: str) -> float:
    """Return what LoRA would add to a step if one coefficient were 1 and all others 0."""
    if name == LISTS:
        registered = min(row.counts["adapters"], row.counts["max_cpu_loras"])
        return registered * _mean(steps, [step.adapters for step in steps])
    unit = {other: float(other == name) for other in KERNELS}
    kernel = Vllm(
        Calibration("hours", GPU, "", 1, {}, unit), row.counts["max_loras"], row.counts["max_lora_rank"]
    )
    return _mean(
        steps,
        [kernel.decode_s(LoraWork(step.running + step.prompt_tokens, 0, 0, step.adapters)) for step in steps],
    )


def loading(row: Row, given: Mapping[str, float]) -> float:
    """Return the share of an hour in which steps wait for loads, the first ones of an adapter from disk."""
    run = scenario(overrides(row))
    load = AdapterLoad(Calibration("hours", GPU, "", 1, {}, dict(given)))
    sizes = [each.size_bytes for each in adapters(run)]
    slots: dict[int, None] = {}  # least recently used first
    known: set[int] = set()
    seconds = 0.0
    for adapter in run.trace.adapter.tolist():
        if adapter in slots:
            del slots[adapter]
        else:
            if len(slots) == row.counts["max_loras"]:
                del slots[next(iter(slots))]
            seconds += load.load_s(sizes[adapter])
            seconds += 0.0 if adapter in known else load.disk_s(sizes[adapter])
        slots[adapter] = None
        known.add(adapter)
    return seconds / row.duration_s


def _mean(steps: Sequence[Step], seconds: Sequence[float]) -> float:
    return float(np.average(seconds, weights=[step.running for step in steps]))
