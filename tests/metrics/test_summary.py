"""summary.json has one layout for every run, and numbers that a hand can check."""

import json
import math

import numpy as np
import pytest

from simlora.metrics.histogram import TokenGaps
from simlora.metrics.slo import SloTargets
from simlora.metrics.summary import distribution, json_safe, summarise
from tests.metrics.frames import finished, lost, table

METRICS = (
    "ttft_s",
    "tpot_s",
    "tbt_s",
    "latency_s",
    "latency_per_output_token_s",
    "queue_s",
    "queue_per_output_token_s",
    "cold_start_s",
    "kv_cold_start_s",
    "blocked_s",
    "cold_start_share",
)
STATISTICS = {"mean", "p50", "p90", "p95", "p99"}


def summary_of(frame, gaps=None, targets=None, makespan_s=10.0, **more):
    return summarise(
        frame,
        gaps or TokenGaps(),
        targets or SloTargets(ttft_s=6.0),
        makespan_s=makespan_s,
        adapters={"loads": 3, "load_bytes": 3e6, "hit_rate": 0.5},
        kv={"hit_rate": 0.0, "invalid_share": 0.0, "preemptions": 0},
        replicas=[{"replica": 0}],
        calibration={"gpu": "a10g"},
        simulation={"wall_s": 0.1},
        versions={"simlora": "0"},
        seed=7,
        workload={"source": "by hand"},
        **more,
    )


FOUR = table(
    finished(ttft_s=1.0, latency_s=3.0, output_tokens=11),
    finished(ttft_s=2.0, latency_s=2.0, output_tokens=1),
    lost("rejected"),
    lost("aborted", ttft_s=100.0),
    lost("unfinished"),
)


def test_the_layout():
    summary = summary_of(FOUR)
    assert set(summary["requests"]) == {"submitted", "finished", "aborted", "rejected", "unfinished"}
    assert all(set(summary[metric]) == STATISTICS for metric in METRICS)
    assert set(summary["slo"]) == {"targets", "attainment", "goodput_rps", "satisfaction", "classes"}
    assert {"makespan_s", "throughput_rps", "throughput_tps", "adapters", "kv", "replicas"} <= set(summary)
    assert {"calibration", "simulation", "versions", "seed", "workload", "load"} <= set(summary)
    assert (summary["complete"], summary["command"], summary["run"]) == (True, "", {})
    told = {"run": {"system": "slora"}, "command": "simlora system=slora", "complete": False}
    assert {key: summary_of(FOUR, **told)[key] for key in told} == told


def test_by_hand():
    summary = summary_of(FOUR, makespan_s=4.0)
    assert summary["requests"] == {
        "submitted": 5,
        "finished": 2,
        "aborted": 1,
        "rejected": 1,
        "unfinished": 1,
    }
    assert summary["throughput_rps"] == pytest.approx(2 / 4)
    assert summary["throughput_tps"] == pytest.approx(12 / 4)
    assert summary["ttft_s"]["mean"] == pytest.approx(1.5)
    assert summary["ttft_s"]["p50"] == pytest.approx(1.5)
    assert summary["ttft_s"]["p90"] == pytest.approx(1.9)
    assert summary["tpot_s"]["mean"] == pytest.approx(0.2), "a request of one token has none"
    assert summary["latency_per_output_token_s"]["mean"] == pytest.approx((3 / 11 + 2) / 2)
    assert summary["latency_over_output_tokens_s"] == pytest.approx((3 + 2) / (11 + 1))
    assert summary["slo"]["targets"] == {"ttft_s": 6.0}
    assert summary["slo"]["attainment"] == pytest.approx(2 / 5)
    assert summary["slo"]["goodput_rps"] == pytest.approx(2 / 4)
    assert summary["slo"]["satisfaction"] == pytest.approx((1 - 1 / 36 + 1 - 4 / 36) / 5)
    assert summary_of(FOUR, targets=SloTargets(latency_s=1.0))["slo"]["satisfaction"] is None


def test_tbt_is_over_tokens_not_requests():
    gaps = TokenGaps()
    gaps.add(0.1, 9)
    gaps.add(0.2, 1)
    tbt_s = summary_of(FOUR, gaps)["tbt_s"]
    assert tbt_s["mean"] == pytest.approx(0.11)
    assert tbt_s["p90"] == pytest.approx(0.1, rel=1e-3)
    assert tbt_s["p95"] == pytest.approx(0.2, rel=1e-3)


@pytest.mark.parametrize("frame", [table(), table(lost("rejected"), lost("rejected"))])
def test_a_run_that_finished_nothing_has_nulls_and_no_nan(frame):
    summary = summary_of(frame, makespan_s=0.0)
    assert all(summary[metric] == dict.fromkeys(STATISTICS) for metric in METRICS)
    assert summary["throughput_rps"] is None
    assert summary["slo"]["attainment"] == (0.0 if len(frame) else None)
    assert summary["load"]["label"] == "unknown"
    json.dumps(summary, allow_nan=False)


def test_percentiles_are_numpys_linear_ones():
    values = np.arange(1.0, 102.0)
    assert distribution(values) == {"mean": 51.0, "p50": 51.0, "p90": 91.0, "p95": 96.0, "p99": 100.0}


def test_json_safe_leaves_only_what_json_has():
    odd = {1: np.float64("nan"), "n": np.int64(3), "l": (math.inf, np.array([1.5])), "b": np.True_, "x": None}
    assert json_safe(odd) == {"1": None, "n": 3, "l": [None, [1.5]], "b": True, "x": None}


def test_the_share_of_latency_that_loads_take_counts_ones_own_its_kv_and_those_of_others():
    frame = table(
        finished(latency_s=4.0, cold_start_s=0.5, kv_cold_start_s=0.25, blocked_s=0.25),
        finished(latency_s=2.0, cold_start_s=0.0, blocked_s=1.0),
        lost("rejected"),
    )
    found = summary_of(frame)
    assert found["cold_start_share"]["mean"] == pytest.approx((0.25 + 0.5) / 2)
    assert found["blocked_s"]["mean"] == pytest.approx(0.625)
    assert found["kv_cold_start_s"]["mean"] == pytest.approx(0.125)
