"""Random streams: one per use, so that changing a policy leaves the workload as it was."""

from __future__ import annotations

import numpy as np

STREAMS = (
    "arrivals",
    "prompt_lengths",
    "output_lengths",
    "adapters",
    "scheduler",
    "loader",
    "eviction",
    "router",
    "placement",
    "migration",
    "faults",
    "stragglers",
    "slow_links",
    "tenants",
)
"""Every stream of randomness. New names go to the end, or old seeds change their meaning.

scheduler, loader, eviction, placement and migration are reserved: nobody draws from them, and they keep their position.
"""


def stream(seed: int, name: str) -> np.random.Generator:
    """Return the generator of one named stream under `seed`.

    Raises ValueError for a name that is not in STREAMS.
    """
    children = np.random.SeedSequence(seed).spawn(len(STREAMS))
    return np.random.default_rng(children[STREAMS.index(name)])
