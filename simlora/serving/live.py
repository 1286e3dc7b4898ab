"""From a configuration to the fronts that serve it, and to the results of what they served."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from simlora.api.running import result_of
from simlora.config.engine_flags import WINDOWS
from simlora.config.setup import Setup
from simlora.core.checks import number, whole
from simlora.core.errors import InputError
from simlora.core.trace import Trace
from simlora.engine.cluster.driven import DrivenSimulation
from simlora.engine.cluster.submissions import Keep
from simlora.engine.scenario import Scenario
from simlora.policies.routing.round_robin import RoundRobin
from simlora.results.result import Result
from simlora.serving.adapters import KnownAdapters
from simlora.serving.answer_lengths import AnswerLengths
from simlora.serving.front import Front
from simlora.serving.live_clock import LiveClock
from simlora.serving.live_cluster import LiveCluster
from simlora.serving.prompts import Characters, Prompts, Tokenized
from simlora.serving.record import Record

APART = "--per-replica gives each replica a port and leaves the choice to your router, which needs"


@dataclass(frozen=True, kw_only=True)
class Wishes:
    """What the command asks for, beside the configuration.

    `output_tokens`: None: as long as the workload's answers, drawn from them or `in_order`. `results`: the results of
    what was served are asked for at the end; without them nothing is kept of requests that have ended.
    """

    speed: float = 1.0
    per_replica: bool = False
    tokenizer: Path | None = None
    output_tokens: int | None = None
    in_order: bool = False
    max_model_len: int | None = None
    served_model_name: str | None = None
    max_body_bytes: int = 8 << 20
    results: bool = True

    def __post_init__(self) -> None:
        number("--speed", self.speed, "simulated seconds a second", above=0)
        if self.output_tokens is not None:
            whole("--output-tokens", self.output_tokens, "tokens", least=1)
            if self.in_order:
                raise InputError(
                    "--output-tokens gives all answers one length, --in-order the workload's; give one"
                )
        if self.max_model_len is not None:
            whole("--max-model-len", self.max_model_len, "tokens", least=2)
        whole("--max-body-bytes", self.max_body_bytes, "bytes", least=1)


class NoResult(InputError):
    """A port has served no request, or its simulator has stopped."""


class Live:
    """The fronts of a configuration, in order of port, and what they record."""

    def __init__(self, setup: Setup, wishes: Wishes) -> None:
        """Raise InputError for what cannot be served live."""
        self.setup, self.wishes = setup, wishes
        scenario = setup.scenario
        if scenario.until_s is not None:
            raise InputError(
                "until_s ends a run at a time, and a server runs until it is stopped; leave it out"
            )
        if scenario.clients.react:
            raise InputError("clients says what simulated clients do, and these are real ones; leave it out")
        outputs = scenario.trace.output_tokens
        fixed = wishes.output_tokens
        if fixed is None and not len(outputs):
            raise InputError("the workload has no answers whose lengths could be drawn; set --output-tokens")
        lengths = np.asarray(outputs if fixed is None else [fixed], dtype=np.int64)
        prompts: Prompts = Characters() if wishes.tokenizer is None else Tokenized(wishes.tokenizer)
        self.prompts, self.clock = prompts, LiveClock(wishes.speed)
        keep = Keep.ROWS if wishes.results else Keep.OPEN
        of_answers = [AnswerLengths(lengths, scenario.seed, in_order=True)] if wishes.in_order else []
        self.fronts: list[Front] = []
        self.records: list[Record] = []
        for at, each in enumerate(scenarios(scenario, wishes.per_replica)):
            cluster = LiveCluster(each, self.clock, at, wishes.per_replica, keep)
            self.fronts.append(
                Front(
                    cluster=cluster,
                    adapters=KnownAdapters(cluster, wishes.served_model_name or scenario.model.name),
                    prompts=prompts,
                    lengths=of_answers[0] if of_answers else AnswerLengths(lengths, scenario.seed),
                    max_model_len=_max_model_len(each, wishes.max_model_len),
                    max_body_bytes=wishes.max_body_bytes,
                    hashes=each.replica.prefix_caching,
                )
            )

    def record(self, path: Path) -> None:
        """Record each front's requests, in files of their own. Raises InputError for one that cannot be written."""
        for at, front in enumerate(self.fronts):
            self.records.append(Record(front.cluster, of_port(path, at, self.wishes.per_replica)))

    def close(self) -> None:
        """Serve what is under way to its end at once, and complete the records."""
        for front in self.fronts:
            if front.cluster.crashed is None:
                front.cluster.close()
        for record in self.records:
            record.close()

    def result(self, front: Front) -> Result:
        """Return the result of a front that is closed. Raises NoResult where no request was served."""
        if front.cluster.crashed is not None:
            raise NoResult(f"the simulator has stopped: {front.cluster.crashed}")
        return result_of_run(self.setup, front.cluster.simulation)


def of_port(path: Path, at: int, per_replica: bool) -> Path:
    """Return the file in which a port's requests are recorded."""
    return path.with_stem(f"{path.stem}-{at}") if per_replica else path


def result_of_run(setup: Setup, simulation: DrivenSimulation) -> Result:
    """Return the result of a run that is closed. Raises NoResult where no request was served."""
    trace = simulation.trace()
    if not len(trace):
        raise NoResult("no request was served")
    scenario = replace(simulation.scenario, trace=trace)
    return result_of(replace(setup, scenario=scenario, window=None), simulation)


def _max_model_len(scenario: Scenario, wanted: int | None) -> int:
    """Return the tokens that a request may have: as many as KV has room for, and the model's window.

    Raises InputError where more are wanted than KV has room for, as vLLM does.
    """
    room = min(kind.replica.kv_token_budget for kind in scenario.kinds)
    if wanted is not None:
        return whole("--max-model-len", wanted, "tokens, as KV has room for", least=2, most=room)
    return min(room, WINDOWS.get(scenario.model.name, room))


def scenarios(scenario: Scenario, per_replica: bool) -> list[Scenario]:
    """Return the scenario that is served, or that of each replica by itself. Raises InputError where that cannot be."""
    template = replace(scenario, trace=_template(scenario))
    if not per_replica:
        return [template]
    cluster, policies = scenario.cluster, scenario.policies
    for needed, given in (
        ("migration=stay", policies.migration.period_s is not None),
        ("autoscaler=fixed", scenario.scaling.autoscaler.period_s is not None),
        ("cluster.adapter_pool=replicated", cluster.adapter_pool != "replicated"),
        ("cluster.adapter_rps=null", cluster.adapter_rps is not None),
        ("cluster.engines_per_gpu=1", cluster.engines_per_gpu > 1),
        ("host.replicas=1", cluster.replicas_per_host > 1),
        (
            "no cluster.failures, stragglers or slow_links",
            cluster.failures or cluster.stragglers or cluster.slow_links,
        ),
    ):
        if given:
            raise InputError(f"{APART} {needed}")
    return list(_apart(template))


def _apart(scenario: Scenario) -> Iterator[Scenario]:
    for id in range(scenario.cluster.replicas):
        kind = scenario.kinds[int(scenario.kind_of[id])]
        # Routers have a state; one that has no choice leaves it to the router outside.
        policies = replace(scenario.policies, router=RoundRobin())
        if kind.kernel is not None:
            policies = replace(policies, kernel=kind.kernel)
        alone = replace(scenario.cluster, replicas=1, replica_groups=(), kv_token_budgets=())
        yield replace(
            scenario,
            cluster=alone,
            replica=scenario.config_of(id),
            calibration=kind.calibration,
            gpu=kind.gpu,
            policies=policies,
        )


def _template(scenario: Scenario) -> Trace:
    """Return a trace of one request that nothing is served of: with adapters, their history and the size of blocks.

    Where prefixes are cached it has a hash, as requests will have: of `replica.block_size` tokens, unless the workload
    hashes blocks of another size.
    """
    trace, one = scenario.trace, np.ones(1, dtype=np.int64)
    caches = scenario.replica.prefix_caching
    return replace(
        trace,
        arrival_s=np.zeros(1),
        adapter=-one,
        prompt_tokens=one,
        output_tokens=one,
        max_output_tokens=one,
        session=None,
        block_hashes=[(0,)] if caches else None,
        hash_block_tokens=trace.hash_block_tokens if trace.has_hashes else scenario.replica.block_size,
    )


def of_setup(setup: Setup) -> list[str]:
    """Return the notices of a configuration, without those about requests of its workload, which do not arrive."""
    return [each for each in setup.notices if not each.startswith("replica.prefix_caching finds nothing")]


def notices(live: Live, addresses: Sequence[str]) -> list[str]:
    """Return what a user should know when the server starts."""
    setup, front = live.setup, live.fronts[0]
    adapters = len(setup.scenario.trace.adapters)
    order = "in its order" if live.wishes.in_order else "in no order"
    fixed = live.wishes.output_tokens
    lengths = f"{fixed:,} tokens long," if fixed else f"as long as those of the workload, {order},"
    return [
        f"serving {setup.about['system']} on {setup.scenario.cluster.replicas} x {setup.about['gpu']}, model "
        f"{front.adapters.base} and {adapters} adapters, at {live.wishes.speed:g} simulated seconds a second",
        *(f"listening on http://{address}, live page http://{address}/simlora/" for address in addresses),
        f"prompts count by {live.prompts.name}; answers are {lengths} up to max_tokens, and their text is filler",
    ]
