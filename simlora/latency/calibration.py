"""A calibration: the measured coefficients of one (GPU, model, tensor parallelism)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources
from pathlib import Path
from typing import Any

from simlora.core.errors import InputError, nearest
from simlora.core.files import expanded
from simlora.latency.curve import Curve
from simlora.latency.yaml_text import read_yaml

KINDS = ("measured", "published", "derived")
SECTIONS = (
    "prefill",
    "decode",
    "collectives",
    "kernels",
    "adapter_load",
    "merge",
    "host",
    "front_end",
    "scheduler",
    "lora_manager",
    "cpu_lora",
)
LEAVES = {
    "prefill": ("intercept_s", "per_token_s", "per_token_sq_s", "pass_s_by_tokens"),
    "decode": (
        "intercept_s",
        "per_sequence_s",
        "per_sequence_sq_s",
        "per_context_token_s",
        "step_s_by_batch",
        "per_context_token_s_by_batch",
    ),
    "collectives": ("base_all_reduces_per_layer", "latency_s", "bytes_per_s"),
    "adapter_load": (
        "latency_s",
        "bytes_per_s",
        "kv_bytes_per_s",
        "flush_s",
        "disk_latency_s",
        "disk_bytes_per_s",
    ),
    "merge": ("intercept_s", "per_byte_s"),
    "host": ("intercept_s", "per_sequence_s"),
    "front_end": ("per_request_s", "per_adapter_s", "per_call_s"),
    "cpu_lora": ("tokens_per_core", "intercept_s", "per_token_s", "per_token_rank_s", "sync_s"),
    "scheduler": ("per_passed_request_s",),
    "lora_manager": ("per_listed_adapter_s",),
    "kernels.bgmv": (
        "decode.intercept_s",
        "decode.per_sequence_s",
        "decode.per_sequence_max_rank_s",
        "prefill.intercept_s",
        "prefill.per_token_s",
        "prefill.per_token_max_rank_s",
    ),
    "kernels.mbgmv": (
        "decode.intercept_s",
        "decode.per_rank_sum_s",
        "decode.per_sequence_s",
        "decode.per_sequence_max_rank_s",
        "prefill.intercept_s",
        "prefill.per_token_rank_s",
    ),
    "kernels.vllm": (
        "intercept_s",
        "per_slot_s",
        "per_slot_rank_s",
        "per_adapter_s",
        "few_tokens.per_adapter_s",
        "few_tokens.per_adapter_rank_s",
        "per_token_s",
    ),
    "kernels.one_hot_einsum": (
        "decode.intercept_s",
        "decode.per_sequence_adapter_max_rank_s",
        "prefill.intercept_s",
        "prefill.per_token_adapter_max_rank_s",
    ),
    "kernels.padded_bmm": (
        "decode.intercept_s",
        "decode.per_segment_s",
        "decode.per_segment_max_rank_s",
        "decode.per_sequence_max_rank_s",
        "prefill.intercept_s",
        "prefill.per_segment_s",
        "prefill.per_token_max_rank_s",
    ),
}
"""The coefficients that the models read, by section; a user's own kernel names its own."""
KERNELS = tuple(name.removeprefix("kernels.") for name in LEAVES if name.startswith("kernels."))
MAPPINGS = LEAVES | {"kernels": KERNELS}
"""Keys by the name of their mapping; a user's own kernel is a further key of `kernels`."""
PASS_BY_TOKENS, STEP_BY_BATCH, CONTEXT_BY_BATCH = CURVES = (
    "prefill.pass_s_by_tokens",
    "decode.step_s_by_batch",
    "decode.per_context_token_s_by_batch",
)
"""Mappings of counts to seconds, which stand for the coefficients that INSTEAD has."""
INSTEAD = {
    PASS_BY_TOKENS: ("prefill.intercept_s", "prefill.per_token_s"),
    STEP_BY_BATCH: ("decode.intercept_s", "decode.per_sequence_s", "decode.per_sequence_sq_s"),
    CONTEXT_BY_BATCH: ("decode.per_context_token_s",),
}
HEAD = ("gpu", "model", "tp", "provenance")
"""Keys that say what was calibrated, and the provenance."""


@dataclass(frozen=True)
class Calibration:
    """Coefficients by dotted name, with their provenance.

    `coefficients` maps e.g. "kernels.mbgmv.decode.per_rank_sum_s" to a float >= 0, and points of a curve, such as
    "decode.step_s_by_batch.16", too.
    """

    path: str
    gpu: str
    model: str
    tp: int
    provenance: Mapping[str, Any]
    coefficients: Mapping[str, float]

    def need(self, name: str) -> float:
        """Return a coefficient that the run requires. Raises InputError if it is absent."""
        if name not in self.coefficients:
            raise InputError(f"calibration {self.path} has no {name}, which this run needs")
        return self.coefficients[name]

    def curve(self, name: str) -> Curve | None:
        """Return one of CURVES; None if the calibration has coefficients instead."""
        start = f"{name}."
        points = {
            int(key.removeprefix(start)): seconds
            for key, seconds in self.coefficients.items()
            if key.startswith(start)
        }
        return Curve(points) if points else None

    def describe(self) -> dict[str, Any]:
        """Return names, provenance and every coefficient, for a report."""
        return {
            "path": self.path,
            "gpu": self.gpu,
            "model": self.model,
            "tp": self.tp,
            "provenance": dict(self.provenance),
            "coefficients": dict(self.coefficients),
        }


def names() -> list[str]:
    """Return the names of the calibrations shipped with simlora."""
    folder = resources.files("simlora.latency") / "calibrations"
    return sorted(entry.name[:-5] for entry in folder.iterdir() if entry.name.endswith(".yaml"))


def load(choice: str) -> Calibration:
    """Load a shipped calibration by name, or a user's by path (a name that ends in .yaml or .yml).

    Raises InputError, naming file and key, for anything that is not a complete and valid calibration.
    """
    if choice.endswith((".yaml", ".yml")):
        return parse(_read(expanded(choice)), choice)
    if choice not in names():
        raise InputError(f"there is no calibration {choice!r}; {nearest(choice, names())}")
    entry = resources.files("simlora.latency") / "calibrations" / f"{choice}.yaml"
    return parse(entry.read_text(encoding="utf-8"), choice)


@lru_cache(maxsize=16)  # parsing takes 11 ms, in every run of a sweep
def parse(text: str, path: str) -> Calibration:
    """Parse a calibration file; raises as `load` does."""
    tree = read_yaml(text, f"calibration {path}")
    if not isinstance(tree, dict):
        raise InputError(f"calibration {path} is not a mapping with gpu, model, tp and coefficients")
    known = (*HEAD, *SECTIONS)
    unknown = [key for key in tree if key not in known]
    if unknown:
        raise InputError(
            f"calibration {path} has an unknown key {unknown[0]!r}; {nearest(str(unknown[0]), known)}"
        )
    coefficients: dict[str, float] = {}
    for section in SECTIONS:
        node = tree.get(section)
        for name, value in _leaves({} if node is None else node, section):
            _check_known(name, value, path)
            coefficients[name] = _coefficient(value, name, path)
    _check_curves(coefficients, path)
    return Calibration(
        path=path,
        gpu=_text(tree, "gpu", path),
        model=_text(tree, "model", path),
        tp=_degree(tree.get("tp", 1), path),
        provenance=_provenance(tree.get("provenance"), path),
        coefficients=coefficients,
    )


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise InputError(f"calibration {path} is not a text file") from None
    except OSError as error:
        raise InputError(f"calibration {path} cannot be read: {error.strerror}") from None


def _leaves(node: Any, prefix: str) -> Iterator[tuple[str, Any]]:
    if not isinstance(node, dict):
        yield prefix, node
        return
    for key, value in node.items():
        yield from _leaves(value, f"{prefix}.{key}")


def _coefficient(value: Any, name: str, path: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InputError(f"calibration {path} has {name} = {value!r}, must be a number")
    if not math.isfinite(value) or value < 0:
        raise InputError(f"calibration {path} has {name} = {value}, must be finite and at least 0")
    if name.endswith("bytes_per_s") and value == 0:
        raise InputError(f"calibration {path} has {name} = 0, must be greater than 0 bytes per second")
    return float(value)


def _check_curves(coefficients: Mapping[str, float], path: str) -> None:
    for curve, others in INSTEAD.items():
        points = [name for name in coefficients if name.startswith(f"{curve}.")]
        if len(points) == 1:
            raise InputError(
                f"calibration {path} has only {points[0]}, must have two points of {curve} at least"
            )
        both = [name for name in others if name in coefficients]
        if points and both:
            raise InputError(f"calibration {path} has {both[0]} and {curve}; leave out one of them")


def _check_known(name: str, value: Any, path: str) -> None:
    curve, _, count = name.rpartition(".")
    if curve in CURVES:
        if not count.isascii() or not count.isdigit() or int(count) < 1:
            raise InputError(
                f"calibration {path} has {name}, whose last part must be a whole number, at least 1"
            )
        return
    if name in CURVES:
        raise InputError(
            f"calibration {path} has {name} = {value!r}, must be a mapping of counts to seconds, such as 16: 0.012"
        )
    if name in MAPPINGS:
        inside = ", ".join(MAPPINGS[name])
        raise InputError(f"calibration {path} has {name} = {value!r}, must be a mapping of {inside}")
    for section, leaves in LEAVES.items():
        leaf = name.removeprefix(f"{section}.")
        if leaf != name and leaf not in leaves:
            raise InputError(f"calibration {path} has an unknown key {name!r}; {nearest(leaf, leaves)}")


def _text(tree: dict[str, Any], key: str, path: str) -> str:
    value = tree.get(key)
    if not isinstance(value, str) or not value:
        raise InputError(f"calibration {path} has no {key}: it must name the {key} that was measured")
    return value


def _degree(value: Any, path: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise InputError(f"calibration {path} has tp = {value!r}, must be a whole number of GPUs, at least 1")
    return value


def _provenance(value: Any, path: str) -> dict[str, Any]:
    kind = value.get("kind") if isinstance(value, dict) else None
    if kind not in KINDS:
        raise InputError(
            f"calibration {path} has provenance.kind = {kind!r}, must be one of {', '.join(KINDS)}"
        )
    assert isinstance(value, dict)
    return value
