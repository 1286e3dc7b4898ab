"""A trace drawn anew from its own stretches of time, so that seeds tell how far its figures are chance."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from simlora.core.errors import InputError
from simlora.core.random import stream
from simlora.core.trace import Trace


def resampled(trace: Trace, block_s: float, seed: int) -> Trace:
    """Return a trace as long as this one, of blocks of it of `block_s` seconds that begin anywhere, one after another.

    Within a block the requests keep their order, gaps, adapters and lengths, so that bursts up to its length stay; what
    follows a block is independent of it. A session ends with its block: its next turns are another session's. Source:
    the moving-block bootstrap, Künsch, Annals of Statistics 17 (1989), 1217-1241.
    Raises InputError for blocks longer than the trace.
    """
    lasts_s = trace.duration_s
    if block_s >= lasts_s:
        raise InputError(
            f"workload.resample_block_s is {block_s:g}, must be less than the {lasts_s:g} s that the trace lasts"
        )
    count = int(np.ceil(lasts_s / block_s))
    begins_s = stream(seed, "blocks").uniform(0.0, lasts_s - block_s, count)
    rows, shifts_s, blocks = [], [], []
    for block, begin_s in enumerate(begins_s.tolist()):
        long_s = min(block_s, lasts_s - block * block_s)
        first, end = np.searchsorted(trace.arrival_s, [begin_s, begin_s + long_s]).tolist()
        rows.append(np.arange(first, end))
        shifts_s.append(np.full(end - first, block * block_s - begin_s))
        blocks.append(np.full(end - first, block))
    at, block_of = np.concatenate(rows), np.concatenate(blocks).tolist()
    if not len(at):
        raise InputError(
            f"workload.resample_block_s is {block_s:g}, and none of the blocks that were drawn has a request; make it "
            "longer"
        )
    sessions, hashes = trace.session, trace.block_hashes
    columns = {
        name: getattr(trace, name)[at]
        for name in ("adapter", "prompt_tokens", "output_tokens", "max_output_tokens")
    }
    return replace(
        trace,
        arrival_s=trace.arrival_s[at] + np.concatenate(shifts_s),
        session=None
        if sessions is None
        else [
            None if sessions[row] is None else f"{sessions[row]} in block {block}"
            for row, block in zip(at.tolist(), block_of, strict=True)
        ],
        block_hashes=None if hashes is None else [hashes[row] for row in at.tolist()],
        source=f"{trace.source}, blocks of {block_s:g} s drawn anew with seed {seed} (moving-block bootstrap)",
        **columns,
    )
