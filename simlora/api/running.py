"""Runs a simulation and gathers its results."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pandas as pd

from simlora.api.costs import cost_facts
from simlora.api.facts import (
    adapter_facts,
    calls,
    client_facts,
    failure_facts,
    kv_facts,
    migration_facts,
    placement_facts,
    replica_facts,
    scaling_facts,
    simulation_facts,
    slowness_facts,
    speculation_facts,
    versions,
)
from simlora.api.handover import handover_facts, handovers, stages
from simlora.api.own_code import failing_in_a_sentence
from simlora.api.progress import bar
from simlora.api.timed import Timed
from simlora.config.setup import Setup
from simlora.core.build import BUILD
from simlora.core.errors import InputError
from simlora.core.garbage import without_collecting
from simlora.engine.cluster.client_simulation import ClientSimulation
from simlora.engine.cluster.front_end import FrontEnd
from simlora.engine.cluster.simulation import Simulation
from simlora.metrics.journal import Planned
from simlora.metrics.recorder import Recorder
from simlora.metrics.stored import Requests
from simlora.metrics.summary import summarise
from simlora.metrics.timeline import CACHE, REGION
from simlora.metrics.tracing import Traced
from simlora.results.result import Result
from simlora.results.stream import RequestsFile
from simlora.results.tables import ROW_GROUP

TOKENIZERS_SHARE = 0.1
"""Of the mean first token, from which waits for tokenizers are worth a word."""


class Interrupted(KeyboardInterrupt):
    """The user stopped a run; `result` has what was finished."""

    def __init__(self, result: Result) -> None:
        super().__init__("the simulation was interrupted")
        self.result = result


@without_collecting()
def run(
    setup: Setup, *, command: str = "", progress: bool = False, folder: str | Path | None = None
) -> Result:
    """Simulate. Raises InputError if not a single request fits, and Interrupted on Ctrl-C.

    Requests of more than one row group are written as they end, to a file in `folder`, where the result is to be saved,
    or where temporary files go; it is there as long as the result.
    """
    policies = setup.scenario.policies
    migration = Timed(policies.migration)
    clients = setup.scenario.clients
    with failing_in_a_sentence(setup.about["policies"].values()):
        simulates = ClientSimulation if clients.react else Simulation
        simulation = simulates(replace(setup.scenario, policies=replace(policies, migration=migration)))
    file = None
    if len(setup.scenario.trace) > ROW_GROUP and not clients.react:
        file = RequestsFile(None if folder is None else Path(folder))
        simulation.recorder.stream(file.write, ROW_GROUP)
    started = time.perf_counter()
    complete = False
    try:
        with (
            failing_in_a_sentence(setup.about["policies"].values()),
            bar(len(setup.scenario.trace), "requests", progress) as tell,
        ):
            simulation.run(tell, setup.cores)
        complete = True
    except KeyboardInterrupt:
        pass
    wall_s = time.perf_counter() - started
    requests: Requests
    if not isinstance(simulation, ClientSimulation):
        requests = _requests(simulation.recorder, file)
    else:
        requests = simulation.requests()
        setup = replace(setup, scenario=replace(setup.scenario, trace=simulation.trace()))
    result = _result(setup, simulation, requests, wall_s, migration.wall_s, command, complete)
    if not complete:
        raise Interrupted(result)
    return result


def result_of(setup: Setup, simulation: Simulation, command: str = "") -> Result:
    """Return the result of a simulation that was driven from outside and is closed; `setup` has the trace of it.

    Raises InputError if not a single request was served.
    """
    return _result(setup, simulation, simulation.recorder.requests(), 0.0, 0.0, command, complete=True)


def _requests(recorder: Recorder, file: RequestsFile | None) -> Requests:
    """Return the rows of all requests, from memory or in the file to which they were written."""
    if file is None:
        return recorder.requests()
    recorder.flush()
    return file.close()


def _result(
    setup: Setup,
    simulation: Simulation,
    requests: Requests,
    wall_s: float,
    migration_wall_s: float,
    command: str,
    complete: bool,
) -> Result:
    recorder = simulation.recorder
    journal = recorder.journal
    notices = [*_rejections(requests, setup.scenario.trace.source, complete), *_unsolved(journal.planned)]
    timeline = _timeline(simulation) if complete else pd.DataFrame()
    called = calls(simulation)
    # Of a run that was stopped, what had not arrived yet says nothing.
    stopped = not complete or bool((requests["status"] == "unfinished").any())
    submitted = requests[requests["arrival_s"] <= simulation.clock.now] if stopped else requests
    makespan_s = simulation.clock.now if stopped else recorder.last_s
    if not complete:
        simulation.autoscaling.finalize(makespan_s)
    traced = None if recorder.tracing is None else recorder.tracing.until(makespan_s)
    summary = summarise(
        submitted,
        recorder.token_gaps,
        setup.targets,
        makespan_s=makespan_s,
        adapters=adapter_facts(simulation, makespan_s),
        migration=migration_facts(simulation),
        placement=placement_facts(simulation),
        failures=failure_facts(simulation, makespan_s),
        kv=kv_facts(simulation, makespan_s),
        replicas=replica_facts(requests, simulation, makespan_s),
        calibration=setup.scenario.calibration.describe(),
        slowness=slowness_facts(simulation, makespan_s),
        scaling=scaling_facts(simulation, makespan_s),
        clients=client_facts(called, simulation.clock.now, requests, setup.targets, setup.window),
        handover=handover_facts(simulation, submitted, makespan_s),
        speculation=speculation_facts(simulation),
        stages=stages(simulation, submitted),
        cost=cost_facts(simulation, requests),
        simulation=simulation_facts(simulation, wall_s, migration_wall_s),
        versions={**versions(), "build": BUILD},
        seed=setup.scenario.seed,
        workload=setup.workload,
        run=setup.about,
        command=command,
        complete=complete,
        window=setup.window,
    )
    notices += _tokenizers(setup, float(summary["ttft_s"]["mean"] or 0.0))
    return Result(
        summary,
        requests,
        timeline,
        setup.config,
        decisions=journal.decisions(),
        moves=journal.moves(),
        plans=journal.plans(),
        placements=journal.placements(),
        scaling=journal.scalings(),
        calls=called,
        handovers=handovers(simulation, submitted),
        notices=(*setup.notices, *notices, *_cut(traced)),
        traced=traced,
    )


def _rejections(requests: Requests, source: str, complete: bool) -> list[str]:
    """Return a notice about rejected requests. Raises InputError if none was left."""
    rejected = requests[requests["status"] == "rejected"]
    if rejected.empty:
        return []
    tokens, arrival_s, reason = (rejected[name].iloc[0] for name in ("prompt_tokens", "arrival_s", "reason"))
    example = f"the first, with a prompt of {tokens} tokens at {arrival_s:g} s, because {reason}"
    if complete and len(rejected) == len(requests):
        raise InputError(f"every one of the {len(requests):,} requests is rejected ({source}), {example}")
    return [f"{len(rejected):,} of {len(requests):,} requests were rejected ({source}), {example}."]


def _tokenizers(setup: Setup, ttft_s: float) -> list[str]:
    """Return a notice if requests wait long for adapters' tokenizers, which a short run has at its beginning only."""
    scenario = setup.scenario
    if not scenario.replica.adapter_tokenizers:
        return []  # and no columns of a long trace are made
    waits_s = FrontEnd(scenario).tokenizers_s(scenario.trace)
    if not len(waits_s) or waits_s.mean() <= TOKENIZERS_SHARE * ttft_s:
        return []
    return [
        f"first tokens come {waits_s.mean():.3g} s later at the mean, {waits_s.max():.3g} s at most, because the front "
        "end reads an adapter's tokenizer at its first request, one after another (vLLM up to 0.10). "
        "replica.adapter_tokenizers=false is vLLM from 0.11 on; window.warm_up_s leaves the beginning out."
    ]


def _unsolved(planned: Sequence[Planned]) -> list[str]:
    """Return a notice about plans whose solver found nothing to go by."""
    unsolved = [plan for plan in planned if not plan.solved]
    if not unsolved:
        return []
    first = unsolved[0]
    return [
        f"{len(unsolved):,} of {len(planned):,} migration plans could not be solved and left every request where it "
        f"was; the first, at {first.time_s:g} s: {first.reason}."
    ]


def _cut(traced: Traced | None) -> list[str]:
    """Return a notice if more happened than is kept to be looked at."""
    if traced is None or not traced.cut:
        return []
    return [
        f"timeline.json.gz ends at {traced.until_s:g} s, with the first {len(traced.happened):,} things that happened; "
        "what comes later is in the other files."
    ]


def _timeline(simulation: Simulation) -> pd.DataFrame:
    """Return the samples; what a run does not have is 0."""
    timeline = simulation.recorder.timeline
    if timeline is None:
        return pd.DataFrame()
    scenario = simulation.scenario
    configs = {id: scenario.config_of(id) for id in range(scenario.cluster.replicas)}
    capacities = {id: each.pool_tokens for id, each in configs.items()}
    regions = {id: each.adapter_region_tokens if each.own_region else 0 for id, each in configs.items()}
    frame = timeline.frame()
    frame = frame.assign(
        capacity_tokens=frame["replica"].map(capacities),
        region_capacity_tokens=frame["replica"].map(regions),
    )
    return frame.assign(**{name: 0 for name in (*CACHE, *REGION) if name not in frame})
