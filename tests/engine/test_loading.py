"""Loads, hits and prefetches: one load is charged once, and what will not stay is not fetched."""

from __future__ import annotations

import pytest

from simlora.metrics.recorder import Recorder
from tests.engine.cases import Case, Row


def crowd(loader: str, scheduler: str = "fcfs") -> Recorder:
    """Sixty requests of twenty adapters in a pool that holds a few of them."""
    rows = tuple(Row(0.01 * i, i % 20, 6, 12, 12) for i in range(60))
    return Case(
        rows=rows, ranks=(1,) * 20, capacity=100, max_wait_tokens=2, loader=loader, scheduler=scheduler
    ).run()


@pytest.mark.parametrize("scheduler", ["fcfs", "lcfs"])
def test_prefetching_fetches_nothing_that_growing_kv_pushes_out_again(scheduler: str) -> None:
    blocking, prefetching = crowd("blocking", scheduler), crowd("prefetching", scheduler)
    assert prefetching.adapter_hits > blocking.adapter_hits
    # A request that starts may still take the room of one that was fetched for another.
    assert prefetching.adapter_loads <= 1.2 * blocking.adapter_loads
    assert prefetching.requests().cold_start_s.mean() < blocking.requests().cold_start_s.mean()
