"""Composes the calibration of an engine on a GPU that was not measured as a whole."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from simlora.hardware.gpu import Gpu
from simlora.hardware.model import ModelShape
from simlora.latency.adapted import LORA_MODULES
from simlora.latency.calibration import Calibration
from simlora.latency.parts import slora, vllm, vllm_v0
from simlora.latency.parts.kernel_times import APART, SAME_SHAPE, KernelTimes, shipped
from simlora.latency.yaml_text import read_yaml

ENGINES = Path(__file__).with_name("engines.yaml")
SLORA = "slora"
"""The engine whose calibrations have no ending, and that a configuration means by engine=null."""
BY_ROOFLINE = "by roofline"
"""In the source of kernel times that are scaled from another GPU (simlora/calibrate/roofline.py)."""
ROOFLINE = 0.115
"""Median error of a decode step by such kernels, each measured GPU from each other: experiments.kernels.left_out."""
COEFFICIENTS = {SLORA: slora.coefficients, "vllm": vllm.coefficients, "vllm_v0": vllm_v0.coefficients}


def composed(
    gpu: Gpu, model: ModelShape, tp: int, engine: str | None, apart: bool = False
) -> Calibration | None:
    """Return the calibration composed of the parts that come with simlora; None where a part is missing.

    `apart`: each expert of a mixture is whole on one of the GPUs (expert parallelism).
    """
    engine = SLORA if engine is None else engine
    if engine not in engines():
        return None
    name = SAME_SHAPE.get(model.name, model.name)
    kernels = engines()[engine]["kernels"] + (APART if apart else "")
    times = shipped().get((gpu.name, name, tp, kernels))
    return None if times is None else compose(times, gpu, model, engine)


def compose(
    times: KernelTimes, gpu: Gpu, model: ModelShape, engine: str, parts: Mapping[str, Any] | None = None
) -> Calibration:
    """Return the calibration of the base model's kernels and the parts of one of `engines()`, or those given.

    Between several GPUs, the kernels include the base model's collectives; those of adapters are the link's.
    """
    parts = engines()[engine] if parts is None else parts
    found = COEFFICIENTS[engine](times, gpu, model, parts)
    if times.tp > 1:
        found["collectives.base_all_reduces_per_layer"] = 0.0
        found["collectives.latency_s"] = gpu.peer_link.latency_s
        found["collectives.bytes_per_s"] = gpu.peer_link.bytes_per_s
    return Calibration(
        path=named(times.gpu, model.name, times.tp, engine, times.engine.endswith(APART)),
        gpu=times.gpu,
        model=model.name,
        tp=times.tp,
        provenance={
            "kind": "derived",
            "source": f"composed of parts: {times.source}, and host, LoRA and loads of {parts['version']}",
            "parts": {
                "kernels": times.source,
                "host": f"{parts['from']['host']}, by the speed of the host, {gpu.host_speed:g} for {gpu.name}",
                "lora": parts["from"]["lora"],
                "loads": parts["from"]["load"],
            },
            "error": _error(parts["error"], times),
            "measured_rank": parts["measured_rank"],
            **({LORA_MODULES: parts[LORA_MODULES]} if LORA_MODULES in parts else {}),
        },
        coefficients=found,
    )


def _error(parts: Mapping[str, Any], times: KernelTimes) -> dict[str, Any]:
    """Return the error of an engine's parts on some kernels: errors of both, where these are by roofline."""
    if BY_ROOFLINE not in times.source:
        return dict(parts)
    return {
        "figure": parts["figure"],
        "median": round(math.hypot(parts["median"], ROOFLINE), 3),
        "left_out": f"{parts['left_out']}, and kernels by roofline of another GPU",
    }


def named(gpu: str, model: str, tp: int, engine: str, apart: bool = False) -> str:
    """Return the name of a calibration; `apart`: with expert parallelism."""
    return f"{gpu}-{model}-tp{tp}{'ep' if apart else ''}" + ("" if engine == SLORA else f"-{engine}")


def derivable() -> dict[str, tuple[str, str, int, str, bool]]:
    """Return GPU, model, tp, engine, and whether experts are apart, of what can be composed, by name."""
    models: dict[str, list[str]] = {}
    for model, like in SAME_SHAPE.items():
        models.setdefault(like, [like]).append(model)
    return {
        named(gpu, name, tp, engine, kernels.endswith(APART)): (
            gpu,
            name,
            tp,
            engine,
            kernels.endswith(APART),
        )
        for engine, parts in engines().items()
        for gpu, model, tp, kernels in shipped()
        if kernels.removesuffix(APART) == parts["kernels"]
        for name in models.get(model, [model])
    }


def error_of(gpu: str, model: str, tp: int, engine: str, apart: bool = False) -> dict[str, Any]:
    """Return the error of a calibration that is `derivable`."""
    parts = engines()[engine]
    times = shipped()[gpu, SAME_SHAPE.get(model, model), tp, parts["kernels"] + (APART if apart else "")]
    return _error(parts["error"], times)


def expected(error: Mapping[str, Any]) -> str:
    """Return the error of an engine's parts, or of a composed calibration's provenance, as a clause."""
    return (
        f"{error['figure']} to be off by {100 * error['median']:.0f} % (the median, on {error['left_out']})"
    )


def warning(calibration: Calibration) -> str:
    """Return what a user of a composed calibration should know, as one sentence."""
    said = calibration.provenance
    return f"calibration {calibration.path} is derived: {said['source']}. Expect {expected(said['error'])}."


@cache
def engines() -> dict[str, dict[str, Any]]:
    """Return the engines' parts by name."""
    found = read_yaml(ENGINES.read_text(encoding="utf-8"), ENGINES.name)
    assert isinstance(found, dict)
    return {name: _numbers(parts) for name, parts in found.items()}


def _numbers(node: Any) -> Any:
    """Return the tree with numbers of exponents, which YAML reads as texts, as numbers."""
    if isinstance(node, dict):
        return {key: _numbers(value) for key, value in node.items()}
    try:
        return float(node) if isinstance(node, str) else node
    except ValueError:
        return node
