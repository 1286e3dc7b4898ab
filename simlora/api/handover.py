"""The parts of a summary that tell of prefill and decode on different replicas."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from simlora.engine.cluster.simulation import Simulation
from simlora.metrics.slo import column
from simlora.metrics.stored import Requests
from simlora.metrics.summary import distribution

READ = ("arrival_s", "admitted_s", "first_token_s", "finish_s", "ttft_s", "queue_s", "latency_s")


def handover_facts(simulation: Simulation, requests: Requests, makespan_s: float) -> dict[str, Any] | None:
    """Return what was handed over from replicas that prefill to those that decode; None where each does both.

    All requests count, also beside a window. `wait_s` is from a request's first token until a decode replica admits it,
    and `copy_s` from there until its KV is there, with the time for which a link was busy with others, 0 if it came
    before: each of requests for which it is over. With a mixed pool `stayed` requests were decoded where they had been
    prefilled. `link_busy_share` is of the makespan, out of each replica that prefills and into each that decodes, or
    the higher of both. `requests_by_source` counts by the replica that prefilled; figures by replica, and rows of
    requests, are of the replica at which a request ended.
    """
    apart = simulation.apart
    if apart is None:
        return None
    transfers, prefill = apart.transfers, simulation.scenario.cluster.prefill_replicas
    stayed = {} if apart.mixed_pool is None else {"stayed": apart.stayed}
    log = transfers.log()
    first_s = column(requests, "first_token_s")[log.request]
    busy_s = transfers.busy_s(makespan_s)
    links = [busy / makespan_s if makespan_s > 0 else None for busy in busy_s]
    return {
        "prefill_replicas": prefill,
        "requests": len(log.request),
        **stayed,
        "requests_by_source": np.bincount(log.source, minlength=prefill).tolist(),
        "kv_tokens": transfers.tokens,
        "kv_bytes": transfers.tokens * simulation.scenario.model.kv_bytes_per_token,
        "wait_s": distribution(log.asked_s - first_s),
        "copy_s": distribution(np.maximum(log.end_s - log.asked_s, 0.0)),
        "link_busy_share": links,
    }


def handovers(simulation: Simulation, requests: Requests) -> pd.DataFrame:
    """Return a row a request that was handed over, in order of time; none where each replica does both.

    A decode replica has admitted it at `admitted_s`, and `kv_tokens`, those that it had not cached, were copied from
    `begin_s` until `end_s`: NaN, or 0 tokens: not yet, or never, as its KV was dropped and computed anew.
    """
    if simulation.apart is None:
        return pd.DataFrame()
    log = simulation.apart.transfers.log()
    return pd.DataFrame(
        {
            "request_id": log.request,
            "source": log.source.astype(np.int32),
            "target": requests["replica"].to_numpy(dtype=np.int32)[log.request],
            "first_token_s": column(requests, "first_token_s")[log.request],
            "admitted_s": log.asked_s,
            "begin_s": log.begin_s,
            "end_s": log.end_s,
            "kv_tokens": log.tokens.astype(requests["prompt_tokens"].to_numpy().dtype),
        }
    )


def stages(simulation: Simulation, requests: Requests) -> tuple[Requests, ...]:
    """Return the requests as each pool sees them, in order of arrival there; () where each replica does both.

    To the pool that decodes a request arrives with its first token, and is admitted when its KV begins to come, or has
    begun to. One whose KV was dropped, and computed anew, is left out there.
    """
    if simulation.apart is None:
        return ()
    rows = pd.DataFrame({name: column(requests, name) for name in READ})
    rows["status"], rows["reason"] = np.asarray(requests["status"]), np.asarray(requests["reason"])
    rows["replica"] = decoding = requests["replica"].to_numpy(dtype=np.int32)
    log = simulation.apart.transfers.log()
    prefilling = decoding.copy()
    prefilling[log.request] = log.source
    prefilled = rows.assign(replica=prefilling)
    decoded = rows.loc[log.request].assign(admitted_s=np.maximum(log.begin_s, log.asked_s))
    dropped = decoded["admitted_s"].isna() & (decoded["status"] == "finished")
    decoded = decoded[~dropped].reset_index(drop=True)
    decoded["arrival_s"] = decoded["first_token_s"]
    decoded["queue_s"] = decoded["admitted_s"] - decoded["arrival_s"]
    decoded["latency_s"] = decoded["finish_s"] - decoded["arrival_s"]
    decoded["ttft_s"] = decoded["queue_s"]
    return prefilled, decoded
