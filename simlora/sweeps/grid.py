"""A grid: every combination of the values that keys are given, each with every seed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import product
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from omegaconf import OmegaConf

from simlora.api.preparing import composed
from simlora.config.changed import changed
from simlora.config.mistakes import in_plain_words
from simlora.config.overrides import check_overrides
from simlora.config.own_folder import KEY as OWN_FOLDER
from simlora.config.setup import resolved
from simlora.core.checks import whole
from simlora.core.errors import InputError
from simlora.sweeps.outcome import Overrides
from simlora.sweeps.sides import of_tree
from simlora.sweeps.values import in_words, read

QUIET = ("timeline=false", "report=false", "progress=false")
SEEDS_MOST = 100_000


@dataclass(frozen=True)
class Cell:
    """One run of a grid: the values of all keys that are set, the seed, and the overrides that say all of it.

    `facts` say what it runs on and is judged by (`sides.CONDITIONS`), its `system`, and what was `changed` of that.
    """

    values: Mapping[str, Any]
    seed: int
    overrides: Overrides
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Grid:
    """What all runs have in common, what is varied, as it is written, and the seeds."""

    fixed: Overrides
    axes: Mapping[str, Sequence[str]]
    seeds: Sequence[int]

    def __len__(self) -> int:
        found = len(self.seeds)
        for values in self.axes.values():
            found *= len(values)
        return found

    def cells(self) -> Iterator[Cell]:
        """Yield all runs: the last axis changes first, and seeds before it.

        A seed is the same random numbers in every cell, so that what is compared are systems and not draws; a workload
        that has a seed of its own gets it too. Raises InputError for a combination that cannot be composed.
        """
        for values, overrides in self.configurations():
            facts = facts_of(overrides)
            for seed in self.seeds:
                yield Cell(values, seed, seeded(overrides, seed), facts)

    def configurations(self) -> Iterator[tuple[Mapping[str, Any], Overrides]]:
        """Yield the values of all keys that are set, and the overrides, of each combination."""
        for written in product(*self.axes.values()):
            varied = tuple(f"{key}={value}" for key, value in zip(self.axes, written, strict=True))
            pairs = (override.partition("=") for override in (*varied, *self.fixed))
            values = {key: read(value) for key, equals, value in pairs if equals and key != "seed"}
            yield values, (*self.fixed, *varied)


def grid(overrides: Sequence[str], seeds: int = 1) -> Grid:
    """Return the grid of overrides of which some have several values: `rate_rps=1,2,3`, `range(1,9)`, `choice(a,b)`.

    Written as for `simlora -m`. `seeds` are those from the configuration's on. Raises InputError for a mistake.
    """
    count = whole("seeds", seeds, least=1, most=SEEDS_MOST)
    check_overrides(overrides)
    try:
        parsed = OverridesParser.create().parse_overrides(list(overrides))
    except HydraException as error:
        raise in_plain_words(error, overrides) from error
    fixed, axes = [], {}
    for override in parsed:
        if override.is_sweep_override():
            key = override.get_key_element()
            axes[key] = _different(key, tuple(override.sweep_string_iterator()))
        else:
            fixed.append(str(override.input_line))
    if "seed" in axes:
        raise InputError(
            f"seed={','.join(axes['seed'])} is given as a number of seeds, such as seeds={len(axes['seed'])}"
        )
    for quiet in QUIET:
        if (key := _key(quiet)) in axes:
            raise InputError(f"{key} cannot be varied: every run of a sweep has {quiet}; leave it out")
    config, _ = composed([*fixed, *(f"{key}={values[0]}" for key, values in axes.items())])
    first = whole("seed", OmegaConf.select(config, "seed"), least=0)
    return Grid(tuple(fixed), axes, range(first, first + count))


def _different(key: str, written: tuple[str, ...]) -> tuple[str, ...]:
    """Return values as they are written. Raises InputError for two that are one value, such as 1 and 1.0."""
    known: dict[str, str] = {}
    for text in written:
        value = in_words(read(text))
        if value in known:
            raise InputError(
                f"{key} has the same value twice, {known[value]} and {text}; leave one of them out"
            )
        known[value] = text
    return written


def facts_of(overrides: Overrides) -> dict[str, Any]:
    """Return what a configuration runs on and is judged by, its `system`, and what was `changed` of that.

    Raises InputError for overrides that cannot be composed; what cannot be resolved has no conditions.
    """
    config, choices = composed(overrides)
    try:
        conditions = of_tree(resolved(config))
    except InputError:  # which is the run's reason to be refused
        conditions = {}
    system = choices.get("system") or "custom"
    return {"system": system, "changed": changed(config, choices, overrides), **conditions}


@lru_cache(maxsize=256)  # a search asks again at every rate
def seeded(overrides: Overrides, seed: int) -> Overrides:
    """Return the overrides of a run with this seed, for a workload with a seed of its own too; without pictures.

    Of several values for a key only the last is left. Raises InputError for keys that would be lost.
    """
    config, _ = composed(overrides)
    by_key = {_key(override): override for override in overrides}
    if "workload.seed" in by_key:
        raise InputError(
            f"{by_key['workload.seed']} would be the same for every seed; leave it out, or set seed"
        )
    for key, override in by_key.items():
        if key.startswith("hydra.") and key != OWN_FOLDER:
            raise InputError(f"{override} is for simlora itself; here it has no meaning")
    own = OmegaConf.select(config, "workload.seed") is not None
    last = (f"seed={seed}", *((f"workload.seed={seed}",) if own else ()), *QUIET)
    return tuple((by_key | {_key(override): override for override in last}).values())


def _key(override: str) -> str:
    return override.partition("=")[0]
