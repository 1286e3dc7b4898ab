"""A calibration with one part of it longer or shorter: kernels, host, LoRA or loads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from simlora.latency.calibration import CONTEXT_BY_BATCH, PASS_BY_TOKENS, STEP_BY_BATCH, Calibration

HOST, HOST_SEQUENCE = "host.intercept_s", "host.per_sequence_s"
PROMPTS, DECODE, CONTEXTS, HOST_TIME = "prefill kernels", "decode kernels", "attention over contexts", "host"
LORA, LOADS, FRONT_END = "LoRA kernels", "adapter loads", "front end"
STARTS: Mapping[str, tuple[str, ...]] = {
    PROMPTS: ("prefill.",),
    DECODE: (
        f"{STEP_BY_BATCH}.",
        "decode.intercept_s",
        "decode.per_sequence_s",
        "decode.per_sequence_sq_s",
    ),
    CONTEXTS: (f"{CONTEXT_BY_BATCH}.", "decode.per_context_token_s"),
    HOST_TIME: ("host.", "scheduler.", "lora_manager."),
    LORA: ("kernels.",),
    LOADS: ("adapter_load.",),
    FRONT_END: ("front_end.",),
}
"""With what the names of a part's coefficients begin."""


def parts_of(calibration: Calibration) -> list[str]:
    """Return the parts that a calibration has."""
    names = calibration.coefficients
    return [part for part, starts in STARTS.items() if any(name.startswith(starts) for name in names)]


def scaled(calibration: Calibration, part: str, factor: float) -> Calibration:
    """Return a calibration whose `part` takes `factor` times as long; all else takes as long as before.

    Prefill and decode include the host's time: it stays in them, or grows there where it is the part.
    """
    found = {}
    for name, value in calibration.coefficients.items():
        own_s = host_within_s(calibration, name)
        if part == HOST_TIME and own_s:
            found[name] = value + (factor - 1) * own_s
        elif not name.startswith(STARTS[part]):
            found[name] = value
        elif name.endswith("bytes_per_s"):
            found[name] = value / factor
        else:
            found[name] = own_s + factor * max(value - own_s, 0.0)
    return replace(calibration, coefficients=found)


def with_host(calibration: Calibration, step_s: float, sequence_s: float) -> Calibration:
    """Return a calibration whose host takes so long for a step and for each of its sequences."""
    coefficients = dict(calibration.coefficients)
    was = {HOST: calibration.need(HOST), HOST_SEQUENCE: calibration.need(HOST_SEQUENCE)}
    now = replace(calibration, coefficients={HOST: step_s, HOST_SEQUENCE: sequence_s})
    for name, value in calibration.coefficients.items():
        if name in was:
            coefficients[name] = now.coefficients[name]
        else:
            coefficients[name] = value + host_within_s(now, name) - host_within_s(calibration, name)
    return replace(calibration, coefficients=coefficients)


def host_within_s(calibration: Calibration, name: str) -> float:
    """Return the host's seconds that a coefficient includes."""
    step_s = calibration.coefficients.get(HOST, 0.0)
    sequence_s = calibration.coefficients.get(HOST_SEQUENCE, 0.0)
    if name.startswith(f"{STEP_BY_BATCH}."):
        return step_s + sequence_s * int(name.rpartition(".")[2])
    if name.startswith(f"{PASS_BY_TOKENS}.") or name in ("decode.intercept_s", "prefill.intercept_s"):
        return step_s
    return sequence_s if name == "decode.per_sequence_s" else 0.0
