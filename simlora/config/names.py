"""Finds what a mistyped key was meant to be."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import SequenceMatcher
from typing import Any

RENAMED = {
    "replica.max_batch_size": "replica.max_num_seqs",
    "replica.max_prefill_tokens": "replica.max_num_batched_tokens",
    "replica.admit_every": "replica.max_wait_tokens",
    "replica.max_adapters": "replica.max_loras",
    "replica.host_adapters": "replica.max_cpu_loras",
    "replica.memory_utilisation": "replica.gpu_memory_utilization",
    "replica.block_tokens": "replica.block_size",
    "cluster.others": "cluster.replica_groups",
    "autoscaler.down_after_s": "autoscaler.down_window_s",
}
"""Keys by the names that they had before, which are refused with the new one named."""
_ALIKE = 0.7
_AS_ALIKE = 0.1


def close_keys(key: str, known: Iterable[str]) -> str:
    """Return the end of a sentence about an unknown dotted key.

    The end is the new name of a renamed key, or `did you mean …?`, or else the keys of its section, or else where
    all keys are listed. A key without its section (`max_wait_tokens`) is found too.
    """
    for old, new in RENAMED.items():
        if key in (old, _tail(old)):
            return f"it is called {new} now"
    choices = list(dict.fromkeys(known))
    likeness = {name: _likeness(key, name) for name in choices}
    best = max(likeness.values(), default=0.0)
    close = sorted(
        (name for name in choices if likeness[name] > best - _AS_ALIKE), key=lambda name: -likeness[name]
    )
    if best >= _ALIKE:
        return f"did you mean {' or '.join(close[:3])}?"
    parent = key.rpartition(".")[0]
    siblings = [_tail(name) for name in choices if name.rpartition(".")[0] == parent]
    return f"{parent} has {', '.join(siblings)}" if parent and siblings else "simlora --help lists the keys"


def _likeness(key: str, name: str) -> float:
    """Return how alike two keys are, 0 to 1: their last parts, and a little less in another section."""
    alike = SequenceMatcher(None, _tail(key), _tail(name)).ratio()
    return alike if key.rpartition(".")[0] == name.rpartition(".")[0] else alike - _AS_ALIKE / 2


def _tail(key: str) -> str:
    return key.rpartition(".")[2]


def dotted(tree: Mapping[str, Any], prefix: str = "") -> list[str]:
    """Return the dotted names of all sections and values of a tree."""
    names = []
    for key, value in tree.items():
        names.append(f"{prefix}{key}")
        if isinstance(value, Mapping):
            names += dotted(value, f"{prefix}{key}.")
    return names
