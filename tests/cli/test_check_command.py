"""simlora-check, as a user types it: policies that keep what their slot promises, and one that breaks each promise."""

from pathlib import Path

import pytest

from simlora.checking import check as checking
from simlora.checking.check import check
from simlora.checking.trials import TRIALS
from simlora.cli.check import main

IMPORTS = """from itertools import count

from simlora.latency.kernels import Mbgmv
from simlora.policies.eviction.lru import Lru
from simlora.policies.routing.base import Router
from simlora.policies.scheduling.base import SchedulerOutput
from simlora.policies.scheduling.fcfs import Fcfs

COUNT = count()
"""
KEPT = (
    IMPORTS
    + """
class Mine(Router):
    informed = True

    def __init__(self, first=0):
        self.first = first

    def route(self, request, candidates, view):
        return int(candidates[(self.first + request.id) % len(candidates)])
"""
)
BUSY = "three replicas, bursts, many adapters, requests to the base model"


BASES = {
    "route": ("Router", "request, candidates, view"),
    "schedule": ("Fcfs", "view"),
    "victims": ("Lru", "idle, short"),
    "decode_s": ("Mbgmv", "work"),
}


def policy(method: str, *lines: str) -> str:
    """Return a module with a policy whose method is this."""
    base, arguments = BASES[method]
    body = "\n".join(f"        {line}" for line in lines)
    return f"{IMPORTS}\n\nclass Mine({base}):\n    informed = True\n\n    def {method}(self, {arguments}):\n{body}\n"


FIRST = "return int(candidates[0])"
BROKEN = {
    "which is no int": policy("route", "return candidates[0]"),
    "routes to replica 7, which may not serve the request": policy("route", "return 7"),
    "answers the same question in two ways": policy(
        "route", "return int(candidates[next(COUNT) % len(candidates)])"
    ),
    "says -1.0 s": policy("decode_s", "return -1.0"),
    "takes time where no request has an adapter": policy("decode_s", "return 0.01"),
    "reads fleet, which its ClusterView does not show": policy("route", "view.fleet", FIRST),
    "sets mine on its view": policy("route", "view.mine = 1", FIRST),
    "changes the candidates": policy(
        "route", "first = int(candidates[0])", "candidates[0] = 2", "return first"
    ),
    "line 16: return int(candidates[0]) // 0": policy("route", f"{FIRST} // 0"),
    "does nothing while requests wait and none runs": policy("schedule", "return SchedulerOutput()"),
    "starts a request twice": policy(
        "schedule", "out = super().schedule(view)", "return SchedulerOutput((*out.prefill, *out.prefill))"
    ),
    "admits what does not fit": policy(
        "schedule", "return SchedulerOutput(tuple(view.waiting)) if view.waiting else super().schedule(view)"
    ),
    "frees less than is short": policy("victims", "return ()"),
}
"""What a policy does, by what is said of it."""


@pytest.fixture(autouse=True)
def one_trial(at_home, monkeypatch):
    """Try policies in one trial only, from a folder of the user's."""
    monkeypatch.syspath_prepend(str(at_home))
    monkeypatch.setattr(checking, "TRIALS", {BUSY: TRIALS[BUSY]})


def written(folder: Path, source: str, name: str) -> str:
    """Write a module; return the class's dotted name. Each test has a module of its own, as modules stay imported."""
    (folder / f"{name}.py").write_text(source)
    return f"{name}.Mine"


def test_a_policy_that_keeps_its_promises(at_home, capsys):
    assert main([written(at_home, KEPT, "kept"), "first=1"]) == 0
    out = capsys.readouterr().out.splitlines()
    assert out[0] == "kept.Mine, a router"
    assert out[1].split(":")[0] == f"  kept       {BUSY}"
    assert out[-1] == "1 of 1 trials keep every promise, 0 break one."


@pytest.mark.parametrize("said", BROKEN)
def test_what_a_policy_breaks_is_named(at_home, said):
    name = f"broken_{[*BROKEN].index(said)}"
    (tried,) = check(written(at_home, BROKEN[said], name))
    assert tried.status == "broken"
    assert said in tried.says
    assert tried.command.endswith(f"_target_={name}.Mine")
