"""Random scenarios as plain data: what the engine, the plain loop and the reference are all given."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, dataclass, field, fields, make_dataclass, replace
from functools import partial
from importlib import import_module
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from hypothesis import strategies as st

from simlora.core.trace import BASE_MODEL, AdapterSpec, Trace
from simlora.engine.cluster.simulation import Simulation
from simlora.engine.incidents import Failure, SlowLink, Straggler
from simlora.engine.kv_tiers_config import KvTiersConfig
from simlora.engine.pools_config import KV_HANDOVERS, PoolsConfig
from simlora.engine.replica_config import DIVIDED, OWN_REGIONS, WRITE_POLICIES, ReplicaConfig
from simlora.engine.scenario import (
    ClusterConfig,
    Kind,
    Policies,
    ScalingConfig,
    Scenario,
)
from simlora.engine.speculation import Speculation
from simlora.hardware.link import Link
from simlora.hardware.model import ModelShape
from simlora.latency.calibration import Calibration
from simlora.latency.kernels import Bgmv, Mbgmv, Merged, PaddedBmm, Vllm
from simlora.metrics.recorder import Recorder
from simlora.policies.eviction.cost_model import CostModel
from simlora.policies.eviction.swapper import Swapper
from simlora.policies.migration.base import Migration
from simlora.policies.migration.selective_ilp import SelectiveIlp
from simlora.policies.migration.stay import Stay
from simlora.policies.placement.rank_demand import RankDemand
from simlora.policies.routing.scored import Scored
from simlora.policies.routing.scorers import SCORERS
from simlora.policies.scaling.base import Autoscaler
from simlora.policies.scaling.by_queue import ByQueue
from simlora.policies.scaling.by_schedule import BySchedule

TINY = ModelShape("tiny", layers=1, hidden=4, heads=1, kv_heads=1, head_dim=4, intermediate=8, vocab=16)
"""16 bytes of KV a token, 64 bytes of adapter a rank: 4 token slots a rank, as in S-LoRA."""


def policy(slot: str, name: str, **arguments: Any) -> Callable[..., Any]:
    """The policy in the module of that name, which makes one with these arguments."""
    module = import_module(f"simlora.policies.{slot}.{name}")
    kind: Callable[..., Any] = getattr(module, name.title().replace("_", ""))
    return partial(kind, **arguments) if arguments else kind


def policies(slot: str, *names: str) -> dict[str, Callable[..., Any]]:
    """Policies that need no arguments, by their names."""
    return {name: policy(slot, name) for name in names}


PICKING = ("merged_only", "unmerged_only", "credit")
"""Those that pause requests that they do not pick."""
PLAIN = ("fcfs", "lcfs")
"""What the reference loop of tests/engine/reference.py knows."""
SCHEDULERS = {
    **policies("scheduling", "fcfs", "lcfs", "earliest_deadline"),
    "early_abort": policy("scheduling", "early_abort", slo_s=0.75, margin_s=0.125),
    "adapter_clustering": policy("scheduling", "adapter_clustering", clusters=2),
    "merged_per_batch": policy("scheduling", "merged_per_batch", most_others=3),
    "static_batch": policy("scheduling", "static_batch"),
    "chunked_prefill": policy("scheduling", "chunked_prefill", max_batched_tokens=16),
    "chunked_slo": policy(
        "scheduling", "chunked_slo", max_batched_tokens=32, slo_s=0.75, margin_s=0.125, pass_s=2**-4
    ),
    "prefill_first": policy("scheduling", "prefill_first", max_batched_tokens=32),
    **policies("scheduling", "merged_only", "unmerged_only", "peft_continuous"),
    "credit": policy("scheduling", "credit", starving=2.0, normal=1.0, tune_every=5, alpha=0.7),
}
LOADERS = {
    **policies("loading", "blocking", "cached", "prefetching", "asynchronous"),
    "on_arrival": policy("loading", "asynchronous", on_arrival=True),
    "cpu_assisted": policy("loading", "cpu_assisted"),
    "predictive": policy("loading", "predictive", depth=2, period_s=2**-3, window=2, threshold=0.3),
}
ROUTERS = {
    **policies("routing", "round_robin", "most_idle", "first_fit"),
    "rank_aware": policy("routing", "rank_aware", slo_s=2**-5),
    "pending_time": policy("routing", "pending_time", unknown_execution_s=0.25),
    **policies("routing", "routing_table", "adapter_affinity"),
    "rank_bands": policy("routing", "rank_bands", slack=2.0),
    "session_bands": policy("routing", "session_bands", slack=2.0, session_slack=1.0),
    "scored": lambda: Scored(
        {name: 1 + i / 8 for i, name in enumerate(SCORERS) if name != "kv_cost"},
        {"lora_residency": {"queue": 1}, "balanced": {"gap": 2}},
    ),
    "kv_cost": lambda: Scored({"kv_cost": 1}),
    "cached_kv": lambda: Scored({"cached_kv": 2, "queue": 1}),
}
ASKING = {"asking": policy("routing", "pending_time", unknown_execution_s=0.25, asks=True)}
"""Those that ask all replicas, which goes with fewer mechanisms."""
MIGRATIONS: dict[str, Callable[[float], Migration]] = {
    "consolidate": policy("migration", "consolidate"),
    "selective_ilp": lambda every_s: SelectiveIlp(
        period_s=every_s, delay_s=2**-7, more_requests=2, unknown_execution_s=0.25, most_nodes=5
    ),
}
PLACEMENTS = policies("placement", "replicate_all") | {
    "burst_tolerance": policy("placement", "burst_tolerance", request_tokens=16)
}
BINDING = policies("placement", "by_speed", "by_max_rank", "random", "contiguous") | {
    "rank_demand": lambda: RankDemand({1: 400.0, 8: 300.0}, period_s=2**-2, trend_periods=3),
}
"""Those that say which replicas may serve what."""
AUTOSCALERS: dict[str, Callable[[], Autoscaler]] = {
    "fixed": policy("scaling", "fixed"),
    "by_queue": policy("scaling", "by_queue", target_requests=2, period_s=2**-3, down_window_s=2**-1),
    "by_adapters": lambda: ByQueue(
        target_adapters=1, target_requests=3, period_s=2**-3, down_window_s=2**-2, up_replicas=1, lag_s=2**-3
    ),
    "by_waiting": lambda: ByQueue(
        target_requests=None,
        target_waiting=1,
        period_s=2**-3,
        up_replicas=1,
        up_share=None,
        up_period_s=2**-2,
        up_window_s=2**-3,
        down_replicas=1,
        down_select="min",
        down_period_s=2**-2,
        down_window_s=2**-2,
    ),
    "by_slo": policy("scaling", "by_slo", ttft_s=2**-2, period_s=2**-4, window_s=0.5, down_after_s=2**-2),
    "by_schedule": lambda: BySchedule(
        [{"at_s": 0, "replicas": 1}, {"at_s": 0.5, "replicas": 3}, {"at_s": 1.25, "replicas": 1}],
        every_s=2.0,
        period_s=2**-4,
    ),
}
SWAPPERS: dict[str, Callable[[], Swapper]] = {
    "cost_model": policy("eviction", "cost_model", every_s=2**-5, recency_s=0.25),
    "cost_model_released": lambda: CostModel("released", backlog_s=2**-6),
    "cost_model_without_tree": lambda: CostModel(
        every_s=2**-6, recency_s=2.0, dependencies=False, matches_invalid=False, idle_to=0.8
    ),
    "cost_model_without_reward": lambda: CostModel(
        every_s=0.05, busy=0.8, busy_to=0.75, adapter_reward=False
    ),
    "banded_lru": policy("eviction", "banded_lru", every_s=2**-4),
    "banded_lru_without_tree": policy("eviction", "banded_lru", every_s=2**-4, dependencies=False),
}
EVICTIONS = policies("eviction", "on_demand", "lru", "gdsf", "compound", "lru_in_turn", "latest") | SWAPPERS
KERNELS = {
    "mbgmv": Mbgmv,
    "bgmv": Bgmv,
    "merged": Merged,
    "padded_bmm": PaddedBmm,
    "vllm": lambda calibration: Vllm(calibration, slots=3, max_lora_rank=32),
}


def powers_of_two(prefix: str, **exponents: int) -> dict[str, float]:
    """Coefficients below a prefix, by their exponents."""
    return {f"{prefix}.{name}": 2.0**exponent for name, exponent in exponents.items()}


COEFFICIENTS: dict[str, float] = {
    **powers_of_two("prefill", intercept_s=-6, per_token_s=-11, per_token_sq_s=-18),
    **powers_of_two("decode", intercept_s=-6, per_sequence_s=-10),
    **powers_of_two("decode", per_sequence_sq_s=-14, per_context_token_s=-14),
    **powers_of_two("kernels.bgmv.decode", intercept_s=-8, per_sequence_max_rank_s=-13),
    **powers_of_two("kernels.bgmv.prefill", intercept_s=-8, per_token_max_rank_s=-15),
    **powers_of_two("kernels.mbgmv.decode", intercept_s=-8, per_rank_sum_s=-12, per_sequence_max_rank_s=-13),
    **powers_of_two("kernels.mbgmv.prefill", intercept_s=-8, per_token_rank_s=-14),
    **powers_of_two("adapter_load", latency_s=-8, bytes_per_s=14, flush_s=-5),
    **powers_of_two("merge", intercept_s=-5, per_byte_s=-16),
    **powers_of_two("kernels.padded_bmm.decode", intercept_s=-8, per_segment_s=-9),
    **powers_of_two("kernels.padded_bmm.decode", per_segment_max_rank_s=-13),
    **powers_of_two("kernels.padded_bmm.prefill", intercept_s=-8, per_segment_s=-9, per_token_max_rank_s=-15),
    **powers_of_two("kernels.vllm", intercept_s=-9, per_slot_s=-12, per_slot_rank_s=-16, per_adapter_s=-10),
    **powers_of_two("kernels.vllm.few_tokens", per_adapter_s=-11, per_adapter_rank_s=-14),
    **powers_of_two("kernels.vllm", per_token_s=-13),
    **powers_of_two("adapter_load", disk_latency_s=-5, disk_bytes_per_s=12),
    "collectives.base_all_reduces_per_layer": 0,
    "collectives.latency_s": 0.0,
    "collectives.bytes_per_s": 2.0**90,  # too fast to be seen: the sums below are the kernels' own
    **powers_of_two("scheduler", per_passed_request_s=-12),
    **powers_of_two("host", intercept_s=-8, per_sequence_s=-12),
    **powers_of_two("cpu_lora", tokens_per_core=3, intercept_s=-10, per_token_s=-10, per_token_rank_s=-13),
    **powers_of_two("cpu_lora", sync_s=-11),
}
"""Powers of two: with arrivals on a grid, times are exact and events really fall together."""

IRREGULAR = {
    name: value * (1 + 0.0977 * math.sin(7 * i + 1)) for i, (name, value) in enumerate(COEFFICIENTS.items())
} | {"lora_manager.per_listed_adapter_s": 7e-6}
"""The same, each off by some per cent, and with lists of adapters: nothing falls together but by rule."""


class Row(NamedTuple):
    """A request; `adapter` is None for the base model."""

    arrival_s: float
    adapter: int | None
    prompt_tokens: int
    output_tokens: int
    max_output_tokens: int


def slower(calibration: Calibration) -> Calibration:
    """The others' GPU: computes in half as long again, loads in half the time."""
    faster = {"adapter_load.latency_s": 0.5, "adapter_load.bytes_per_s": 2.0}
    coefficients = {
        name: value * faster.get(name, 1.0 if name.startswith("collectives") else 1.5)
        for name, value in calibration.coefficients.items()
    }
    return replace(calibration, coefficients=coefficients)


def settings_of(kind: type, *said_otherwise: str) -> dict[str, Any]:
    """The settings of one of the engine's parts that have a default, but for what a case says in another form."""
    return {
        each.name: each.default
        for each in fields(kind)
        if each.default is not MISSING and each.name not in said_otherwise
    }


INCIDENTS = ("failures", "stragglers", "slow_links")
OF_REPLICA = settings_of(ReplicaConfig)
OF_CLUSTER = settings_of(
    ClusterConfig, *INCIDENTS, "network", "storage", "replica_groups", "pools", "kv_tiers"
)
OF_SCALING = settings_of(ScalingConfig, "autoscaler")
OF_SPECULATION = settings_of(Speculation, "tokens", "calibration")
SETTINGS = OF_REPLICA | OF_CLUSTER | OF_SCALING | OF_SPECULATION
Settings = make_dataclass(
    "Settings",
    [(name, Any, field(default=default)) for name, default in SETTINGS.items()],
    kw_only=True,
    frozen=True,
)
"""All that the engine can be told by a name, as it is if nothing is said."""


@dataclass(frozen=True, kw_only=True)
class Case(Settings):
    """A scenario as numbers and names: the engine's own settings, some with small numbers, and what else there is."""

    rows: tuple[Row, ...] = ()
    ranks: tuple[int, ...] = (1, 2, 4)
    capacity: int = 1000
    max_num_batched_tokens: int = 1000
    block_size: int = 4
    adapter_burst: int = 2
    boot_s: float = 2**-3
    scheduler: str = "fcfs"
    loader: str = "blocking"
    eviction: str = "on_demand"
    kernel: str = "mbgmv"
    router: str = "round_robin"
    decode_router: str = "most_idle"
    placement: str = "replicate_all"
    migration: str = "consolidate"
    migrates_every_s: float | None = None
    autoscaler: str | Autoscaler = "fixed"
    kv_handover: str = "whole"
    mixed_pool_tokens: int | None = None
    kv_disk_tokens: int = 0
    kv_store_tokens: int = 0
    kv_store_servers: int = 1
    kv_fetch: str = "by_cost"
    sessions: tuple[str | None, ...] | None = None
    block_hashes: tuple[tuple[int, ...], ...] | None = None
    hash_block_tokens: int = 4
    until_s: float | None = None
    replicas: int = 1
    others: int = 0
    own: Mapping[str, Any] = field(default_factory=dict)
    adapter_bits: int | None = None
    network_bytes_per_s: float = 1024.0
    failures: tuple[tuple[int, float, float | None], ...] = ()
    stragglers: tuple[tuple[int, float, float | None, float], ...] = ()
    slow_links: tuple[tuple[int, float, float | None, float], ...] = ()
    ttft_targets_s: tuple[float, ...] | None = None
    layers: int = 1
    coefficients: Mapping[str, float] = field(default_factory=lambda: COEFFICIENTS)

    def but(self, **changes: object) -> Case:
        """The same case with something else."""
        return replace(self, **changes)  # type: ignore[arg-type]

    def of(self, *rows: Row, **changes: object) -> Case:
        """The same case for these rows, with something else."""
        return self.but(rows=rows, **changes)

    def behind(self, first: tuple[Row, ...]) -> Case:
        """The same case behind other requests."""
        sessions = None if self.sessions is None else (None,) * len(first) + self.sessions
        hashes = None if self.block_hashes is None else ((),) * len(first) + self.block_hashes
        return self.but(rows=first + self.rows, sessions=sessions, block_hashes=hashes)

    def trace(self) -> Trace:
        """The rows as the engine takes them."""
        columns = list(zip(*self.rows, strict=True))
        adapter = [BASE_MODEL if a is None else a for a in columns[1]]
        whole = [np.array(c, dtype=np.int64) for c in (adapter, *columns[2:])]
        adapters = tuple(AdapterSpec(f"adapter-{i}", rank) for i, rank in enumerate(self.ranks))
        return Trace(
            np.array(columns[0], dtype=np.float64),
            *whole,
            adapters=adapters,
            session=self.sessions,
            block_hashes=self.block_hashes,
            hash_block_tokens=self.hash_block_tokens,
        )

    def limits(self) -> ReplicaConfig:
        """The limits of a replica as the engine takes them."""
        return ReplicaConfig(kv_token_budget=self.capacity, **self.named(OF_REPLICA))

    def named(self, names: Iterable[str]) -> dict[str, Any]:
        """What a case says under these names, which are the engine's own."""
        return {name: getattr(self, name) for name in names}

    def larger(self, limits: ReplicaConfig) -> ReplicaConfig:
        """The limits of the others: half as much memory again, and what is their own."""
        return replace(limits, **({"kv_token_budget": limits.kv_token_budget * 3 // 2} | dict(self.own)))

    def scenario(self, *, fast_forward: bool = True, timeline: bool = True, **policies: Any) -> Scenario:
        """The case as the engine takes it, with these policies instead of the case's own."""
        of = lambda key, kind, rows: tuple(  # noqa: E731
            kind(**{key: id, "at_s": at_s, "until_s": until_s, "factor": factor})
            for id, at_s, until_s, factor in rows
        )
        calibration = Calibration("test", "gpu", "tiny", self.tp, {}, self.coefficients)
        limits = self.limits()
        others = Kind(replicas=self.others, replica=self.larger(limits), calibration=slower(calibration))
        scaler, stays = self.autoscaler, self.migrates_every_s is None
        own = Policies(
            scheduler=SCHEDULERS[self.scheduler],
            loader=LOADERS[self.loader],
            eviction=EVICTIONS[self.eviction],
            kernel=KERNELS[self.kernel],
            router=(ROUTERS | ASKING)[self.router](),
            placement=(PLACEMENTS | BINDING)[self.placement](),
            migration=Stay() if stays else MIGRATIONS[self.migration](self.migrates_every_s),
            decode_router=ROUTERS[self.decode_router]() if self.prefill_replicas else None,
        )
        return Scenario(
            trace=self.trace(),
            cluster=ClusterConfig(
                replicas=self.replicas,
                **self.named(OF_CLUSTER),
                network=Link("network", 2**-9, self.network_bytes_per_s),
                storage=Link("storage", 2**-6, 128.0),
                failures=tuple(
                    Failure(host=h, at_s=at_s, until_s=until_s) for h, at_s, until_s in self.failures
                ),
                stragglers=of("replica", Straggler, self.stragglers),
                slow_links=of("host", SlowLink, self.slow_links),
                replica_groups=(others,) if self.others else (),
                pools=PoolsConfig(kv_handover=self.kv_handover, mixed_pool_tokens=self.mixed_pool_tokens),
                kv_tiers=KvTiersConfig(
                    disk_bytes=TINY.kv_bytes_per_token * self.kv_disk_tokens,
                    disk=Link("disk", 2**-7, 512.0),
                    store_bytes=TINY.kv_bytes_per_token * self.kv_store_tokens,
                    store_servers=self.kv_store_servers,
                    fetch=self.kv_fetch,
                ),
            ),
            model=replace(TINY, layers=self.layers, adapter_bits=self.adapter_bits),
            calibration=calibration,
            replica=limits,
            lora_server=replace(calibration, tp=1) if self.lora_server_gpus and self.tp > 1 else None,
            scaling=ScalingConfig(
                autoscaler=AUTOSCALERS[scaler]() if isinstance(scaler, str) else scaler,
                **self.named(OF_SCALING),
            ),
            speculation=Speculation(tokens=self.speculative_tokens, **self.named(OF_SPECULATION)),
            ttft_targets_s=None if self.ttft_targets_s is None else np.array(self.ttft_targets_s),
            policies=replace(own, **policies),
            fast_forward=fast_forward,
            timeline=timeline,
            until_s=self.until_s,
        )

    def simulation(self, **how: Any) -> Simulation:
        """The cluster after the run of such a `scenario`."""
        simulation = Simulation(self.scenario(**how))
        simulation.run()
        return simulation

    def run(self, **how: Any) -> Recorder:
        """What was recorded."""
        return self.simulation(**how).recorder

    def table(self, **how: Any) -> pd.DataFrame:
        """The requests as they ended."""
        return self.run(**how).requests()

    def serve(self, *rows: Row, **changes: object) -> pd.DataFrame:
        """The requests of such a case, as they ended."""
        return self.of(*rows, **changes).table()


# Drawing cases ------------------------------------------------------------------------------

BURST = st.just(0.0)
WITHIN_A_STEP = st.integers(1, 64).map(lambda k: k * 2**-10)
WITHIN_A_RUN = st.integers(1, 64).map(lambda k: k * 2**-6)
ALL_HAVE_LEFT = st.integers(8, 16).map(float)
GAPS = (
    BURST,
    st.one_of(BURST, WITHIN_A_STEP),
    st.one_of(WITHIN_A_STEP, WITHIN_A_RUN),
    st.one_of(BURST, WITHIN_A_STEP, WITHIN_A_RUN, ALL_HAVE_LEFT),
)
PROMPTS = (st.just(1), st.integers(1, 12), st.integers(1, 60))
OUTPUTS = (st.just(1), st.integers(1, 6), st.integers(1, 40), st.integers(20, 40))
UNUSED_OUTPUTS = (st.just(0), st.integers(0, 20))
RANKS = st.lists(st.sampled_from((1, 2, 4, 8)), min_size=1, max_size=5).map(tuple)


@st.composite
def rows(draw: st.DrawFn, adapters: int, most: int = 40) -> tuple[Row, ...]:
    """Requests in order of arrival: bursts, trickles, idle gaps."""
    uses = st.integers(-1, adapters - 1).map(lambda a: None if a < 0 else a)
    kinds = (draw(st.sampled_from(choice)) for choice in (GAPS, (uses,), PROMPTS, OUTPUTS, UNUSED_OUTPUTS))
    columns = st.tuples(*kinds)
    now, out = 0.0, []
    for _ in range(draw(st.integers(1, most))):
        gap, adapter, prompt, output, unused = draw(columns)
        now += gap
        out.append(Row(now, adapter, prompt, output, output + unused))
    return tuple(out)


@st.composite
def cases(
    draw: st.DrawFn,
    loaders: tuple[str, ...] = ("blocking", "cached"),
    reserves: tuple[str, ...] = ("full", "peak", "paged"),
    preemptions: tuple[str, ...] = ("recompute",),
    schedulers: tuple[str, ...] = PLAIN,
    evictions: tuple[str, ...] = ("lru", "on_demand"),
    kernels: tuple[str, ...] = ("bgmv", "mbgmv", "merged"),
    adapter_memories: tuple[str, ...] = ("unified",),
    max_loras: tuple[int | None, ...] = (None,),
    engines_per_gpu: tuple[int, ...] = (1,),
    max_outstanding: tuple[int | None, ...] = (None,),
    adapter_rps: tuple[float | None, ...] = (None,),
    adapter_bits: tuple[int | None, ...] = (None,),
    ends: st.SearchStrategy[float | None] = st.none(),  # noqa: B008
) -> Case:
    """Scenarios of every kind, with pools from too small for some request to ample."""
    ranks = draw(RANKS)
    requests = draw(rows(len(ranks)))
    largest = max(r.prompt_tokens + r.max_output_tokens + 4 * max(ranks) for r in requests)
    scheduler, reserve = draw(st.sampled_from(schedulers)), draw(st.sampled_from(reserves))
    if reserve == "padded" and SCHEDULERS[scheduler]().chunks:
        reserve = "full"  # chunks are not padded to each other
    if scheduler in PICKING and reserve == "padded":
        reserve = "paged"  # a paused request has no place in tensors of one shape
    exact = draw(st.booleans())
    if not exact:
        requests = tuple(row._replace(arrival_s=row.arrival_s * 0.9871237) for row in requests)
    case = Case(
        rows=requests,
        ranks=ranks,
        capacity=max(largest + draw(st.sampled_from((-10, 0, 2, 10, 40, 100, 200, 3000))), 1),
        max_num_seqs=draw(st.sampled_from((1000, 1000, 1, 3, 7))),
        max_num_batched_tokens=draw(st.sampled_from((1000, 1000, 40, 120))),
        max_wait_tokens=draw(st.integers(0, 12)),
        reserve=reserve,
        block_size=draw(st.sampled_from((1, 4, 16))),
        watermark=draw(st.sampled_from((0.0, 0.01, 0.1))),
        preemption=draw(st.sampled_from(preemptions)),
        tp=draw(st.sampled_from((1, 1, 2))),
        scheduler=scheduler,
        loader=draw(st.sampled_from(loaders)),
        eviction=draw(st.sampled_from(evictions)),
        kernel=draw(st.sampled_from(kernels)),
        max_loras=draw(st.sampled_from(max_loras)),
        adapter_memory=draw(st.sampled_from(adapter_memories)),
        adapter_region_tokens=4 * max(ranks) * draw(st.sampled_from((1, 2, 5, 20))),
        replicas=draw(st.integers(1, 3)),
        coefficients=COEFFICIENTS if exact else IRREGULAR,
        max_outstanding=draw(st.sampled_from(max_outstanding)),
        adapter_rps=draw(st.sampled_from(adapter_rps)),
    )
    case = case.but(until_s=draw(ends))
    if case.scheduler in PICKING and case.adapter_memory in OWN_REGIONS:
        case = case.but(scheduler="peft_continuous")  # adapters of paused requests could not be evicted
    if case.loader == "cpu_assisted":
        case = case.but(
            host_cores=draw(st.sampled_from((0, 1, 3, 8, 64))),
            replicas_per_host=draw(st.integers(1, 2)),
            layers=draw(st.sampled_from((1, 4))),
        )
    if case.eviction == "lru_in_turn" and case.adapter_memory != "slots":
        case = case.but(eviction="lru")
    if case.adapter_memory == "slots":
        slots = case.max_loras or 3
        case = case.but(max_loras=slots, adapter_region_tokens=4 * max(ranks) * slots)
    if case.adapter_memory in DIVIDED and draw(st.booleans()):
        case = case.but(max_cpu_loras=max(case.max_loras or 1, draw(st.integers(1, 5))))
    if not SCHEDULERS[case.scheduler]().merges:  # into weights of other bits
        case = case.but(adapter_bits=draw(st.sampled_from(adapter_bits)))
    engines = draw(st.sampled_from(engines_per_gpu))
    return case if engines == 1 else case.but(engines_per_gpu=engines, tp=1, replicas=case.replicas + 1)


def family(**chosen: tuple[object, ...]) -> st.SearchStrategy[Case]:
    """Scenarios with every scheduler, kernel and memory that there is."""
    everything = {
        "reserves": ("full", "peak", "paged", "padded"),
        "preemptions": ("recompute", "swap"),
        "schedulers": tuple(SCHEDULERS),
        "evictions": tuple(name for name in EVICTIONS if name not in SWAPPERS),
        "kernels": tuple(KERNELS),
        "max_loras": (None, 1, 2),
        "max_outstanding": (None, None, 1, 5),
        "adapter_rps": (None, None, None, 2.0),
        "adapter_bits": (None, None, None, 4, 8),
    }
    return cases(**(everything | chosen))


def own_memory(**chosen: tuple[object, ...]) -> st.SearchStrategy[Case]:
    """Scenarios whose adapters have memory of their own, which only goes with eviction on demand."""
    return family(evictions=("on_demand",), adapter_memories=("contiguous", "padded"), **chosen)


def divided(**chosen: tuple[object, ...]) -> st.SearchStrategy[Case]:
    """Scenarios whose HBM is divided between KV and adapters, in slots or not, with more of them on disk."""
    return family(
        **({"adapter_memories": DIVIDED, "evictions": ("lru", "lru_in_turn", "on_demand")} | chosen)
    )


def shared_gpus(**chosen: tuple[object, ...]) -> st.SearchStrategy[Case]:
    """Scenarios of two to four replicas, two or three of which share a GPU."""
    return family(**({"engines_per_gpu": (2, 3)} | chosen))


@st.composite
def shared_prefixes(draw: st.DrawFn, **chosen: object) -> Case:
    """Scenarios whose requests begin alike: in sessions, or with blocks of a tree in which h has 3h + 1 to 3h + 3.

    KV that leaves HBM is dropped, or goes to a small host or a large one.
    """
    reserves = {"reserves": ("full", "paged")}
    kinds = [family(**(reserves | chosen))]
    if "evictions" not in chosen:
        kinds.append(divided(**(reserves | chosen)))
    case = draw(st.one_of(*kinds))
    case = case.but(host_kv_tokens=draw(st.sampled_from((0, 20, 100, 10_000))))
    if case.eviction not in SWAPPERS:
        case = case.but(host_kv_write_policy=draw(st.sampled_from(WRITE_POLICIES)))
    each = len(case.rows)
    tokens = draw(st.sampled_from((1, 2, 8))) * (case.block_size if case.reserve == "paged" else 1)
    case = case.but(prefix_caching=True, hash_block_tokens=tokens)
    if draw(st.booleans()):
        names = st.sampled_from((None, "a", "b", "c"))
        case = case.but(sessions=tuple(draw(st.lists(names, min_size=each, max_size=each))))
    if draw(st.booleans()):
        branch = st.lists(st.sampled_from((1, 1, 1, 2, 3)), max_size=8)
        branches = draw(st.lists(branch, min_size=each, max_size=each))
        case = case.but(block_hashes=tuple(tuple(accumulate(b, lambda h, n: 3 * h + n)) for b in branches))
    return case


@st.composite
def tiered(draw: st.DrawFn, of: Callable[..., st.SearchStrategy[Case]], **chosen: object) -> Case:
    """Such scenarios, several replicas of which keep KV on the disks of their hosts or in a store that they share."""
    case = draw(of(**chosen))
    disk, store = draw(st.sampled_from(((0, 40), (40, 0), (10_000, 60), (20, 10_000), (0, 10_000))))
    return case.but(
        host_kv_tokens=max(case.host_kv_tokens, 20),
        kv_disk_tokens=disk,
        kv_store_tokens=store,
        kv_store_servers=draw(st.integers(1, 2)),
        kv_fetch=draw(st.sampled_from(("by_cost", "always", "always"))),
        replicas=case.replicas + draw(st.integers(0, 2)),
        replicas_per_host=draw(st.integers(1, 2)),
        network_bytes_per_s=draw(st.sampled_from((256.0, 4096.0, 65536.0))),
    )


@st.composite
def speculative(draw: st.DrawFn, of: Callable[..., st.SearchStrategy[Case]], **chosen: object) -> Case:
    """Such scenarios, where a draft proposes tokens, of which adapters accept more or fewer."""
    case = draw(of(**chosen))
    if case.reserve == "padded":
        case = case.but(reserve="paged")
    if SCHEDULERS[case.scheduler]().merges:
        case = case.but(scheduler="chunked_prefill")
    return case.but(
        speculative_tokens=draw(st.sampled_from((1, 3, 7))),
        draft=draw(st.sampled_from(("ngram", "eagle"))),
        acceptance=draw(st.sampled_from((0.0, 0.7, 1.0))),
        adapter_acceptance=draw(st.sampled_from((None, (0.2, 0.9)))),
        most_running=draw(st.sampled_from((None, None, 1, 3))),
    )


@st.composite
def placed(draw: st.DrawFn, **chosen: object) -> Case:
    """Scenarios whose hosts hold what they serve, and get the rest from each other."""
    loaders = ("blocking", "prefetching", "asynchronous", "cached")
    case = draw(family(**({"loaders": loaders, "adapter_memories": ("unified",)} | chosen)))
    return case.but(
        replicas=max(case.replicas, 2) + draw(st.integers(0, 2)),
        placement=draw(st.sampled_from(tuple(BINDING))),
        router=draw(st.sampled_from(("routing_table", "most_idle", "round_robin"))),
        adapter_pool=draw(st.sampled_from(("distributed", "distributed", "replicated"))),
        replicas_per_host=draw(st.integers(1, 2)),
        max_cpu_loras=None,
        network_bytes_per_s=draw(st.sampled_from((64.0, 1024.0, 65536.0))),
    )


BY_KV = ("adapter_affinity", "scored", "kv_cost")
PREFILL_ROUTERS = ("round_robin", "most_idle", "rank_aware", *BY_KV)
PRESSES = {"loaders", "schedulers", "evictions", "ends"}
"""What may be chosen of scenarios in little memory."""
DECODE_ROUTERS = ("round_robin", "most_idle", "pending_time", *BY_KV)


@st.composite
def apart(draw: st.DrawFn, **chosen: object) -> Case:
    """Scenarios of two pools of replicas, of which one prefills and the other decodes.

    Some have prefix caches, of which some keep KV on the host too, on its disk, or in a store that both pools share.
    """
    known = {"loaders": tuple(LOADERS)} | chosen
    kinds = family(**({"reserves": ("full", "peak", "paged")} | known))
    plain = kinds if "adapter_memories" in chosen else st.one_of(kinds, divided(**chosen))
    alike = [shared_prefixes(**known)]
    if not chosen.keys() - PRESSES:
        alike.append(pressed(**({"loaders": tuple(LOADERS)} | chosen | {"evictions": ("lru", "on_demand")})))
    case = draw(st.one_of(plain, *alike))
    if case.prefix_caching and draw(st.booleans()):
        case = draw(tiered(lambda: st.just(case)))
    prefill, decode = draw(st.integers(1, 2)), draw(st.integers(1, 2))
    case = case.but(
        replicas=prefill + decode,
        prefill_replicas=prefill,
        kv_handover=draw(st.sampled_from(KV_HANDOVERS)),
        layers=draw(st.sampled_from((1, 4))),
        router=draw(st.sampled_from(PREFILL_ROUTERS)),
        decode_router=draw(st.sampled_from(DECODE_ROUTERS)),
        network_bytes_per_s=draw(st.sampled_from((256.0, 4096.0, 65536.0))),
    )
    if case.reserve == "padded":
        case = case.but(reserve="paged")
    if case.reserve == "paged" and case.loader != "cpu_assisted" and draw(st.booleans()):
        case = case.but(mixed_pool_tokens=draw(st.sampled_from((1, 16, 64))))
    scheduler = SCHEDULERS[case.scheduler]()
    if scheduler.merges and not scheduler.pauses:
        case = case.but(scheduler="fcfs")
    if case.adapter_memory == "unified" and draw(st.booleans()):
        case = draw(with_other_limits(case.but(others=decode)))
        if (
            case.block_hashes is not None or case.kv_disk_tokens or case.kv_store_tokens
        ):  # whose blocks are whole ones of the pool
            case = case.but(own={**case.own, "block_size": case.block_size})
    return case


def served(**changes: object) -> st.SearchStrategy[Case]:
    """Scenarios whose replicas share a LoRA server of one or two GPUs."""
    kinds = family(loaders=("cached",), max_loras=(None,), ends=st.one_of(st.none(), st.floats(2**-8, 8.0)))
    plain = kinds.map(
        lambda case: case.but(scheduler="fcfs") if SCHEDULERS[case.scheduler]().merges else case
    )
    return st.builds(
        lambda case, gpus, speed: case.but(lora_server_gpus=gpus, network_bytes_per_s=speed, **changes),
        plain,
        st.integers(1, 2),
        st.sampled_from((256.0, 65536.0)),
    )


@st.composite
def failing(draw: st.DrawFn) -> Case:
    """Scenarios in which hosts fail while they run, wait or load; most come back."""
    case = draw(placed())
    hosts = -(-case.replicas // case.replicas_per_host)
    moments = st.one_of(st.integers(0, 256).map(lambda k: k * 2**-7), st.floats(0.0, 4.0))
    failures = []
    for host in draw(st.lists(st.integers(0, hosts - 1), min_size=1, unique=True)):
        at_s = draw(moments)
        lasts_s = draw(st.one_of(st.none(), st.sampled_from((2**-8, 0.25, 3.0))))
        failures.append((host, at_s, None if lasts_s is None else at_s + lasts_s))
    return case.but(failures=tuple(failures))


@st.composite
def with_other_limits(draw: st.DrawFn, case: Case) -> Case:
    """The same where the others have limits of their own, and maybe slots of another rank, which may be too low."""
    own: dict[str, Any] = {
        "max_num_seqs": draw(st.sampled_from((1, 2, 1000))),
        "max_num_batched_tokens": draw(st.sampled_from((40, 1000))),
        "max_wait_tokens": draw(st.integers(0, 5)),
        "block_size": draw(st.sampled_from((1, 4, 16))),
        "preemption": draw(st.sampled_from(("recompute", "swap"))),
    }
    if draw(st.booleans()):
        return case.but(own=own | {"max_loras": draw(st.sampled_from((None, 1, 2)))})
    high, low = max(case.ranks), draw(st.sampled_from(case.ranks))
    # An autoscaler keeps the first replicas on, which hold all ranks then.
    of_others, of_first = (high, low) if case.autoscaler == "fixed" and draw(st.booleans()) else (low, high)
    slots, own_slots = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    return case.but(
        adapter_memory="slots",
        eviction=draw(st.sampled_from(("lru", "lru_in_turn"))),
        max_loras=slots,
        max_lora_rank=of_first,
        adapter_region_tokens=4 * of_first * slots,
        own=own
        | {
            "max_loras": own_slots,
            "max_lora_rank": of_others,
            "adapter_region_tokens": 4 * of_others * own_slots,
            "max_cpu_loras": None if case.adapter_pool == "distributed" else draw(st.sampled_from((None, 3))),
        },
    )


@st.composite
def fleets(draw: st.DrawFn) -> Case:
    """Scenarios whose replicas come and go, are slow for a while, fail, and are of two kinds, or some of it."""
    case = draw(failing() if draw(st.booleans()) else placed())
    moments = st.one_of(st.integers(0, 256).map(lambda k: k * 2**-7), st.floats(0.0, 4.0))
    factors, lengths = st.sampled_from((0.5, 2.0, 3.7)), st.one_of(st.none(), st.sampled_from((2**-6, 0.5)))

    def slow(count: int) -> tuple[tuple[int, float, float | None, float], ...]:
        found = []
        for id in draw(st.lists(st.integers(0, count - 1), unique=True)):
            at_s, lasts_s = draw(moments), draw(lengths)
            found.append((id, at_s, None if lasts_s is None else at_s + lasts_s, draw(factors)))
        return tuple(found)

    if draw(st.booleans()):
        case = case.but(stragglers=slow(case.replicas))
    if draw(st.booleans()):
        case = case.but(slow_links=slow(-(-case.replicas // case.replicas_per_host)))
    case = case.but(autoscaler=draw(st.sampled_from(tuple(AUTOSCALERS))))
    if case.placement != "rank_demand" and draw(st.booleans()):
        case = case.but(others=draw(st.integers(1, case.replicas - 1)))
        case = draw(with_other_limits(case)) if draw(st.booleans()) else case
    if case.scheduler == "earliest_deadline" or draw(st.booleans()):
        targets = st.sampled_from((2**-4, 0.25, 8.0, math.inf))
        case = case.but(ttft_targets_s=tuple(draw(targets) for _ in range(len(case.ranks) + 1)))
    return case.but(
        least_replicas=draw(st.sampled_from((1, 2) if case.others else (1, 0, 2))),
        boot_s=draw(st.sampled_from((0.0, 2**-3, 0.7))),
        warm_up_adapters=draw(st.sampled_from((0, 2))),
    )


def swapped(**chosen: object) -> st.SearchStrategy[Case]:
    """The same where adapters and KV leave HBM and come back in one order."""
    return shared_prefixes(**({"evictions": tuple(SWAPPERS)} | chosen))


@st.composite
def pressed(
    draw: st.DrawFn,
    evictions: tuple[str, ...] = (*SWAPPERS, "lru"),
    loaders: tuple[str, ...] = (
        "blocking",
        "prefetching",
        "asynchronous",
        "on_arrival",
        "cpu_assisted",
        "predictive",
    ),
    schedulers: tuple[str, ...] = ("fcfs", "lcfs", "chunked_prefill", *PICKING),
    ends: st.SearchStrategy[float | None] = st.none(),  # noqa: B008
) -> Case:
    """Scenarios in which much is said again, to few adapters, and HBM holds little more than the largest request.

    So KV goes to the host and comes back, over links up to 32 times as slow.
    """
    ranks = draw(st.lists(st.sampled_from((1, 1, 2)), min_size=1, max_size=3).map(tuple))
    branches = st.lists(st.sampled_from((1, 1, 1, 2)), min_size=2, max_size=10)
    uses = st.integers(-1, len(ranks) - 1).map(lambda a: None if a < 0 else a)
    gap = draw(st.sampled_from((WITHIN_A_STEP, st.one_of(BURST, WITHIN_A_STEP, WITHIN_A_RUN), WITHIN_A_RUN)))
    request = st.tuples(gap, uses, branches, st.integers(1, 7), st.integers(1, 12), st.integers(0, 4))
    exact = draw(st.booleans())
    now, requests, hashes = 0.0, [], []
    for wait_s, adapter, branch, more, output, unused in draw(st.lists(request, min_size=6, max_size=24)):
        now += wait_s if exact else wait_s * 0.9871237
        requests.append(Row(now, adapter, 4 * len(branch) + more, output, output + unused))
        hashes.append(tuple(accumulate(branch, lambda h, n: 3 * h + n)))
    largest = max(r.prompt_tokens + r.max_output_tokens for r in requests) + 4 * max(ranks)
    known = COEFFICIENTS if exact else IRREGULAR
    slower = draw(st.sampled_from((1, 1, 4, 32)))
    sessions = draw(st.sampled_from((None, None, "abc")))
    eviction = draw(st.sampled_from(evictions))
    return Case(
        rows=tuple(requests),
        ranks=ranks,
        capacity=largest + draw(st.sampled_from((4, 12, 24, 60))),
        max_wait_tokens=draw(st.sampled_from((0, 0, 3))),
        reserve=draw(st.sampled_from(("full", "paged"))),
        watermark=draw(st.sampled_from((0.0, 0.1))),
        preemption=draw(st.sampled_from(("recompute", "swap"))),
        scheduler=draw(st.sampled_from(schedulers)),
        loader=draw(st.sampled_from(loaders)),
        eviction=eviction,
        prefix_caching=True,
        host_kv_tokens=draw(st.sampled_from((20, 60, 10_000))),
        host_kv_write_policy="write_back" if eviction in SWAPPERS else draw(st.sampled_from(WRITE_POLICIES)),
        sessions=None if sessions is None else tuple(sessions[i % 3] for i in range(len(requests))),
        block_hashes=tuple(hashes) if sessions is None else None,
        until_s=draw(ends),
        replicas=draw(st.sampled_from((1, 1, 2))),
        coefficients={**known, "adapter_load.bytes_per_s": known["adapter_load.bytes_per_s"] / slower},
    )
