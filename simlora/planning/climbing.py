"""The climb to the fewest replicas of one machine that keep the SLO, and to flags that keep it with more to spare."""

from __future__ import annotations

import math
from collections.abc import Sequence

from simlora.planning.apart import ways
from simlora.planning.candidate import Candidate, Trials
from simlora.planning.explaining import MEDIAN_OF_NORMAL
from simlora.planning.machines import ROUTER, Machine
from simlora.planning.tuning import RESEARCH, Settings, Tuning

NEARER, IDLE_MOST = 0.01, 2
"""So many times in a row twice the replicas may bring the SLO no nearer than this."""
HOPEFUL = 0.8
"""How near to the SLO fewer replicas, some of them apart, must be for their flags to be climbed."""
USUAL_ERROR = 0.1
"""Median error of a step where a calibration does not say its own."""
SPARED = 1e-3
"""By how much nearer to the SLO a plan with longer iterations must be for its flags to be changed."""


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
            found = climbed(trials, starts, of)
            if found is not None or replicas == most:  # or another seed needs more than the first one
                return found
        idle = 0 if score > nearest_yet + NEARER else idle + 1
        nearest_yet = max(score, nearest_yet)
        replicas = min(2 * replicas, most)
    return climbed(trials, starts, of)


def opening(on: Machine, of: Tuning, replicas: int) -> list[Candidate]:
    """Return so many machines with the flags to begin with, behind every router."""
    start = of.start(replicas)
    return [Candidate(on, replicas, one) for one in of.routed(start, replicas)]


def divided(on: Machine, of: Tuning, replicas: int, settings: Sequence[Settings]) -> list[Candidate]:
    """Return so many machines, some of them apart, in each way, with each of these flags and behind every router."""
    return [
        Candidate(on, replicas, routed, apart=apart)
        for apart in ways(on, of.of, replicas, of.stay_s, of.pools)
        for own in dict.fromkeys(settings)
        for routed in of.routed(own, replicas)
    ]


def with_some_apart(
    trials: Trials, on: Machine, best: Candidate | None, of: Tuning, most: int
) -> Candidate | None:
    """Return fewer machines than `best` that keep the SLO because they are of two kinds (planning/apart.py), or `best`.

    Slots are as large as the highest rank that they hold, in memory and in the time of a step; and a prompt lengthens
    the steps of all that run beside it. From one replica fewer than the best, or from twice as many each time where
    there is none, each way to divide them is tried, and the nearest to the SLO is climbed from; then one fewer, as long
    as the SLO is kept.
    """
    replicas = max(on.least, 2) if best is None else best.replicas - 1
    nearest_yet, first = -math.inf, trials.question.seeds[:1]
    while max(on.least, 2) <= replicas <= most:
        starts = divided(on, of, replicas, [of.start(replicas), *([] if best is None else [best.settings])])
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
    """Return as many machines with flags that keep the SLO with more to spare, or with some of the machines apart.

    A climb like `climbed`'s, with iterations longer by a standard deviation of the calibration's error.
    """
    harder = 1 + (start.machine.error or USUAL_ERROR) / MEDIAN_OF_NORMAL
    first = trials.question.seeds[:1]
    current = start
    while True:
        beside = current.beside(of)
        if current.apart is None:
            beside += divided(current.machine, of, current.replicas, [current.settings])
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
