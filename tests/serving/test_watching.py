"""What a live cluster shows of itself: metrics, state, the page, and how late it is."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from simlora.serving.drift import Drift
from simlora.serving.live import Wishes
from simlora.serving.live_clock import LiveClock
from simlora.serving.tally import Tally
from tests.serving.conftest import SLORA, VLLM, asked, get, live, post

OTHERS = """vllm:num_preemptions vllm:prefix_cache_queries vllm:prefix_cache_hits vllm:request_queue_time_seconds
vllm:request_prompt_tokens vllm:request_generation_tokens vllm:cache_config_info process_cpu_seconds
simlora:drift_seconds simlora:seconds_behind"""


def samples(text: str) -> dict[str, list[tuple[dict[str, str], float]]]:
    """The samples of metrics, by name."""
    found: dict[str, list[tuple[dict[str, str], float]]] = {}
    for family in text_string_to_metric_families(text):
        for each in family.samples:
            found.setdefault(each.name, []).append((each.labels, each.value))
    return found


def test_metrics_have_vllms_names_and_count() -> None:
    front = live(*VLLM, wishes=Wishes(speed=5.0)).fronts[0]
    names = front.adapters.names()

    async def ask(client: httpx.AsyncClient) -> tuple[str, Any]:
        tasks = [
            asyncio.ensure_future(
                client.post(
                    "/v1/completions",
                    json={"model": name, "prompt": "x" * 400, "max_tokens": 300, "ignore_eos": True},
                )
            )
            for name in names[:6]
        ]
        while len(front.cluster.simulation.fleet.replicas[0].table.queue) < 2:
            await asyncio.sleep(0.001)
        text, state = (await client.get("/metrics")).text, (await client.get("/simlora/state")).json()
        await asyncio.gather(*tasks)
        return text, state

    text, state = asked(front, ask)
    during = samples(text)
    ((labels, _),) = during["vllm:lora_requests_info"]
    assert labels["max_lora"] == "4"
    assert labels["running_lora_adapters"] == ",".join(names[:4])
    assert labels["waiting_lora_adapters"] == ",".join(names[4:6])
    assert during["vllm:num_requests_running"] == [({"model_name": "llama_3_1_8b", "engine": "0"}, 4.0)]
    assert during["vllm:num_requests_waiting"][0][1] == 2
    assert 0 < during["vllm:kv_cache_usage_perc"][0][1] < 0.1
    (replica,) = state["replicas"]
    assert (replica["waiting"], replica["running"], replica["max_loras"]) == (2, 4, 4)
    assert [each["name"] for each in replica["adapters"]] == names[:4]
    assert replica["running_adapters"] == names[:4]
    text = get(front, "/metrics").text
    assert {family.name for family in text_string_to_metric_families(text)} >= {*OTHERS.split()}
    after = samples(text)
    assert after["vllm:generation_tokens_total"][0][1] == 1800
    assert after["vllm:prompt_tokens_total"][0][1] == 600
    assert after["vllm:time_to_first_token_seconds_count"][0][1] == 6
    assert after["vllm:inter_token_latency_seconds_count"][0][1] == 1794
    reasons = {labels["finished_reason"]: value for labels, value in after["vllm:request_success_total"]}
    assert reasons == {"length": 6, "stop": 0, "abort": 0}
    rows = front.cluster.close().requests()
    assert after["vllm:e2e_request_latency_seconds_sum"][0][1] == pytest.approx(
        (rows.finish_s - rows.arrival_s).sum()
    )
    ttft_s = (rows.first_token_s - rows.arrival_s).sum()
    assert after["vllm:time_to_first_token_seconds_sum"][0][1] == pytest.approx(ttft_s)


def test_every_token_of_a_stream_has_its_drift_though_several_come_in_one_event() -> None:
    front = live(*SLORA, wishes=Wishes(speed=5000.0)).fronts[0]
    body = {"prompt": "Hello", "max_tokens": 500, "ignore_eos": True, "stream": True}
    assert post(front, "/v1/completions", body).text.count("data: ") < 400
    assert front.cluster.drift.tally.count == 500


def test_each_replica_of_one_port_has_its_metrics() -> None:
    front = live(*SLORA, "cluster.replicas=3").fronts[0]
    assert get(front, "/metrics").status_code == get(front, "/simlora/state").status_code == 200
    assert front.cluster.clock.now_s() == 0.0, "time begins with the first request"
    for _ in range(2):
        post(front, "/v1/completions", {"prompt": "Hello", "max_tokens": 2})
    found = samples(get(front, "/metrics").text)["vllm:prompt_tokens_total"]
    assert [(labels["engine"], value) for labels, value in found] == [("0", 2), ("1", 2), ("2", 0)]
    state = get(front, "/simlora/state").json()
    assert [each["replica"] for each in state["replicas"]] == [0, 1, 2]
    assert state["router"] == "RoundRobin"


def test_adapters_of_several_replicas_behind_a_port_are_told_apart() -> None:
    front = live(*VLLM, "cluster.replicas=2", "router=round_robin", wishes=Wishes(speed=1000.0)).fronts[0]
    for name in front.adapters.names()[:2]:
        post(front, "/v1/completions", {"model": name, "prompt": "Hello", "max_tokens": 2})
    found = samples(get(front, "/metrics").text)
    assert [labels["engine"] for labels, _ in found["vllm:lora_requests_info"]] == ["0", "1"]
    assert [labels["engine"] for labels, _ in found["vllm:cache_config_info"]] == ["0", "1"]


def test_faults_that_cannot_be_are_refused_and_loads_can_be() -> None:
    front = live(*SLORA, wishes=Wishes(speed=1000.0)).fronts[0]
    for fault in (
        {"kind": "melt"},
        {"kind": "slow", "replica": 7},
        {"kind": "refuse_loads", "replica": 7},
        {"kind": "fail", "for_s": 0},
        {"kind": "fail", "for": 30},
        {"kind": "slow", "factor": -1},
        {"kind": "slow", "factor": 1e4},
        {},
    ):
        assert post(front, "/simlora/faults", fault).status_code == 400
    assert post(front, "/simlora/faults", {"kind": "refuse_loads"}).status_code == 200
    refused = post(front, "/v1/load_lora_adapter", {"lora_name": "a-r8"})
    assert (refused.status_code, "loads are refused" in refused.text) == (500, True)
    assert post(front, "/simlora/faults", {"kind": "refuse_loads", "for_s": 0.001}).status_code == 200
    assert post(front, "/v1/load_lora_adapter", {"lora_name": "a-r8"}).status_code == 200


def test_recover_ends_whatever_is_wrong() -> None:
    front = live(*SLORA, wishes=Wishes(speed=1000.0)).fronts[0]
    for fault in ({"kind": "fail"}, {"kind": "slow", "factor": 9}, {"kind": "refuse_loads"}):
        assert post(front, "/simlora/faults", fault).status_code == 200
    assert get(front, "/health").status_code == 503
    assert post(front, "/simlora/faults", {"kind": "recover"}).status_code == 200
    assert get(front, "/health").status_code == 200
    assert post(front, "/v1/load_lora_adapter", {"lora_name": "a-r8"}).status_code == 200
    assert post(front, "/v1/completions", {"prompt": "Hello", "max_tokens": 5}).status_code == 200
    row = front.cluster.close().requests().iloc[0]
    assert row.finish_s - row.admitted_s < 1.0, "not nine times as long"
    assert post(front, "/simlora/faults", {"kind": "recover", "replica": 1}).status_code == 400
    assert post(front, "/simlora/faults", {"kind": "recover", "for_s": 1}).status_code == 400


def test_recover_is_of_one_replica_or_of_all() -> None:
    front = live(*SLORA, "cluster.replicas=3", wishes=Wishes(speed=1000.0)).fronts[0]
    for replica in (1, 2):
        assert post(front, "/simlora/faults", {"kind": "fail", "replica": replica}).status_code == 200

    def alive() -> list[bool]:
        return [each["alive"] for each in get(front, "/simlora/state").json()["replicas"]]

    assert alive() == [True, False, False]
    post(front, "/simlora/faults", {"kind": "recover", "replica": 2})
    assert alive() == [True, False, True]
    post(front, "/simlora/faults", {"kind": "recover"})
    assert alive() == [True, True, True]


def test_the_shortest_fault_is_over_at_once() -> None:
    front = live(*SLORA, wishes=Wishes(speed=1000.0)).fronts[0]
    post(front, "/v1/completions", {"prompt": "Hello", "max_tokens": 5})
    for kind in ("fail", "slow", "slow_link"):
        assert post(front, "/simlora/faults", {"kind": kind, "for_s": 1e-7}).status_code == 200
    assert post(front, "/simlora/faults", {"kind": "fail", "for_s": 1e-300}).status_code == 400
    assert get(front, "/health").status_code == 200


def test_a_slow_replica_is_slow() -> None:
    front = live(*SLORA).fronts[0]
    body = {"prompt": "Hello", "max_tokens": 50, "ignore_eos": True}
    post(front, "/v1/completions", body)
    post(front, "/simlora/faults", {"kind": "slow", "factor": 3})
    post(front, "/v1/completions", body)
    rows = front.cluster.close().requests()
    took_s = (rows.finish_s - rows.admitted_s).to_numpy()
    assert took_s[1] == pytest.approx(3 * took_s[0])


def test_the_page_needs_nothing_from_elsewhere() -> None:
    found = get(live().fronts[0], "/simlora/")
    assert found.headers["content-type"].startswith("text/html")
    assert "http://" not in found.text
    assert "https://" not in found.text


def test_a_simulator_that_stops_says_so_and_nothing_hangs() -> None:
    front = live().fronts[0]

    def broken(to_s: float) -> None:
        raise RuntimeError("broken")

    front.cluster.simulation.advance = broken  # type: ignore[method-assign]
    assert post(front, "/v1/completions", {"prompt": "Hello"}).status_code == 500
    assert get(front, "/health").status_code == 503
    assert post(front, "/v1/completions", {"prompt": "Hello"}).status_code == 503
    assert get(front, "/simlora/state").json()["crashed"] == "broken"


def test_the_clock_begins_with_the_first_request_and_goes_as_fast_as_asked() -> None:
    wall = [100.0]
    clock = LiveClock(speed=10.0, wall=lambda: wall[0])
    wall[0] = 105.0
    assert clock.now_s() == 0.0
    clock.start()
    wall[0] = 106.0
    clock.start()
    assert clock.now_s() == 10.0
    assert clock.wait_s(30.0) == 2.0
    assert clock.wait_s(5.0) == 0.0


def test_a_server_that_falls_behind_says_so(caplog: pytest.LogCaptureFixture) -> None:
    wall = [0.0]
    clock = LiveClock(wall=lambda: wall[0])
    clock.start()
    drift = Drift(clock)
    with caplog.at_level(logging.WARNING, "simlora.serving"):
        for _ in range(150):
            wall[0] += 0.01
            drift.add([wall[0] - 0.0009])
        assert (drift.p99_s, drift.behind_windows) == (0.001, 0)
        assert not caplog.records
        for _ in range(350):
            wall[0] += 0.01
            drift.add([wall[0] - 0.015])
    assert drift.behind
    assert drift.p99_s == 0.02
    assert drift.behind_windows >= 2
    wall[0] += 5.0
    assert (drift.p99_s, drift.behind) == (0.0, False), "nothing was due in the last second"
    (line,) = caplog.records
    assert (
        "falls behind: 1 % of the tokens of the last second came more than 10 ms after" in line.getMessage()
    )


def test_a_tally_counts_as_prometheus_does() -> None:
    tally = Tally((1.0, 2.0))
    for value in (0.5, 1.0, 1.5, 9.0):
        tally.add(value)
    assert tally.buckets() == [("1.0", 2.0), ("2.0", 3.0), ("+Inf", 4.0)]
    assert (tally.sum, tally.count) == (12.0, 4)
    assert [tally.quantile(share) for share in (0.5, 0.75, 0.99)] == [1.0, 2.0, float("inf")]
    assert Tally((1.0,)).quantile(0.5) == 0.0
