"""vLLM's and SGLang's systems: their flags as keys, their slots, and what does not fit."""

from pathlib import Path

import pytest

from experiments.scenarios import scenario
from simlora.config.composing import compose
from simlora.config.setup import prepare
from simlora.core.errors import DoesNotFit, InputError
from simlora.engine.building import latency_models
from simlora.engine.cluster.simulation import Simulation
from simlora.policies.eviction.lru import Lru
from simlora.policies.eviction.lru_in_turn import LruInTurn
from simlora.policies.loading.prefetching import Prefetching
from tests.traces import HEADER, workload

SHORT = ("workload.duration_s=20", "timeline=false")


def pool(*overrides: str) -> int:
    return scenario(["system=vllm", "replica.max_num_seqs=2048", *SHORT, *overrides]).replica.kv_token_budget


def test_slots_take_their_memory_from_kv_whether_they_are_used_or_not():
    """Of Qwen-2.5-7B an adapter of rank 16 is 80.7 MB: 1,408 tokens of 57,344 bytes."""
    few, more = (
        pool(
            "model=qwen_2_5_7b",
            "replica.max_lora_rank=16",
            f"replica.max_loras={slots}",
            "workload.ranks=[8]",
        )
        for slots in (1, 101)
    )
    assert few - more == pytest.approx(100 * 1408, abs=1)


@pytest.mark.parametrize(
    "slots, rank, measured",
    [(1, 16, 307_632), (128, 16, 212_032), (32, 32, 258_176), (384, 8, 154_240)],
)
def test_the_pools_that_vllm_reported_follow_from_memory_sizes(slots, rank, measured):
    """Llama-3.1-8B on an H100 of 64 GB. Source: arXiv 2508.08343, its published data."""
    found = pool(f"replica.max_loras={slots}", f"replica.max_lora_rank={rank}", "workload.ranks=[8]")
    assert found == pytest.approx(measured, rel=0.02)


def test_slots_that_leave_nothing_to_kv_do_not_fit():
    too_many = r"94\.7 GB for 252 adapter slots of rank 64 on 1 x h100_64g.*use a lower replica\.max_loras or"
    with pytest.raises(DoesNotFit, match=too_many):
        pool("replica.max_loras=252", "replica.max_lora_rank=64", "workload.ranks=[8]")


def test_an_adapter_above_the_highest_rank_is_named():
    with pytest.raises(InputError, match=r"has rank 64, must be at most replica\.max_lora_rank, which is 32"):
        pool("replica.max_lora_rank=32", "workload.ranks=[8,64]")


LARGE = "cluster.replica_groups=[{replicas: 1, replica: {max_lora_rank: 256, max_loras: 4}}]"


def test_slots_of_a_higher_rank_have_a_pool_and_a_kernel_of_their_own():
    ranks, seats = "workload.ranks=[8,256]", "replica.max_num_seqs=2048"
    run = scenario(["system=vllm", ranks, seats, "cluster.replicas=2", LARGE, *SHORT])
    small, large = run.kinds
    alone = pool("replica.max_lora_rank=256", "replica.max_loras=4", ranks)
    assert large.replica.kv_token_budget == alone != small.replica.kv_token_budget
    shrink = [latency_models(run, kind).kernel.shrink for kind in run.kinds]
    assert shrink[1] == pytest.approx(shrink[0] * (256 * 4) / (64 * 8))


def test_no_slot_of_any_kind_holds_a_rank_above_the_highest():
    says = r"has rank 512, must be at most the highest replica\.max_lora_rank of all replicas, which is 256"
    with pytest.raises(InputError, match=says):
        scenario(["system=vllm", "workload.ranks=[8,512]", "cluster.replicas=2", LARGE, *SHORT])


@pytest.mark.parametrize("key", ["max_loras", "max_lora_rank"])
def test_slots_have_to_be_counted_and_sized(key):
    with pytest.raises(InputError, match=rf"{key} is empty, must be a whole number"):
        pool(f"replica.{key}=null")


def test_sglang_loads_ahead_into_slots_of_its_own_number():
    run = scenario(["system=sglang", "workload=per_adapter", "workload.ranks=[8]", *SHORT])
    assert run.replica.max_loras == 8
    assert type(run.policies.loader()) is Prefetching
    assert type(run.policies.eviction()) is Lru
    assert run.policies.scheduler().max_batched_tokens == 8192
    recorder = Simulation(run).run()
    assert recorder.ended == len(run.trace)


def test_vllm_counts_recency_in_turn_which_only_slots_can():
    run = scenario(["system=vllm", "workload.ranks=[8]", *SHORT])
    assert type(run.policies.eviction()) is LruInTurn
    with pytest.raises(InputError, match=r"needs replica\.adapter_memory=slots; choose eviction=lru"):
        scenario(["eviction=lru_in_turn", *SHORT])


def turns(folder: Path) -> tuple[str, ...]:
    """Two turns of one session, and the second once more with another adapter."""
    rows = ("0,a,8,100,50,one", "10,a,8,200,50,one", "20,b,8,200,50,one")
    return "system=sglang", *workload(folder, *rows, header=f"{HEADER},session")


def test_sglang_prefills_what_a_session_has_not_said_before_to_that_adapter(tmp_path):
    """149 tokens of the first turn have KV, nine blocks of 16."""
    command = turns(tmp_path)
    cached = Simulation(scenario(command)).run().requests().cached_tokens
    assert cached.tolist() == [0, 144, 0]
    off = Simulation(scenario([*command, "replica.prefix_caching=false"])).run().requests().cached_tokens
    assert off.tolist() == [0, 0, 0]


def test_blocks_of_a_trace_are_whole_blocks_of_memory(tmp_path):
    blocks = workload(tmp_path, "0,a,8,600,50,1", header=f"{HEADER},block_hashes")
    command = ("system=sglang", *blocks)
    assert scenario([*command, "workload.hash_block_tokens=512"]).cache_block_tokens == 512
    with pytest.raises(InputError, match=r"replica\.block_size is 16, must divide the 24 tokens"):
        scenario([*command, "workload.hash_block_tokens=24"])
    with pytest.raises(InputError, match=r"workload\.hash_block_tokens is 0, must be"):
        scenario([*command, "workload.hash_block_tokens=0"])


@pytest.mark.parametrize("system, reserve", [("hf_peft", "padded"), ("slora", "peak")])
def test_prefixes_are_shared_where_kv_is_paged_or_fully_reserved(system, reserve):
    says = rf"prefix_caching is true, which needs replica\.reserve full or paged, not {reserve}"
    with pytest.raises(InputError, match=says):
        scenario([f"system={system}", "replica.prefix_caching=true", *SHORT])


def test_sessions_are_kept_in_the_blocks_of_memory(tmp_path):
    command = [*turns(tmp_path), "workload.hash_block_tokens=24", "replica.block_size=32"]
    assert scenario(command).cache_block_tokens == 32


def test_host_memory_for_kv_that_no_replica_keeps_is_noticed():
    asked = prepare(*compose(["system=slora", "replica.host_kv_bytes=1e9", *SHORT]))
    assert "replica.host_kv_bytes keeps nothing: replica.prefix_caching is false." in asked.notices
    assert not [
        notice for notice in prepare(*compose(["system=slora", *SHORT])).notices if "host_kv" in notice
    ]


def test_prefix_caching_says_when_there_is_nothing_to_share(tmp_path):
    idle = prepare(*compose(["system=sglang", "workload=per_adapter", "workload.ranks=[8]", *SHORT]))
    assert [notice for notice in idle.notices if "finds nothing" in notice]
    busy = prepare(*compose(turns(tmp_path)))
    assert not [notice for notice in busy.notices if "finds nothing" in notice]
