"""The loop that serves a trace on a device, and what it is compared with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from experiments.scenarios import scenario
from profiler.device import choose
from profiler.fit import fit_iterations
from profiler.model.engine import Live
from profiler.replay.__main__ import main, replay, scenarios
from profiler.replay.compare import Served, compare, table
from profiler.replay.draw import draw
from profiler.replay.loop import Loop
from simlora.engine.cluster.simulation import Simulation
from simlora.engine.scenario import Scenario
from simlora.latency.iteration import IterationModel
from simlora.latency.kernels import NO_LORA, LoraWork
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
    """A device whose iterations take exactly what a calibration says."""

    def __init__(self, run: Scenario) -> None:
        self.now_s = 123.0
        self.ranks = [adapter.rank for adapter in run.trace.adapters]
        self.iteration = IterationModel(run.calibration)
        self.kernel = run.policies.kernel(run.calibration)

    def prefill(self, joining: Sequence[Live], kernel: str) -> None:
        tokens = [len(one.prompt) for one in joining]
        self.now_s += self.iteration.prefill_s(sum(tokens), sum(n * n for n in tokens))
        self.now_s += self.kernel.prefill_s(self._work(joining, tokens))
        for one in joining:
            one.context = len(one.prompt)

    def decode(self, running: Sequence[Live], kernel: str) -> None:
        for one in running:
            one.context += 1
        self.now_s += self.iteration.decode_s(len(running), sum(one.context for one in running))
        self.now_s += self.kernel.decode_s(self._work(running, [1] * len(running)))

    def leave(self, one: Live) -> None:
        assert one.context >= len(one.prompt), "a request leaves that never ran"

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
        ("scheduler=lcfs",),
        ("scheduler=adapter_clustering",),
        ("workload.arrivals.rate_rps=0.2", "workload.duration_s=200"),
        ("replica.max_num_seqs=4",),
        ("replica.reserve=full", "replica.kv_token_budget=3000", "replica.max_wait_tokens=0"),
    ],
)
def test_on_a_device_that_takes_what_the_calibration_says_the_loop_is_the_simulator(
    overrides: tuple[str, ...],
) -> None:
    """Written apart, they agree request by request: what differs on a real device is the device."""
    run = scenario([*TRACE, *overrides])
    device = Pretended(run)
    simulation = Simulation(run)
    loop = Loop(run, device, simulation.adapters, "mbgmv", clock=lambda: device.now_s)
    real, simulated = loop.run().requests(), simulation.run().requests()
    assert real.status.tolist() == simulated.status.tolist() == ["finished"] * len(real)
    for column in ("admitted_s", "first_token_s", "finish_s"):
        np.testing.assert_allclose(real[column], simulated[column], rtol=0, atol=1e-7, err_msg=column)


def test_a_scheduler_is_told_what_a_pass_takes_by_the_calibration() -> None:
    run = scenario(TRACE)
    device = Pretended(run)
    told: list[float] = []

    class Asking(Fcfs):
        def schedule(self, view: ReplicaView) -> SchedulerOutput:
            decision = super().schedule(view)
            if decision.prefill and not view.running:
                told.append(
                    view.pass_s(decision.prefill, [request.prompt_tokens for request in decision.prefill])
                )
            return decision

    asking = replace(run, policies=replace(run.policies, scheduler=Asking))
    loop = Loop(asking, device, Simulation(run).adapters, "mbgmv", clock=lambda: device.now_s)
    loop.run()
    assert loop.log[0].kind == "prefill"
    assert told[0] == pytest.approx(loop.log[0].end_s - loop.log[0].begin_s, abs=1e-7)


@pytest.fixture(scope="module")
def pretended() -> tuple[Scenario, Served]:
    run = scenario(TRACE)
    device = Pretended(run)
    loop = Loop(run, device, Simulation(run).adapters, "mbgmv", clock=lambda: device.now_s)
    requests = loop.run().requests()
    return run, Served(requests, table(loop.log))


def test_each_iteration_is_priced_by_what_it_processed(pretended: tuple[Scenario, Served]) -> None:
    run, served = pretended
    compared = compare(run, [served], Simulation(run).run().requests())
    np.testing.assert_allclose(compared.iterations.predicted_s, compared.iterations.seconds, rtol=1e-6)
    assert compared.iteration_error()["each"].max() < 1e-6
    assert compared.figures()["error"].abs().max() < 1e-6
    assert compared.latency_error().abs().max() < 1e-6


def test_a_device_that_is_a_tenth_slower_than_the_calibration_shows_as_such(
    pretended: tuple[Scenario, Served],
) -> None:
    run, served = pretended
    slower = Served(served.requests, served.iterations.assign(seconds=served.iterations.seconds * 1.1))
    found = compare(run, [slower], served.requests).iteration_error()
    np.testing.assert_allclose(found["each"], 1 - 1 / 1.1, rtol=1e-6)
    np.testing.assert_allclose(found["sum"], 1 / 1.1 - 1, rtol=1e-6)


def test_a_fit_to_the_iterations_of_a_trace_finds_what_they_follow(
    pretended: tuple[Scenario, Served],
) -> None:
    _, served = pretended
    for fitted in fit_iterations(served.iterations, "mbgmv").values():
        assert fitted.mape < 1e-3


def test_a_picture_is_drawn(pretended: tuple[Scenario, Served], tmp_path: Path) -> None:
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


def test_a_trace_is_really_served(tmp_path: Path) -> None:
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
    by_profile, by_trace = replay(device, *scenarios(device, overrides, path), rounds=1)
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
    "arguments, says",
    [
        (
            ["--device", "cpu"],
            "there is no calibration outputs/profile/cpu-llama_16m/cpu-llama_16m-tp1.yaml; make one",
        ),
        (["--device", "cpu", "--rounds", "0"], "--rounds is 0, must be"),
        (["--device", "cpu", "--calibration", "{path}", "schedule=lcfs"], "schedule"),
        (["--device", "cpu", "--calibration", "{path}", "cluster.replicas=2"], "one device can only replay"),
    ],
)
def test_bad_input_is_one_sentence_and_status_2(
    arguments: list[str],
    says: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = tmp_path / "calibration.yaml"
    path.write_text(CALIBRATION)
    monkeypatch.chdir(tmp_path)
    assert main([each.format(path=path) for each in arguments]) == 2
    error = capsys.readouterr().err
    assert error.startswith("simlora: error: ")
    assert says in error
    assert error.count("\n") == 1
    assert not (tmp_path / "outputs").exists()
