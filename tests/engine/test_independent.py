"""Replicas that do not affect each other give the same result in turns, on any number of cores, as all together."""

from __future__ import annotations

import os
import signal
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import simlora
from experiments.scenarios import scenario
from simlora.core.errors import InputError
from simlora.core.request import Request
from simlora.engine.cluster import workers
from simlora.engine.cluster.independent import independent, is_blind
from simlora.engine.cluster.simulation import Simulation
from simlora.engine.replica.part import Part
from simlora.engine.replica.replica import Replica
from simlora.engine.scenario import Scenario
from simlora.policies.routing.round_robin import RoundRobin
from simlora.policies.scheduling.base import SchedulerOutput
from simlora.policies.scheduling.fcfs import Fcfs
from simlora.policies.views import ReplicaView
from tests.engine.cases import Case, Row, cases, shared_prefixes
from tests.examples import share

ROUTERS = ("round_robin", "routing_table")
SMALL = (
    "workload=synthetic",
    "workload.duration_s=20",
    "workload.arrivals.rate_rps=6",
    "cluster.replicas=3",
    "router=round_robin",
)


def together(scenario: Scenario) -> Simulation:
    """The cluster after a run of all replicas together, as they are where something looks at them."""
    simulation = Simulation(scenario)
    simulation.recorder.on_boundary += (lambda sample: None,)
    simulation.run()
    assert simulation.dispatcher.give is type(simulation.fleet.replicas[0]).submit
    return simulation


def in_turns(scenario: Scenario, cores: int = 1) -> Simulation:
    simulation = Simulation(scenario)
    assert independent(scenario, simulation.fleet.replicas)
    simulation.run(cores=cores)
    return simulation


def recorded(simulation: Simulation) -> dict[str, Any]:
    """All that the files of a run are made of."""
    recorder = simulation.recorder
    end_s = max(recorder.last_s, simulation.clock.now)
    names = ("ended", "last_s", "boundaries", "token_steps", "preemptions", "adapter_hits", "adapter_misses")
    names += (
        "prompt_tokens",
        "cached_tokens",
        "adapter_loads",
        "adapter_load_bytes",
        "disk_loads",
        "reloads",
    )
    assert recorder.timeline is not None
    return {
        "requests": recorder.requests(),
        "timeline": recorder.timeline.frame(),
        "decisions": recorder.journal.decisions(),
        "usage": np.array(recorder.usage.until(end_s)) if end_s else None,
        "gaps": [recorder.token_gaps.count, recorder.token_gaps.mean(), recorder.token_gaps.quantile(0.9)],
        "counts": {name: getattr(recorder, name) for name in names},
        "outcomes": simulation.outcomes(),
    }


def assert_same(one: Simulation, other: Simulation) -> None:
    theirs = recorded(other)
    for name, value in recorded(one).items():
        if isinstance(value, pd.DataFrame):
            pd.testing.assert_frame_equal(value, theirs[name], check_exact=True)
        else:
            np.testing.assert_equal(value, theirs[name], err_msg=name)


@st.composite
def fleets(draw: st.DrawFn) -> Case:
    ends = st.one_of(st.none(), st.floats(0.01, 3.0))
    loaders = ("blocking", "cached", "prefetching", "asynchronous")
    schedulers = ("fcfs", "lcfs", "early_abort", "adapter_clustering", "chunked_prefill", "static_batch")
    plain = cases(loaders, ("full", "peak", "paged"), ("recompute", "swap"), schedulers, ends=ends)
    case = draw(st.one_of(plain, shared_prefixes()).filter(lambda case: not case.scenario().policies.merges))
    return replace(
        case, replicas=draw(st.integers(2, 4)), router=draw(st.sampled_from(ROUTERS)), max_outstanding=None
    )


@given(fleets())
@share(1)
def test_turns_give_what_all_replicas_together_give(case: Case):
    assert_same(in_turns(case.scenario()), together(case.scenario()))


@given(fleets(), st.integers(2, 4))
@share(0.1)
def test_so_do_several_cores(case: Case, cores: int):
    assert_same(in_turns(case.scenario(), cores), together(case.scenario()))


@pytest.mark.parametrize("cores", [1, 2])
def test_many_slices_give_what_one_gives(cores: int, monkeypatch: pytest.MonkeyPatch):
    made = scenario(SMALL)
    whole = in_turns(made, cores)
    monkeypatch.setattr("simlora.engine.cluster.simulation.SLICE_A_REPLICA", 2)
    assert_same(in_turns(made, cores), whole)


@pytest.mark.parametrize(
    "overrides",
    [
        ("cluster.replicas=1",),
        ("router=most_idle",),
        ("router=rank_aware",),
        ("migration=consolidate",),
        ("cluster.status_every_s=1",),
        ("cluster.max_outstanding=9",),
        ("cluster.failures=[{host: 0, at_s: 5, until_s: 9}]",),
        ("cluster.stragglers=[{replica: 0, at_s: 5, until_s: 9, factor: 2}]",),
        ("cluster.slow_links=[{host: 0, at_s: 5, until_s: 9, factor: 2}]",),
        ("until_missed=0.1",),
        ("perfetto=true",),
        ("parts=[{_target_: tests.engine.test_independent.Nothing}]",),
        (
            "system=vllm_packed",
            "gpu=a100_80g",
            "workload.adapters=6",
            "cluster.engines_per_gpu=3",
            "router=round_robin",
        ),
        ("system=toppings", "router=round_robin"),
        ("system=fastlibra", "router=round_robin"),
        ("system=loraserve",),
        ("system=dlora", "router=round_robin", "migration=stay"),
    ],
    ids=" ".join,
)
def test_replicas_with_something_between_them_are_not_independent(overrides: tuple[str, ...]):
    made = scenario([*SMALL, *overrides])
    simulation = Simulation(made)
    assert not independent(made, simulation.fleet.replicas)


class Nothing(Part):
    """A part of one's own may do anything."""

    def __init__(self, replica: Replica) -> None:
        pass


class Jealous(RoundRobin):
    """Routes otherwise than the class that says that it is blind."""

    def route(self, request: Request, candidates: Any, view: Any) -> int:
        return int(candidates[np.argmin(view.outstanding[candidates])])


class Peeping(Jealous):
    """Says that it is blind, and is not."""

    blind = True

    def route(self, request: Request, candidates: Any, view: Any) -> int:
        return super().route(request, candidates, view)


def with_router(router: RoundRobin) -> Scenario:
    made = scenario(SMALL)
    return replace(made, policies=replace(made.policies, router=router))


def test_a_router_is_blind_only_where_the_class_that_routes_says_so():
    assert is_blind(RoundRobin())
    assert not is_blind(Jealous())
    Simulation(with_router(Jealous())).run()


def test_a_blind_router_sees_nothing_that_requests_change():
    with pytest.raises(AttributeError, match="'BlindView' object has no attribute 'outstanding'"):
        Simulation(with_router(Peeping())).run()


# What goes wrong in a worker ----------------------------------------------------------------


class Breaks(Fcfs):
    """Does something at its twentieth decision."""

    asked = 0

    def schedule(self, view: ReplicaView) -> SchedulerOutput:
        self.asked += 1
        if self.asked == 20:
            self.happens()
        return super().schedule(view)

    def happens(self) -> None:
        raise InputError("a scheduler of my own has had enough")


class Dies(Breaks):
    def happens(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)


class Stops(Breaks):
    """As Ctrl-C does: the first process gets it, and so do all others, which leave it to the first."""

    def happens(self) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getppid() if workers.multiprocessing.parent_process() else os.getpid(), signal.SIGINT)


def with_scheduler(scheduler: type[Fcfs]) -> Scenario:
    made = scenario(SMALL)
    return replace(made, policies=replace(made.policies, scheduler=scheduler))


@pytest.mark.parametrize("cores", [1, 2])
def test_an_error_of_a_policy_is_raised_as_it_is(cores: int):
    with pytest.raises(InputError, match="has had enough") as raised:
        Simulation(with_scheduler(Breaks)).run(cores=cores)
    notes = "".join(getattr(raised.value, "__notes__", []))
    assert ("In a process that simulates some of the replicas" in notes) == (cores == 2)


def test_a_worker_that_is_killed_is_named():
    with pytest.raises(RuntimeError, match="a process that simulates some of the replicas was killed"):
        Simulation(with_scheduler(Dies)).run(cores=2)


@pytest.mark.parametrize("cores", [1, 2])
def test_an_interrupt_leaves_all_replicas_at_one_time(cores: int, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("simlora.engine.cluster.simulation.SLICE_A_REPLICA", 2)
    simulation = Simulation(with_scheduler(Stops))
    with pytest.raises(KeyboardInterrupt):
        simulation.run(cores=cores)
    stopped_s, got = simulation.clock.now, simulation.recorder.requests()
    whole = in_turns(with_scheduler(Fcfs)).recorder.requests()
    past = whole["finish_s"] < stopped_s
    assert 0 < past.sum() < len(whole)
    assert (got["status"] == "finished").tolist() == past.tolist()
    assert got.loc[past, "finish_s"].tolist() == whole.loc[past, "finish_s"].tolist()
    assert sum(each.iterations for each in simulation.outcomes()) > 0


def test_a_request_that_comes_when_the_run_stops_does_not_come():
    rows = tuple(Row(0.25 * at, 0, 4, 8, 8) for at in range(12))
    case = Case(rows=rows, replicas=2, until_s=1.5)
    assert_same(in_turns(case.scenario(), cores=2), together(case.scenario()))


def test_the_key_does_not_change_the_result():
    one, two = (simlora.simulate([*SMALL, f"cores={cores}", "report=false"]) for cores in (1, 2))
    pd.testing.assert_frame_equal(one.requests, two.requests, check_exact=True)
    left_out = ("simulation", "command", "cost")
    for name in one.summary.keys() - set(left_out):
        assert one.summary[name] == two.summary[name], name
    with pytest.raises(InputError, match="cores is 0, must be a whole number of CPU cores, at least 1"):
        simlora.simulate([*SMALL, "cores=0"])
