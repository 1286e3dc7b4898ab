"""Replicas that do not affect each other give the same result in turns, on any number of cores, as all together."""

import multiprocessing
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any
from unittest import mock

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import simlora
from experiments.scenarios import scenario
from simlora.core.errors import InputError
from simlora.core.request import Request
from simlora.engine.cluster.independent import independent, is_blind
from simlora.engine.cluster.simulation import Simulation
from simlora.engine.replica.part import Part
from simlora.engine.replica.replica import Replica
from simlora.engine.scenario import Scenario
from simlora.latency.kernels import Mbgmv
from simlora.metrics import shares
from simlora.policies.routing.round_robin import RoundRobin
from simlora.policies.scheduling.base import SchedulerOutput
from simlora.policies.scheduling.fcfs import Fcfs
from simlora.policies.views import ReplicaView
from tests.engine.cases import Case, Row, cases, shared_prefixes
from tests.engine.observing import assert_identical
from tests.examples import share as examples

SMALL = ("workload=synthetic", "workload.duration_s=12", "workload.arrivals.rate_rps=6", "cluster.replicas=3")
SMALL += ("router=round_robin",)


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


@st.composite
def fleets(draw: st.DrawFn) -> Case:
    """Clusters without anything between their replicas."""
    ends = st.one_of(st.none(), st.floats(0.01, 3.0))
    loaders = ("blocking", "cached", "prefetching", "asynchronous")
    schedulers = ("fcfs", "lcfs", "early_abort", "adapter_clustering", "chunked_prefill", "static_batch")
    plain = cases(loaders, ("full", "peak", "paged"), ("recompute", "swap"), schedulers, ends=ends)
    case = draw(st.one_of(plain, shared_prefixes()).filter(lambda case: not case.scenario().policies.merges))
    router = draw(st.sampled_from(("round_robin", "routing_table")))
    return case.but(replicas=draw(st.integers(2, 4)), router=router, max_outstanding=None, adapter_rps=None)


@contextmanager
def slices_of(requests: int) -> Iterator[None]:
    """Have slices of so many requests a replica."""
    with mock.patch("simlora.engine.cluster.simulation.SLICE_A_REPLICA", requests):
        yield


@given(fleets(), st.sampled_from((1, 2, 8, 512)))
@examples(1 / 2)
def test_turns_give_what_all_replicas_together_give(case, size):
    with slices_of(size):
        assert_identical(in_turns(case.scenario()), together(case.scenario()))


@given(fleets(), st.integers(2, 4), st.sampled_from((1, 8, 512)))
@examples(0.05)
def test_so_do_several_cores(case, cores, size):
    with slices_of(size):
        assert_identical(in_turns(case.scenario(), cores), together(case.scenario()))


@pytest.mark.parametrize(
    "overrides",
    [
        ("router=random", "until_s=8"),
        ("cluster.replica_groups=[{gpu: a100_80g, replicas: 1, kv_token_budget: 9000}]",),
        ("cluster.replica_groups=[{replicas: 1, replica: {adapter_tokens: 300, max_num_seqs: 4}}]",),
    ],
    ids=" ".join,
)
def test_whole_systems_too(overrides):
    expected = together(scenario([*SMALL, *overrides]))
    for cores in (1, 2):
        with slices_of(3):
            assert_identical(in_turns(scenario([*SMALL, *overrides]), cores), expected)


def test_cached_tokens_of_a_request_that_waits_again_are_kept():
    """Requests in so little memory that some are preempted, and still wait when the run stops."""
    case = Case(
        rows=tuple(Row(0.05 * at, at % 2, 20, 40, 40) for at in range(40)),
        block_hashes=((1, 2, 3),) * 40,
        replicas=2,
        capacity=150,
        reserve="paged",
        watermark=0.0,
        prefix_caching=True,
        until_s=1.0,
    )
    one, two = in_turns(case.scenario()), in_turns(case.scenario(), cores=2)
    assert_identical(two, one)
    table = two.recorder.requests()
    waits = (table["status"] == "unfinished") & table["admitted_s"].isna()
    assert (waits & (table["cached_tokens"] > 0)).any()


def test_rows_that_are_written_as_requests_end_come_in_order():
    chunks: list[pd.DataFrame] = []
    made = scenario(SMALL)
    simulation = Simulation(made)
    simulation.recorder.stream(chunks.append, 16)
    with slices_of(3):
        simulation.run(cores=2)
    simulation.recorder.flush()
    found = pd.concat(chunks, ignore_index=True)
    pd.testing.assert_frame_equal(found, in_turns(scenario(SMALL)).recorder.requests(), check_exact=True)
    assert [len(chunk) for chunk in chunks[:-1]] == [16] * (len(chunks) - 1)


def test_every_count_of_a_recorder_is_added_up_or_cannot_occur():
    """Of what only dependent replicas do, there is nothing to add; `ended` is counted with the rows."""
    recorder = Simulation(scenario(SMALL)).recorder
    numbers = {name for name in dir(recorder) if isinstance(getattr(recorder, name), int) and name[0] != "_"}
    elsewhere = {"ended", "switches", "remote_loads", "remote_load_bytes", "storage_loads"}
    assert numbers == {*shares.COUNTS, *elsewhere}


PACKED = ("gpu=a100_80g", "workload.adapters=6", "cluster.engines_per_gpu=3", "router=round_robin")


@pytest.mark.parametrize(
    "overrides",
    [
        ("cluster.replicas=1",),
        ("router=most_idle",),
        ("router=rank_aware",),
        ("migration=consolidate",),
        ("cluster.status_every_s=1",),
        ("cluster.max_outstanding=9",),
        ("cluster.adapter_rps=2",),
        ("cluster.failures=[{host: 0, at_s: 5, until_s: 9}]",),
        ("cluster.stragglers=[{replica: 0, at_s: 5, until_s: 9, factor: 2}]",),
        ("cluster.slow_links=[{host: 0, at_s: 5, until_s: 9, factor: 2}]",),
        ("until_missed=0.1",),
        ("perfetto=true",),
        ("parts=[{_target_: tests.engine.test_independent.Nothing}]",),
        ("system=vllm_packed", *PACKED),
        ("system=toppings", "router=round_robin"),
        ("system=fastlibra", "router=round_robin"),
        ("system=loraserve", "placement.operating_points={8: 5500, 16: 5400, 32: 5250, 64: 5000, 128: 4500}"),
        ("system=dlora", "router=round_robin", "migration=stay"),
    ],
    ids=" ".join,
)
def test_replicas_with_something_between_them_are_not_independent(overrides):
    made = scenario([*SMALL, *overrides])
    assert not independent(made, Simulation(made).fleet.replicas)


def with_policies(**policies: Any) -> Scenario:
    made = scenario(SMALL)
    return replace(made, policies=replace(made.policies, **policies))


class Nothing(Part):
    """A part of one's own may do anything."""

    def __init__(self, replica: Replica) -> None:
        pass


class Noisy(Mbgmv):
    """One for all replicas of a kind, which may have a state."""


class Given(Fcfs):
    """Has a state of its own, or what it is given."""

    def __init__(self, state: object = None) -> None:
        super().__init__()
        self.state = state


@pytest.mark.parametrize(
    ("slot", "make", "alone"),
    [
        ("kernel", Noisy, False),
        ("scheduler", Given, True),
        ("scheduler", partial(Given, state=[1, "a", {"b": 2.0}]), True),
        ("scheduler", partial(Given, state=object()), False),
    ],
)
def test_a_kernel_of_ones_own_and_an_object_that_policies_share_connect_replicas(slot, make, alone):
    made = with_policies(**{slot: make})
    assert independent(made, Simulation(made).fleet.replicas) == alone


class Jealous(RoundRobin):
    """Routes otherwise than the class that says that it is blind."""

    def route(self, request: Request, candidates: Any, view: Any) -> int:
        return int(candidates[np.argmin(view.outstanding[candidates])])


class Seeing(RoundRobin):
    """Takes back what its base class says."""

    blind = False


class Peeping(Jealous):
    """Says that it is blind, and is not."""

    blind = True

    def route(self, request: Request, candidates: Any, view: Any) -> int:
        return super().route(request, candidates, view)


def test_a_router_is_blind_only_where_the_class_that_routes_says_so():
    assert is_blind(RoundRobin())
    assert not is_blind(Jealous())
    assert not is_blind(Seeing())
    Simulation(with_policies(router=Jealous())).run()


def test_a_blind_router_sees_nothing_that_requests_change():
    with pytest.raises(AttributeError, match="'BlindView' object has no attribute 'outstanding'"):
        Simulation(with_policies(router=Peeping())).run()


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


class TwoArguments(Exception):
    def __init__(self, one: str, two: str) -> None:
        super().__init__(f"{one} {two}")


class Wrong(Breaks):
    """Raises what cannot be sent as it is."""

    def happens(self) -> None:
        raise TwoArguments("a scheduler of my own", "has had enough")


class Dies(Breaks):
    def happens(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)


class Stops(Breaks):
    """As Ctrl-C does: the first process gets it, and so do all others, which leave it to the first."""

    came = multiprocessing.Value("b", 0)

    def happens(self) -> None:
        with self.came:
            comes, self.came.value = not self.came.value, 1
        if comes:
            os.kill(os.getpid(), signal.SIGINT)
        if comes and multiprocessing.parent_process():
            os.kill(os.getppid(), signal.SIGINT)


class Stuck(Breaks):
    """Never ends its slice, while Ctrl-C comes twice."""

    def happens(self) -> None:
        first = os.getppid() if multiprocessing.parent_process() else os.getpid()
        while True:
            os.kill(first, signal.SIGINT)
            time.sleep(0.2)


@pytest.mark.parametrize("cores", [1, 2])
@pytest.mark.parametrize(("scheduler", "kind"), [(Breaks, InputError), (Wrong, RuntimeError)])
def test_an_error_of_a_policy_is_raised(scheduler, kind, cores):
    with pytest.raises(kind if cores == 2 else Exception, match="has had enough") as raised:
        Simulation(with_policies(scheduler=scheduler)).run(cores=cores)
    notes = "".join(getattr(raised.value, "__notes__", []))
    assert ("In a process that simulates some of the replicas" in notes) == (cores == 2)


def test_a_worker_that_is_killed_is_named():
    with pytest.raises(RuntimeError, match="a process that simulates some of the replicas was killed"):
        Simulation(with_policies(scheduler=Dies)).run(cores=2)


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Have SIGINT raise KeyboardInterrupt also where it is ignored, as in a job in the background of a shell."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize("cores", [1, 2])
def test_an_interrupt_leaves_all_replicas_at_one_time(cores):
    Stops.came.value = 0
    simulation = Simulation(with_policies(scheduler=Stops))
    with pytest.raises(KeyboardInterrupt), slices_of(2):
        simulation.run(cores=cores)
    stopped_s, got = simulation.clock.now, simulation.recorder.requests()
    whole = in_turns(with_policies(scheduler=Fcfs)).recorder.requests()
    past = whole["finish_s"] < stopped_s
    assert 0 < past.sum() < len(whole)
    assert (got["status"] == "finished").tolist() == past.tolist()
    assert got.loc[past, "finish_s"].tolist() == whole.loc[past, "finish_s"].tolist()
    assert sum(each.iterations for each in simulation.outcomes()) > 0


@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize("cores", [1, 2])
def test_a_second_interrupt_waits_for_nothing(cores):
    others = multiprocessing.active_children()
    simulation = Simulation(with_policies(scheduler=Stuck))
    with pytest.raises(KeyboardInterrupt):
        simulation.run(cores=cores)
    assert len(simulation.recorder.requests()) == len(simulation.scenario.trace)
    assert len(simulation.outcomes()) == 3
    assert set(multiprocessing.active_children()) <= set(others)


def test_the_key_does_not_change_the_result():
    one, two = (simlora.simulate([*SMALL, f"cores={cores}", "report=false"]) for cores in (1, 2))
    pd.testing.assert_frame_equal(one.requests, two.requests, check_exact=True)
    for summary in (one.summary, two.summary):
        summary["simulation"] |= {"wall_s": 0, "requests_per_wall_s": 0}
        del summary["command"]
    assert one.summary == two.summary
    with pytest.raises(InputError, match="cores is 0, must be a whole number of CPU cores, at least 1"):
        simlora.simulate([*SMALL, "cores=0"])
