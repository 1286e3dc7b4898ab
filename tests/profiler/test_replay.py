"""A replica whose iterations run on a device, and what it is compared with."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from experiments.scenarios import scenario
from profiler.device import choose
from profiler.model.engine import Live
from profiler.replay.__main__ import calibration_of, main, replay, scenarios
from profiler.replay.compare import Served, compare
from profiler.replay.device_runner import serve
from profiler.replay.draw import draw
from simlora.engine.cluster.simulation import Simulation
from simlora.engine.replica.decode_window import DecodeWindow
from simlora.engine.replica.model_runner import ModelRunner
from simlora.engine.replica.part import Part
from simlora.engine.replica.replica import Replica
from simlora.engine.scenario import Scenario
from simlora.latency.iteration import IterationModel
from simlora.latency.kernels import NO_LORA, LoraWork
from simlora.latency.models import LatencyModels
from simlora.policies.scheduling.base import SchedulerOutput
from simlora.policies.scheduling.fcfs import Fcfs
from simlora.policies.views import ReplicaView

TRACE = (
    "system=slora",
    "loader=cached",
    "workload=synthetic",
    "workload.adapters=4",
    "workload.ranks=[8,16,32,64]",
    "workload.duration_s=20",
    "workload.arrivals.rate_rps=4",
    "timeline=false",
)


class Pretended:
    """A device whose iterations take exactly what a calibration says, or if it is `unsteady` more, as does the host."""

    def __init__(self, run: Scenario, unsteady: np.random.Generator | None = None) -> None:
        self.now_s, self.unsteady = 123.0, unsteady
        self.there: set[int] = set()
        self.ranks = [adapter.rank for adapter in run.trace.adapters]
        self.iteration = IterationModel(run.calibration)
        self.kernel = run.policies.kernel(run.calibration)

    def clock(self) -> float:
        if self.unsteady is not None:
            self.now_s += self.unsteady.uniform(0, 0.01)
        return self.now_s

    def prefill(self, joining: Sequence[Live], kernel: str) -> None:
        tokens = [len(one.prompt) for one in joining]
        self.now_s += self.iteration.prefill_s(sum(tokens), sum(n * n for n in tokens))
        self.now_s += self.kernel.prefill_s(self._work(joining, tokens))
        for one in joining:
            one.context = len(one.prompt)
            assert one.id not in self.there, "a request is prefilled that is on the device"
            self.there.add(one.id)

    def decode(self, running: Sequence[Live], kernel: str) -> None:
        for one in running:
            one.context += 1
        self.now_s += self.iteration.decode_s(len(running), sum(one.context for one in running))
        self.now_s += self.kernel.decode_s(self._work(running, [1] * len(running)))

    def leave(self, one: Live) -> None:
        assert one.context >= len(one.prompt), "a request leaves that never ran"
        self.there.remove(one.id)

    def _work(self, lives: Sequence[Live], tokens: Sequence[int]) -> LoraWork:
        mine = [
            (self.ranks[one.adapter], n) for one, n in zip(lives, tokens, strict=True) if one.adapter >= 0
        ]
        if not mine:
            return NO_LORA
        adapters = {one.adapter for one in lives if one.adapter >= 0}
        return LoraWork(
            sum(n for _, n in mine), sum(r * n for r, n in mine), max(r for r, _ in mine), len(adapters), 0
        )


@pytest.mark.parametrize(
    "overrides",
    [
        (),
        ("scheduler=adapter_clustering",),
        ("workload.arrivals.rate_rps=0.2", "workload.duration_s=200"),
        ("replica.reserve=full", "replica.kv_token_budget=3000", "replica.max_wait_tokens=0"),
        ("scheduler=static_batch", "replica.reserve=padded"),
    ],
)
def test_on_a_device_that_takes_what_the_calibration_says_the_replay_is_the_simulation(overrides):
    """What differs on a real device is the device."""
    run = scenario([*TRACE, *overrides])
    _is_the_simulation(run)


def _is_the_simulation(run: Scenario) -> pd.DataFrame:
    device = Pretended(run)
    real = serve(run, device, "mbgmv", clock=device.clock).requests
    simulated = Simulation(run).run().requests()
    assert real.status.tolist() == simulated.status.tolist() == ["finished"] * len(real)
    for column in ("admitted_s", "first_token_s", "finish_s"):
        np.testing.assert_allclose(real[column], simulated[column], rtol=0, atol=1e-7, err_msg=column)
    assert not device.there, "requests have ended, and are still on the device"
    return simulated


class Logged(ModelRunner):
    """Takes what is in a log of iterations."""

    def __init__(self, latency: LatencyModels, iterations: pd.DataFrame) -> None:
        super().__init__(latency)
        self.rows = iterations.itertuples()

    def prefill_s(self, work):
        row = next(self.rows)
        assert (row.kind, row.requests, row.batch_tokens) == ("prefill", len(work.requests), sum(work.tokens))
        return row.seconds

    def decode(self, start_s, batch, host_s, adapters):
        row = next(self.rows)
        found = row.kind, row.begin_s, row.requests, row.batch_tokens, row.rank_sum
        assert found == ("decode", start_s, len(batch), batch.context_tokens, batch.rank_sum)
        return DecodeWindow(start_s, row.seconds, 0.0)


class EachStep(Part):
    """Has every decode step launched anew."""

    def __init__(self, replica: Replica) -> None:
        self.table = replica.table

    def at_boundary(self, now_s: float) -> None:
        self.table.end_window()


@pytest.mark.parametrize("rate_rps", [0.5, 4])
def test_the_records_are_those_of_a_simulation_whose_iterations_take_the_logged_times(rate_rps):
    """To the last bit, with a device and a host that take other times each time."""
    run = scenario([*TRACE, f"workload.arrivals.rate_rps={rate_rps}"])
    device = Pretended(run, unsteady=np.random.default_rng(1))
    real = serve(run, device, "mbgmv", clock=device.clock)
    simulation = Simulation(
        replace(run, fast_forward=False, parts=(EachStep,)),
        lambda latency: Logged(latency, real.iterations),
    )
    pd.testing.assert_frame_equal(real.requests, simulation.run().requests(), check_exact=True)


def test_the_hosts_work_between_two_iterations_belongs_to_the_second_and_idle_time_to_none():
    run = scenario([*TRACE, "workload.arrivals.rate_rps=0.1", "workload.duration_s=200"])
    device = Pretended(run)
    began_s = device.now_s

    class Slow(Fcfs):
        def schedule(self, view: ReplicaView) -> SchedulerOutput:
            device.now_s += 0.01
            return super().schedule(view)

    slow = replace(run, policies=replace(run.policies, scheduler=Slow))
    real = serve(slow, device, "mbgmv", clock=device.clock)
    by_itself_s = compare(run, [real], real.requests).iterations.predicted_s
    np.testing.assert_allclose(real.iterations.seconds, by_itself_s + 0.01, atol=1e-7)
    assert real.iterations.seconds.sum() == pytest.approx(device.now_s - began_s, abs=1e-6)
    gaps_s = real.iterations.begin_s.iloc[1:].to_numpy() - real.iterations.end_s.iloc[:-1].to_numpy()
    assert (gaps_s >= 0).all()
    assert 0 < (gaps_s > 0).sum() < len(gaps_s), "the replica is idle at times, and at times it is not"


def test_requests_that_a_run_does_not_finish_leave_the_device():
    run = replace(scenario(TRACE), until_s=5.0)
    device = Pretended(run)
    served = serve(run, device, "mbgmv", clock=device.clock)
    assert (served.requests.status == "unfinished").any()
    assert not device.there


@pytest.fixture(scope="module")
def pretended() -> tuple[Scenario, Served]:
    run = scenario(TRACE)
    device = Pretended(run)
    return run, serve(run, device, "mbgmv", clock=device.clock)


def test_each_iteration_is_priced_by_what_it_processed(pretended):
    run, served = pretended
    compared = compare(run, [served], Simulation(run).run().requests())
    np.testing.assert_allclose(compared.iterations.predicted_s, compared.iterations.seconds, rtol=1e-6)
    assert compared.iteration_error()["each"].max() < 1e-6
    assert compared.figures()["error"].abs().max() < 1e-6
    assert compared.latency_error().abs().max() < 1e-6


def test_a_device_that_is_a_tenth_slower_than_the_calibration_shows_as_such(pretended):
    run, served = pretended
    slower = Served(served.requests, served.iterations.assign(seconds=served.iterations.seconds * 1.1))
    found = compare(run, [slower], served.requests).iteration_error()
    np.testing.assert_allclose(found["each"], 1 - 1 / 1.1, rtol=1e-6)
    np.testing.assert_allclose(found["sum"], 1 / 1.1 - 1, rtol=1e-6)


def test_nothing_of_the_profiles_own_prefills_is_left_in_a_calibration_fitted_to_a_trace(pretended):
    """The profile went up to 4,096 tokens, the trace does not: its curve must not end in the profile's point."""
    run, served = pretended
    others = {name: s for name, s in run.calibration.coefficients.items() if not name.startswith("prefill.")}
    curve = {f"prefill.pass_s_by_tokens.{count}": 1.0 for count in (16, 512, 1024, 4096)}
    found = calibration_of(served.iterations, replace(run.calibration, coefficients=others | curve))
    prefills = served.iterations[served.iterations["kind"] == "prefill"]
    assert prefills["batch_tokens"].max() < 4096
    assert "prefill.pass_s_by_tokens.4096" not in found.coefficients
    model = IterationModel(found)
    assert model.prefill_s(8192, 0) > model.prefill_s(1024, 0) > 0
    assert model.decode_s(4, 400) > 0


def test_a_picture_is_drawn(pretended, tmp_path):
    run, served = pretended
    draw(compare(run, [served, served], served.requests), tmp_path / "replay.png")
    assert (tmp_path / "replay.png").stat().st_size > 10_000


CALIBRATION = """\
gpu: cpu
model: llama_16m
tp: 1
provenance: {kind: measured, source: made up}
prefill: {intercept_s: 0.01, per_token_s: 0.0004, per_token_sq_s: 0}
decode: {intercept_s: 0.008, per_sequence_s: 0.001, per_context_token_s: 0}
kernels:
  mbgmv:
    decode: {intercept_s: 0.001, per_rank_sum_s: 0}
    prefill: {intercept_s: 0.001, per_token_rank_s: 0}
adapter_load: {latency_s: 0.001, bytes_per_s: 1.0e+9}
"""


def test_a_trace_is_really_served(tmp_path):
    """On this machine's CPU, a few requests; how long that takes is not asserted."""
    path = tmp_path / "calibration.yaml"
    path.write_text(CALIBRATION)
    overrides = [
        "workload.duration_s=null",
        "workload.requests=12",
        "workload.prompt_tokens.hi=32",
        "workload.output_tokens.hi=16",
    ]
    device = choose("cpu", threads=1)
    (by_profile, by_trace), practice = replay(device, *scenarios(device, overrides, path), rounds=1)
    assert (practice.seconds > 0).all()
    (run,) = by_profile.runs
    assert (run.requests.status == "finished").all()
    assert len(run.requests) == len(by_trace.simulated) == 12
    tokens = run.requests.output_tokens.sum()
    steps = run.iterations[run.iterations.kind == "decode"]
    assert steps.requests.sum() + 12 == tokens, "every token but the first comes from a step"
    prompts = run.iterations[run.iterations.kind == "prefill"]
    assert prompts.batch_tokens.sum() == run.requests.prompt_tokens.sum()
    assert (run.iterations.seconds > 0).all()
    assert any("another trace" in line for line in by_trace.lines())


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "there is no calibration"),
        (["--calibration", "{path}", "schedule=lcfs"], "schedule"),
        (["--calibration", "{path}", "scheduler=chunked_prefill"], "neither prefills in chunks"),
        (["--calibration", "{path}", "scheduler=credit"], "nor pauses requests nor merges"),
        (["--calibration", "{path}", "loader=blocking"], "can only replay loader=cached"),
        (
            ["--calibration", "{path}", "replica.prefix_caching=true", "replica.reserve=full"],
            "one device cannot replay a replica with prefix caching",
        ),
    ],
)
def test_bad_input_is_one_sentence_and_status_2(arguments, says, tmp_path, monkeypatch, capsys):
    path = tmp_path / "calibration.yaml"
    path.write_text(CALIBRATION)
    monkeypatch.chdir(tmp_path)
    assert main(["--device", "cpu", *(each.format(path=path) for each in arguments)]) == 2
    error = capsys.readouterr().err
    assert error.startswith("simlora: error: ")
    assert says in error
    assert error.count("\n") == 1
    assert not (tmp_path / "outputs").exists()
