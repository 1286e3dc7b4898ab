"""`/metrics`: the live cluster under the names of vLLM's own metrics, and what is only ours under simlora's."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
)
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from simlora.engine.replica.replica import Replica
from simlora.serving.live_cluster import LiveCluster
from simlora.serving.tallies import Tallies
from simlora.serving.tally import Tally

LABELS = ("model_name", "engine")
COUNTERS = {
    "vllm:prompt_tokens": ("Prompt tokens of requests that were prefilled.", "prompt_tokens"),
    "vllm:generation_tokens": ("Tokens of answers.", "generation_tokens"),
    "vllm:prefix_cache_queries": (
        "Prompt tokens that were looked for in the prefix cache.",
        "queried_tokens",
    ),
    "vllm:prefix_cache_hits": ("Prompt tokens that the prefix cache had.", "cached_tokens"),
}
HISTOGRAMS = {
    "vllm:time_to_first_token_seconds": ("From a request's arrival to its first token.", "first_token_s"),
    "vllm:inter_token_latency_seconds": ("Between two tokens of a request.", "gap_s"),
    "vllm:time_per_output_token_seconds": ("The same, by its name until vLLM 0.10.", "gap_s"),
    "vllm:e2e_request_latency_seconds": ("From a request's arrival to its last token.", "latency_s"),
    "vllm:request_queue_time_seconds": ("From a request's arrival to its admission.", "queue_s"),
    "vllm:request_inference_time_seconds": (
        "From a request's admission to its last token.",
        "inference_s",
    ),
    "vllm:request_prefill_time_seconds": (
        "From a request's admission to its first token.",
        "prefill_s",
    ),
    "vllm:request_decode_time_seconds": ("From a request's first token to its last.", "decode_s"),
    "vllm:request_prompt_tokens": ("Prompt tokens of a request.", "prompts"),
    "vllm:request_generation_tokens": ("Tokens of a request's answer.", "generations"),
    "vllm:request_params_max_tokens": ("The max_tokens that a request asks for.", "max_tokens"),
}


class VllmMetrics:
    """Makes the metrics of one port when they are asked for; `engine` is the number of the replica behind it."""

    def __init__(self, cluster: LiveCluster, model: str) -> None:
        self._cluster, self._model = cluster, model

    async def text(self) -> bytes:
        """Return the metrics as of now in Prometheus' text format.

        They are written in another thread, beside the answers: that takes longer than making them.
        """
        return await asyncio.to_thread(_written, list(self._metrics()))

    def _metrics(self) -> Iterator[Metric]:
        self._cluster.step()
        replicas = self._cluster.simulation.fleet.replicas
        labels = [(self._model, str(replica.id)) for replica in replicas]
        yield _gauge(
            "vllm:num_requests_running",
            "Requests in the running batch.",
            (running(each) for each in replicas),
            labels,
        )
        yield _gauge(
            "vllm:num_requests_waiting",
            "Requests in the queue.",
            (waiting(each) for each in replicas),
            labels,
        )
        usages = [kv_usage(each) for each in replicas]
        yield _gauge("vllm:kv_cache_usage_perc", "Share of the KV pool in use.", usages, labels)
        yield _gauge("vllm:gpu_cache_usage_perc", "The same, by its name until vLLM 0.9.", usages, labels)
        yield from self._of_tallies(labels)
        yield self._adapters(replicas)
        config = InfoMetricFamily("vllm:cache_config", "The size of the KV pool")
        for each in replicas:
            own = each.config
            sizes = {
                "block_size": str(own.block_size),
                "num_gpu_blocks": str(own.kv_token_budget // own.block_size),
                "engine": str(each.id),
                "enable_prefix_caching": str(own.prefix_caching),
            }
            config.add_metric((), sizes)
        yield config
        yield from self._own()

    def _of_tallies(self, labels: list[tuple[str, str]]) -> Iterator[Metric]:
        tallies = self._cluster.tallies
        for name, (what, attribute) in COUNTERS.items():
            counter = CounterMetricFamily(name, what, labels=LABELS)
            for each, label in zip(tallies, labels, strict=True):
                counter.add_metric(label, getattr(each, attribute))
            yield counter
        preempted = CounterMetricFamily(
            "vllm:num_preemptions", "Requests that were preempted.", labels=LABELS
        )
        for number, label in zip(self._cluster.preemptions(), labels, strict=True):
            preempted.add_metric(label, number)
        yield preempted
        success = CounterMetricFamily(
            "vllm:request_success",
            "Requests that have ended, by reason.",
            labels=(*LABELS, "finished_reason"),
        )
        for each, label in zip(tallies, labels, strict=True):
            for reason, number in each.ended.items():
                success.add_metric((*label, reason), number)
        yield success
        for name, (what, attribute) in HISTOGRAMS.items():
            yield _histogram(name, what, tallies, attribute, labels)

    def _adapters(self, replicas: list[Replica]) -> Metric:
        """Return the running and the waiting adapters of each replica; the value is the time of day, as vLLM's.

        Of several behind one port each has its own, with `engine`; vLLM, which has one, has no such label.
        """
        cluster, several = self._cluster, len(replicas) > 1
        names = ("max_lora", "running_lora_adapters", "waiting_lora_adapters")
        info = GaugeMetricFamily(
            "vllm:lora_requests_info",
            "Running stats on lora requests.",
            labels=(*names, "engine") if several else names,
        )
        for each in replicas:
            most = each.config.max_loras or len(cluster.simulation.adapters)
            ran, wait = running_adapters(cluster, each), waiting_adapters(cluster, each)
            labels = (str(most), ",".join(ran), ",".join(wait))
            info.add_metric((*labels, str(each.id)) if several else labels, cluster.clock.unix_s())
        return info

    def _own(self) -> Iterator[Metric]:
        cluster, drift = self._cluster, self._cluster.drift
        seconds = HistogramMetricFamily(
            "simlora:drift_seconds",
            "Wall seconds from when a token is due until it is handed to its connection.",
        )
        seconds.add_metric((), drift.tally.buckets(), drift.tally.sum)
        yield seconds
        yield GaugeMetricFamily(
            "simlora:drift_p99_seconds", "Its 99th percentile over the last second.", drift.p99_s
        )
        yield CounterMetricFamily(
            "simlora:seconds_behind", "Seconds in which that was above 5 ms.", drift.behind_windows
        )
        yield GaugeMetricFamily("simlora:time_seconds", "Simulated time.", cluster.simulation.clock.now)
        yield GaugeMetricFamily("simlora:speed", "Simulated seconds a wall second.", cluster.clock.speed)
        yield GaugeMetricFamily(
            "simlora:open_requests", "Requests that have not ended.", cluster.open_requests
        )
        yield GaugeMetricFamily(
            "simlora:requests_unassigned",
            "Requests that wait for a replica that boots or comes back.",
            len(cluster.simulation.fleet.unassigned),
        )
        rejected = sum(each.rejected for each in cluster.tallies)
        yield CounterMetricFamily("simlora:requests_rejected", "Requests that were rejected.", rejected)


class _Made(Collector):
    """Metrics that are made already."""

    def __init__(self, made: Sequence[Metric]) -> None:
        self._made = made

    def describe(self) -> Iterable[Metric]:
        return ()

    def collect(self) -> Iterable[Metric]:
        return self._made


def _written(made: Sequence[Metric]) -> bytes:
    """Return metrics, and the CPU seconds and memory of this process as vLLM has them, in Prometheus' text format."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Made(made))
    ProcessCollector(registry=registry)
    return generate_latest(registry)


def running(replica: Replica) -> int:
    """Return the requests that have been admitted and have not ended."""
    table = replica.table
    held = {id for requests in table.held.values() for id in requests}
    return len(table.batch.members) + len(held | {each.id for each in table.prefill})


def waiting(replica: Replica) -> int:
    """Return the requests in the queue."""
    return len(replica.table.queue)


def kv_usage(replica: Replica) -> float:
    """Return the share of the slots for KV that are in use, cached KV that no request uses left out, as vLLM does."""
    used = replica.kv.running_tokens(replica.table.batch.step)
    return used / max(replica.config.kv_token_budget, 1)


def running_adapters(cluster: LiveCluster, replica: Replica) -> list[str]:
    """Return the names of the adapters of admitted requests, in alphabetical order."""
    cache = replica.kv.adapters
    return sorted({cluster.name_of(cache.adapter(id)) for id in cache.pins})


def waiting_adapters(cluster: LiveCluster, replica: Replica) -> list[str]:
    """Return the names of the adapters of requests in the queue, in alphabetical order."""
    queue = replica.table.queue
    return sorted({cluster.name_of(each.adapter) for each in queue if each.adapter is not None})


def _gauge(name: str, what: str, values: Iterable[float], labels: list[tuple[str, str]]) -> Metric:
    gauge = GaugeMetricFamily(name, what, labels=LABELS)
    for value, label in zip(values, labels, strict=True):
        gauge.add_metric(label, value)
    return gauge


def _histogram(
    name: str, what: str, tallies: list[Tallies], attribute: str, labels: list[tuple[str, str]]
) -> Metric:
    histogram = HistogramMetricFamily(name, what, labels=LABELS)
    for each, label in zip(tallies, labels, strict=True):
        tally: Tally = getattr(each, attribute)
        histogram.add_metric(label, tally.buckets(), tally.sum)
    return histogram
