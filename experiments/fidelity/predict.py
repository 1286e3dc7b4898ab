"""Simulates one measured run of S-LoRA: its server as overrides, its workload, and a calibration.

Campaigns that ran another build of the LoRA kernels than the one that a calibration was fitted to have slower kernels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache, lru_cache
from importlib import resources
from pathlib import Path
from typing import Any

import pandas as pd

from experiments.fidelity.rows import Row
from experiments.scenarios import scenario
from experiments.studies.reading import load as read_sheet
from simlora.core.trace import Trace
from simlora.engine.cluster.simulation import Simulation
from simlora.engine.scenario import Scenario
from simlora.latency import calibration as calibrations
from simlora.latency.calibration import Calibration
from simlora.workload.slora import SLora

CAMPAIGNS = Path(__file__).with_name("campaigns.yaml")


def matches(row: Row, selectors: Sequence[Mapping[str, Any]]) -> bool:
    """Whether the row has all values of one of the selectors; a list: any of its values."""
    cells = {**row.columns, **row.workload, "series": row.file}
    return any(
        all(
            cells[name] in (wanted if isinstance(wanted, list) else [wanted]) for name, wanted in each.items()
        )
        for each in selectors
    )


def slowed(calibration: Calibration, factor: float) -> Calibration:
    """Return a calibration all of whose LoRA kernels take `factor` times as long."""
    coefficients = {
        name: value * factor if name.startswith("kernels.") else value
        for name, value in calibration.coefficients.items()
    }
    return replace(calibration, coefficients=coefficients)


def calibration_of(row: Row, calibration: Calibration | None = None) -> Calibration:
    """Return the calibration of the row's GPU and model, or the given one instead of it.

    Its kernels are slowed if the row's campaign was fitted on its own.
    """
    found = calibration or calibrations.load(row.calibration)
    entry = _entry(row)
    return slowed(found, entry["kernel_factor"]) if entry else found


def fitted_rows(row: Row) -> set[str]:
    """Return the keys of the rows that this row's coefficients were fitted to."""
    provenance = calibrations.load(row.calibration).provenance
    added = [entry.get("fitted_rows", ()) for entry in provenance.get("additions", {}).values()]
    own = _entry(row).get("fitted_rows", ())
    return {*provenance.get("fitted_rows", ()), *own, *(key for keys in added for key in keys)}


def _entry(row: Row) -> dict[str, Any]:
    return next((entry for entry in _campaigns().values() if matches(row, [entry["where"]])), {})


@cache
def _campaigns() -> dict[str, Any]:
    return read_sheet(CAMPAIGNS) if CAMPAIGNS.exists() else {}


SERVERS = Path(__file__).with_name("servers.yaml")


def server(row: Row) -> list[str]:
    """Return the overrides that describe the row's system, hardware and memory."""
    columns, table = row.columns, _servers()
    overrides = [f"system={row.system}", f"gpu={columns['gpu']}", f"model={row.model}"]
    if row.clusters is not None:
        overrides.append(f"scheduler.clusters={row.clusters}")
    if columns["kv_token_budget"]:
        overrides.append(f"replica.kv_token_budget={int(float(columns['kv_token_budget']))}")
    elif columns["system"] in table["pools"]:
        overrides.append(f"replica.kv_token_budget={_pool(row)}")
        overrides.append(f"replica.gpu_memory_utilization={table['usable']}")
    elif row.system == "hf_peft":
        overrides.append(f"replica.max_num_seqs={table['batches'][columns['gpu'] + ' ' + row.model]}")
    elif row.system == "vllm_packed":
        engines = max(int(row.workload["num_adapters"]), 1)
        overrides += [f"workload.adapters={engines}", "cluster.memory_shares=equal"]  # as their launcher does
        overrides.append(f"replica.gpu_memory_utilization={_step(table['memory'], engines)}")
    return overrides


def unknown(row: Row) -> str:
    """Say what is not known of the row's server; empty if all is known."""
    columns, table = row.columns, _servers()
    if columns["kv_token_budget"] or row.system == "vllm_packed":
        return ""
    place = f"{row.system} on {columns['gpu']} {columns['setting']}"
    if row.system == "hf_peft":
        known = f"{columns['gpu']} {row.model}" in table["batches"]
        return "" if known else f"{place} has no largest batch in {SERVERS.name}"
    known = _key(row) in table["pools"].get(columns["system"], {})
    return "" if known else f"{place} has no kv_token_budget in its row, nor in {SERVERS.name}"


def _pool(row: Row) -> int:
    return int(
        _step(_servers()["pools"][row.columns["system"]][_key(row)], int(row.workload["num_adapters"]))
    )


def _key(row: Row) -> str:
    place = f"{row.columns['gpu']} {row.columns['setting']}"
    own = f"{place}/{row.columns['campaign']}"
    return own if own in _servers()["pools"].get(row.columns["system"], {}) else place


def _step(steps: Sequence[Sequence[float]], adapters: int) -> float:
    """Return the value of the last step that begins at or below so many adapters."""
    return [value for start, value in steps if start <= adapters][-1]


@cache
def _servers() -> dict[str, Any]:
    return read_sheet(SERVERS)


TTFT_TARGET_S = 6.0
PLACEHOLDER = Path(__file__).with_name("placeholder.yaml")


def known_systems() -> set[str]:
    """Return the systems that simlora has."""
    folder = resources.files("simlora") / "conf" / "system"
    return {entry.name.removesuffix(".yaml") for entry in folder.iterdir()}


def trace(row: Row) -> Trace:
    """Regenerate the row's workload; the tokenizer put one token in front of every prompt."""
    w = row.workload
    return SLora(
        adapters=int(w["num_adapters"]),
        alpha=w["alpha"],
        rate_rps=w["req_rate"],
        cv=w["cv"],
        duration_s=w["duration_s"],
        prompt_tokens=(int(w["prompt_lo"]), int(w["prompt_hi"])),
        output_tokens=(int(w["output_lo"]), int(w["output_hi"])),
        ranks=row.ranks,
        bos_tokens=1,
    ).build(0)


@lru_cache(maxsize=64)
def _scenario(overrides: tuple[str, ...]) -> Scenario:
    return scenario(overrides)


def simulate(row: Row, calibration: Calibration | None = None) -> dict[str, float]:
    """Return the row's figures as simulated, under its own calibration or exactly another one."""
    found = calibration or calibration_of(row)
    overrides = (*server(row), f"calibration={PLACEHOLDER}", "timeline=false")
    run = replace(_scenario(overrides), trace=trace(row), calibration=found)
    return figures(Simulation(run).run().requests(), streamed=row.system != "vllm_packed")


def figures(requests: pd.DataFrame, streamed: bool = True) -> dict[str, float]:
    """Return what S-LoRA's client reported. Attainment is over all requests, means over those answered.

    An answer that is not `streamed` comes whole: to the client its first token is its last.
    """
    done = requests[requests["status"] == "finished"]
    first_token_s = done["ttft_s" if streamed else "latency_s"]
    attained = {"attainment_6s": float((first_token_s < TTFT_TARGET_S).sum() / len(requests))}
    if done.empty:
        return attained
    return {
        "throughput_rps": len(done) / float(done["finish_s"].max()),
        "mean_latency_s": float(done["latency_s"].mean()),
        "mean_first_token_s": float(first_token_s.mean()),
        **attained,
    }
