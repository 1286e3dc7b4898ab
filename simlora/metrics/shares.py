"""What a recorder has of some replicas, as plain values, to be added to another recorder in another process."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from simlora.metrics.journal import Decided
from simlora.metrics.recorder import Recorder

COUNTS = (
    "boundaries",
    "token_steps",
    "draft_tokens",
    "accepted_tokens",
    "verified",
    "preemptions",
    "prompt_tokens",
    "cached_tokens",
    "adapter_hits",
    "adapter_misses",
    "adapter_loads",
    "adapter_load_bytes",
    "disk_loads",
    "reloads",
)
"""A recorder's numbers that are sums over replicas which do not affect each other; `ended` comes with the rows."""


class Share(NamedTuple):
    """All that a recorder has but rows; `counts` are in the order of COUNTS, the rest as its owners give it."""

    counts: tuple[int, ...]
    last_s: float
    gaps: tuple[Any, ...]
    usage: list[tuple[Any, ...]]
    timeline: tuple[float, Any] | None
    decided: list[Decided]


def share(recorder: Recorder, replicas: Sequence[int]) -> Share:
    """Return what was recorded of some replicas, which are all that the recorder has recorded."""
    return Share(
        tuple(getattr(recorder, name) for name in COUNTS),
        recorder.last_s,
        recorder.token_gaps.share(),
        recorder.usage.share(replicas),
        None if recorder.timeline is None else recorder.timeline.share(),
        recorder.journal.decided,
    )


def add(recorder: Recorder, share: Share) -> None:
    """Add a share to what a recorder has."""
    for name, count in zip(COUNTS, share.counts, strict=True):
        setattr(recorder, name, getattr(recorder, name) + count)
    recorder.last_s = max(recorder.last_s, share.last_s)
    recorder.token_gaps.add_share(share.gaps)
    recorder.usage.add_share(share.usage)
    if recorder.timeline is not None and share.timeline is not None:
        recorder.timeline.add_share(share.timeline)
    recorder.journal.decided += share.decided
