"""Adapters that are whole copies of the model: in the pool, loaded and evicted like any other adapter."""

from __future__ import annotations

from dataclasses import replace

import pytest

from simlora.engine.cluster.simulation import Simulation
from simlora.policies.scheduling.peft_continuous import PeftContinuous
from tests.engine.by_hand import prefill_s
from tests.engine.cases import COEFFICIENTS as C
from tests.engine.cases import TINY, Case, Row

SLOTS = -(-TINY.weight_bytes // TINY.kv_bytes_per_token)
LOAD_S = C["adapter_load.latency_s"] + TINY.weight_bytes / C["adapter_load.bytes_per_s"]


@pytest.mark.parametrize(
    "adapters, loaded",
    [((0, 1, 0, 1), (True, True, False, False)), ((0, 1, 2, 1, 0), (True, True, True, False, True))],
    ids=[
        "copies that fit stay, and changing over is free",
        "one more takes the place of the one used last of all",
    ],
)
def test_a_copy_is_as_large_as_the_model_whatever_the_rank(
    adapters: tuple[int, ...], loaded: tuple[bool, ...]
) -> None:
    """In a pool that holds two copies, and 20 slots of KV."""
    rows = tuple(Row(float(i), adapter, 4, 1, 1) for i, adapter in enumerate(adapters))
    of = Case(rows=rows, capacity=2 * SLOTS + 20, kernel="merged", eviction="lru", max_wait_tokens=0)
    scenario = of.but(reserve="paged", watermark=0.0).scenario(scheduler=lambda: PeftContinuous(merge=False))
    copies = replace(scenario.replica, full_copies=True, target_modules=())
    recorder = Simulation(replace(scenario, replica=copies)).run()
    table = recorder.requests()
    cold_s = [LOAD_S if each else 0.0 for each in loaded]
    assert table.cold_start_s.tolist() == pytest.approx(cold_s)
    assert table.latency_s.tolist() == pytest.approx([each_s + prefill_s(4) for each_s in cold_s])
    assert recorder.adapter_loads == sum(loaded)
