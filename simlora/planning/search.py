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
from simlora.planning.apart import ways
from simlora.planning.candidate import SLOWER, Candidate, Trials
from simlora.planning.explaining import MEDIAN_OF_NORMAL, STEPS, explained
from simlora.planning.machines import SLOTS, Excluded, Machine, Traffic, key_of, machine, traffic_of
from simlora.planning.planned import Plan
from simlora.planning.tuning import RESEARCH, ROUTER, Tuning, fixed, tuning
from simlora.sweeps.outcome import RAN, Overrides
from simlora.sweeps.question import LONGER, LONGEST, REPLICAS, asked

DEGREES = (1, 2, 4, 8)
"""GPUs of a machine: as far as one host goes."""
MOST = 4096
"""Machines of a kind, beyond which none is looked for."""
NEARER, IDLE_MOST = 0.01, 2
"""So many times in a row twice the replicas may bring the SLO no nearer than this."""
HOPEFUL = 0.8
"""How near to the SLO fewer replicas, some of them apart, must be for their flags to be climbed."""
USUAL_ERROR = 0.1
"""Median error of a step where a calibration does not say its own."""
SPARED = 1e-3
"""By how much nearer to the SLO a plan with longer iterations must be for its flags to be changed."""
FOUND = {
    "cluster.replicas": "",
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
    longest: int = LONGEST,
    config_dir: str | Path | None = None,
    jobs: int = -1,
    tell: Callable[[str], None] = lambda text: None,
) -> Plan:
    """Return the cheapest machines and flags with which `overrides`' traffic keeps an SLO.

    `overrides` name the workload, the model and the SLO; `engines` systems whose flags are known, `gpus` kinds of GPU
    (None: every kind that has a price), `degrees` GPUs of a replica, `prices` USD per hour of one GPU where the
    configuration has none or another. `tune` gives the values of a key; else flags have the values of
    planning/tuning.py. `limits` and `attainment` are those of `capacity`.

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
    found: list[Candidate] = []
    failed: list[Excluded] = []
    pace_s = OmegaConf.select(composed(user)[0], "slo.tpot_s")
    looked_at.sort(key=lambda one: (one.least * one.usd_per_hour, one.borrowed, one.name))
    of = tuning(looked_at[0], traffic, tune or {}, pace_s)
    if not limits and not any(key_of(one).partition(".")[0] == "slo" for one in user):
        tell(f"no SLO is given: planned for {question.facts['slo']}; slo.ttft_s= and slo.tpot_s= set others")
    if not any(key_of(one) == "model" for one in user):
        tell(f"no model is given: {looked_at[0].setting('model.name')} is planned for; model= names another")
    tell(_cost(trials, looked_at, len(excluded), plans, of))
    for each in looked_at:
        worst = sorted(one.usd_per_hour for one in found)[plans - 1] if len(found) >= plans else math.inf
        most = MOST if worst == math.inf else math.ceil(worst / each.usd_per_hour) - 1
        if each.least > most:
            least = each.least * each.usd_per_hour
            failed.append(
                Excluded(each.name, f"costs USD {least:.2f} an hour at least, not less than the plans")
            )
            continue
        before = len(trials.runs)
        of = tuning(each, traffic, tune or {}, pace_s)
        best = lasting(trials, each, of, most)
        runs = len(trials.runs) - before
        if best is None:
            many = "" if most == MOST else f" up to {most} (more would not be among the cheapest)"
            closest = max(
                (key for key in [*trials.runs][before:]), key=lambda key: trials.score(key[0], [key[1]])
            )
            outcome = trials.runs[closest]
            near = f": {outcome.reason}"
            if outcome.status == RAN:
                near = f"; the nearest is {closest[0].replicas} with {100 * (outcome.figure(ATTAINMENT) or 0.0):.1f} %"
            why = f"no flags and replicas{many} were found that keep the SLO{near}"
            failed.append(Excluded(each.name, f"{why} ({runs} runs)"))
            tell(f"{each.name}: {why} ({runs} runs)")
        else:
            found.append(best)
            tell(f"{each.name}: {best.replicas}, USD {best.usd_per_hour:.2f} an hour ({runs} runs)")
    if not found:
        reasons = "; ".join(f"{one.name}: {one.reason}" for one in failed[:3])
        raise InputError(f"no machine keeps the SLO, {question.slo} ({reasons})")
    found.sort(key=lambda one: (one.usd_per_hour, one.machine.borrowed, one.machine.name))
    tell("what binds, and what a flag more or less does")
    chosen = []
    for one in found[:plans]:
        of = tuning(one.machine, traffic, tune or {}, pace_s)
        chosen.append(explained(trials, deployable(trials, steadied(trials, one, of), of), of))
    return Plan(question, traffic, chosen, [*excluded, *failed], trials)


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


def lasting(trials: Trials, on: Machine, of: Tuning, most: int) -> Candidate | None:
    """Return the cheapest candidate that keeps the SLO in longer runs too; None if none is found.

    It is searched for again with longer runs where these miss the SLO, or keep it with one replica fewer, as where the
    loads of a cold start weigh less.
    """
    seeds = trials.question.seeds
    best = cheapest(trials, on, of, most)
    while best is not None and (longer := trials.longer(best)) is not None:
        if not trials.met(longer, seeds) or _fewer_do(trials, longer, of):
            best = cheapest(trials, longer.machine, of, most)
        elif trials.told(best, seeds):
            return best
        else:
            best = longer
    return best


def _fewer_do(trials: Trials, one: Candidate, of: Tuning) -> bool:
    """Whether the SLO is kept with one replica fewer, without a change of flags, by the first seed."""
    if one.apart is not None or one.replicas <= one.machine.least:
        return False
    first, replicas = trials.question.seeds[:1], one.replicas - 1
    starts = [one.changed(replicas=replicas), *opening(one.machine, of, replicas)]
    trials.run(starts, first)
    return any(trials.met(start, first) for start in starts)


def cheapest(trials: Trials, on: Machine, of: Tuning, most: int) -> Candidate | None:
    """Return the fewest replicas, `most` at most, that keep the SLO, all alike or some apart; None if none do."""
    return with_some_apart(trials, on, fewest(trials, on, of, most), of, most)


def fewest(trials: Trials, on: Machine, of: Tuning, most: int) -> Candidate | None:
    """Return the fewest replicas, `most` at most, that keep the SLO with some flags; None if none are found."""
    best = enough(trials, on, of, most)
    low = on.least - 1
    while best is not None and best.replicas - low > 1:
        middle = (low + best.replicas) // 2
        if better := climbed(trials, [best.changed(replicas=middle), *opening(on, of, middle)], of):
            best = better
        else:
            low = middle
    return best


def enough(trials: Trials, on: Machine, of: Tuning, most: int) -> Candidate | None:
    """Return replicas that keep the SLO, not the fewest: twice as many each time, until more bring it no nearer."""
    first = trials.question.seeds[:1]
    replicas, nearest_yet, idle = on.least, -math.inf, 0
    starts: list[Candidate] = []
    while idle < IDLE_MOST:
        starts += opening(on, of, replicas)
        trials.run(starts, first)
        score = max(trials.score(one, first) for one in starts)
        if score >= 1.0 or replicas == most:
            break
        idle = 0 if score > nearest_yet + NEARER else idle + 1
        nearest_yet = max(score, nearest_yet)
        replicas = min(2 * replicas, most)
    return climbed(trials, starts, of)


def opening(on: Machine, of: Tuning, replicas: int) -> list[Candidate]:
    """Return so many machines with the flags to begin with, behind every router."""
    start = of.start(replicas)
    return [Candidate(on, replicas, one) for one in of.routed(start, replicas)]


def with_some_apart(
    trials: Trials, on: Machine, best: Candidate | None, of: Tuning, most: int
) -> Candidate | None:
    """Return fewer machines than `best` that keep the SLO because some are for adapters of high ranks alone, or `best`.

    Slots are as large as the highest rank that they hold, in memory and in the time of a step. From one replica fewer
    than the best, or from twice as many each time where there is none, each way to divide them is tried, and the
    nearest to the SLO is climbed from; then one fewer, as long as the SLO is kept.
    """
    if len({allowed_rank(rank) for rank in of.of.ranks}) < 2 or any(
        one.startswith("placement=") for one in on.overrides
    ):
        return best  # as the user has said where adapters are served
    replicas = max(on.least, 2) if best is None else best.replicas - 1
    nearest_yet, first = -math.inf, trials.question.seeds[:1]
    while max(on.least, 2) <= replicas <= most:
        settings = dict.fromkeys([of.start(replicas), *([] if best is None else [best.settings])])
        starts = [
            candidate
            for apart in ways(of.of, replicas, of.stay_s)
            for own in settings
            for candidate in (Candidate(on, replicas, one, apart=apart) for one in of.routed(own, replicas))
        ]
        if not starts:
            return best
        trials.run(starts, first)
        score = max(trials.score(one, first) for one in starts)
        found = climbed(trials, starts, of) if best is None or score >= HOPEFUL else None
        if found is not None:
            best, replicas = found, replicas - 1
            continue
        if best is not None:
            return best
        if score <= nearest_yet + NEARER:
            return None
        nearest_yet, replicas = score, 2 * replicas
    return best


def steadied(trials: Trials, start: Candidate, of: Tuning) -> Candidate:
    """Return as many machines with flags that keep the SLO with more to spare.

    A climb like `climbed`'s, with iterations longer by a standard deviation of the calibration's error.
    """
    harder = 1 + (start.machine.error or USUAL_ERROR) / MEDIAN_OF_NORMAL
    first = trials.question.seeds[:1]
    current = start
    while True:
        beside = current.beside(of)
        trials.run([one.slowed(harder) for one in beside], first)
        better = [
            (score, one)
            for one in beside
            if (score := trials.score(one.slowed(harder), first))
            > trials.score(current.slowed(harder), first) + SPARED
        ]
        better.sort(key=lambda pair: -pair[0])
        kept = next((one for _, one in better if trials.met(one, trials.question.seeds)), None)
        if kept is None:
            return current
        current = kept


def deployable(trials: Trials, one: Candidate, of: Tuning) -> Candidate:
    """Return the same machines behind a router that some product has, if one of these keeps the SLO."""
    first = trials.question.seeds[:1]
    if one.replicas == 1 or dict(one.settings).get(ROUTER) not in RESEARCH:
        return one
    others = [
        one.changed(settings=settings)
        for settings in of.routed(one.settings, one.replicas)
        if dict(settings)[ROUTER] not in RESEARCH
    ]
    trials.run(others, first)
    others.sort(key=lambda other: -trials.score(other, first))
    return next((other for other in others if trials.met(other, trials.question.seeds)), one)


def climbed(trials: Trials, starts: Sequence[Candidate], of: Tuning) -> Candidate | None:
    """Return a candidate that keeps the SLO with every seed, or None where the climb from the best start ends.

    The first seed guides it until the SLO is kept with that one, then all of them.
    """
    seeds: Sequence[int] = trials.question.seeds[:1]
    trials.run(starts, seeds)
    current = max(starts, key=lambda one: trials.score(one, seeds))
    while True:
        if trials.met(current, seeds):
            if len(seeds) == len(trials.question.seeds) or trials.met(current, trials.question.seeds):
                return current
            seeds = trials.question.seeds
        beside = current.beside(of)
        trials.run(beside, seeds)
        best = max(beside, key=lambda one: trials.score(one, seeds), default=current)
        if trials.score(best, seeds) <= trials.score(current, seeds):
            return None
        current = best
