"""simlora's two builds: hot rooms compiled, or interpreted; users' subclasses are Python in either."""

import json
import subprocess
import sys
import traceback
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import pytest

from simlora.core import build
from simlora.core.adapter import Adapter
from simlora.core.errors import InputError
from simlora.core.request import Request
from simlora.engine.cluster.simulation import Simulation
from simlora.engine.replica.part import Part
from simlora.latency.kernels import Kernel, LoraWork
from simlora.policies.eviction.base import Eviction
from simlora.policies.eviction.lru import Lru
from simlora.policies.eviction.swapper import Swapper
from simlora.policies.loading.base import Loader, Miss
from simlora.policies.loading.cpu_assisted import CpuAssisted
from simlora.policies.routing.base import Router
from simlora.policies.routing.most_idle import MostIdle
from simlora.policies.scheduling.base import Scheduler, SchedulerOutput
from simlora.policies.scheduling.fcfs import Fcfs
from simlora.policies.views import ClusterView, ReplicaView
from tests.engine.cases import Case, Row
from tests.policies.catalogue import SLOTS, make, policies
from tests.policies.hand import CALIBRATION

ROWS = tuple(Row(0.005 * i, i % 4, 5 + i % 7, 3 + i % 5, 12) for i in range(40))
CASE = Case(rows=ROWS, ranks=(1, 2, 4, 8), capacity=120, replicas=2, max_loras=3)
NAMES = dict(
    zip(
        SLOTS, ("scheduler", "loader", "eviction", "router", "placement", "migration", "kernel"), strict=False
    )
)
EVERY = [(slot, policy) for slot in NAMES for policy in policies(slot)]


def table(case: Case, **chosen: Any) -> pd.DataFrame:
    """Run a case with other policies in some slots."""
    scenario = case.scenario()
    return Simulation(replace(scenario, policies=replace(scenario.policies, **chosen))).run().requests()


# Which build runs ---------------------------------------------------------------------------


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with one source that was compiled."""
    (tmp_path / "hot.py").write_text("x = 1\n")
    manifest = tmp_path / "compiled.json"
    hash = build.hash_of(["hot.py"], tmp_path)
    manifest.write_text(
        json.dumps({"suffix": build.EXTENSION_SUFFIXES[0], "sources": ["hot.py"], "hash": hash})
    )
    monkeypatch.setattr(build, "MANIFEST", manifest)
    monkeypatch.setattr(build, "ROOT", tmp_path)
    monkeypatch.delenv(build.INTERPRETED, raising=False)
    return tmp_path


def test_compiled_modules_are_used_while_their_sources_and_python_are_as_they_were(package):
    assert build.why_interpreted() is None
    (package / "hot.py").write_text("x = 2\n")
    assert build.why_interpreted() == "sources have changed since they were compiled"
    (package / "hot.py").unlink()
    assert build.why_interpreted() == "sources have changed since they were compiled"
    manifest = json.loads(build.MANIFEST.read_text())
    build.MANIFEST.write_text(json.dumps(manifest | {"suffix": ".cpython-39-sparc.so"}))
    assert build.why_interpreted() == "compiled for another Python: .cpython-39-sparc.so"
    build.MANIFEST.unlink()
    assert build.why_interpreted() == "not compiled"


def test_a_variable_turns_the_compiled_modules_off():
    program = "import simlora, simlora.engine.clock as c; print(simlora.BUILD, c.__file__.endswith('.py'))"
    command = [sys.executable, "-c", program]
    env = {"SIMLORA_INTERPRETED": "1", "PYTHONPATH": str(Path(__file__).parents[1])}
    ended = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
    assert ended.stdout.split() == ["interpreted", "True"]


# Users' subclasses --------------------------------------------------------------------------


@pytest.mark.parametrize(("slot", "policy"), EVERY, ids=lambda each: each.__name__)
def test_a_subclass_of_any_policy_that_changes_nothing_changes_nothing(slot, policy):
    subclass = type("Mine", (policy,), {})

    def made(kind: type) -> Any:
        if slot is Kernel:
            arguments = (
                {"slots": 3, "max_lora_rank": 8}
                if kind.__name__ == "Vllm" or policy.__name__ == "Vllm"
                else {}
            )
            return lambda calibration: kind(calibration, **arguments)
        if slot in (Scheduler, Loader, Eviction):
            return lambda: make_named(kind)
        return make_named(kind)

    def make_named(kind: type) -> Any:
        kind.__name__ = policy.__name__  # the catalogue knows arguments by the class's name
        return make(kind)

    try:
        expected = table(CASE, **{NAMES[slot]: made(policy)})
    except InputError as error:
        with pytest.raises(InputError, match="^" + str(error)[:30].replace(".", r"\.")):
            table(CASE, **{NAMES[slot]: made(subclass)})
        return
    pd.testing.assert_frame_equal(table(CASE, **{NAMES[slot]: made(subclass)}), expected)


class Mine(Scheduler):
    """Starts one request after the other, named in a list, and says that it merges and prefills in chunks."""

    merges, chunks = True, True

    def schedule(self, view: ReplicaView) -> SchedulerOutput:
        trial = view.trial()
        fits = [request for request in list(view.waiting)[:1] if trial.admit(request)]
        return SchedulerOutput(prefill=fits) if fits else SchedulerOutput(on_arrival=0, steps=1)


class Newest(Fcfs):
    """Overrides what a compiled method calls."""

    def order(self, view: ReplicaView) -> list[Request]:
        return list(view.waiting)[::-1]


class Helped(CpuAssisted):
    """A flag of a class, against the one of its base."""

    assists: ClassVar[bool] = False
    answers: ClassVar[tuple[Miss, ...]] = (Miss.STALL,)

    def on_miss(self, adapter: Adapter) -> Miss:
        return Miss.STALL


class Eager(Eviction):
    """Keeps no idle adapter."""

    def victims(self, idle: Any, short_tokens: int) -> list[Adapter]:
        return list(idle)


class ByLoad(Router):
    """Reads what only an informed router may read, and returns a number of numpy's."""

    informed = True

    def route(self, request: Request, candidates: np.ndarray, view: ClusterView) -> int:
        return candidates[np.argmin(view.loads.all.sums[candidates, 0])]


class PerToken(Kernel):
    """Class attributes, which the base class's `mixed_s` reads."""

    counts_adapters = True
    prefill_0, decode_0 = 0.5, 0.25

    def decode_s(self, work: LoraWork) -> float:
        return 0.25 + 2**-10 * work.tokens

    def prefill_s(self, work: LoraWork) -> float:
        return 0.5 + 2**-10 * work.tokens


class Worth(Swapper):
    most_fade = 0.5

    def key(self, cost_s: float, visits: int, used_s: float) -> float:
        return used_s

    def fade(self, idle_s: float) -> float:
        return min(idle_s, 0.5)


def test_schedulers_of_ones_own_run_and_their_flags_are_seen():
    scenario = CASE.scenario()
    assert replace(scenario.policies, scheduler=Mine).merges
    in_turn = table(CASE, scheduler=type("Plain", (Mine,), {"merges": False, "chunks": False}))
    assert (in_turn.status == "finished").all()
    newest, oldest = table(CASE, scheduler=Newest), table(CASE)
    assert newest.admitted_s.tolist() != oldest.admitted_s.tolist()


def test_loaders_and_evictions_of_ones_own_run_and_their_flags_are_seen():
    assert not replace(CASE.scenario().policies, loader=Helped).assists
    assert (table(CASE, loader=Helped, eviction=Eager).status == "finished").all()
    fading = Worth()
    assert (fading.most_fade, fading.reward(1.0, 1)) == (0.5, 0.0)


def test_routers_of_ones_own_may_be_informed():
    assert (table(CASE, router=ByLoad()).replica.isin([0, 1])).all()
    with pytest.raises(AssertionError, match="only a router that is `informed`"):
        table(CASE, router=type("Blind", (ByLoad,), {"informed": False})())


def test_a_kernel_of_ones_own_may_have_its_fixed_costs_as_class_attributes():
    kernel, work = PerToken(CALIBRATION), LoraWork(4, 32, 8, 2)
    assert kernel.mixed_s(work, work) == 0.5 + 2 * 4 * 2**-10
    assert (table(CASE, kernel=PerToken).status == "finished").all()


def test_a_part_of_ones_own_is_called():
    turns: list[float] = []

    class Turns(Part):
        outlives_requests = True

        def __init__(self, replica: Any) -> None:
            """Watch one replica."""

        def on_turn(self, now_s: float) -> None:
            turns.append(now_s)

        def next_s(self) -> float:
            return 5.0

    Simulation(replace(CASE.scenario(), parts=(Turns,))).run()
    assert 5.0 in turns, "an idle replica has a boundary when such a part wants one"


@pytest.mark.parametrize(
    ("base", "asks"),
    [
        (Scheduler, lambda made: made.schedule(None)),
        (Loader, lambda made: made.on_miss(Adapter(0, "a", 8, 1, 1))),
        (Eviction, lambda made: made.victims((), 0)),
        (Swapper, lambda made: made.key(1.0, 1, 1.0)),
        (Router, lambda made: made.route(Request(0, None, 0.0, 1, 1), np.arange(1), None)),
        (Kernel, lambda made: made.decode_s(LoraWork(1, 1, 1, 1))),
    ],
    ids=lambda each: getattr(each, "__name__", ""),
)
def test_a_method_that_is_missing_is_named(base, asks):
    made = type("Forgetful", (base,), {})(*((CALIBRATION,) if base is Kernel else ()))
    with pytest.raises(InputError, match=r"Forgetful has no method \w+, which it must define"):
        asks(made)


def test_an_instance_is_of_its_own_slot_alone():
    """Compiled abstract base classes once shared their registry."""
    assert isinstance(MostIdle(), Router)
    assert not isinstance(MostIdle(), Eviction | Scheduler)
    assert not isinstance(Lru(), Swapper)


def test_a_broken_rule_is_named_with_its_file_and_line():
    class Idle(Scheduler):
        def schedule(self, view: ReplicaView) -> SchedulerOutput:
            return SchedulerOutput()

    with pytest.raises(
        AssertionError, match=r"Idle leaves replica \d idle beside request 0, which could run"
    ) as found:
        table(CASE, scheduler=Idle)
    last = traceback.extract_tb(found.tb)[-1]
    assert last.filename.endswith("simlora/engine/replica/replica.py")
    assert last.lineno
    assert last.name == "_assert_nothing_could_run"
