"""Loads, hits and prefetches: one load is charged once, and what will not stay is not fetched."""

from __future__ import annotations

import pytest

from simlora.metrics.recorder import Recorder
from tests.engine.cases import Case, Row


@pytest.mark.parametrize("loader, loads, hits", [("blocking", 2, 1), ("cached", 0, 3)])
def test_requests_for_one_adapter_share_its_load_and_the_second_is_a_hit(
    loader: str, loads: int, hits: int
) -> None:
    """Two of one adapter and one of another, all at once; the cached oracle never loads and never misses."""
    recorder = Case(rows=tuple(Row(0.0, adapter, 4, 3, 3) for adapter in (0, 0, 1)), loader=loader).run()
    assert recorder.adapter_loads == loads
    assert (recorder.adapter_hits, recorder.adapter_misses) == (hits, 3 - hits)
    assert (recorder.requests().cold_start_s == 0.0).all() == (loads == 0)


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
