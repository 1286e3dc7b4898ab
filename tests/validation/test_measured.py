"""What a server did, as benchmarks and gateways write it."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from simlora.core.errors import InputError
from simlora.validation.measured import Measured, Unsaid, read_measured
from simlora.workload.logs.faults import Faulty
from simlora.workload.logs.wishes import Wishes

TWO = {"input_lens": [100, 50], "output_lens": [3, 2], "errors": ["", ""]}
VLLM = TWO | {"start_times": [5.0, 6.5], "ttfts": [0.2, 0.1], "itls": [[0.02, 0.03], [0.04]]}
REQUESTS = ((0.0, 100, 3, 0.2, 0.25), (1.5, 50, 2, 0.1, 0.14))
"""When each is sent, its tokens, TTFT and latency, as every log below has them."""
OF_GUIDELLM = [
    {
        "request_start_time": 1.76e9 + start_s,
        "info": {"timings": {"request_start": 1.76e9 + start_s}},
        "prompt_tokens": prompt,
        "output_tokens": output,
        "time_to_first_token_ms": 1000 * ttft_s,
        "request_latency": latency_s,
    }
    for start_s, prompt, output, ttft_s, latency_s in REQUESTS
]
GUIDELLM = {"benchmarks": [{"requests": {"successful": OF_GUIDELLM}}]}
AIPERF = [
    {
        "metadata": {"request_start_ns": 10**18 + int(1e9 * start_s), "benchmark_phase": "profiling"},
        "metrics": {
            "input_sequence_length": {"value": prompt, "unit": "tokens"},
            "output_sequence_length": {"value": output, "unit": "tokens"},
            "time_to_first_token": {"value": 1000 * ttft_s, "unit": "ms"},
            "request_latency": {"value": 1000 * latency_s, "unit": "ms"},
        },
    }
    for start_s, prompt, output, ttft_s, latency_s in REQUESTS
]
INFERENCE_PERF = [
    {
        "start_time": 5 + start_s,
        "end_time": 5 + start_s + latency_s,
        "info": {
            "input_tokens": prompt,
            "output_tokens": output,
            "output_token_times": (5 + start_s + np.linspace(ttft_s, latency_s, output)).tolist(),
        },
    }
    for start_s, prompt, output, ttft_s, latency_s in REQUESTS
]
LITELLM = [
    {
        "startTime": f"2026-01-31T12:00:0{start_s:.3f}Z",
        "completionStartTime": f"2026-01-31T12:00:0{start_s + ttft_s:.3f}Z",
        "endTime": f"2026-01-31T12:00:0{start_s + latency_s:.3f}Z",
        "prompt_tokens": prompt,
        "completion_tokens": output,
    }
    for start_s, prompt, output, ttft_s, latency_s in REQUESTS
]


def read(log: Any, folder: Path, unsaid: Unsaid | None = None) -> Measured:
    path = folder / "log.json"
    path.write_text(json.dumps(log), encoding="utf-8")
    return read_measured(str(path), unsaid or Unsaid())


@pytest.mark.parametrize(
    ("log", "tool", "has_gaps"),
    [
        (VLLM, "a result of vllm bench serve", True),
        (GUIDELLM, "a report of GuideLLM", False),
        (AIPERF, "AIPerf's records", False),
        (INFERENCE_PERF, "inference-perf's requests", True),
        (LITELLM, "LiteLLM's log", False),
    ],
)
def test_each_tool_s_times_are_found(log, tool, has_gaps, tmp_path):
    found = read(log, tmp_path)
    assert found.tool == tool
    assert found.trace.arrival_s.tolist() == pytest.approx([0.0, 1.5])
    assert found.trace.prompt_tokens.tolist() == [100, 50]
    assert found.ttft_s.tolist() == pytest.approx([0.2, 0.1], abs=1e-6)
    assert found.latency_s.tolist() == pytest.approx([0.25, 0.14], abs=1e-6)
    assert found.tpot_s.tolist() == pytest.approx([0.025, 0.04], abs=1e-6)
    assert (found.gaps_s is not None) == has_gaps


def test_failed_requests_are_left_out_and_each_of_the_others_keeps_its_times(tmp_path):
    log = {
        "input_lens": [10, 20, 30],
        "output_lens": [2, 0, 2],
        "errors": ["", "500", ""],
        "start_times": [3.0, 2.0, 1.0],
        "ttfts": [0.3, 0.0, 0.1],
        "itls": [[0.03], [], [0.01]],
    }
    found = read(log, tmp_path)
    assert found.trace.prompt_tokens.tolist() == [30, 10], "in the order of arrival"
    assert found.ttft_s.tolist() == [0.1, 0.3]
    assert [each.tolist() for each in found.gaps_s or ()] == [[0.01], [0.03]]
    assert any("1 of 3 requests failed and were left out" in notice for notice in found.notices)


def test_requests_of_a_limited_concurrency_are_sent_when_others_end(tmp_path):
    log = {
        "max_concurrency": 2,
        "request_rate": "inf",
        "input_lens": [10, 20, 30],
        "output_lens": [2, 2, 2],
        "errors": ["", "", ""],
        "ttfts": [0.3, 0.1, 0.1],
        "itls": [[0.7], [0.1], [0.1]],
    }
    found = read(log, tmp_path)
    assert found.trace.arrival_s.tolist() == pytest.approx([0.0, 0.0, 0.2])
    assert any("each request is sent when one of 2 ends" in notice for notice in found.notices)
    assert not any("at once" in notice for notice in found.notices)


@pytest.mark.parametrize(
    ("rate", "said"),
    [
        ("inf", "all requests arrive at once, as the log's request_rate says"),
        (2.0, "arrivals are drawn, a Poisson process of 2 requests/s, as the log's request_rate says"),
    ],
)
def test_a_rate_that_only_the_log_says_is_the_log_s(rate, said, tmp_path):
    log = {name: cells for name, cells in VLLM.items() if name != "start_times"} | {"request_rate": rate}
    assert said in read(log, tmp_path).notices
    assert (
        said.replace("the log's request_rate", "--rate")
        in read(log, tmp_path, Unsaid(wishes=Wishes(rate_rps=float(rate)))).notices
    )


def test_adapters_that_the_log_does_not_name_are_drawn(tmp_path):
    found = read(VLLM, tmp_path, Unsaid(wishes=Wishes(rank=16), adapters=4))
    assert [adapter.rank for adapter in found.trace.adapters] == [16] * 4
    assert set(found.trace.adapter.tolist()) <= set(range(4))
    with pytest.raises(InputError, match="--adapters needs --rank"):
        read(VLLM, tmp_path, Unsaid(adapters=4))


def test_a_summary_without_requests_says_how_to_get_them(tmp_path):
    with pytest.raises(Faulty) as error:
        read({"request_throughput": 3.0, "total_input_tokens": 100}, tmp_path)
    assert any("vllm bench serve --save-detailed" in fault.must for fault in error.value.faults)


def faults_of(log: Any, folder: Path, unsaid: Unsaid | None = None) -> list[tuple[str, int | None, str, str]]:
    """The faults of a log: column, row, what is there, what must be."""
    with pytest.raises(Faulty) as error:
        read(log, folder, unsaid)
    return [(fault.column, fault.row, fault.there, fault.must) for fault in error.value.faults]


def test_all_that_is_wrong_is_said_at_once(tmp_path):
    log = [
        {"timestamp": 1, "prompt_tokens": 10, "output_tokens": 2, "ttft": 0.1},
        {"timestamp": 2, "prompt_tokens": -1, "output_tokens": 2, "ttft": 0.2},
    ]
    assert faults_of(log, tmp_path) == [
        ("prompt_tokens", 2, "-1", "a whole number of tokens, at least 1"),
        ("ttft", None, "a duration without a unit", "one with a unit: --map …=ttft:ms, or :s"),
    ]
    log[1]["prompt_tokens"] = 1
    found = read(log, tmp_path, Unsaid(columns=["ttft=ttft:ms"]))
    assert found.ttft_s.tolist() == pytest.approx([0.0001, 0.0002])
    assert np.isnan(found.latency_s).all()
    assert "tpot_s" not in found.summary()


def test_a_latency_below_the_ttft_is_a_fault_of_its_row(tmp_path):
    log = [
        {"timestamp": 1, "prompt_tokens": 10, "output_tokens": 2, "ttft_s": ttft_s, "latency_ms": latency_ms}
        for ttft_s, latency_ms in ((0.1, 300), (0.5, 400), (0.2004, 200), (0.3, -1), (0.0, 0))
    ]
    assert faults_of(log, tmp_path) == [
        ("latency_ms", 4, "-1", "seconds, at least 0"),
        ("latency_ms", 2, "400", "no less than the TTFT of that row, 0.5 s"),
    ]
    rounded = read([log[0], log[2]], tmp_path)
    assert rounded.latency_s.tolist() == [pytest.approx(0.3), 0.2004], (
        "times that are rounded to a millisecond are no fault"
    )
    ended = [LITELLM[0], LITELLM[1] | {"endTime": LITELLM[1]["startTime"]}]
    assert faults_of(ended, tmp_path) == [
        ("endTime", 2, "'2026-01-31T12:00:01.500Z'", "no less than the TTFT of that row, 0.1 s")
    ]


def test_gaps_have_the_unit_that_is_said(tmp_path):
    found = read(VLLM | {"itls": [[20, 30], [40]]}, tmp_path, Unsaid(columns=["gaps=itls:ms"]))
    assert found.gaps_s is not None
    assert np.concatenate(found.gaps_s).tolist() == pytest.approx([0.02, 0.03, 0.04])
    assert found.latency_s.tolist() == pytest.approx([0.25, 0.14])


def test_gaps_that_are_no_lists_of_numbers_are_faults(tmp_path):
    assert faults_of(VLLM | {"itls": [[0.02, "x"], 0.04]}, tmp_path) == [
        ("itls", 1, "[0.02, 'x']", "a list of numbers"),
        ("itls", 2, "0.04", "a list of numbers"),
    ]
