"""Keys of a mechanism that are set while another key leaves the mechanism out.

Only these are noticed. A key that some systems set for others to use, such as replica.watermark or host.cores, is not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import yaml

from simlora.config.composing import FOLDER, NAME
from simlora.config.reading import Tree
from simlora.core.trees import branch
from simlora.engine.scenario import Scenario

NEEDS: tuple[tuple[str, tuple[str, ...], Callable[[Scenario], Any], str], ...] = (
    (
        "cluster",
        ("least_replicas", "start_s", "warm_up_adapters"),
        lambda run: run.scaling.autoscaler.period_s is not None,
        "an autoscaler other than fixed",
    ),
    (
        "cluster",
        ("kv_handover", "mixed_pool_tokens"),
        lambda run: run.cluster.prefill_replicas,
        "cluster.prefill_replicas",
    ),
    (
        "cluster",
        ("kv_store_servers",),
        lambda run: run.cluster.kv_tiers.store_bytes,
        "cluster.kv_store_bytes",
    ),
    (
        "cluster",
        ("kv_fetch",),
        lambda run: run.cluster.kv_tiers.used,
        "host.kv_disk_bytes or cluster.kv_store_bytes",
    ),
    ("cluster", ("adapter_burst",), lambda run: run.cluster.adapter_rps is not None, "cluster.adapter_rps"),
    ("host", ("disk",), lambda run: run.cluster.kv_tiers.disk_bytes, "host.kv_disk_bytes"),
    (
        "host",
        ("memory_bytes",),
        lambda run: run.cluster.adapter_pool == "distributed",
        "cluster.adapter_pool=distributed",
    ),
    (
        "speculation",
        ("draft", "acceptance", "adapter_acceptance", "most_running"),
        lambda run: run.speculation.tokens,
        "speculation.tokens",
    ),
    (
        "clients",
        ("backoff_s", "backoff_most_s", "backoff_jitter"),
        lambda run: run.clients.retries,
        "clients.retries",
    ),
)
"""Sections, keys of theirs, whether they matter in a run, and what would make them matter."""


def idle_keys(tree: Tree, scenario: Scenario) -> Iterator[str]:
    """Yield a notice for the keys that differ from their defaults and have no effect in this scenario."""
    for name, keys, matters, needed in NEEDS:
        if matters(scenario):
            continue
        given, defaults = branch(tree, name), _defaults()[name]
        found = [f"{name}.{key}" for key in keys if given[key] != defaults[key]]
        if found:
            yield f"{' and '.join(found)} {'has' if len(found) == 1 else 'have'} no effect without {needed}."


@cache
def _defaults() -> Tree:
    """Return config.yaml as it stands."""
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # the first is ten times as fast
    text = (FOLDER / f"{NAME}.yaml").read_text(encoding="utf-8")
    tree: Tree = yaml.load(text, loader)  # noqa: S506 - a file of the package
    return tree
