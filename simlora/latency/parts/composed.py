"""Composes the calibration of an engine on a GPU that was not measured as a whole."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from simlora.hardware.gpu import Gpu
from simlora.hardware.model import ModelShape
from simlora.latency.calibration import CONTEXT_BY_BATCH, PASS_BY_TOKENS, STEP_BY_BATCH, Calibration
from simlora.latency.parts.kernel_times import BATCHES, TOKENS, KernelTimes, shipped
from simlora.latency.yaml_text import read_yaml

ENGINES = Path(__file__).with_name("engines.yaml")


def composed(gpu: Gpu, model: ModelShape, tp: int, engine: str | None) -> Calibration | None:
    """Return the calibration composed of the parts that come with simlora; None where a part is missing."""
    if engine is None or engine not in engines():
        return None
    times = shipped().get((gpu.name, model.name, tp, engine))
    return None if times is None else compose(times, gpu, model)


def compose(times: KernelTimes, gpu: Gpu, model: ModelShape) -> Calibration:
    """Return the calibration of kernels and their engine's parts.

    An iteration is the base model's kernels, the engine's host time, of which nothing hides behind the GPU (vLLM's V1
    engine without asynchronous scheduling), and the LoRA kernels. The communication of adapters between several GPUs is
    left out. Needs an engine of `engines()`.
    """
    parts = engines()[times.engine]
    host, load = parts["host"], parts["load"]
    name = named(times.gpu, times.model, times.tp, times.engine)
    found = {f"{PASS_BY_TOKENS}.{tokens}": times.pass_s[tokens] + host["step_s"] for tokens in TOKENS}
    for batch in BATCHES:
        found[f"{STEP_BY_BATCH}.{batch}"] = times.step_s[batch] + host["step_s"] + host["sequence_s"] * batch
        found[f"{CONTEXT_BY_BATCH}.{batch}"] = max(times.context_token_s[batch], 0.0)
    found |= {
        "host.intercept_s": host["step_s"],
        "host.per_sequence_s": host["sequence_s"],
        "front_end.per_request_s": host["request_s"],
        "scheduler.per_passed_request_s": host["passed_request_s"],
        "adapter_load.latency_s": load["latency_s"] * model.layers,
        "adapter_load.bytes_per_s": load["link_share"] * gpu.host_link.bytes_per_s,
        "adapter_load.disk_latency_s": load["disk_latency_s"],
    }
    found |= {f"kernels.vllm.{leaf}": each_s * model.layers for leaf, each_s in parts["lora"].items()}
    if times.tp > 1:  # the kernels include the base model's collectives
        found["collectives.base_all_reduces_per_layer"] = 0.0
        found["collectives.latency_s"] = gpu.peer_link.latency_s
        found["collectives.bytes_per_s"] = gpu.peer_link.bytes_per_s
    return Calibration(
        path=name,
        gpu=times.gpu,
        model=times.model,
        tp=times.tp,
        provenance={
            "kind": "derived",
            "source": f"composed of parts: {times.source}, and host, LoRA and loads of {parts['version']}",
            "parts": {
                "kernels": times.source,
                "host": f"{parts['version']} on the H100 of 64 GB, as measured without LoRA",
                "lora": f"{parts['version']} on the H100 of 64 GB, Llama-3.1-8B, per layer",
                "loads": f"{parts['version']}, per layer, and the link of {gpu.name}",
            },
            "error": parts["error"],
            "measured_rank": parts["measured_rank"],
        },
        coefficients=found,
    )


def named(gpu: str, model: str, tp: int, engine: str) -> str:
    """Return the name of a calibration."""
    return f"{gpu}-{model}-tp{tp}-{engine}"


def warning(calibration: Calibration) -> str:
    """Return what a user of a composed calibration should know, as one sentence."""
    error = calibration.provenance["error"]
    roofline = "by roofline" in calibration.provenance["parts"]["kernels"]
    further = (
        " Its kernels, by roofline, are off by 2 to 19 % besides (docs/calibrations.md)." if roofline else ""
    )
    return (
        f"calibration {calibration.path} is derived: {calibration.provenance['source']}. Expect a decode step to be "
        f"off by {100 * error:.0f} % (the median on a model that the engine's host time was not fitted to).{further}"
    )


@cache
def engines() -> dict[str, dict[str, Any]]:
    """Return the engines' parts by name."""
    found = read_yaml(ENGINES.read_text(encoding="utf-8"), ENGINES.name)
    assert isinstance(found, dict)
    for parts in found.values():
        parts["lora"] = {leaf: float(value) for leaf, value in parts["lora"].items()}
    return found
