"""Whether a cluster's replicas are independent: no event of one changes what another does."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from simlora.engine.cluster.routing import is_blind
from simlora.engine.replica.replica import Replica
from simlora.engine.scenario import Scenario


def independent(scenario: Scenario, replicas: Sequence[Replica]) -> bool:
    """Whether no replica affects another, and the router looks at none."""
    cluster, policies = scenario.cluster, scenario.policies
    periodic = (policies.migration, policies.placement, scenario.scaling.autoscaler)
    connected = (
        not is_blind(policies.router),
        policies.assists,  # hosts have CPU cores for all of their replicas
        policies.merges,  # the time with merged adapters is summed over replicas in order of time
        cluster.engines_per_gpu > 1,
        cluster.lora_server_gpus,
        cluster.prefill_replicas,
        cluster.kv_tiers.used,
        cluster.status_every_s,
        cluster.max_outstanding is not None,
        cluster.adapter_rps is not None,
        cluster.adapter_pool == "distributed",
        cluster.failures,
        cluster.stragglers,
        cluster.slow_links,
        scenario.until_missed is not None,
        scenario.tracing,
        scenario.parts,
        any(policy.period_s is not None for policy in periodic),
        any(map(_shares, (policies.scheduler, policies.loader, policies.eviction))),
        # Replicas of a kind share their kernel, and one of the user's own may have a state.
        any(_module(replica.runner.latency.kernel) != "simlora" for replica in replicas),
        # They go on until the last request of all replicas has ended.
        any(part.outlives_requests for replica in replicas for part in replica.hooks.bounds),
        policies.loader().forecast_s is not None,
    )
    return len(replicas) > 1 and not any(connected)


def _shares(make: Callable[..., Any]) -> bool:
    """Whether what makes a replica's policy gives all of them the same object, which may have a state."""
    given = (*getattr(make, "args", ()), *getattr(make, "keywords", {}).values())
    return not all(map(_is_plain, given))


def _is_plain(value: Any) -> bool:
    if isinstance(value, Mapping):
        return all(map(_is_plain, value.values()))
    if isinstance(value, list | tuple):
        return all(map(_is_plain, value))
    return value is None or isinstance(value, bool | int | float | str)


def _module(value: object) -> str:
    """Return the package in which an object's class is defined."""
    return type(value).__module__.partition(".")[0]
