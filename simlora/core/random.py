"""Random streams: one per use, so that changing a policy does not change the workload."""

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
    "blocks",
    "answers",
    "clients",
    "decode_router",
    "acceptance",
)
"""All random streams. New names go to the end, or old seeds change their meaning.

scheduler, loader, eviction, placement and migration are reserved: nothing draws from them, but they keep their place.
"""


def stream(seed: int, name: str) -> np.random.Generator:
    """Return the generator of one named stream under `seed`.

    Raises ValueError if the name is not in STREAMS.
    """
    children = np.random.SeedSequence(seed).spawn(len(STREAMS))
    return np.random.default_rng(children[STREAMS.index(name)])
