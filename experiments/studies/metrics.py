"""The figures of a run that studies show: where summary.json has them, and how a measured row calls them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Metric:
    """A figure of a run, by its dotted place in summary.json.

    `measured` are its columns in files of measured runs, those in milliseconds with names that end with _ms.
    `drawn`: what it is multiplied by on an axis, to be in the unit of the label.
    """

    label: str
    measured: Sequence[str] = ()
    drawn: float = 1.0


METRICS = {
    "throughput_rps": Metric("throughput (requests/s)", ("throughput_rps",)),
    "latency_s.mean": Metric("mean latency (s)", ("mean_latency_s",)),
    "ttft_s.mean": Metric("mean TTFT (s)", ("mean_first_token_s", "ttft_mean_ms")),
    "ttft_s.p95": Metric("95th percentile of TTFT (s)"),
    "ttft_s.p99": Metric("99th percentile of TTFT (s)"),
    "ttft_s.p50": Metric("median TTFT (s)", ("ttft_p50_ms",)),
    "tbt_s.mean": Metric("mean ITL (ms)", ("itl_mean_ms",), drawn=1000.0),
    "throughput_tps": Metric("throughput (output tokens/s)", ("output_tokens_per_s",)),
    "tbt_s.p50": Metric("median ITL (ms)", drawn=1000.0),
    "tbt_s.p95": Metric("95th percentile of ITL (ms)", drawn=1000.0),
    "tbt_s.p99": Metric("99th percentile of ITL (ms)", drawn=1000.0),
    "latency_per_output_token_s.mean": Metric("mean time per token (ms)", drawn=1000.0),
    "cold_start_share.mean": Metric("latency lost to loads (%)", drawn=100.0),
    "latency_per_output_token_s.p90": Metric("90th percentile of time per token (ms)", drawn=1000.0),
    "tpot_s.mean": Metric("mean TPOT (ms)", drawn=1000.0),
    "latency_over_output_tokens_s": Metric("all latencies over all tokens (ms)", drawn=1000.0),
    "queue_per_output_token_s.mean": Metric("mean queueing delay per token (s)"),
    "queue_s.mean": Metric("mean queueing delay (s)"),
    "cold_start_s.mean": Metric("mean wait for adapters (ms)", drawn=1000.0),
    "kv_cold_start_s.mean": Metric("mean wait for KV (ms)", drawn=1000.0),
    "adapters.switches": Metric("switches of the merged adapter"),
    "adapters.merged_share": Metric("time with an adapter merged (%)", drawn=100.0),
    "adapters.loads": Metric("adapters loaded"),
    "adapters.running_rank": Metric("mean rank of running requests"),
    "adapters.hit_rate": Metric("adapters found in HBM (%)", drawn=100.0),
    "kv.hit_rate": Metric("prompt tokens found (%)", drawn=100.0),
    "kv.hbm_hit_rate": Metric("prompt tokens found in HBM (%)", drawn=100.0),
    "kv.invalid_share": Metric("history KV without its adapter (%)", drawn=100.0),
    "kv.idle_share": Metric("HBM with history KV (%)", drawn=100.0),
    "kv.hbm_share": Metric("HBM in use (%)", drawn=100.0),
    "migration.moves": Metric("requests moved"),
    "slo.attainment": Metric("SLO attainment", ("attainment_6s",)),
    "slo.satisfaction": Metric("user satisfaction", ("satisfaction",)),
    "slo.classes.gold.attainment": Metric("attainment of gold tenants"),
    "slo.classes.free.attainment": Metric("attainment of the others"),
    "clients.attainment": Metric("calls answered in time"),
    "clients.attempts_per_call": Metric("requests sent a call"),
    "cost.gpu_hours": Metric("GPU hours"),
    "cost.usd_per_million_tokens": Metric("USD a million tokens"),
    "cost.energy_j_per_output_token": Metric("energy (J an output token)"),
    "scaling.mean_on": Metric("replicas on, on average"),
    "failures.restarted": Metric("requests begun anew"),
    "replicas.requests": Metric("requests of the busiest replica"),
    "replicas.most_running": Metric("largest batch (requests)"),
    "replicas.kv_token_budget": Metric("KV pool (tokens)"),
}
SHARES = ("slo.attainment", "slo.satisfaction", "clients.attainment")
"""Between 0 and 1, over all submitted requests; satisfaction is 1 - (TTFT / SLO)^2, and 0 past the SLO."""
