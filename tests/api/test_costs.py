"""What a run costs: GPU hours, rent and energy, of what was on."""

import pytest

import simlora

SHORT = ["workload=synthetic", "workload.duration_s=120", "workload.arrivals.rate_rps=1", "report=false"]
PRICED = ["gpu.usd_per_hour=2", "gpu.idle_w=50", "gpu.busy_w=200"]


def test_all_replicas_cost_from_the_start_to_the_end():
    summary = simlora.simulate([*SHORT, *PRICED, "cluster.replicas=3"]).summary
    cost, lasts_s = summary["cost"], summary["makespan_s"]
    assert cost["gpu_hours"] == pytest.approx(3 * lasts_s / 3600)
    assert cost["usd"] == pytest.approx(2 * cost["gpu_hours"])
    busy_s = sum(replica["busy_s"] for replica in summary["replicas"])
    assert cost["energy_j"] == pytest.approx(200 * busy_s + 50 * (3 * lasts_s - busy_s))


def test_tokens_are_those_of_finished_requests():
    result = simlora.simulate([*SHORT, *PRICED])
    cost, done = result.summary["cost"], result.requests
    output, prompts = done.output_tokens.sum(), done.prompt_tokens.sum()
    assert cost["usd_per_million_output_tokens"] == pytest.approx(1e6 * cost["usd"] / output)
    assert cost["usd_per_million_tokens"] == pytest.approx(1e6 * cost["usd"] / (output + prompts))
    assert cost["energy_j_per_output_token"] == pytest.approx(cost["energy_j"] / output)


@pytest.mark.parametrize(("engines", "gpus"), [(4, 1), (5, 2)], ids=["all full", "the last not full"])
def test_engines_of_one_gpu_share_its_cost(engines, gpus):
    known = [f"cluster.replicas={engines}", "cluster.engines_per_gpu=4", f"workload.adapters={engines}"]
    summary = simlora.simulate([*SHORT, *PRICED, "system=vllm_packed", *known, "gpu=a100_80g"]).summary
    cost, lasts_s = summary["cost"], summary["makespan_s"]
    assert cost["gpu_hours"] == pytest.approx(gpus * lasts_s / 3600)
    assert cost["each"][0]["gpus"] == pytest.approx(gpus)
    assert cost["energy_j"] <= gpus * 200 * lasts_s * (1 + 1e-9), "no more than GPUs that are always busy"


def test_each_kind_of_gpu_has_its_own_price():
    others = "cluster.replica_groups=[{gpu: a100_80g, replicas: 1}]"
    summary = simlora.simulate([*SHORT, "cluster.replicas=3", others]).summary
    hours = summary["makespan_s"] / 3600
    small, large = summary["cost"]["each"]
    assert (small["gpu"], small["gpus"], large["gpu"], large["gpus"]) == ("a10g", 2, "a100_80g", 1)
    assert (small["gpu_hours"], large["gpu_hours"]) == (pytest.approx(2 * hours), pytest.approx(hours))
    assert small["usd"] == pytest.approx(2 * hours * 1.006)
    assert large["usd"] == pytest.approx(hours * 1.79)
    assert summary["cost"]["usd"] == pytest.approx(small["usd"] + large["usd"])
    assert [other["gpu"] for other in summary["run"]["others"]] == ["a100_80g"]


def test_what_is_not_known_is_not_made_up():
    others = "cluster.replica_groups=[{gpu: {_target_: simlora.hardware.gpu.Gpu, name: a100_80g, memory_bytes: 85e9, "
    others += "memory_bandwidth_bytes_per_s: 2e12, fp16_flops: 312e12, host_link: pcie_4_x16, peer_link: nvlink_3}, "
    cost = simlora.simulate([*SHORT, "cluster.replicas=2", others + "replicas: 1}]"]).summary["cost"]
    assert cost["gpu_hours"] > 0
    assert (cost["usd"], cost["energy_j"], cost["usd_per_million_tokens"]) == (None, None, None)
    assert cost["each"][0]["usd"] is not None


def test_an_autoscaler_saves_what_is_off_and_says_how_many_were_on():
    steps = "autoscaler.steps=[{at_s: 0, replicas: 1}, {at_s: 60, replicas: 3}]"
    scaled = ["cluster.replicas=4", "autoscaler=by_schedule", steps, "cluster.start_s=10"]
    result = simlora.simulate([*SHORT, *PRICED, *scaled])
    summary = result.summary
    lasts_s, scaling = summary["makespan_s"], summary["scaling"]
    assert summary["cost"]["gpu_hours"] == pytest.approx((lasts_s + 2 * (lasts_s - 60)) / 3600)
    assert scaling["mean_on"] == pytest.approx((lasts_s + 2 * (lasts_s - 60)) / lasts_s)
    assert (scaling["least_on"], scaling["most_on"], scaling["boots"]) == (1, 3, 2)
    assert scaling["boot_s"] == pytest.approx(10 + 1e-4 + 13.5e9 / 3.5e9, rel=0.02), (
        "its weights are read, too"
    )
    assert result.scaling.on.tolist() == [1, 3, 3, 3]


def test_changes_are_decisions_and_the_mean_lies_between_the_least_and_the_most():
    """One is on, then three, then one; a host fails meanwhile and comes back."""
    steps = "[{at_s: 0, replicas: 1}, {at_s: 30, replicas: 3}, {at_s: 75, replicas: 1}]"
    set = (
        f"autoscaler.steps={steps}",
        "cluster.start_s=10",
        "cluster.failures=[{host: 1, at_s: 50, until_s: 55}]",
    )
    result = simlora.simulate([*SHORT, "cluster.replicas=3", "autoscaler=by_schedule", *set])
    scaling, rows = result.summary["scaling"], result.scaling
    assert (scaling["changes"], scaling["boots"]) == (2, 2)
    assert scaling["least_on"] == 1 < scaling["mean_on"] < scaling["most_on"] == 3
    fails = rows[rows.time_s.between(50, 55)]
    assert (fails.on.tolist(), fails.reason.tolist()) == ([2, 3], ["a host has failed", "a host is back"])
    assert (rows.on == rows.serving + rows.booting).all()
    counts = rows[["on", "serving", "booting", "draining"]]
    assert not counts.eq(counts.shift()).all(axis=1).any(), "each row is a change"


def test_tenants_have_their_own_figures():
    classes = "slo.classes=[{name: gold, share: 0.2, ttft_s: 0.2}, {name: free, share: 0.8, ttft_s: 30}]"
    result = simlora.simulate([*SHORT, classes, "workload.arrivals.rate_rps=3"])
    slo, requests = result.summary["slo"], result.requests
    gold, free = slo["classes"]["gold"], slo["classes"]["free"]
    assert (gold["adapters"], free["adapters"]) == (20, 80)
    assert gold["requests"] + free["requests"] == len(requests)
    assert gold["targets"] == {"ttft_s": 0.2}
    met = gold["attainment"] * gold["requests"] + free["attainment"] * free["requests"]
    assert slo["attainment"] == pytest.approx(met / len(requests))
    assert gold["attainment"] < free["attainment"]


def test_a_run_says_what_was_slow_in_it():
    slow = ["cluster.stragglers=[{replica: 0, at_s: 5, factor: 2, until_s: 9}]"]
    rare = ["cluster.slow_links=[{every_s: 50, for_s: 5, factor: 4}]", "cluster.replicas=2"]
    found = simlora.simulate([*SHORT, *slow, *rare]).summary["slowness"]
    assert found["stragglers"] == [{"replica": 0, "at_s": 5, "factor": 2, "until_s": 9}]
    assert len(found["slow_links"]) > 1
    assert [one["at_s"] for one in found["slow_links"]] == sorted(one["at_s"] for one in found["slow_links"])
    steady = simlora.simulate(SHORT)
    assert (steady.summary["slowness"], steady.summary["scaling"], len(steady.scaling)) == (None, None, 0)
