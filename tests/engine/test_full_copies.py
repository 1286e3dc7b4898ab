"""Adapters that are whole copies of the model: in the pool, loaded and evicted like any other adapter."""

from __future__ import annotations

from dataclasses import replace

import pytest

from simlora.core.errors import InputError
from simlora.engine.cluster.simulation import Simulation
from simlora.engine.replica_config import ReplicaConfig
from simlora.metrics.recorder import Recorder
from simlora.policies.scheduling.peft_continuous import PeftContinuous
from tests.engine.by_hand import prefill_s
from tests.engine.cases import COEFFICIENTS, TINY, Case, Row

SLOTS = -(-TINY.weight_bytes // TINY.kv_bytes_per_token)
LOAD_S = COEFFICIENTS["adapter_load.latency_s"] + TINY.weight_bytes / COEFFICIENTS["adapter_load.bytes_per_s"]


def run(*rows: Row, copies: int) -> Recorder:
    """Serve with a pool that holds so many copies, and 20 slots of KV."""
    case = Case(
        rows=rows,
        capacity=copies * SLOTS + 20,
        kernel="merged",
        eviction="lru",
        max_wait_tokens=0,
        reserve="paged",
        watermark=0.0,
    )
    scenario = case.scenario()
    replica = replace(scenario.replica, full_copies=True, target_modules=())
    policies = replace(scenario.policies, scheduler=lambda: PeftContinuous(merge=False))
    return Simulation(replace(scenario, replica=replica, policies=policies)).run()


def test_a_copy_is_as_large_as_the_model_whatever_the_rank() -> None:
    table = run(Row(0.0, 0, 4, 1, 1), copies=2).requests()
    assert table.finish_s[0] == LOAD_S + prefill_s(4)
    assert table.cold_start_s[0] == LOAD_S


def test_copies_that_fit_stay_and_changing_over_is_free() -> None:
    rows = tuple(Row(float(i), i % 2, 4, 1, 1) for i in range(4))
    recorder = run(*rows, copies=2)
    assert recorder.adapter_loads == 2
    assert recorder.requests().latency_s.tolist()[2:] == pytest.approx([prefill_s(4)] * 2)


def test_a_copy_that_does_not_fit_beside_the_others_takes_the_place_of_the_one_used_last_of_all() -> None:
    rows = tuple(Row(float(i), adapter, 4, 1, 1) for i, adapter in enumerate((0, 1, 2, 1, 0)))
    recorder = run(*rows, copies=2)
    assert recorder.adapter_loads == 4
    assert recorder.requests().cold_start_s.gt(0).tolist() == [True, True, True, False, True]


def test_copies_have_no_modules_of_their_own_and_no_memory_of_their_own() -> None:
    message = r"replica\.full_copies is true, which needs replica\.adapter_memory=unified and replica\.target_modules"
    with pytest.raises(InputError, match=message):
        ReplicaConfig(kv_token_budget=10, full_copies=True)
    with pytest.raises(InputError, match=message):
        ReplicaConfig(kv_token_budget=10, full_copies=True, target_modules=(), adapter_memory="partition")
    with pytest.raises(InputError, match=r"replica\.full_copies is 3, must be true or false"):
        ReplicaConfig(kv_token_budget=10, full_copies=3)  # type: ignore[arg-type]
