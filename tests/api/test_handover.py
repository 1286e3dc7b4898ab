"""What a summary tells of prefill and decode on different replicas, and which pool is near saturation."""

from typing import Any

import pytest

import simlora
from simlora.core.errors import InputError

APART = (
    "gpu=a100_80g",
    "model=llama_2_7b",
    "system=chunked_prefill",
    "workload=synthetic",
    "workload.adapters=20",
    "workload.duration_s=null",
    "workload.requests=300",
    "workload/prompt_tokens=fixed",
    "workload/output_tokens=fixed",
    "cluster.replicas=2",
    "cluster.prefill_replicas=1",
    "report=false",
)


def summary(*overrides: str, prompt: int = 512, output: int = 64, rate_rps: float = 4) -> dict[str, Any]:
    lengths = f"workload.prompt_tokens.tokens={prompt}", f"workload.output_tokens.tokens={output}"
    rate = f"workload.arrivals.rate_rps={rate_rps}"
    return simlora.simulate([*APART, *lengths, rate, *overrides]).summary


def test_it_tells_what_was_handed_over_and_how_long_that_took():
    found = summary()
    told = found["handover"]
    assert told["requests"] == 300
    assert told["kv_tokens"] == 300 * 512
    kv_bytes = 2 * 32 * 4096 * 2  # of a token: keys and values of 32 layers, in 16 bits
    assert told["kv_bytes"] == 300 * 512 * kv_bytes
    assert told["copy_s"]["p50"] == pytest.approx(9.6e-6 + 512 * kv_bytes / 25e9)
    assert told["link_busy_share"][0] == told["link_busy_share"][1] > 0
    assert found["run"]["changed"]["cluster.prefill_replicas"] == 1
    assert "handover" not in summary("cluster.prefill_replicas=0")


@pytest.mark.parametrize(
    ("changes", "label"),
    [
        ({"rate_rps": 1}, "below"),
        ({"prompt": 2048, "output": 8, "rate_rps": 20}, "past"),
        ({"prompt": 16, "output": 1024, "rate_rps": 60}, "past"),
    ],
    ids=["neither", "prefill", "decode"],
)
def test_a_run_is_past_saturation_if_either_pool_is(changes, label):
    assert summary("replica.max_num_seqs=16", **changes)["load"]["label"] == label


def test_the_router_of_the_decode_pool_is_a_choice_of_its_own():
    chosen = simlora.simulate(
        [
            *APART,
            "cluster.replicas=4",
            "workload.arrivals.rate_rps=4",
            "router@decode_router=adapter_affinity",
            "decode_router.slack=100",
        ]
    )
    assert chosen.summary["run"]["changed"]["decode_router"] == "adapter_affinity"
    assert chosen.requests.groupby("adapter")["replica"].nunique().max() == 1
    assert set(chosen.requests["replica"]) == {1, 2, 3}


def test_each_handover_is_a_row_of_a_table_of_its_own():
    result = simlora.simulate([*APART, "workload.arrivals.rate_rps=4", "workload.output_tokens.tokens=64"])
    table = result.handovers
    assert table["request_id"].tolist() == list(range(300))
    assert set(table["source"]) == {0}
    assert set(table["target"]) == {1}
    times = table[["first_token_s", "admitted_s", "begin_s", "end_s"]]
    assert (times.diff(axis=1).iloc[:, 1:] >= 0).all(axis=None)
    assert result.summary["handover"]["requests_by_source"] == [300]


def test_copies_that_wait_for_their_link_are_a_queue_too():
    """Each pool has time left, and the network between them has not: the run is past saturation."""
    narrow = "cluster.network=nvme_pcie_3_x4", "cluster.replicas=3", "workload.requests=1200"
    found = summary(*narrow, prompt=256, output=32, rate_rps=30)
    assert found["load"]["label"] == "past"
    assert found["handover"]["link_busy_share"][0] > 0.95


@pytest.mark.parametrize(
    ("overrides", "told"),
    [
        (("decode_router=round_robin",), "must be chosen with router@decode_router=<name>"),
        (("router@decode_router=adapter_affinity", "decode_router.slack=0"), "decode_router.slack is 0"),
    ],
)
def test_a_mistake_is_told_in_the_words_of_its_key(overrides, told):
    with pytest.raises(InputError, match=told):
        simlora.simulate([*APART, *overrides])


def test_the_fewest_replicas_are_those_that_prefill_and_one_that_decodes():
    lengths = "workload.prompt_tokens.tokens=64", "workload.output_tokens.tokens=8"
    rate = "workload.arrivals.rate_rps=1"
    alone = [each for each in APART if not each.startswith("cluster.replicas")]
    found = simlora.capacity([*alone, *lengths, rate, "slo.ttft_s=5"], find="replicas", seeds=1, jobs=1)
    assert found.value == 2
    with pytest.raises(InputError, match=r"cluster\.prefill_replicas is what a plan finds"):
        simlora.plan(["model=llama_2_7b", "cluster.prefill_replicas=1"])


def test_the_report_tells_how_requests_got_from_one_pool_to_the_other(tmp_path):
    lengths = "workload.prompt_tokens.tokens=64", "workload.output_tokens.tokens=8"
    simlora.simulate([*APART, *lengths, "workload.arrivals.rate_rps=4", "report=true"]).save(tmp_path)
    page = (tmp_path / "report.html").read_text()
    assert "1 of 2 replicas prefilled, and handed over 300 requests" in page
