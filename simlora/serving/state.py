"""The state of a live cluster as plain data, for `/simlora/state` and the page."""

from __future__ import annotations

from typing import Any

import numpy as np

from simlora.engine.replica.replica import Replica
from simlora.engine.replica.request_table import RequestStatus
from simlora.serving.live_cluster import LiveCluster
from simlora.serving.metrics import kv_usage, running_adapters, waiting_adapters


def state(cluster: LiveCluster, model: str) -> dict[str, Any]:
    """Return what a cluster holds now; times are simulated seconds, those of drift wall seconds."""
    cluster.step()
    simulation, drift = cluster.simulation, cluster.drift
    return {
        "model": model,
        "time_s": simulation.clock.now,
        "speed": cluster.clock.speed,
        "router": None if cluster.alone else type(simulation.scenario.policies.router).__name__,
        "open_requests": cluster.open_requests,
        "unassigned": len(simulation.fleet.unassigned),
        "crashed": None if cluster.crashed is None else str(cluster.crashed),
        "drift": {"p99_s": drift.p99_s, "behind": drift.behind, "seconds_behind": drift.behind_windows},
        "replicas": [_replica(cluster, each) for each in simulation.fleet.replicas],
    }


def _replica(cluster: LiveCluster, replica: Replica) -> dict[str, Any]:
    table, fleet, adapters = replica.table, cluster.simulation.fleet, replica.kv.adapters
    tallies = cluster.tallies[replica.id]
    ttfts_s = tallies.recent_ttfts_s(cluster.simulation.clock.now)
    resident = [adapters.adapter(id) for id in adapters.ready_s]
    now_s = cluster.simulation.clock.now
    return {
        "replica": cluster.number + replica.id,
        "alive": bool(fleet.alive[replica.id]),
        "open": bool(fleet.open[replica.id]),
        "waiting": len(table.queue),
        "prefilling": len(table.prefill),
        "running": len(table.batch.members),
        "held": {status.name.lower(): len(table.held[status]) for status in RequestStatus},
        "running_adapters": running_adapters(cluster, replica),
        "waiting_adapters": waiting_adapters(cluster, replica),
        "adapters": [
            {
                "name": cluster.name_of(each),
                "rank": each.rank,
                "requests": adapters.running(each.id),
                "loading": adapters.ready_s[each.id] > now_s,
            }
            for each in resident
        ],
        "max_loras": replica.config.max_loras,
        "kv_tokens": replica.kv.tokens(),
        "kv_usage": kv_usage(replica),
        "adapter_tokens": adapters.adapter_tokens,
        "pool_tokens": replica.config.pool_tokens,
        "prompt_tokens": tallies.prompt_tokens,
        "generation_tokens": tallies.generation_tokens,
        "ended": tallies.ended,
        "rejected": tallies.rejected,
        "ttft_last_minute_s": {
            "requests": len(ttfts_s),
            "p50": float(np.percentile(ttfts_s, 50)) if ttfts_s else None,
            "p95": float(np.percentile(ttfts_s, 95)) if ttfts_s else None,
        },
    }
