"""The search for the cheapest plans: machines in the order of what they cost at least, then replicas, then flags."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from joblib import effective_n_jobs
from omegaconf import OmegaConf

from simlora.api.preparing import composed
from simlora.config.composing import choices
from simlora.config.engine_flags import ENGINES, allowed_rank
from simlora.config.own_folder import own_choices, with_folder
from simlora.core.checks import number, whole
from simlora.core.errors import InputError, nearest
from simlora.metrics.slo import ATTAINMENT
from simlora.planning.apart import TRIED
from simlora.planning.candidate import SLOWER, Candidate, Trials
from simlora.planning.climbing import deployable, lasting, steadied
from simlora.planning.explaining import STEPS, explained
from simlora.planning.machines import SLOTS, Excluded, Machine, Traffic, key_of, machine, traffic_of
from simlora.planning.planned import Plan
from simlora.planning.tuning import Tuning, fixed, tuning
from simlora.sweeps.outcome import RAN, Overrides
from simlora.sweeps.question import LONGER, LONGEST, REPLICAS, asked

DEGREES = (1, 2, 4, 8)
"""GPUs of a machine: as far as one host goes."""
MOST = 4096
"""Machines of a kind, beyond which none is looked for."""
FOUND = {
    "cluster.replicas": "",
    "cluster.prefill_replicas": ", or give --pools",
    "gpu": ", or give --gpus",
    "system": ", or give --engines",
    "replica.tp": ", or give --tp",
    SLOWER: ": it slows replicas itself, to say how sure it is",
}
"""Keys that no override may set, and what does."""
BETWEEN = 2.0, 4.0
"""How many times what the bounds say plans cost, for the time that is said beforehand (ten deployments: 1 to 3.4)."""
OVERHEAD_S = 0.1
"""Of a run beside the simulation: its configuration is composed, its workload made and its result kept."""


def plan(
    overrides: Sequence[str] = (),
    *,
    engines: Sequence[str] = ("vllm",),
    gpus: Sequence[str] | None = None,
    degrees: Sequence[int] = DEGREES,
    prices: Mapping[str, float] | None = None,
    tune: Mapping[str, Sequence[Any]] | None = None,
    limits: Mapping[str, float] | None = None,
    attainment: float | None = None,
    seeds: int = 3,
    plans: int = 3,
    pools: bool = False,
    longest: int = LONGEST,
    config_dir: str | Path | None = None,
    jobs: int = -1,
    tell: Callable[[str], None] = lambda text: None,
) -> Plan:
    """Return the cheapest machines and flags with which `overrides`' traffic keeps an SLO.

    `overrides` name the workload, the model and the SLO; `engines` systems whose flags are known, `gpus` kinds of GPU
    (None: every kind that has a price), `degrees` GPUs of a replica, `prices` USD per hour of one GPU where the
    configuration has none or another. `tune` gives the values of a key; else flags have the values of
    planning/tuning.py. `limits` and `attainment` are those of `capacity`. With `pools` some replicas may prefill alone,
    and the others decode what these hand over.

    A machine costs at least what its tokens take at its best batch. Machines are looked at in that order, and not at
    all once `plans` are known that cost less. Of each the fewest replicas are searched for: from that bound up with the
    flags to begin with, then, by bisection, with flags that a climb over neighbouring values finds, as long as they
    make the SLO nearer. A plan keeps it with each of `seeds` seeds. A climb may end short of the best flags: a plan is
    an upper bound of the cost, and `experiments/planning` measures how far above an exhaustive grid's it is.

    A short run begins with an empty cluster and ends before a queue is long. So a plan must keep its SLO in runs four
    times as long, which must tell whether a queue would grow; otherwise the search of that machine is repeated with
    longer runs, `longest` times as long as configured at most. A trace from a file is as long as it is: a plan says
    where that is too short.

    The same arguments always give the same plan. Runs are kept, so that an interrupted search goes on where it was.

    `tell` hears sentences: what is looked at, and how long that will take. Raises InputError for a mistake, and where
    no machine keeps the SLO.
    """
    user = tuple(with_folder(tuple(overrides), config_dir))
    for key in map(key_of, user):
        if key in FOUND:
            raise InputError(f"{key} is what a plan finds; leave it out{FOUND[key]}")
    question = asked(user, REPLICAS, None, None, limits, attainment, seeds, 0.02, longest=longest)
    whole("plans", plans, least=1)
    looked_at, traffic, excluded = machines(user, engines, gpus, degrees, prices or {}, tune or {})
    if not looked_at:
        reasons = "; ".join(f"{one.name}: {one.reason}" for one in excluded[:3])
        raise InputError(f"no machine is left to plan with ({reasons})")
    trials = Trials(question, jobs)
    pace_s = OmegaConf.select(composed(user)[0], "slo.tpot_s")

    def tuned(one: Machine) -> Tuning:
        return tuning(one, traffic, tune or {}, pace_s, pools)

    looked_at.sort(key=lambda one: (one.least * one.usd_per_hour, one.borrowed, one.name))
    if not limits and not any(key_of(one).partition(".")[0] == "slo" for one in user):
        tell(f"no SLO is given: planned for {question.facts['slo']}; slo.ttft_s= and slo.tpot_s= set others")
    if not any(key_of(one) == "model" for one in user):
        tell(f"no model is given: {looked_at[0].setting('model.name')} is planned for; model= names another")
    tell(_cost(trials, looked_at, len(excluded), plans, tuned(looked_at[0])))
    found, failed = _searched(trials, looked_at, plans, tuned, tell)
    if not found:
        reasons = "; ".join(f"{one.name}: {one.reason}" for one in failed[:3])
        raise InputError(f"no machine keeps the SLO, {question.slo} ({reasons})")
    tell("what binds, and what a flag more or less does")
    chosen = []
    for one in found[:plans]:
        of = tuned(one.machine)
        chosen.append(explained(trials, deployable(trials, steadied(trials, one, of), of), of))
    return Plan(question, traffic, chosen, [*excluded, *failed], trials)


def _searched(
    trials: Trials,
    looked_at: Sequence[Machine],
    plans: int,
    tuned: Callable[[Machine], Tuning],
    tell: Callable[[str], None],
) -> tuple[list[Candidate], list[Excluded]]:
    """Return what keeps the SLO on each machine, the cheapest first, and the machines on which nothing does.

    The machines are looked at in their order, and not at all where so many `plans` cost less than they do at least.
    """
    found: list[Candidate] = []
    failed: list[Excluded] = []
    for each in looked_at:
        worst = sorted(one.usd_per_hour for one in found)[plans - 1] if len(found) >= plans else math.inf
        most = MOST if worst == math.inf else math.ceil(worst / each.usd_per_hour) - 1
        if each.least > most:
            least = each.least * each.usd_per_hour
            why = f"costs USD {least:.2f} an hour at least, not less than the plans"
            failed.append(Excluded(each.name, why))
            continue
        before = len(trials.runs)
        best = lasting(trials, each, tuned(each), most)
        runs = len(trials.runs) - before
        if best is None:
            why = f"{_missed(trials, before, most)} ({runs} runs)"
            failed.append(Excluded(each.name, why))
            tell(f"{each.name}: {why}")
        else:
            found.append(best)
            tell(f"{each.name}: {best.replicas}, USD {best.usd_per_hour:.2f} an hour ({runs} runs)")
    found.sort(key=lambda one: (one.usd_per_hour, one.machine.borrowed, one.machine.name))
    return found, failed


def _missed(trials: Trials, before: int, most: int) -> str:
    """Return how near to the SLO the runs came that were made after so many, with `most` replicas at most."""
    many = "" if most == MOST else f" up to {most} (more would not be among the cheapest)"
    closest = max([*trials.runs][before:], key=lambda key: trials.score(key[0], [key[1]]))
    outcome = trials.runs[closest]
    near = f": {outcome.reason}"
    if outcome.status == RAN:
        near = (
            f"; the nearest is {closest[0].replicas} with {100 * (outcome.figure(ATTAINMENT) or 0.0):.1f} %"
        )
    return f"no flags and replicas{many} were found that keep the SLO{near}"


def _cost(trials: Trials, looked_at: Sequence[Machine], excluded: int, plans: int, of: Tuning) -> str:
    """Return what is looked at, and about how long that takes.

    Plans are taken to cost BETWEEN so many times what the bounds say. Two runs are made, of the dearest machines that
    are looked at then, with as many replicas as that buys: with fewer a run is so busy that it ends early.
    """
    costs = [one.least * one.usd_per_hour for one in looked_at]
    bound = costs[min(plans, len(costs)) - 1]
    few, many = (sum(cost <= times * bound for cost in costs) for times in BETWEEN)
    probed = [
        Candidate(one, replicas := max(1, int(BETWEEN[1] * bound / one.usd_per_hour)), of.start(replicas))
        for one in (looked_at[few - 1], looked_at[many - 1])
    ]
    first = trials.question.seeds[:1]
    trials.run(probed, first)
    run_s = OVERHEAD_S + fmean(trials.outcomes(one, first)[0].seconds for one in probed)
    traffic, start = of.of, probed[0].settings
    beside, seeds = len(list(of.beside(start, 2))), len(trials.question.seeds)
    each = (1 + (len({allowed_rank(rank) for rank in traffic.ranks}) > 1)) * (2 * beside + 3 * seeds)
    each += of.pools * 3 * TRIED * len(of.routed(start, 2))  # at three numbers of replicas
    in_the_end = plans * seeds * (beside + 1 + 2 * (STEPS + 1))
    if looked_at[0].lasts and trials.question.longest >= LONGER:  # of which each counts for so many
        each += LONGER * seeds
        in_the_end += plans * 2 * LONGER * seeds
    runs = (few * each + in_the_end) // 2, 3 * many * each + in_the_end
    cores = effective_n_jobs(trials.jobs)
    least, most = (count * run_s / cores / 60 for count in runs)
    return (
        f"{traffic.rate_rps:.4g} requests/s, {len(traffic.ranks)} adapters; {len(looked_at)} kinds of machine, "
        f"{excluded} left out; about {runs[0]:,} to {runs[1]:,} runs: {least:.1f} to {most:.1f} minutes on "
        f"{cores} cores, less what is kept"
    )


def machines(
    user: Overrides,
    engines: Sequence[str],
    gpus: Sequence[str] | None,
    degrees: Sequence[int],
    prices: Mapping[str, float],
    tune: Mapping[str, Sequence[Any]],
) -> tuple[list[Machine], Traffic, list[Excluded]]:
    """Return the machines, the traffic, and the machines that are left out."""
    known = [*choices("gpu"), *own_choices("gpu", user)]
    for option, given in (("--engines", engines), ("--gpus", gpus), ("--tp", degrees)):
        if given is not None and not given:
            raise InputError(f"{option} names none; leave it out, or name one at least")
    for name in (*(gpus or ()), *prices):
        if name not in known:
            raise InputError(f"there is no gpu={name}; {nearest(name, known)}")
    for name, price in prices.items():
        number(f"--price {name}", price, "USD per hour", above=0)
    for name in engines:
        if name not in ENGINES:
            raise InputError(f"--engines {name}: its flags are not known; {nearest(name, ENGINES)}")
    of = traffic_of(user, engines[0])
    slots = [*tune.get(SLOTS, ()), OmegaConf.select(composed(user)[0], SLOTS)]
    follows = fixed(of, max((one for one in slots if isinstance(one, int)), default=0))
    found: list[Machine] = []
    excluded: list[Excluded] = []
    for engine in engines:
        for gpu in known if gpus is None else gpus:
            for tp in degrees:
                one = machine(user, engine, gpu, tp, prices.get(gpu), of, follows)
                if isinstance(one, Machine):
                    found.append(one)
                elif gpus is not None or "no price" not in one.reason:
                    excluded.append(one)
    return found, of, [*gathered(excluded)]


def gathered(excluded: Sequence[Excluded]) -> Iterator[Excluded]:
    """Yield machines that are left out, those of one GPU without a calibration as one."""
    kept: dict[str, Excluded] = {}
    for one in excluded:
        engine, _, gpu = one.name.partition(" on ")
        key = (
            f"{engine} on {gpu.partition(' ')[2]}"
            if one.reason.startswith("there is no calibration")
            else one.name
        )
        kept.setdefault(key, Excluded(key, one.reason))
    yield from kept.values()
