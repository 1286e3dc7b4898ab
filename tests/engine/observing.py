"""Simulations whose replicas have one part more, which listens and changes nothing; what holds when one is over."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from experiments.torture.watch import Watched
from simlora.engine.cluster.simulation import Simulation
from simlora.engine.replica.part import Part
from simlora.engine.replica.replica import Replica
from simlora.engine.scenario import Scenario


def observed(scenario: Scenario, make: Callable[[Replica], Part]) -> Simulation:
    """Return the simulation of a scenario, after its run, in which each replica also has the part that `make` makes."""
    simulation = Simulation(replace(scenario, parts=(*scenario.parts, make)))
    simulation.run()
    return simulation


COUNTS = ("ended", "last_s", "boundaries", "token_steps", "preemptions", "adapter_hits", "adapter_misses")
COUNTS += ("prompt_tokens", "cached_tokens", "adapter_loads", "adapter_load_bytes", "disk_loads", "reloads")


def holds_nothing(replica: Replica) -> bool:
    """Whether a replica has no request, and none of its KV and no adapter is held."""
    table, kv = replica.table, replica.kv
    return not (
        table.requests() or table.held_count or kv.running_tokens(table.batch.step) or kv.adapters.pins
    )


def all_requests_end(simulation: Watched, may_lose: bool = False) -> None:
    """Check what holds however requests move; they `may_lose` tokens where all hosts have failed, and are rejected."""
    table = simulation.recorder.requests()
    assert (table.status != "unfinished").all()
    assert sum(len(watch.held()) for watch in simulation.watches) == 0, "everything is given back"
    assert all(holds_nothing(replica) for replica in simulation.fleet.replicas)
    done = table[table.status == "finished"]
    assert (done.cold_start_s + done.kv_cold_start_s <= done.queue_s + 1e-9).all()
    assert (done.cold_start_s + done.kv_cold_start_s + done.blocked_s <= done.latency_s + 1e-9).all()
    assert (done.blocked_s >= -1e-9).all()
    tokens = simulation.recorder.token_gaps.count + simulation.recorder.accepted_tokens
    kept = done.output_tokens.sum()
    assert tokens + len(done) >= kept if may_lose else tokens + len(done) == kept


def recorded(simulation: Simulation, end_s: float) -> dict[str, Any]:
    """All that the files of a run are made of that ended at `end_s`."""
    recorder = simulation.recorder
    return {
        "requests": recorder.requests(),
        "timeline": recorder.timeline.frame(),
        "decisions": recorder.journal.decisions(),
        "usage": np.array(recorder.usage.until(end_s)) if end_s else None,
        "gaps": [recorder.token_gaps.count, recorder.token_gaps.mean(), recorder.token_gaps.quantile(0.9)],
        "counts": {name: getattr(recorder, name) for name in COUNTS},
        "outcomes": simulation.outcomes(),
    }


def assert_identical(one: Simulation, other: Simulation) -> None:
    """Both recorded the same, bit for bit."""
    end_s = max(max(each.recorder.last_s, each.clock.now) for each in (one, other))
    theirs = recorded(other, end_s)
    for name, value in recorded(one, end_s).items():
        if isinstance(value, pd.DataFrame):
            pd.testing.assert_frame_equal(value, theirs[name], check_exact=True)
        else:
            np.testing.assert_equal(value, theirs[name], err_msg=name)
