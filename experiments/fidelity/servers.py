"""How the server of a measured run was started, as overrides."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from experiments.fidelity.rows import Row
from experiments.studies.reading import load as read_sheet

SERVERS = Path(__file__).with_name("servers.yaml")


def server(row: Row) -> list[str]:
    """Return the overrides that describe the row's system, hardware and memory."""
    columns, table = row.columns, _table()
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
    columns, table = row.columns, _table()
    if columns["kv_token_budget"] or row.system == "vllm_packed":
        return ""
    place = f"{row.system} on {columns['gpu']} {columns['setting']}"
    if row.system == "hf_peft":
        known = f"{columns['gpu']} {row.model}" in table["batches"]
        return "" if known else f"{place} has no largest batch in {SERVERS.name}"
    known = _key(row) in table["pools"].get(columns["system"], {})
    return "" if known else f"{place} has no kv_token_budget in its row, nor in {SERVERS.name}"


def _pool(row: Row) -> int:
    return int(_step(_table()["pools"][row.columns["system"]][_key(row)], int(row.workload["num_adapters"])))


def _key(row: Row) -> str:
    place = f"{row.columns['gpu']} {row.columns['setting']}"
    own = f"{place}/{row.columns['campaign']}"
    return own if own in _table()["pools"].get(row.columns["system"], {}) else place


def _step(steps: Sequence[Sequence[float]], adapters: int) -> float:
    """Return the value of the last step that begins at or below so many adapters."""
    return [value for start, value in steps if start <= adapters][-1]


@cache
def _table() -> dict[str, Any]:
    return read_sheet(SERVERS)
