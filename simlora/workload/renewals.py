"""Renewal processes: events of many that each draw gaps of their own, on clocks that go as fast as they are busy."""

from __future__ import annotations

import numpy as np

from simlora.core import libm
from simlora.core.arrays import Floats, Ints
from simlora.core.checks import number, whole
from simlora.core.errors import InputError
from simlora.workload.arrivals import CV_MAX, CV_MIN, REQUESTS_MAX, Gamma

EPOCHS_MAX = 1000


def check_renewals(
    cv: float,
    epochs: int,
    epoch_sigma_log: float,
    duration_s: float,
    day_s: float | None,
    context_tokens: int | None,
) -> None:
    """Raise InputError for what a workload of such processes says wrongly about them, or about its context."""
    number("workload.cv", cv, least=0, most=CV_MAX)
    whole("workload.epochs", epochs, "parts of the run", least=1, most=EPOCHS_MAX)
    number("workload.epoch_sigma_log", epoch_sigma_log, least=0, most=20)
    number("workload.duration_s", duration_s, "seconds", above=0)
    if day_s is not None:
        number("workload.day_s", day_s, "seconds", above=0)
    if context_tokens is not None:
        whole("workload.context_tokens", context_tokens, "tokens", least=2)


def epoch_factors(rng: np.random.Generator, epochs: int, processes: int, sigma_log: float) -> Floats:
    """Return by what each epoch multiplies each process's rate [epochs, processes]: exp(Normal(0, sigma_log))."""
    return libm.exp(rng.normal(0.0, sigma_log, (epochs, processes)))


def of_their_own(
    rng: np.random.Generator, rates_rps: Floats, duration_s: float, cv: float, before_s: float = 0.0
) -> tuple[Floats, Ints]:
    """Return when the events of processes come, one process after the other, and which process each belongs to.

    Each draws for itself, from `before_s` ahead of 0 to `duration_s`. Its gaps are of mean 1 on a clock that goes as
    fast as its rate is high: rates [parts, processes] of equal parts of the time from 0; before, as in the first part.
    """
    edges_s = np.linspace(0.0, duration_s, len(rates_rps) + 1)
    passed = np.concatenate([np.zeros_like(rates_rps[:1]), np.cumsum(rates_rps, axis=0)]) * edges_s[1]
    passed = np.concatenate([passed[:1], passed + before_s * rates_rps[0]])
    edges_s = np.concatenate([[-before_s], edges_s])
    busy = np.flatnonzero(passed[-1])
    own = rng.spawn(len(passed[-1]))
    events = [renewals(own[i], cv, float(passed[-1, i])) for i in busy]
    if len(rates_rps) == 1:
        times_s = [each / rates_rps[0, i] - before_s for i, each in zip(busy, events, strict=True)]
    else:
        times_s = [np.interp(each, passed[:, i], edges_s) for i, each in zip(busy, events, strict=True)]
    return np.concatenate(times_s), np.repeat(busy, [len(each) for each in events])


def renewals(rng: np.random.Generator, cv: float, length: float) -> Floats:
    """Return the events before `length` of a process of gamma gaps of mean 1, seen from a moment chosen at random.

    Such a moment lies anywhere in a gap, and in long gaps more often than in short ones: the gap under way is gamma
    with a shape greater by 1. On average there are `length` events; beginning with a whole gap there would be
    (cv^2 - 1) / 2 more. A greater length begins with the smaller one.
    """
    gaps = Gamma(1.0, cv)
    under_way = 1.0 if cv < CV_MIN else float(rng.gamma(1 / cv**2 + 1, cv**2))
    first = float(rng.random()) * under_way
    parts, drawn, total = [np.array([first])], 0, first
    while total < length:
        drawn = max(2 * drawn, 16, int(1.1 * (length - total)))
        if drawn > 2 * REQUESTS_MAX:
            raise InputError(
                f"workload.cv is {cv:g}, with which more than {REQUESTS_MAX:,} requests come; lower it"
            )
        parts.append(gaps.gaps_s(rng, drawn))
        total += float(parts[-1].sum())
    events = np.cumsum(np.concatenate(parts))
    return events[: int(np.searchsorted(events, length))]
