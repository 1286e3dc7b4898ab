"""Laws: how what comes out must change, or stay, when a scenario is changed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from math import inf
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from experiments.torture.watch import watched
from simlora.core.trace import BASE_MODEL, AdapterSpec, Trace
from simlora.engine.clients import Clients
from simlora.engine.cluster.client_simulation import ClientSimulation
from simlora.engine.cluster.independent import independent
from simlora.engine.cluster.simulation import Simulation
from simlora.engine.incidents import Failure, SlowLink, Straggler
from simlora.engine.kv_tiers_config import KvTiersConfig
from simlora.engine.scenario import Kind, Scenario
from simlora.policies.eviction.latest import Latest
from simlora.policies.eviction.lru import Lru
from simlora.policies.eviction.on_demand import OnDemand
from simlora.policies.eviction.swapper import Swapper
from simlora.policies.loading.cached import Cached
from simlora.policies.migration.stay import Stay
from simlora.policies.placement.replicate_all import ReplicateAll
from simlora.policies.routing.adapter_affinity import AdapterAffinity
from simlora.policies.routing.first_fit import FirstFit
from simlora.policies.routing.most_idle import MostIdle
from simlora.policies.routing.random import Random
from simlora.policies.routing.round_robin import RoundRobin
from simlora.policies.routing.scorers import LoraLoadState
from simlora.policies.scaling.fixed import Fixed
from simlora.policies.scheduling.credit import Credit
from simlora.policies.scheduling.fcfs import Fcfs
from simlora.workload.export import write
from simlora.workload.file import File

Make = Callable[[], Scenario]
"""Makes a scenario anew, with policies that have not run."""
TIMES = ("admitted_s", "first_token_s", "finish_s")
WITHIN_S = 1e-6
"""How much times may differ that come from other sums; those of the engine are exact to 1e-9."""
WITHOUT_SECONDS = {"scheduler": Fcfs, "loader": Cached, "eviction": Lru}
"""Policies that know no seconds of their own."""
LATER_S, MOMENTS_PER_S = 2.0**12, 2.0**20
TWICE = 2


class Broken(AssertionError):
    """A law does not hold."""


@dataclass(frozen=True)
class Law:
    """What `says` how runs are related, of scenarios to which it `applies`; `check` raises Broken if they are not."""

    says: str
    applies: Callable[[Scenario], bool]
    check: Callable[[Make], None]


def table(scenario: Scenario) -> pd.DataFrame:
    """Return the requests after a run."""
    if not scenario.clients.react:
        return Simulation(scenario).run().requests()
    simulation = ClientSimulation(scenario)
    simulation.run()
    return simulation.requests()


def same(one: pd.DataFrame, other: pd.DataFrame, shift_s: float = 0.0, within_s: float = WITHIN_S) -> None:
    """Raise Broken unless both have the same requests in the same order, with times `shift_s` apart."""
    if len(one) != len(other):
        raise Broken(f"{len(one)} requests, and {len(other)}")
    for name in ("status", "prompt_tokens", "output_tokens", "cached_tokens", "preemptions", "migrations"):
        _none(one[name].to_numpy() != other[name].to_numpy(), one, other, name)
    for name in TIMES:
        here, there = one[name].to_numpy() + shift_s, other[name].to_numpy()
        apart = ~(np.abs(here - there) <= within_s + 1e-12 * np.abs(there)) & ~(
            np.isnan(here) & np.isnan(there)
        )
        _none(apart, one, other, name)


def _none(different: Any, one: pd.DataFrame, other: pd.DataFrame, name: str) -> None:
    if different.any():
        at = int(np.flatnonzero(different)[0])
        raise Broken(f"{name} of request {at} is {one[name].iloc[at]}, and {other[name].iloc[at]}")


# What a scenario is made of ------------------------------------------------------------------


def but(scenario: Scenario, **changes: Any) -> Scenario:
    """Return a scenario with some fields changed: a mapping changes fields of the part of that name."""
    parts = {
        name: replace(getattr(scenario, name), **change) if isinstance(change, dict) else change
        for name, change in changes.items()
    }
    return replace(scenario, **parts)


CALM = {"max_outstanding": None, "adapter_rps": None, "failures": (), "stragglers": (), "slow_links": ()}
"""A cluster in which nothing goes wrong, and no request is turned away."""


def quiet(scenario: Scenario) -> Scenario:
    """Return a scenario in which nothing happens at times of its own: all that does, requests bring about."""
    placement = scenario.policies.placement
    return but(
        scenario,
        cluster={**CALM, "status_every_s": 0.0},
        policies={
            "migration": Stay(),
            "placement": placement if placement.period_s is None else ReplicateAll(),
        },
        scaling={"autoscaler": Fixed()},
        clients=Clients(),
        until_s=None,
        until_missed=None,
    )


def steady(scenario: Scenario) -> Scenario:
    """Return a quiet scenario whose requests are routed in turn to replicas that have all adapters."""
    return but(
        quiet(scenario),
        cluster={"adapter_pool": "replicated", "host_memory_bytes": None},
        policies={"router": RoundRobin(), "decode_router": RoundRobin(), "placement": ReplicateAll()},
    )


def one_gpu_each(scenario: Scenario) -> bool:
    """Whether each replica has its GPU and its host for itself, shares nothing else, and all do the same."""
    cluster = scenario.cluster
    alone = cluster.engines_per_gpu == 1 and cluster.replicas_per_host == 1 and not cluster.kv_token_budgets
    shared = cluster.prefill_replicas or cluster.lora_server_gpus or cluster.kv_tiers.store_bytes
    return alone and not shared


def as_lucky(scenario: Scenario) -> bool:
    """Whether requests do as well under other numbers: which tokens of a draft are accepted follows from these."""
    return not scenario.speculation.tokens


def without_adapters(trace: Trace) -> Trace:
    """Return the same requests of the base model."""
    return replace(trace, adapter=np.full(len(trace), BASE_MODEL), adapters=trace.adapters)


def exact(scenario: Scenario) -> Scenario:
    """Return a scenario whose requests arrive at multiples of 2**-20 s, which stay as far apart when they are moved."""
    arrival_s = np.round(scenario.trace.arrival_s * MOMENTS_PER_S) / MOMENTS_PER_S
    return but(scenario, trace={"arrival_s": arrival_s})


def moved(scenario: Scenario, by_s: float) -> Scenario:
    """Return a scenario in which all comes so much later."""
    return but(scenario, trace={"arrival_s": scenario.trace.arrival_s + by_s})


# The laws ------------------------------------------------------------------------------------


def _holds_invariants(make: Make) -> None:
    try:
        watched(make())
    except AssertionError as error:
        raise Broken(f"an invariant is broken: {error or 'see the traceback'}") from error


def _steps_alone(make: Make) -> None:
    slow, fast = (table(replace(make(), fast_forward=on)) for on in (False, True))
    same(slow, fast, within_s=1e-9)


def _in_turns(make: Make) -> None:
    one, two = (Simulation(steady(make())).run(cores=cores).requests() for cores in (1, 2))
    pd.testing.assert_frame_equal(one, two, check_exact=True)


def _again(make: Make) -> None:
    pd.testing.assert_frame_equal(table(make()), table(make()), check_exact=True)


def _later(make: Make) -> None:
    same(table(exact(quiet(make()))), table(moved(exact(quiet(make())), LATER_S)), LATER_S)


def _renumbered(make: Make) -> None:
    scenario = make()
    order = np.random.default_rng(0).permutation(len(scenario.trace.adapters))  # adapter a becomes order[a]
    same(table(scenario), table(renumbered(make(), order)))


def renumbered(scenario: Scenario, order: Any) -> Scenario:
    """Return the scenario with adapter `a` as adapter `order[a]`.

    The trace numbers them by their names again, so that targets by adapter are as they were.
    """
    trace, back = scenario.trace, np.argsort(order)
    lookup = np.append(order, BASE_MODEL)  # of the base model, which is the last by -1
    adapters = {
        "adapter": lookup[trace.adapter],
        "adapters": tuple(trace.adapters[at] for at in back),
        "history_rps": None if trace.history_rps is None else trace.history_rps[back],
    }
    return but(scenario, trace=adapters)


def _renamed(make: Make) -> None:
    scenario = make()
    trace = scenario.trace
    order = np.random.default_rng(0).permutation(len(trace.adapters))
    specs = tuple(
        replace(each, name=trace.adapters[at].name) for each, at in zip(trace.adapters, order, strict=True)
    )
    targets = scenario.ttft_targets_s  # which go with the adapters to their new places
    other = but(
        make(),
        trace={"adapters": specs},
        ttft_targets_s=None if targets is None else np.append(targets[:-1][np.argsort(order)], targets[-1]),
    )
    same(table(scenario), table(other))


def _unused(make: Make) -> None:
    scenario = make()
    trace, targets = scenario.trace, scenario.ttft_targets_s
    ranks = {adapter.rank for adapter in trace.adapters} or {8}
    more = {
        "adapters": (*trace.adapters, AdapterSpec("that no request uses", min(ranks))),
        "history_rps": None if trace.history_rps is None else np.append(trace.history_rps, 0.0),
    }
    other = but(
        scenario,
        trace=more,
        ttft_targets_s=None if targets is None else np.insert(targets, len(targets) - 1, inf),
    )
    same(table(make()), table(other))


def _halves(make: Make) -> None:
    scenario = steady(make())
    once = table(scenario)
    each = len(once) // scenario.cluster.replicas * scenario.cluster.replicas  # the same replica is next
    if not each:
        return
    trace = replace(without_adapters(exact(scenario).trace), session=None, block_hashes=None)
    half = taken(trace, np.arange(each))
    twice = taken(half, np.tile(np.arange(each), TWICE), np.repeat([0.0, LATER_S], each))
    first = table(replace(steady(make()), trace=half))
    both = table(replace(steady(make()), trace=twice))
    same(first, both.iloc[:each].reset_index(drop=True))
    same(first, both.iloc[each:].reset_index(drop=True), LATER_S)


def taken(trace: Trace, places: NDArray[np.int64], later_s: Any = 0.0) -> Trace:
    """Return a trace of the requests at these places, the same ones more than once perhaps, and so much later."""
    names = ("adapter", "prompt_tokens", "output_tokens", "max_output_tokens")
    columns: dict[str, Any] = {name: getattr(trace, name)[places] for name in names}
    for name in ("session", "block_hashes"):
        values = getattr(trace, name)
        columns[name] = None if values is None else [values[at] for at in places]
    return replace(trace, arrival_s=trace.arrival_s[places] + later_s, **columns)


def _doubled(make: Make) -> None:
    scenario = steady(make())
    trace = taken(scenario.trace, np.repeat(np.arange(len(scenario.trace)), TWICE))
    both = table(but(scenario, trace=trace, cluster={"replicas": TWICE * scenario.cluster.replicas}))
    once = table(steady(make()))
    for copy in range(TWICE):
        same(once, both.iloc[copy::TWICE].reset_index(drop=True), within_s=0.0)


def _idle_incidents(make: Make) -> None:
    plain = table(quiet(make()))
    after_s = float(np.nanmax(plain["finish_s"].to_numpy(), initial=0.0)) + LATER_S
    incidents = {
        "failures": (Failure(host=0, at_s=after_s),),
        "stragglers": (Straggler(replica=0, at_s=0.25, until_s=2.0, factor=1.0),),
        "slow_links": (SlowLink(host=0, at_s=0.25, until_s=2.0, factor=1.0),),
    }
    same(plain, table(but(quiet(make()), cluster=incidents)))


def _more_gpus(make: Make) -> None:
    """Of each replica's requests, in their order and one by one, another GPU takes some away."""

    def of(factor: int) -> pd.DataFrame:
        scenario = steady(make())
        replicas = factor * scenario.cluster.replicas
        changed = but(
            scenario,
            trace=without_adapters(scenario.trace),
            replica={"max_num_seqs": 1, "prefix_caching": False, "host_kv_tokens": 0},
            cluster={"replicas": replicas, "replica_groups": (), "kv_tiers": KvTiersConfig()},
            policies=WITHOUT_SECONDS,
        )
        return table(changed)

    few, many = of(1), of(TWICE)
    _none((few["status"] != many["status"]).to_numpy(), few, many, "status")
    late = many["finish_s"].to_numpy() > few["finish_s"].to_numpy() + WITHIN_S
    _none(late, few, many, "finish_s")


def _of_kinds(make: Make) -> None:
    scenario = make()
    kind = Kind(replicas=1, replica=scenario.replica, calibration=scenario.calibration, gpu=scenario.gpu)
    same(table(make()), table(but(scenario, cluster={"replica_groups": (kind,)})), within_s=0.0)


def _one_replica(make: Make) -> None:
    def behind(router: Any) -> pd.DataFrame:
        one = {"replicas": 1, "replicas_per_host": 1, "replica_groups": ()}
        return table(but(steady(make()), cluster=one, policies={"router": router}))

    first = behind(RoundRobin())
    for router in (MostIdle(), FirstFit(), AdapterAffinity(), Random()):
        same(first, behind(router), within_s=0.0)


def _twice_as_slow(make: Make) -> None:
    once, slow = table(_plain(make())), table(slowed(_plain(make()), 2.0))
    for name in TIMES:
        once[name] *= 2.0
    same(once, slow, within_s=0.0)


def _plain(scenario: Scenario) -> Scenario:
    """Return a steady scenario without policies that know seconds of their own."""
    return but(steady(scenario), policies=WITHOUT_SECONDS, ttft_targets_s=None)


def slowed(tree: Any, by: float, name: str = "") -> Any:
    """Return a scenario in which all that takes time takes `by` times as long, and comes as much later.

    Names say which those are, as they have units.
    """
    if is_dataclass(tree) and not isinstance(tree, type):
        parts = {one.name: slowed(getattr(tree, one.name), by, one.name) for one in fields(tree) if one.init}
        return replace(tree, **parts)
    if isinstance(tree, Mapping) and name == "coefficients":
        return {key: slowed(value, by, key) for key, value in tree.items()}
    if isinstance(tree, tuple) and name in ("replica_groups", "stragglers", "slow_links", "failures"):
        return tuple(slowed(one, by) for one in tree)
    if tree is None:
        return None
    if name.endswith(("bytes_per_s", "_rps", "_flops")):
        return tree / by
    return tree * by if name.endswith("_s") else tree


def _sped_up(make: Make) -> None:
    asked = of_file(make(), lambda rows: rows)
    written = of_file(make(), lambda rows: rows.assign(arrival_s=rows["arrival_s"] / 2.0))
    same(table(replace(asked, trace=asked.trace.sped_up(2.0))), table(written), within_s=0.0)


def _in_any_order(make: Make) -> None:
    def shuffled(rows: pd.DataFrame) -> pd.DataFrame:
        at_once = rows.groupby("arrival_s").ngroup().to_numpy()  # rows of one moment keep their order
        turn = np.random.default_rng(0).permutation(at_once.max() + 1)
        return rows.iloc[np.argsort(turn[at_once], kind="stable")]

    same(table(of_file(make(), lambda rows: rows)), table(of_file(make(), shuffled)), within_s=0.0)


def of_file(scenario: Scenario, change: Callable[[pd.DataFrame], pd.DataFrame]) -> Scenario:
    """Return a scenario whose trace was written to a file, from its first request on, changed there, and read.

    Reading shifts a file to 0 whose first request comes late, by a limit in seconds: half of that may be below it.
    """
    with TemporaryDirectory() as folder:
        path = Path(folder) / "trace.parquet"
        write(scenario.trace, path)
        rows = pd.read_parquet(path)
        change(rows.assign(arrival_s=rows["arrival_s"] - rows["arrival_s"].min())).to_parquet(path)
        trace = File(str(path), scenario.trace.hash_block_tokens).build(0)
    return replace(scenario, trace=trace, ttft_targets_s=None)


def _always(_: Scenario) -> bool:
    return True


def acts_on_requests_alone(scenario: Scenario) -> bool:
    """Whether no eviction swaps by itself: from the start on it brings what is likely to be needed."""
    return not isinstance(scenario.policies.eviction(), Swapper)


def alike(scenario: Scenario) -> bool:
    """Whether all replicas are of one kind, each with its own GPU."""
    cluster = scenario.cluster
    return cluster.engines_per_gpu == 1 and not cluster.kv_token_budgets and not cluster.prefill_replicas


def forgets_names(scenario: Scenario) -> bool:
    """Whether no policy breaks ties between adapters that were never used by their names.

    Some do: placements that give each adapter to some replicas, evictions that keep an order of all adapters, and
    solvers, which find one of plans that are equally good.
    """
    policies = scenario.policies
    own = isinstance(policies.placement, ReplicateAll) and isinstance(policies.migration, Stay)
    return own and policies.eviction().__class__ in (Latest, Lru, OnDemand)


def counts_no_adapters(scenario: Scenario) -> bool:
    """Whether nothing depends on how many adapters there are: dLoRA's credits begin with some for each of them."""
    return forgets_names(scenario) and not isinstance(scenario.policies.scheduler(), Credit)


def asks_for_no_names(scenario: Scenario) -> bool:
    """Whether names decide nothing at all.

    llm-d's `lora-load-state` gives each adapter a replica by its hash, and how much of a draft each accepts may be
    drawn in their order.
    """
    scorers = getattr(scenario.policies.router, "_scorers", ())
    hashed = any(isinstance(each, LoraLoadState) for each in scorers)
    drawn = scenario.speculation.tokens and isinstance(scenario.speculation.adapter_acceptance, tuple)
    return forgets_names(scenario) and not hashed and not drawn


LAWS: Mapping[str, Law] = {
    "invariants": Law("invariants 1 to 18 hold at every event", _always, _holds_invariants),
    "again": Law("the same scenario gives the same bytes", _always, _again),
    "fast_forward": Law("iterations that are alike may be taken together", _always, _steps_alone),
    "turns": Law(
        "independent replicas may be simulated in turn, on several cores",
        lambda scenario: independent(steady(scenario), Simulation(steady(scenario)).fleet.replicas),
        _in_turns,
    ),
    "shift": Law("what comes later ends as much later", acts_on_requests_alone, _later),
    "time_scaling": Law("where all takes twice as long, all ends at twice the time", _always, _twice_as_slow),
    "speed_up": Law("a speed-up of 2 is half of every arrival", _always, _sped_up),
    "row_order": Law("the order of rows in a file does not matter", _always, _in_any_order),
    "renumbered": Law("the numbers of adapters do not matter", _always, _renumbered),
    "renamed": Law("the names of adapters do not matter", asks_for_no_names, _renamed),
    "unused": Law("an adapter that no request uses does not matter", counts_no_adapters, _unused),
    "halves": Law(
        "what is far apart does not matter to each other",
        lambda scenario: one_gpu_each(scenario) and as_lucky(scenario) and acts_on_requests_alone(scenario),
        _halves,
    ),
    "doubled": Law(
        "twice the requests on twice the replicas end at the same times",
        lambda scenario: (
            one_gpu_each(scenario) and as_lucky(scenario) and not scenario.cluster.replica_groups
        ),
        _doubled,
    ),
    "idle_incidents": Law(
        "incidents that slow nothing, or come when all has ended, do not matter",
        lambda scenario: scenario.cluster.engines_per_gpu == 1 and not scenario.cluster.prefill_replicas,
        _idle_incidents,
    ),
    "more_gpus": Law("of requests that are served one by one none ends later", one_gpu_each, _more_gpus),
    "kinds": Law(
        "a group of replicas that are like the others does not matter",
        lambda scenario: (
            one_gpu_each(scenario)
            and scenario.cluster.replicas > 1
            and not scenario.cluster.replica_groups
            and not scenario.policies.placement.assumes_alike
            and not scenario.policies.migration.assumes_alike
        ),
        _of_kinds,
    ),
    "one_replica": Law("on one replica routers do not matter", alike, _one_replica),
}
