"""What is said of the folder profiles/: operators, whole iterations, vLLM's steps and pools, and our calibrations.

There is nothing to simulate in them: a calibration either takes as long as the table says or not. Fitted are four
points of five of whole iterations, the steps and the pools; predicted the fifth, and whole iterations by sums of
kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from experiments.fidelity.cells import number, one_of, read_cells
from experiments.fidelity.compare import Errors, Section, errors_of, fenced, grouped, spread
from experiments.fidelity.scatter import Dot, Panel, Plot
from experiments.fidelity.vllm import steps
from experiments.fidelity.vllm.predict import GPU, MODELS, SEQUENCES
from experiments.profiles import build, compare, tables
from experiments.profiles.__main__ import HEAD, UNITS, line
from experiments.profiles.build import Entry
from experiments.profiles.sums import EVERY
from experiments.scenarios import scenario
from experiments.studies import markdown
from experiments.studies.markdown import percent
from simlora.core.errors import InputError
from simlora.latency import calibration as calibrations
from simlora.latency.calibration import Calibration
from simlora.latency.collectives import folded
from simlora.latency.iteration import IterationModel

FILE = "profiles"
POOLS = "vllm_lora_kv_tokens.csv"
STEPS = steps.TABLE.name
KERNELS = " by kernels"
SLOTS = ("max_loras", "max_lora_rank")
"""vLLM's options, and ours."""
WITHOUT_LORA = ("replica.adapter_memory=unified", "eviction=lru", "replica.activation_bytes_per_logit=0")


class Timed(NamedTuple):
    """A dot of one of the plots: what it is of, and the dot. What follows a comma tells rows of one plot apart."""

    what: str
    dot: Dot

    @property
    def panel(self) -> str:
        """The plot that it is in."""
        return self.what.partition(", ")[0]


def report(folder: Path, jobs: int = -1) -> Section:
    """Return what is said of the profiles that are there. Raises InputError for bad input."""
    entries = {name: entry for name, entry in build.entries().items() if entry.measured}
    there = {name: entry for name, entry in entries.items() if not lacking(entry, folder)}
    timed = [one for entry in there.values() if entry.iterations for one in iterations(entry, folder)]
    timed += list(step_times(folder)) if (folder / STEPS).exists() else []
    timed += list(pools(folder)) if (folder / POOLS).exists() else []
    parts = {
        "operators": fenced(_operators(there, folder)),
        "engines": _if(len(there) == len(entries), lambda: compare.engines(folder)),
        "scalings": _if(len(there) == len(entries), lambda: compare.scalings(folder)),
        "iterations": _table(timed, ("prefill", "decode step")),
        "steps": _table(timed, ("vLLM's step",)),
        "pools": _table(timed, ("vLLM's pool",)),
    }
    skipped = sorted({f"there is no {file}" for entry in entries.values() for file in lacking(entry, folder)})
    skipped += [f"there is no {file}" for file in (STEPS, POOLS) if not (folder / file).exists()]
    said = [
        _operators(there, folder),
        *(f"{what}: {', '.join(cells)}" for what, *cells in _lines(timed)),
        *skipped,
    ]
    medians = {", ".join(key): {"rows": len(own), **spread(own)} for key, own in _groups(timed).items()}
    return Section(
        printed="\n".join(said),
        tree={"runs": str(folder), "medians": medians, "skipped": skipped},
        parts=parts,
        plot=plot(timed),
        errors=list(_errors(timed)),
    )


def files() -> set[str]:
    """Return the names of the files that something is compared with."""
    entries = build.entries().values()
    return {STEPS, POOLS, *(file for entry in entries for file in _needed(entry))}


def lacking(entry: Entry, folder: Path) -> list[str]:
    """Return the files that a calibration is made from and that are not there."""
    return [file for file in _needed(entry) if not (folder / file).exists()]


def _needed(entry: Entry) -> list[str]:
    plan = build.plan()
    found = [entry.operators, plan["attention"]["file"]]
    found += [measured["file"] for measured in plan["all_reduces"].values()] if entry.target.tp > 1 else []
    return [*found, entry.iterations] if entry.iterations else found


def iterations(entry: Entry, folder: Path) -> Iterator[Timed]:
    """Yield whole iterations beside our calibration, and beside sums of kernels, which know nothing of them."""
    assert entry.iterations is not None
    target = entry.target
    table = tables.iterations(folder / entry.iterations, *entry.rows, target.tp)
    kernels = build.summed(entry, folder).calibration
    system = f"{target.gpu.name}, {target.model.name}"
    yield from _beside(calibrations.load(entry.name), entry, table, system)
    for one in _beside(kernels, entry, table, system + KERNELS):
        yield one._replace(dot=one.dot._replace(fitted=False))


def _beside(own: Calibration, entry: Entry, table: pd.DataFrame, system: str) -> Iterator[Timed]:
    """Yield whole iterations beside a calibration, every fifth one as held out from its fit."""
    one = IterationModel(folded(own, entry.target.model))
    for place, row in enumerate(table.drop_duplicates(["prompt", "batch"]).itertuples()):
        ours_s = one.prefill_s(int(row.batch * row.prompt), int(row.batch * row.prompt**2))
        yield Timed("prefill", Dot(1e3 * row.prompt_s, 1e3 * ours_s, system, _fitted(place)))
    for place, row in enumerate(table.itertuples()):
        ours_s = one.decode_s(int(row.batch), int(row.batch * (row.prompt + row.output / 2)))
        yield Timed("decode step", Dot(1e3 * row.token_s, 1e3 * ours_s, system, _fitted(place)))


def _fitted(place: int) -> bool:
    return place % EVERY != EVERY // 2


def step_times(folder: Path) -> Iterator[Timed]:
    """Yield vLLM's steps. The calibrations' steps of the base model were read off this table."""
    table = steps.read(folder.parent)
    for shape in MODELS.values():
        for row in steps.simulated(table, calibrations.load(f"{GPU}-{shape}-tp1-vllm")).itertuples():
            dot = Dot(row.measured_ms, row.simulated_ms, shape, fitted=row.kind == "no_lora")
            yield Timed(f"vLLM's step, {row.kind}", dot)


def pools(folder: Path) -> Iterator[Timed]:
    """Yield vLLM's KV pools, in thousands of tokens.

    Two constants were fitted to them: what is kept for activations to those without LoRA, and what a logit takes to
    those with it.
    """
    for place, cells in read_cells(folder / POOLS, ("model", "lora", *SLOTS, "kv_tokens")):
        shape, tokens = one_of(MODELS, cells, "model", place), number(cells, "kv_tokens", place)
        if tokens <= 0:
            raise InputError(f"{place} has kv_tokens = {tokens:g}, must be above 0")
        overrides = ["system=vllm", f"gpu={GPU}", f"model={shape}", f"replica.max_num_seqs={SEQUENCES}"]
        overrides += ["workload.adapters=1", "workload.ranks=[8]"]
        if cells["lora"] == "on":
            overrides += [f"replica.{name}={int(number(cells, name, place))}" for name in SLOTS]
        else:
            overrides += WITHOUT_LORA
        ours_tokens = scenario(overrides).replica.kv_token_budget
        yield Timed("vLLM's pool", Dot(tokens / 1e3, ours_tokens / 1e3, shape, fitted=True))


def plot(timed: Sequence[Timed]) -> Plot:
    """Return a panel each for prefills, decode steps, vLLM's steps and its pools."""
    units = {"prefill": "ms", "decode step": "ms", "vLLM's step": "ms", "vLLM's pool": "1,000 tokens"}
    dots = grouped(timed, lambda one: one.panel)
    panels = [
        Panel(what, unit, [one.dot for one in dots[what]]) for what, unit in units.items() if what in dots
    ]
    return Plot("profiles", "whole iterations, and vLLM's steps and KV pools", panels)


def _if(there: bool, lines: Callable[[], Iterator[str]]) -> str:
    if not there:
        return "*Files of the profiles are missing.*"
    try:
        return "\n".join(lines())
    except KeyError as batch:
        return f"*The tables have no batch of {batch}.*"


def _operators(entries: dict[str, Entry], folder: Path) -> str:
    """Return the fits of all calibrations that were measured on their own GPU and model."""
    return "\n".join([HEAD, UNITS, *(line(build.build(entry, folder)) for entry in entries.values())])


def _groups(timed: Sequence[Timed]) -> dict[tuple[str, str, str], list[float]]:
    """Return signed errors by what, system, and whether they were fitted."""
    found = grouped(
        timed, lambda one: (one.what, one.dot.system, "fitted" if one.dot.fitted else "predicted")
    )
    return {key: [one.dot.error for one in members] for key, members in found.items()}


def _lines(timed: Sequence[Timed]) -> list[list[str]]:
    rows = []
    for (what, system, fitted), errors in _groups(timed).items():
        sizes, signed = spread(errors), round(100 * float(np.median(errors)), 1) + 0.0
        cells = [percent(sizes["median"]), f"{signed:+.1f} %", percent(sizes["worst"])]
        rows.append([f"{what}, {system}", fitted, str(len(errors)), *cells])
    return rows


def _table(timed: Sequence[Timed], what: Sequence[str]) -> str:
    rows = _lines([one for one in timed if one.panel in what])
    return markdown.table(["what", "", "points", "median error", "signed", "worst"], rows, numbers=True)


def _errors(timed: Sequence[Timed]) -> Iterator[Errors]:
    """Yield what is predicted: the held-out iterations, and all by sums of kernels."""
    for what in ("prefill", "decode step"):
        dots = [one.dot for one in timed if one.what == what and not one.dot.fitted]
        for ends, label in ((False, ", held out"), (True, " by sums of kernels")):
            own = [dot.error for dot in dots if dot.system.endswith(KERNELS) is ends]
            yield from errors_of(f"whole iterations{label}: {what}", own)
