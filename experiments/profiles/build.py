"""Makes calibrations as `plan.yaml` says: coefficients, how well they fit, where each came from, and the file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd

from experiments.profiles import scaling, sums, tables
from experiments.profiles.scaling import Setting, gpu, setting
from experiments.profiles.sums import Fit
from experiments.studies.reading import load as read_sheet
from simlora.calibrate.calibration_file import derived, written
from simlora.latency.calibration import Calibration, load
from simlora.latency.collectives import BASE_ALL_REDUCES

PLAN = Path(__file__).with_name("plan.yaml")


@dataclass(frozen=True)
class Entry:
    """One calibration to be made: from operators of `source`, or from whole iterations where there are any.

    `rows` names the model and the hardware as the table of whole iterations does.
    """

    target: Setting
    source: Setting
    operators: str
    origin: str
    iterations: str | None
    rows: tuple[str, str]

    @property
    def name(self) -> str:
        """The calibration's name."""
        return self.target.name

    @property
    def measured(self) -> bool:
        """Whether the base model's iterations were measured on this very GPU, model and degree."""
        return self.source == self.target


@dataclass(frozen=True)
class Built:
    """A calibration's coefficients by dotted name, the fits behind them, and what was derived."""

    entry: Entry
    coefficients: dict[str, float]
    fits: dict[str, Fit]
    derived: dict[str, str]

    @property
    def calibration(self) -> Calibration:
        """The calibration without its provenance."""
        target = self.entry.target
        return Calibration(target.name, target.gpu.name, target.model.name, target.tp, {}, self.coefficients)


@cache
def plan() -> dict[str, Any]:
    """Return plan.yaml as it is."""
    return read_sheet(PLAN)


def entries() -> dict[str, Entry]:
    """Return everything that the plan makes, by name."""
    found = [_entry(row, tp) for row in plan()["calibrations"] for tp in row["tp"]]
    return {entry.name: entry for entry in found}


def _entry(row: Mapping[str, Any], tp: int) -> Entry:
    table, whole = row["operators"], row.get("iterations")
    return Entry(
        target=setting(row["gpu"], row["model"], tp),
        source=setting(table["gpu"], table["model"], tp),
        operators=table["file"],
        origin=(whole or table)["origin"],
        iterations=whole["file"] if whole else None,
        rows=tuple(whole["rows"]) if whole else ("", ""),
    )


def build(entry: Entry, folder: Path) -> Built:
    """Fit and derive all coefficients of a calibration from the profiles in `folder`."""
    return whole(entry, folder) if entry.iterations else summed(entry, folder)


def summed(entry: Entry, folder: Path) -> Built:
    """Return the calibration as sums of kernels, whether or not there are whole iterations."""
    table = operators(entry, folder)
    prefill = sums.prefill(table, entry.source, entry.target)
    decode = sums.decode(table, entry.source, entry.target)
    beside = attention(folder)
    scaled = scaling.attention(beside.coefficients(), beside.source, entry.target)
    coefficients = sums.combined(prefill, decode, scaled)
    fits = {
        "prefill": prefill,
        "decode": decode,
        "attention_prefill": beside.prefill,
        "attention_decode": beside.decode,
    }
    derived = {}
    if beside.source != entry.target:
        where = f"attention of {beside.source.name}, {plan()['attention']['origin']}"
        derived["prefill.per_token_sq_s"] = f"{where}: by arithmetic on each GPU over peak FLOP/s"
        derived["decode.per_context_token_s"] = (
            f"{where}: by bytes of keys and values on each GPU over memory bandwidth"
        )
    return _with_the_rest(entry, folder, Built(entry, coefficients, fits, derived), BASE_ALL_REDUCES)


def whole(entry: Entry, folder: Path) -> Built:
    """Return the calibration fitted to whole iterations, the base model's communication included.

    They are used as they are on another GPU of the same chip; what its link changes is within their errors.
    """
    assert entry.iterations is not None
    table = tables.iterations(folder / entry.iterations, *entry.rows, entry.target.tp)
    fits = {
        "prefill": sums.whole_prefill(table.drop_duplicates(["prompt", "batch"])),
        "decode": sums.whole_decode(table),
    }
    coefficients = sums.needed(sums.named(fits))
    return _with_the_rest(entry, folder, Built(entry, coefficients, fits, {}), 0)


def operators(entry: Entry, folder: Path) -> pd.DataFrame:
    """Return the operators' seconds [tokens, operator] that were measured at the entry's degree."""
    table = tables.operators(folder / entry.operators)
    return table.xs(entry.source.tp, level="tp")


@cache
def attention(folder: Path) -> sums.Attention:
    """Return attention as it was measured, over all layers of its model."""
    measured = plan()["attention"]
    path = folder / measured["file"]
    source = setting(measured["gpu"], measured["model"], 1)
    return sums.attention(tables.attention_prefill(path), tables.attention_decode(path), source)


def _with_the_rest(entry: Entry, folder: Path, base: Built, all_reduces: int) -> Built:
    """Add what is the same for both ways: collectives, and what LoRA needs."""
    coefficients, fits, derived = dict(base.coefficients), dict(base.fits), dict(base.derived)
    if entry.target.tp > 1:
        one, bytes_per_s, scaled_from = _all_reduce(entry.target, folder)
        fits["collectives"] = one
        coefficients["collectives.base_all_reduces_per_layer"] = all_reduces
        coefficients["collectives.latency_s"] = one["latency_s"]
        coefficients["collectives.bytes_per_s"] = bytes_per_s
        if scaled_from:
            derived["collectives"] = scaled_from
    reference = load(plan()["reference"]["calibration"])
    lora = scaling.lora(reference, entry.target)
    derived |= {
        section: f"{reference.path}: {scaling.SAYS[section]}"
        for section in scaling.LORA
        if any(name.startswith(f"{section}.") for name in lora)
    }
    on_host = load(plan()["cpu_lora"]["calibration"])
    lora |= scaling.cpu_lora(on_host, entry.target.model)
    derived["cpu_lora"] = f"{on_host.path}: {scaling.SAYS['cpu_lora']}"
    return Built(entry, coefficients | lora, fits, derived)


def _all_reduce(target: Setting, folder: Path) -> tuple[Fit, float, str]:
    """Return the fit of an all-reduce, the bandwidth on the target's link, and how it was derived if it was."""
    measured = plan()["all_reduces"]
    name = target.gpu.name if target.gpu.name in measured else next(iter(measured))
    one = sums.all_reduce(tables.all_reduce(folder / measured[name]["file"], target.tp), target.tp)
    theirs, ours = gpu(name).peer_link, target.gpu.peer_link
    bytes_per_s = ours.bytes_per_s / theirs.bytes_per_s / one["s_per_byte"]
    if name == target.gpu.name:
        return one, bytes_per_s, ""
    if theirs == ours:
        return one, bytes_per_s, f"all-reduces of {name}, which has the same link"
    return one, bytes_per_s, f"all-reduces of {name}, the bandwidth by that of {ours.name} over {theirs.name}"


def as_yaml(built: Built) -> str:
    """Return the file: names, provenance, and coefficients to five digits."""
    target = built.entry.target
    tree: dict[str, Any] = {
        "gpu": target.gpu.name,
        "model": target.model.name,
        "tp": target.tp,
        "provenance": provenance(built),
    }
    found = built.coefficients.items()
    return written(tree, {name: _five(value) for name, value in found})


def provenance(built: Built) -> dict[str, Any]:
    """Say where the coefficients come from, and how far off they are, as shares of what was measured."""
    entry, says = built.entry, plan()["says"]
    kind = "whole" if entry.iterations else "summed"
    file = f"{entry.iterations or entry.operators} of {entry.origin}"
    source, note = f"fitted to {file}", says[kind]
    if not entry.measured:
        source = f"{says[f'{kind}_elsewhere'].format(source=entry.source.name)}; {source}"
        note = f"{note}; {says['lines']}" if kind == "summed" else note
    return {
        "kind": "published" if entry.measured else "derived",
        "source": source,
        "command": f"python -m experiments.profiles {entry.name}",
        "date": date.today().isoformat(),
        "note": note,
        **{
            figure: {part: float(f"{getattr(one, figure):.3g}") for part, one in built.fits.items()}
            for figure in ("r2", "mape", "held_out_mape", "held_out_worst")
        },
        "coefficients": {name: derived(source) for name, source in built.derived.items()},
    }


def _five(value: float) -> float:
    return float(f"{value:.5g}") if value != int(value) else int(value)
