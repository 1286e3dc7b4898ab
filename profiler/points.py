"""What is measured: one point is one iteration, copy or product of a given size."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from simlora.core.errors import InputError, nearest
from simlora.latency.yaml_text import read_yaml

PLANS = Path(__file__).with_name("plans")
ITERATIONS = ("prefill", "decode")
SECTIONS = (*ITERATIONS, "adapter_load", "merge", "cpu_lora", "cpu_sync")


@dataclass(frozen=True, order=True)
class Point:
    """One thing to time.

    prefill: `requests` prompts of `tokens` each; decode: a step of `requests` sequences whose context is `tokens` each.
    Both in the way of `kernel`, with `ranks` used by the requests in turn; without a kernel, the base model alone.
    adapter_load: one adapter of the first rank, from `kernel` memory, pinned or pageable, or the device's own;
    merge: one such adapter.
    cpu_lora: x A B of a layer for `tokens` tokens of the first rank, on `cores` cores; cpu_sync: to hand work to
    another process and back.
    """

    section: str
    kernel: str = ""
    requests: int = 1
    tokens: int = 0
    ranks: tuple[int, ...] = ()
    cores: int = 0

    def ranks_of_requests(self) -> list[int]:
        """Return the rank of each request; 0 for the base model."""
        return [self.ranks[i % len(self.ranks)] if self.ranks else 0 for i in range(self.requests)]

    def row(self) -> dict[str, Any]:
        """Return the columns of raw measurements; ranks as text."""
        return asdict(self) | {"ranks": " ".join(map(str, self.ranks))}


@dataclass(frozen=True)
class Plan:
    """Points, each to be timed once a round: what disturbs a machine for a while then disturbs all alike."""

    name: str
    rounds: int
    points: tuple[Point, ...]


def read(name: str, kernels: Sequence[str], memories: Sequence[str], cores: int) -> Plan:
    """Read a plan of PLANS by name, or a YAML file by path: for these kernels and host memories, and so many cores.

    Raises InputError, naming file and key, for what is not a plan.
    """
    path = Path(name) if name.endswith((".yaml", ".yml")) else PLANS / f"{name}.yaml"
    if not path.exists():
        known = sorted(each.stem for each in PLANS.glob("*.yaml"))
        raise InputError(f"there is no plan {name!r}; {nearest(name, known)}, or name a YAML file")
    tree = read_yaml(path.read_text(encoding="utf-8"), f"plan {path}")
    if not isinstance(tree, dict) or not isinstance(tree.get("rounds"), int) or tree["rounds"] < 1:
        raise InputError(f"plan {path} must be a mapping with rounds, a whole number of at least 1")
    points: list[Point] = []
    for section, grids in tree.items():
        if section == "rounds":
            continue
        if section not in SECTIONS:
            raise InputError(f"plan {path} has an unknown section {section!r}; {nearest(section, SECTIONS)}")
        if grids is not None and not (isinstance(grids, list) and all(isinstance(g, dict) for g in grids)):
            raise InputError(f"plan {path}: {section} must be a list of mappings")
        for grid in grids or [{}]:
            given = {
                "kernel": memories if section == "adapter_load" else kernels,
                "cores": range(1, cores + 1),
            }
            points += _points(section, grid, given, f"plan {path}: {section}")
    return Plan(path.stem, tree["rounds"], tuple(dict.fromkeys(points)))


def _points(
    section: str, grid: Mapping[str, Any], given: Mapping[str, Sequence[Any]], place: str
) -> Iterator[Point]:
    known = ("requests", "tokens", "ranks", "cores")
    for key, values in grid.items():
        if key not in known:
            raise InputError(f"{place} has an unknown key {key}; {nearest(str(key), known)}")
        must = "must be a list of whole numbers, each at least 1"
        if not isinstance(values, list):
            raise InputError(f"{place}: {key} is {values!r}, {must}")
        for value in itertools.chain(*(each if isinstance(each, list) else [each] for each in values)):
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise InputError(f"{place}: {key} holds {value!r}, {must}")
    axes = {key: list(values) for key, values in grid.items()}
    if section == "adapter_load" or (section in ITERATIONS and "ranks" in axes):
        axes["kernel"] = list(given["kernel"])
    if "ranks" in axes:
        axes["ranks"] = [tuple(each) if isinstance(each, list) else (each,) for each in axes["ranks"]]
    if "cores" in axes:
        axes["cores"] = [count for count in axes["cores"] if count in given["cores"]]
    for values in itertools.product(*axes.values()):
        yield Point(section, **dict(zip(axes, values, strict=True)))
