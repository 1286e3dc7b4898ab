"""The parts of a summary that neither a request's row nor the token gaps tell."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from dataclasses import asdict
from functools import cache
from importlib import metadata
from types import MappingProxyType
from typing import Any

import numpy as np
import pandas as pd

from simlora import __version__
from simlora.api.costs import lora_server
from simlora.core.total import total
from simlora.engine.cluster.client_simulation import ANSWERED, GAVE_UP, UNFINISHED, ClientSimulation
from simlora.engine.cluster.simulation import Simulation
from simlora.engine.parts.kv_store import KvStoring
from simlora.metrics.slo import SloTargets, is_finished, met
from simlora.metrics.stored import Requests
from simlora.metrics.summary import distribution
from simlora.metrics.window import Window


def adapter_facts(simulation: Simulation, makespan_s: float) -> dict[str, Any]:
    """Return what was loaded and merged. A hit is an admission that found its adapter in HBM or on its way.

    `merged_share` is of the replicas' time, busy or not, how much they had an adapter in the weights. `remote_loads`
    came from another host, `storage_loads` from where no host held them. By host, `host_adapters` is how many its
    memory has held at most, and where hosts do not hold all, `host_adapters_at_end` how many at the end; it has sent
    for `host_remote_loads` and `host_storage_loads`. `region` is the adapters' own memory, of all replicas together,
    where they have one. Its fragmentation is the share of free slots that are not in the longest free run, after each
    change. The GPUs of a LoRA server, if there is one, compute for `server_busy_share` of the time.
    """
    recorder = simulation.recorder
    facts = {
        "count": len(simulation.adapters),
        "loads": recorder.adapter_loads,
        "load_bytes": recorder.adapter_load_bytes,
        "disk_loads": recorder.disk_loads,
        "remote_loads": recorder.remote_loads,
        "remote_load_bytes": recorder.remote_load_bytes,
        "storage_loads": recorder.storage_loads,
        "reloads": recorder.reloads,
        "hit_rate": recorder.adapter_hit_rate,
        "switches": recorder.switches,
        "switch_s": recorder.switch_s,
        "merged_share": recorder.merged_s(makespan_s) / (makespan_s * len(simulation.fleet.replicas))
        if makespan_s > 0
        else None,
    }
    facts |= _host_facts(simulation)
    if simulation.scenario.cluster.lora_server_gpus:
        server = lora_server(simulation)
        facts["server_gpus"] = server.gpus
        facts["server_busy_share"] = server.busy_s / (server.gpus * makespan_s) if makespan_s > 0 else None
    regions = [each.region for each in simulation.outcomes() if each.region is not None]
    changes = sum(region.changes for region in regions)
    if regions:
        facts |= {
            "region_tokens": sum(region.capacity for region in regions),
            "region_refusals": sum(region.refusals for region in regions),
            "region_flushes": sum(region.flushes for region in regions),
            "fragmentation_mean": total(r.fragmentation_sum for r in regions) / changes if changes else None,
            "fragmentation_max": max(region.fragmentation_max for region in regions),
        }
    return facts


def _host_facts(simulation: Simulation) -> dict[str, Any]:
    """Return the most adapters, and bytes of them, that each host's memory has held, and what it has sent for.

    Hosts hold none where a LoRA server does.
    """
    stores = simulation.store
    if stores is not None:
        return {
            "host_adapters": list(stores.most_held),
            "host_bytes": list(stores.most_bytes),
            "host_refused": stores.refused,
            "host_adapters_at_end": list(stores.held),
            "host_bytes_at_end": list(stores.held_bytes),
            "host_remote_loads": list(stores.remote_loads),
            "host_storage_loads": list(stores.storage_loads),
        }
    scenario, count = simulation.scenario, len(simulation.adapters)
    sizes = sorted((adapter.size_bytes for adapter in simulation.adapters), reverse=True)
    if scenario.cluster.lora_server_gpus:
        count = 0
    held = []
    for host in range(scenario.cluster.hosts):
        limits = [scenario.config_of(id).max_cpu_loras for id in scenario.cluster.replicas_of(host)]
        held.append(max(count if limit is None else min(limit, count) for limit in limits))
    return {"host_adapters": held, "host_bytes": [sum(sizes[:most]) for most in held], "host_refused": 0}


def kv_facts(simulation: Simulation, makespan_s: float) -> dict[str, Any]:
    """Return what became of KV, and of HBM; None for what there is none of.

    Of the prompt tokens of started requests `hit_rate` were cached and `hbm_hit_rate` in HBM, not on the host. Shares
    are of means over time: `hbm_share` of the pools is in use, for adapters too, `idle_share` holds KV that no request
    uses, and of that `invalid_share` is KV whose adapter is not there. The host holds `host_tokens` on average; so many
    `tokens_to_host` went there, came back for requests (`tokens_from_host`), or ahead of them (`tokens_ahead`).
    Where KV is kept below the host, `tokens_to_disk` and `tokens_to_store` were written to its disk and to the shared
    store, and `tokens_from_disk` and `tokens_from_store` fetched; `tokens_recomputed` were there, and not fetched.
    `preemptions`: how often KV ran out.
    """
    recorder, scenario, outcomes = simulation.recorder, simulation.scenario, simulation.outcomes()
    facts: dict[str, Any] = dict.fromkeys(
        ("hit_rate", "hbm_hit_rate", "hbm_share", "idle_share", "invalid_share")
    )
    facts |= {"host_tokens": None, "tokens_to_host": 0, "tokens_from_host": 0, "tokens_ahead": 0}
    if scenario.cluster.kv_tiers.used:
        storing = [part for replica in simulation.fleet.replicas if (part := replica.part(KvStoring))]
        facts |= simulation.kv_tiers.facts()
        facts["tokens_recomputed"] = sum(part.tokens_recomputed for part in storing)
    capacities = [scenario.config_of(id).pool_tokens for id in range(len(outcomes))]
    held = recorder.usage.until(makespan_s) if makespan_s > 0 else None
    if held is not None:
        facts["hbm_share"] = float(held.used.sum()) / sum(capacities)
    if recorder.prompt_tokens:
        from_host = sum(each.kv_tokens_in for each in outcomes)
        facts |= {
            "hit_rate": recorder.prefix_hit_rate,
            "hbm_hit_rate": max(recorder.cached_tokens - from_host, 0) / recorder.prompt_tokens,
            "tokens_to_host": sum(each.kv_tokens_out for each in outcomes),
            "tokens_from_host": from_host,
            "tokens_ahead": sum(each.kv_tokens_ahead for each in outcomes),
        }
        if held is not None:
            idle = float(held.idle.sum())
            facts |= {
                "idle_share": idle / sum(capacities),
                "invalid_share": float(held.invalid.sum()) / idle if idle else None,
                "host_tokens": float(held.host.sum()),
            }
    return facts | {"preemptions": recorder.preemptions}


def speculation_facts(simulation: Simulation) -> dict[str, Any] | None:
    """Return what was proposed and accepted; None without speculation.

    `steps` are those of requests: in one of them a request had `tokens_per_step` tokens on average, of which the first
    is none of the draft's.
    """
    recorder, speculation = simulation.recorder, simulation.scenario.speculation
    if not speculation.tokens:
        return None
    steps, accepted = recorder.verified, recorder.accepted_tokens
    return {
        "draft": speculation.draft,
        "steps": steps,
        "draft_tokens": recorder.draft_tokens,
        "accepted_tokens": accepted,
        "acceptance": accepted / recorder.draft_tokens if steps else None,
        "tokens_per_step": 1 + accepted / steps if steps else None,
    }


def migration_facts(simulation: Simulation) -> dict[str, int] | None:
    """Return what was planned, how much of it could not be solved, and what moves cost; None if nothing migrates."""
    migrates = simulation.scenario.policies.migration.period_s is not None
    return simulation.recorder.journal.migration_facts() if migrates else None


def placement_facts(simulation: Simulation) -> dict[str, int] | None:
    """Return what plans changed; None if the placement does not plan anew."""
    plans = simulation.scenario.policies.placement.period_s is not None
    return simulation.recorder.journal.placement_facts() if plans else None


def failure_facts(simulation: Simulation, makespan_s: float) -> dict[str, Any] | None:
    """Return what hosts that failed cost; None if none is to fail.

    All adapters read from storage are so because of failures: before one, some host has every adapter.
    """
    if not simulation.scenario.cluster.failures:
        return None
    facts = simulation.recorder.journal.failure_facts(makespan_s)
    return facts | {"storage_loads": simulation.recorder.storage_loads}


def slowness_facts(simulation: Simulation, makespan_s: float) -> dict[str, Any] | None:
    """Return which replicas straggled and whose links were slow, from when, until when, by what factor.

    Those that began before the end, in order of time; None if none was configured.
    """
    scenario = simulation.scenario
    if not scenario.cluster.stragglers and not scenario.cluster.slow_links:
        return None
    return {
        name: sorted(
            (asdict(each) for each in those if each.at_s <= makespan_s), key=lambda each: each["at_s"]
        )
        for name, those in (
            ("stragglers", scenario.cluster.stragglers),
            ("slow_links", scenario.cluster.slow_links),
        )
    }


def scaling_facts(simulation: Simulation, makespan_s: float) -> dict[str, Any] | None:
    """Return how many replicas were on, those of failed hosts left out; None without an autoscaler.

    `changes`: decisions that changed the desired number.
    """
    scaling = simulation.autoscaling
    if not scaling.active:
        return None
    rows = [row for row in simulation.recorder.journal.scaled if row.time_s <= makespan_s]
    until_s = [*(row.time_s for row in rows[1:]), makespan_s]
    # One after the other: a dot product's last bits depend on the processor.
    on_s = total(row.on * (end_s - row.time_s) for row, end_s in zip(rows, until_s, strict=True))
    return {
        "changes": len(simulation.fleet.scaled),
        "boots": scaling.boots,
        "boot_s": simulation.scenario.scaling.boot_s,
        "mean_on": on_s / makespan_s if makespan_s > 0 else None,
        "most_on": max(row.on for row in rows),
        "least_on": min(row.on for row in rows),
    }


def replica_facts(requests: Requests, simulation: Simulation, makespan_s: float) -> list[dict[str, Any]]:
    """Return one entry a replica: what it was given, what it finished, how busy its host link was."""
    outcomes = simulation.outcomes()
    at, done = requests["replica"].to_numpy() + 1, is_finished(requests)  # 0: never on a replica
    tokens = requests["output_tokens"].to_numpy() * done
    given, finished, output = (
        np.bincount(at, each, len(outcomes) + 1)[1:].astype(np.int64) for each in (None, done, tokens)
    )
    return [
        {
            "replica": id,
            "requests": int(given[id]),
            "finished": int(finished[id]),
            "output_tokens": int(output[id]),
            "kv_token_budget": simulation.scenario.config_of(id).kv_token_budget,
            "iterations": each.iterations,
            "most_running": each.most_running,
            "most_waiting": each.most_waiting,
            "busy_s": each.busy_s,
            "busy_share": each.busy_s / makespan_s if makespan_s > 0 else None,
            "link_busy_s": each.link_busy_s,
            "link_busy_share": each.link_busy_s / makespan_s if makespan_s > 0 else None,
        }
        for id, each in enumerate(outcomes)
    ]


def simulation_facts(simulation: Simulation, wall_s: float, migration_wall_s: float) -> dict[str, Any]:
    """Return what the simulation itself took, and of it planning what moves (None if nothing migrates).

    An event is an arrival or an iteration boundary.
    """
    recorder = simulation.recorder
    migrates = simulation.scenario.policies.migration.period_s is not None
    return {
        "wall_s": wall_s,
        "migration_wall_s": migration_wall_s if migrates else None,
        "events": recorder.ended + recorder.boundaries,
        "iterations": sum(each.iterations for each in simulation.outcomes()),
        "token_steps": recorder.token_steps,
        "requests_per_wall_s": recorder.ended / wall_s if wall_s > 0 else None,
    }


@cache
def versions() -> Mapping[str, str]:
    """Return the versions that a result may depend on; reading them takes 8 ms, once."""
    libraries = {name: metadata.version(name) for name in ("numpy", "pandas", "scipy", "pulp", "highspy")}
    return MappingProxyType({"simlora": __version__, "python": platform.python_version(), **libraries})


def calls(simulation: Simulation) -> pd.DataFrame:
    """Return a row for each request of the workload, over all attempts; none where clients do not react."""
    return pd.DataFrame(simulation.calls() if isinstance(simulation, ClientSimulation) else [])


def client_facts(
    table: pd.DataFrame, end_s: float, requests: Requests, targets: SloTargets, window: Window | None
) -> dict[str, Any] | None:
    """Return what became of clients' calls; None where clients do not react, or no call was due.

    `table` has a row a call. Counted are calls that were due by the end of the run, at `end_s`; with a `window`, of
    those sent in it. Times are from the first attempt of a call on. `attainment` is the share of calls that were
    answered within the SLO from there.
    """
    if table.empty:
        return None
    assert isinstance(requests, pd.DataFrame), "a run whose clients react keeps its rows in memory"
    table = table[table["arrival_s"] <= end_s]
    if window is not None:
        table = table[window.covers(table["sent_s"].to_numpy())]
    if table.empty:
        return None
    sent = table[table["request_id"] >= 0]
    last = requests.iloc[sent["request_id"]].reset_index(drop=True)
    answered = np.where(sent["status"] == ANSWERED, "finished", "aborted")
    last = last.assign(ttft_s=sent["ttft_s"].array, latency_s=sent["latency_s"].array, status=answered)
    counts = {status: int((table["status"] == status).sum()) for status in (ANSWERED, GAVE_UP, UNFINISHED)}
    return {
        "calls": len(table),
        **{status.replace(" ", "_"): number for status, number in counts.items()},
        "attempts": int(table["attempts"].sum()),
        "attempts_per_call": float(table["attempts"].mean()),
        "abandoned": int(table["abandoned"].sum()),
        "attainment": float(met(last, targets).sum() / len(table)),
        "ttft_s": distribution(table["ttft_s"].to_numpy()),
        "latency_s": distribution(table["latency_s"].to_numpy()),
    }
