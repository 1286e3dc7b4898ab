"""vLLM's and SGLang's systems: their flags as keys, their slots, and what does not fit."""

from __future__ import annotations

import pytest

from experiments.scenarios import scenario
from simlora.core.errors import DoesNotFit, InputError
from simlora.engine.cluster import Cluster
from simlora.policies.eviction.lru import Lru
from simlora.policies.eviction.lru_in_turn import LruInTurn
from simlora.policies.loading.prefetching import Prefetching

SHORT = ("workload.duration_s=20", "timeline=false")


def pool(*overrides: str) -> int:
    return scenario(
        ["system=vllm", "replica.max_batch_size=2048", *SHORT, *overrides]
    ).replica.kv_token_budget


def test_slots_take_their_memory_from_kv_whether_they_are_used_or_not() -> None:
    """Of Qwen-2.5-7B an adapter of rank 16 is 80.7 MB: 1,408 tokens of 57,344 bytes."""
    few, more = (
        pool(
            "model=qwen_2_5_7b",
            "replica.max_lora_rank=16",
            f"replica.max_adapters={slots}",
            "workload.ranks=[8]",
        )
        for slots in (1, 101)
    )
    assert few - more == pytest.approx(100 * 1408, abs=1)


@pytest.mark.parametrize(
    "slots, rank, measured",
    [(1, 16, 307_632), (128, 16, 212_032), (32, 32, 258_176), (384, 8, 154_240)],
)
def test_the_pools_that_vllm_reported_follow_from_memory_sizes(slots: int, rank: int, measured: int) -> None:
    """Llama-3.1-8B on an H100 of 64 GB. Source: arXiv 2508.08343, its published data."""
    found = pool(f"replica.max_adapters={slots}", f"replica.max_lora_rank={rank}", "workload.ranks=[8]")
    assert found == pytest.approx(measured, rel=0.02)


def test_slots_that_leave_nothing_to_kv_do_not_fit() -> None:
    too_many = (
        r"94\.7 GB for 252 adapter slots of rank 64 on 1 x h100_64g.*use a lower replica\.max_adapters or"
    )
    with pytest.raises(DoesNotFit, match=too_many):
        pool("replica.max_adapters=252", "replica.max_lora_rank=64", "workload.ranks=[8]")


def test_an_adapter_above_the_highest_rank_is_named() -> None:
    with pytest.raises(InputError, match=r"has rank 64, must be at most replica\.max_lora_rank, which is 32"):
        pool("replica.max_lora_rank=32", "workload.ranks=[8,64]")


@pytest.mark.parametrize("key", ["max_adapters", "max_lora_rank"])
def test_slots_have_to_be_counted_and_sized(key: str) -> None:
    with pytest.raises(InputError, match=rf"{key} is empty, must be a whole number"):
        pool(f"replica.{key}=null")


def test_sglang_loads_ahead_into_slots_of_its_own_number() -> None:
    run = scenario(["system=sglang", "workload=per_adapter", "workload.ranks=[8]", *SHORT])
    assert run.replica.max_adapters == 8
    assert type(run.policies.loader()) is Prefetching
    assert type(run.policies.eviction()) is Lru
    assert run.policies.scheduler().max_batched_tokens == 8192
    recorder = Cluster(run).run()
    assert recorder.ended == len(run.trace)


def test_vllm_counts_recency_in_turn_which_only_slots_can() -> None:
    run = scenario(["system=vllm", "workload.ranks=[8]", *SHORT])
    assert type(run.policies.eviction()) is LruInTurn
    with pytest.raises(InputError, match=r"needs replica\.adapter_memory=slots; choose eviction=lru"):
        scenario(["eviction=lru_in_turn", *SHORT])


def test_until_s_stops_the_clock() -> None:
    run = scenario(["system=vllm", "workload=per_adapter", "workload.rates_rps=[1]", "until_s=5", *SHORT])
    table = Cluster(run).run().requests()
    unfinished = table[table["status"] == "unfinished"]
    assert len(unfinished)
    assert (table.loc[table["status"] == "finished", "finish_s"] <= 5).all()
    with pytest.raises(InputError, match=r"until_s is 0, must be"):
        scenario(["until_s=0"])
