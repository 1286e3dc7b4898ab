"""Clients that react, as a user has them: keys, the summary, the table of calls, the terminal and the page."""

import numpy as np
import pandas as pd
import pytest

import simlora
from simlora.api import operating_points
from simlora.cli import main
from simlora.core.errors import InputError
from simlora.report.html import render
from simlora.report.terminal import summary_table

BUSY = (
    "gpu=a10g",
    "model=llama_7b",
    "workload=synthetic",
    "workload.arrivals.rate_rps=3",
    "workload.duration_s=60",
    "slo.ttft_s=4",
)
BACK = ("clients.patience_s=3", "clients.retries=2")


def test_a_summary_counts_calls_and_the_table_has_them():
    result = simlora.simulate([*BUSY, *BACK])
    found, calls = result.summary["clients"], result.calls
    assert found["calls"] == len(calls) == found["answered"] + found["gave_up"]
    assert found["attempts"] == calls["attempts"].sum() == len(result.requests) > len(calls)
    assert found["abandoned"] == calls["abandoned"].sum() > 0
    answered = calls[calls["status"] == "answered"]
    assert found["attainment"] == pytest.approx((answered["ttft_s"] < 4).mean() * len(answered) / len(calls))
    assert found["ttft_s"]["p50"] == pytest.approx(np.percentile(answered["ttft_s"], 50))
    assert result.summary["requests"]["finished"] == len(answered), "what a client left is not finished"
    # From the first attempt on, and not from the last.
    last = result.requests.iloc[answered["request_id"]].reset_index(drop=True)
    later = (answered["attempts"] > 1).to_numpy()
    assert later.any()
    assert (answered["ttft_s"].to_numpy()[later] > last["ttft_s"].to_numpy()[later]).all()
    np.testing.assert_allclose(answered["ttft_s"].to_numpy()[~later], last["ttft_s"].to_numpy()[~later])


def test_the_terminal_and_the_page_say_what_became_of_calls():
    result = simlora.simulate([*BUSY, *BACK])
    found = result.summary["clients"]
    assert f"{found['answered']} answered, {found['gave_up']} given up" in summary_table(result.summary)
    assert f"Clients sent {found['attempts']} requests for {found['calls']} calls" in render(result)


def test_a_command_writes_calls(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main([*BUSY, "clients.outstanding=4", "hydra.run.dir=out"]) == 0
    calls = pd.read_parquet("out/calls.parquet")
    assert calls["sent_s"].iloc[-1] > calls["arrival_s"].iloc[-1]
    assert list(calls.columns)[:3] == ["arrival_s", "sent_s", "attempts"]


def test_a_run_that_ends_before_counts_what_was_due():
    """A call that is not due by the end is no missed one."""
    ended = simlora.simulate([*BUSY, *BACK, "until_s=20"]).summary["clients"]
    calls = simlora.simulate([*BUSY, *BACK]).calls
    assert ended["calls"] == (calls["arrival_s"] <= 20).sum() < len(calls)
    assert ended["unfinished"] > 0
    assert "clients" not in simlora.simulate([*BUSY, *BACK, "until_s=1e-6"]).summary, "none was due"


def test_a_window_is_of_the_calls_that_are_sent_in_it():
    result = simlora.simulate([*BUSY, *BACK, "window.warm_up_s=10", "window.drain_s=10"])
    window, calls = result.summary["window"], result.calls
    inside = calls["sent_s"].between(window["from_s"], window["until_s"], inclusive="left")
    assert result.summary["clients"]["calls"] == inside.sum() < len(calls)


def test_a_placement_that_looks_for_operating_points_does_so_without_clients(monkeypatch):
    """LoRAServe's, of which one replica at a time plays a trace of its own."""
    monkeypatch.setattr(operating_points, "REQUESTS_LEAST", 50)
    monkeypatch.setattr(operating_points, "LASTS", 3.0)
    asked = ("system=loraserve", "gpu=a100_40g", *BUSY[1:5], "workload.ranks=[8]", "clients.retries=1")
    assert simlora.simulate(asked).summary["clients"]["gave_up"] == 0


def test_a_capacity_is_of_an_open_loop():
    with pytest.raises(InputError, match=r"clients\.\* has requests wait for others"):
        simlora.capacity([*BUSY, "clients.outstanding=8"], seeds=1)


@pytest.mark.parametrize(
    "failing",
    [
        ("cluster.failures=[{every_s: 6, for_s: 2}]",),
        ("cluster.failures=[{every_s: 6, for_s: 2}]", "autoscaler=by_queue", "cluster.start_s=1"),
        ("autoscaler=by_adapters", "cluster.least_replicas=0", "cluster.start_s=1"),
        ("migration=consolidate",),
    ],
)
def test_what_a_client_left_is_not_begun_anew(failing):
    """Its host fails or it moves: it does not wait for another replica, as nothing waits for it."""
    slow = ("system=chunked_prefill", "cluster.replicas=2", "clients.patience_s=0.5", "clients.retries=2")
    result = simlora.simulate([*BUSY, *slow, "workload.arrivals.rate_rps=6", *failing])
    gone = result.requests[result.requests["reason"] == "the client has gone"]
    assert len(gone) > 0
    assert (gone["finish_s"] - gone["arrival_s"] < 0.5 + 5).all(), "an iteration or two later"


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("clients.outstanding=0", "clients.outstanding is 0, must be a whole number of requests, at least 1"),
        ("clients.patience_s=0", "clients.patience_s is 0, must be greater than 0"),
        ("+clients.patient=1", "there is no key clients.patient; did you mean clients.patience_s"),
    ],
)
def test_what_cannot_be_is_named(override, said):
    with pytest.raises(InputError) as refused:
        simlora.simulate([*BUSY, override])
    assert said in str(refused.value)


def test_a_run_that_stops_by_its_slo_has_no_clients_that_come_back():
    with pytest.raises(InputError, match="until_missed counts the requests of the workload"):
        simlora.simulate([*BUSY, *BACK, "until_missed=0.1"])
