"""From a configuration to a scenario."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from simlora.config.composing import choices, compose
from simlora.config.setup import Setup, prepare
from simlora.core.errors import DoesNotFit, InputError
from simlora.engine.building import adapters
from simlora.engine.cluster.simulation import Simulation
from simlora.policies.scheduling.chunked_slo import ChunkedSlo
from simlora.policies.scheduling.early_abort import EarlyAbort
from simlora.policies.scheduling.fcfs import Fcfs
from tests.cli.command import CALIBRATION


@pytest.fixture
def calibration(tmp_path: Path) -> str:
    (tmp_path / "cal.yaml").write_text(CALIBRATION)
    return f"calibration={tmp_path / 'cal.yaml'}"


def setup(*overrides: str) -> Setup:
    return prepare(*compose(["workload.duration_s=5", *overrides]))


def test_slora_is_its_released_server(calibration):
    found = setup(calibration)
    replica, policies = found.scenario.replica, found.scenario.policies
    assert (replica.max_wait_tokens, replica.reserve) == (10, "peak")
    assert replica.max_num_batched_tokens == max(replica.kv_token_budget // 6, 3072)
    assert type(policies.scheduler()) is Fcfs
    assert type(policies.loader()).__name__ == "Blocking"
    assert type(policies.eviction()).__name__ == "OnDemand"
    assert type(policies.kernel(found.scenario.calibration)).__name__ == "Mbgmv"


def test_the_pool_follows_from_the_gpu_unless_it_is_set(calibration):
    small, large = setup(calibration).scenario.replica, setup(calibration, "gpu=a100_80g").scenario.replica
    assert small.kv_token_budget < large.kv_token_budget
    assert large.max_num_batched_tokens == large.kv_token_budget // 6
    assert setup(calibration, "replica.kv_token_budget=2e4").scenario.replica.kv_token_budget == 20_000


def test_outputs_do_not_change_what_is_simulated(calibration):
    plain, quiet = setup(calibration), setup(calibration, "report=false", "timeline=false")
    assert plain.about["config_hash"] == quiet.about["config_hash"]
    assert plain.about["config_hash"] != setup(calibration, "seed=1").about["config_hash"]


def test_early_abort_gives_up_at_the_slo():
    scheduler = setup("system=slora_early_abort", "slo.ttft_s=4").scenario.policies.scheduler()
    assert isinstance(scheduler, EarlyAbort)
    assert scheduler.patience.seconds == 3.5


def test_chunked_slo_knows_the_targets_of_the_slo():
    scheduler = setup("scheduler=chunked_slo", "slo.ttft_s=4", "slo.tpot_s=0.2").scenario.policies.scheduler()
    assert isinstance(scheduler, ChunkedSlo)
    assert (scheduler.patience.seconds, scheduler.pass_s) == (3.9, 0.2)
    without = setup("scheduler=chunked_slo", "slo.ttft_s=null").scenario.policies.scheduler()
    assert isinstance(without, ChunkedSlo)
    assert (without.patience, without.pass_s) == (None, None)


def test_packed_engines_share_a_gpu_one_an_adapter():
    found = setup("system=vllm_packed", "gpu=a100_80g", "workload.adapters=5")
    assert (found.scenario.cluster.replicas, found.scenario.cluster.engines_per_gpu) == (5, 5)
    assert found.scenario.calibration.path == "a100_80g-llama_7b-tp1-vllm_packed"
    alone = setup("system=vllm_packed", "gpu=a100_80g", "workload.adapters=1").scenario.replica
    assert 0 < 5 * found.scenario.replica.kv_token_budget < alone.kv_token_budget, "the others' weights"
    assert all(adapter.kv_tokens == 0 for adapter in Simulation(found.scenario).adapters), "merged beforehand"


def test_packed_engines_share_the_memory_that_is_left_by_the_requests_that_each_will_get():
    packed = ("system=vllm_packed", "gpu=a100_80g", "workload.adapters=3", "workload.duration_s=300")
    found = setup(*packed).scenario
    slots = found.replica.kv_token_budget
    requests = np.bincount(found.trace.adapter, minlength=3)
    budgets = [found.config_of(replica).kv_token_budget for replica in range(3)]
    assert budgets == [pytest.approx(3 * slots * share, abs=1.0) for share in requests / requests.sum()]
    assert len(set(budgets)) == 3
    equal = setup(*packed, "cluster.memory_shares=equal").scenario
    assert {equal.config_of(replica).kv_token_budget for replica in range(3)} == {slots}


def test_where_prompts_come_in_chunks_none_is_too_long_for_one_prefill(calibration):
    replica = setup(calibration, "scheduler=chunked_prefill").scenario.replica
    assert replica.max_num_batched_tokens == replica.kv_token_budget


def test_packed_engines_that_do_not_fit_are_out_of_memory_in_one_sentence():
    with pytest.raises(
        DoesNotFit, match=r"6 copies of llama_7b \(cluster\.engines_per_gpu\) .* at most 5 fit"
    ):
        setup("system=vllm_packed", "gpu=a100_80g", "workload.adapters=6")


def test_a_region_takes_its_share_of_the_slots_and_the_pool_the_rest(calibration):
    pool = setup(calibration).scenario.replica.kv_token_budget
    chosen = (calibration, "replica.adapter_memory=padded", "replica.adapter_region_share=0.25")
    replica = setup(*chosen).scenario.replica
    assert replica.adapter_region_tokens == int(0.25 * pool)
    assert replica.kv_token_budget + replica.adapter_region_tokens == pool
    assert replica.max_num_batched_tokens == max(replica.kv_token_budget // 6, 3072)


def test_the_unified_pool_takes_all_slots_whatever_the_share(calibration):
    pool = setup(calibration).scenario.replica.kv_token_budget
    replica = setup(calibration, "replica.adapter_region_share=0.5").scenario.replica
    assert (replica.kv_token_budget, replica.adapter_region_tokens) == (pool, 0)


def test_adapters_in_memory_of_their_own_need_an_eviction_that_keeps_none(calibration):
    own = (calibration, "replica.adapter_memory=padded")
    with pytest.raises(InputError, match=r"replica\.adapter_memory=padded needs eviction=on_demand"):
        setup(*own, "eviction=lru")
    with pytest.raises(InputError, match="needs a loader that does not prefetch"):
        setup(*own, "loader=prefetching")
    assert setup(*own, "loader=cached").scenario.replica.adapter_memory == "padded"


GROUPS = ("scheduler", "loader", "eviction", "router", "placement", "migration", "autoscaler")


@pytest.mark.parametrize("place", range(max(len(choices(group)) for group in GROUPS)))
def test_every_policy_can_be_chosen(calibration, place):
    """One of each group at once: groups do not affect each other in this, but for migration and autoscaler."""
    chosen = {group: choices(group)[place % len(choices(group))] for group in GROUPS}
    if chosen["migration"] != "stay":
        del chosen["autoscaler"]
    slots = ("replica.adapter_memory=slots", "replica.max_loras=4", "replica.max_lora_rank=64")
    kept = ("replica.prefix_caching=true", "replica.reserve=paged")
    steps = ("autoscaler.steps=[{at_s: 0, replicas: 1}]",)
    needs = {"lru_in_turn": slots, "cost_model": kept, "banded_lru": kept, "by_schedule": steps}
    also = [word for name in chosen.values() for word in needs.get(name, ())]
    policies = setup(calibration, *(f"{group}={name}" for group, name in chosen.items()), *also).about[
        "policies"
    ]
    assert all(policies[group].startswith("simlora.policies.") for group in chosen)


@pytest.mark.parametrize("name", ["cost_model", "banded_lru"])
def test_one_order_of_adapters_and_kv_needs_both_in_one_pool(calibration, name):
    kept = (f"eviction={name}", "replica.reserve=paged", "replica.prefix_caching=true")
    with pytest.raises(InputError, match=r"eviction .* needs replica\.prefix_caching=true"):
        setup(calibration, *kept[:2])
    with pytest.raises(InputError, match=r"eviction .* needs replica\.adapter_memory=unified"):
        setup(calibration, *kept, "replica.adapter_memory=partition", "replica.adapter_region_share=0.2")


def test_host_memory_for_kv_is_given_in_bytes(calibration):
    replica = setup(calibration, "replica.host_kv_bytes=1e9").scenario.replica
    assert replica.host_kv_tokens == 10**9 // 524_288
    with pytest.raises(InputError, match=r"replica\.host_kv_bytes is -1, must be at least 0"):
        setup(calibration, "replica.host_kv_bytes=-1")
    with pytest.raises(
        InputError, match=r"host_kv_bytes is 200, must be 0 or at least the [\d,]+ bytes of one"
    ):
        setup(calibration, "replica.host_kv_bytes=200")


def test_adapters_can_all_be_taken_for_the_same_size(calibration):
    assert setup(calibration, "replica.adapter_tokens=1").scenario.replica.adapter_tokens == 1
    with pytest.raises(
        InputError, match=r"replica\.adapter_tokens is 0, must be a whole number of token slots, at least 1"
    ):
        setup(calibration, "replica.adapter_tokens=0")
    with pytest.raises(InputError, match=r"replica\.adapter_tokens is 'most'; choose one of highest"):
        setup(calibration, "replica.adapter_tokens=most")


def test_or_for_the_size_of_the_highest_rank(calibration):
    """A slot of vLLM's holds any of them: FastLibra's ranks are 32 and 64, which need 128 and 256 token slots."""
    ranks = "workload.ranks=[32,64]"
    own = setup(calibration, "workload=chatbot", ranks).scenario
    slots = setup(calibration, "workload=chatbot", ranks, "replica.adapter_tokens=highest").scenario
    assert {each.kv_tokens for each in adapters(own)} == {128, 256}
    assert {each.kv_tokens for each in adapters(slots)} == {256}
    assert [each.size_bytes for each in adapters(slots)] == [each.size_bytes for each in adapters(own)]


def test_others_have_their_own_pool_and_gpus_and_else_what_all_have():
    second = "{gpu: a100_80g, replicas: 2, tp: 2, kv_token_budget: 777}"
    others = f"cluster.replica_groups=[{{gpu: a100_80g, replicas: 1}}, {second}]"
    known = ("cluster.replicas=4", "replica.kv_token_budget=1000", "replica.max_num_seqs=9")
    one, two = setup("model=llama_2_7b", "gpu=a100_80g", *known, others).scenario.cluster.replica_groups
    assert (one.replicas, one.replica.tp, two.replicas, two.replica.tp) == (1, 1, 2, 2)
    assert one.replica.kv_token_budget > 50_000, "what the GPU has left, not what was given to the others"
    assert two.replica.kv_token_budget == 777
    assert (one.replica.max_num_seqs, two.replica.max_num_seqs) == (9, 9)


@pytest.mark.parametrize(
    "others, message",
    [
        ("3", "cluster.replica_groups is 3, must be a list, such as [{gpu: a100_80g, replicas: 2}]"),
        ("[{gpu: a10}]", "cluster.replica_groups has {'gpu': 'a10'}, must have replicas, and may have gpu"),
        ("[{gpu: a10, replicas: 1, model: b}]", "there is no key cluster.replica_groups.model"),
        ("[{replicas: 1, max_num_seqs: 4}]", "no key cluster.replica_groups.max_num_seqs; it goes below"),
        ("[{replicas: 1, replica: {max_num_seq: 4}}]", "no key replica.max_num_seq; did you mean"),
        ("[{replicas: 1, replica: {reserve: full}}]", "cluster.replica_groups has replica.reserve, which"),
        ("[{replicas: 1, replica: 4}]", "replica of cluster.replica_groups is 4, must have keys, such as"),
        ("[{replicas: 1, tp: 1, replica: {tp: 1}}]", "cluster.replica_groups gives both tp and replica.tp"),
        ("[{replicas: 1, replica: {max_lora_rank: 64}}]", "has replica.max_lora_rank, which needs"),
        ("[{replicas: 1, replica: {max_num_seqs: 0}}]", "on a10g, replica.max_num_seqs is 0"),
        ("[{gpu: a11, replicas: 1}]", "gpu of cluster.replica_groups is 'a11', which is unknown; did you"),
        ("[{gpu: a100_80g, replicas: 0}]", "replicas of cluster.replica_groups is 0, must be a whole"),
        ("[{gpu: a100_80g, replicas: 1, tp: 3}]", "cluster.replica_groups: on a100_80g, replica.tp is 3"),
        ("[{gpu: npu_64g, replicas: 1, tp: 2}]", "there is no calibration npu_64g-llama"),
        ("[{gpu: a100_80g, replicas: 2}]", "cluster.replica_groups has all of the replicas"),
    ],
)
def test_others_that_cannot_be_are_said_plainly(calibration, others, message):
    with pytest.raises(InputError) as error:
        setup(calibration, "cluster.replicas=2", f"cluster.replica_groups={others}")
    assert message in str(error.value)


def test_others_on_the_same_gpu_keep_its_pool_and_calibration(calibration):
    own = "{replicas: 1, replica: {max_num_seqs: 9, max_wait_tokens: 3}}"
    groups = f"[{own}, {{replicas: 1, tp: 1, kv_token_budget: 50}}]"
    made = setup(
        calibration, "cluster.replicas=3", "replica.kv_token_budget=1000", f"cluster.replica_groups={groups}"
    )
    scenario = made.scenario
    first, one, two = scenario.kinds
    assert one.replica == replace(first.replica, max_num_seqs=9, max_wait_tokens=3)
    assert two.replica == replace(first.replica, kv_token_budget=50)
    assert one.calibration == two.calibration == first.calibration
    assert (one.gpu, two.gpu) == (first.gpu, first.gpu)
    assert [kind["replica"] for kind in made.about["others"]] == [
        {"max_num_seqs": 9, "max_wait_tokens": 3},
        {},
    ]


def test_others_whose_gpu_is_too_small_do_not_fit(calibration):
    with pytest.raises(DoesNotFit, match=r"cluster\.replica_groups: on a10, "):
        setup(
            calibration, "model=llama_30b", "gpu=a100_80g", "cluster.replica_groups=[{gpu: a10, replicas: 1}]"
        )


def test_a_class_that_was_replaced_in_its_module_is_made_as_it_is_now(monkeypatch):
    class Other(Fcfs):
        pass

    def scheduler() -> type:
        return type(prepare(*compose(["workload.duration_s=9"])).scenario.policies.scheduler())

    assert scheduler() is Fcfs
    monkeypatch.setattr("simlora.policies.scheduling.fcfs.Fcfs", Other)
    assert scheduler() is Other
