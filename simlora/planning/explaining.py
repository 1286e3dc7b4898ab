"""What is known of a plan besides: what binds it, its headroom, how sure it is, and what each flag does."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from statistics import fmean
from typing import Any

from simlora.metrics.saturation import PAST
from simlora.metrics.slo import ATTAINMENT
from simlora.planning.candidate import Candidate, Trials
from simlora.planning.machines import SLOTS, longest
from simlora.planning.plan_lines import BEYOND, SLOWEST, TRAFFIC_MOST
from simlora.planning.planned import Beside, Planned
from simlora.planning.tuning import SEQUENCES, Tuning
from simlora.sweeps.outcome import RAN, Outcome

NOTHING = "nothing yet"
STEPS = 5
"""How often the range of a factor is halved, by ratio."""
MEDIAN_OF_NORMAL = 0.6745
"""Median of the size of a standard normal variable: a median error over it is a standard deviation."""
TELLS = 0.01
"""By how much the share of the SLO that is kept must grow for a part to count as what binds."""
LOADS = 0.1
"""Share of the requests' time that is cold start, from which loads are said to bind."""


def explained(trials: Trials, one: Candidate, of: Tuning) -> Planned:
    """Return a plan with all that is known of it."""
    seeds = trials.question.seeds
    slower = highest(trials, one, Candidate.slowed, SLOWEST)
    busier = highest(trials, one, Candidate.faster, TRAFFIC_MOST)
    error = one.machine.error
    return Planned(
        one,
        of.of,
        tuple(trials.outcomes(one, seeds)),
        longest_tokens=longest(one.machine, seeds, of.of),
        headroom=busier,
        told=trials.told(one if busier == 1.0 else one.faster(busier), seeds),
        slower=slower,
        sure=None
        if error is None
        else 0.5 * (1 + math.erf((slower - 1) / (error / MEDIAN_OF_NORMAL) / math.sqrt(2))),
        binds=binding(trials, one, busier),
        beside=beside(trials, one, of),
    )


def highest(
    trials: Trials, one: Candidate, harder: Callable[[Candidate, float], Candidate], most: float
) -> float:
    """Return the highest factor, 1 to `most`, with which what `harder` makes keeps the SLO with every seed.

    It keeps it in longer runs as well, which a little more does not, or is looked for again with these.
    """
    seeds, step = trials.question.seeds, most ** (0.5**STEPS)
    found = most if trials.met(harder(one, most), seeds) else _between(trials, one, harder, 1.0, most)
    while (longer := trials.longer(one)) is not None:
        if not trials.met(harder(longer, found), seeds):
            found = _between(trials, longer, harder, 1.0, found)
        elif found < most and trials.met(harder(longer, found * step), seeds):
            found = _between(trials, longer, harder, found * step, most)
        else:
            break
        one = longer
    return found


def _between(
    trials: Trials, one: Candidate, harder: Callable[[Candidate, float], Candidate], low: float, high: float
) -> float:
    """Return the highest factor from `low`, which the SLO is kept with, to `high`, which is too much, by bisection."""
    for _ in range(STEPS):
        middle = math.sqrt(low * high)
        if trials.met(harder(one, middle), trials.question.seeds):
            low = middle
        else:
            high = middle
    return low


def binding(trials: Trials, one: Candidate, busier: float) -> str:
    """Return what keeps the plan from serving more: the part without which the SLO is nearer, of traffic just above.

    It is asked of the seed that misses it most. Each part is relaxed in turn: twice the slots, twice the KV, twice the
    sequences. Where none helps it is the GPU's time, of answers if their pace is what misses, of prompts otherwise, or
    the loads of adapters. Where the SLO is kept even of that traffic, it is NOTHING.
    """
    base = one.faster(BEYOND * busier)
    trials.run([base], trials.question.seeds)
    if trials.met(base, trials.question.seeds):
        return NOTHING
    seeds = [min(trials.question.seeds, key=lambda seed: trials.score(base, [seed]))]
    outcome = trials.outcomes(base, seeds)[0]
    if outcome.status != RAN:
        return "unknown"
    settings = dict(one.settings)
    adapters = int(outcome.summary["adapters"]["count"])
    tokens = int(outcome.summary["run"]["kv_token_budget"])
    parts = {"KV memory": base.changed(more=(*base.more, f"replica.kv_token_budget={2 * tokens}"))}
    slots = int(settings.get(SLOTS) or one.machine.setting(SLOTS) or 0)
    if 0 < slots < adapters:
        relaxed = tuple(
            (key, min(2 * slots, adapters) if key == SLOTS else value) for key, value in one.settings
        )
        parts[f"slots: {adapters} adapters over {slots}"] = base.changed(settings=relaxed)
    sequences = int(settings.get(SEQUENCES) or one.machine.setting(SEQUENCES))
    relaxed = tuple((key, 2 * sequences if key == SEQUENCES else value) for key, value in one.settings)
    parts[f"sequences: {sequences} at once"] = base.changed(settings=relaxed)
    trials.run(parts.values(), seeds)
    now = trials.score(base, seeds)
    gains = {name: trials.score(part, seeds) - now for name, part in parts.items()}
    most = max(gains, key=lambda name: gains[name])
    if gains[most] > TELLS:
        return most
    return _of_time(trials, outcome)


def _of_time(trials: Trials, outcome: Outcome) -> str:
    summary = outcome.summary
    targets = summary["slo"]["targets"]
    if (summary["cold_start_share"]["mean"] or 0.0) > LOADS:
        return "loads of adapters"
    figures = [name for name in trials.question.figures if name != ATTAINMENT]
    of_answers = any(name.startswith(("tpot_s", "tbt_s", "latency_s")) for name in figures)
    if targets.get("tpot_s") is not None:
        of_answers = of_answers or (summary["tpot_s"]["p95"] or 0.0) > targets["tpot_s"]
    return "decode: the GPU's time for answers" if of_answers else "prefill and decode: the GPU's time"


def beside(trials: Trials, one: Candidate, of: Tuning) -> Sequence[Beside]:
    """Return how nearly the SLO is kept with the next value of each flag.

    Where replicas are of two kinds, also with one more of either kind and one less of the other.
    """
    seeds = trials.question.seeds
    found = []
    candidates: list[tuple[str, Any, Candidate]] = []
    for settings in of.beside(one.settings, one.replicas):
        ((key, value),) = (new for new, old in zip(settings, one.settings, strict=True) if new != old)
        other = one.changed(settings=settings)
        if other.overrides(0) != one.overrides(0):  # unless how replicas are divided decides it
            candidates.append((key, value, other))
    for apart in () if one.apart is None else one.apart.beside(one.replicas):
        key, _, value = apart.overrides[-1].partition("=")
        candidates.append((key, value, one.changed(apart=apart)))
    trials.run([candidate for _, _, candidate in candidates], seeds)
    for key, value, candidate in candidates:
        outcomes = trials.outcomes(candidate, seeds)
        ran = [outcome for outcome in outcomes if outcome.status == RAN]
        found.append(
            Beside(
                key,
                value,
                trials.met(candidate, seeds),
                any(outcome.summary["load"]["label"] == PAST for outcome in ran),
                {name: fmean(o.figure(name) or 0.0 for o in ran) for name in FIGURES} if ran else {},
                "" if candidate.apart in (one.apart, None) else candidate.apart.said(one.replicas),
            )
        )
    return found


FIGURES = ("slo.attainment", "ttft_s.p95", "tpot_s.p95")
