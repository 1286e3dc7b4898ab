"""How near to saturation a run was: whether requests arrive faster than they can be served."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from simlora.core import libm
from simlora.metrics.slo import column, mean

if TYPE_CHECKING:
    from simlora.metrics.stored import Requests

BELOW, UNKNOWN, NEAR, PAST = LOADS = ("below", "unknown", "near", "past")
"""How near to saturation a run was, from the best to the worst; unknown if it is too short to tell."""
BATCHES = 20
"""Equal parts of the time over which requests arrive. What they differ by says how sure the whole is."""
STUDENT, STUDENT_OF_HALF = 2.539, 2.821
"""Student's t for 19 and 9 degrees of freedom, exceeded by chance once in a hundred runs."""
FEWEST_REQUESTS = 30
WITHIN = 2 / 3
"""Near saturation: the interval of the ratio lies between this and its inverse."""
SERVICES = 10
"""A run of fewer mean services, one after the other, may end before a queue could have formed."""
QUEUED = 2 / 3
"""A replica that has a queue for a smaller share of the time can serve more."""
LOST_PAST, LOST_NEAR = 0.05, 0.01
BLOCK = 1 << 18
"""Requests at a time: those of ten million together took 250 MB more."""
RATE_LIMITED = "cluster.adapter_rps"
"""How the reason begins for which a request past its adapter's rate was rejected."""
SLOWEST, APART = 20, 5
"""One request of how many is among the slowest; requests from one of these to the next from which on bursts differ."""

Floats = NDArray[np.float64]


def load(requests: Requests) -> dict[str, Any]:
    """Return how near to saturation the run was, and the numbers behind it.

    `ratio` estimates the offered over the sustainable rate: arrivals per second, over the admissions per second and
    replica while others wait, times the replicas that served any. `ratio_low` and `ratio_high` are the ends of its 98 %
    interval; None where hardly a request waited behind another. Well below saturation the ratio is too low, as
    short queues are served faster than long ones. The label is

    - `past` if the number of waiting requests grew from batch to batch, by a t-test that is wrong in one run of a
      hundred; or if requests were lost in most batches, more than 5 % of all: turned away as the cluster was full, or
      aborted before they were admitted;
    - `below` if `ratio_high` is below 1, or if replicas had a queue for less than two thirds of the second half of the
      run;
    - `near` if the interval includes 1 and lies within 2/3 and 3/2, or 1 to 5 % were lost: a run of this length cannot
      tell on which side of saturation it was;
    - `unknown` otherwise: the run is too short to tell.

    `independent_requests` are as `independent` has them. Requests that no empty replica could serve are left out, and
    those past the rate limit of their adapter.
    `drift_s` is the mean queueing delay of the last third of arrivals minus that of the first third. It stays near 0
    while the queue is stable (last-come-first-served hides a drift). Source of batch means and of the jackknifed ratio:
    Law, Simulation Modeling and Analysis (5th ed.), 9.5.3.
    """
    requests = requests[~_beside_the_load(requests)]
    arrival_s = column(requests, "arrival_s")
    order: Any = slice(None)  # those of a run are sorted
    if np.any(arrival_s[1:] < arrival_s[:-1]):
        order = np.argsort(arrival_s, kind="stable")
    # Of ten million requests a column takes 80 MB: each is read when it is needed, and goes when it is not.
    found: dict[str, Any] = {"independent_requests": independent(column(requests, "ttft_s")[order])}
    service_s, waits = _waits(column(requests, "queue_s")[order], column(requests, "latency_s")[order])
    arrival_s, admitted_s = arrival_s[order], column(requests, "admitted_s")[order]
    lost = np.isnan(admitted_s) & np.asarray(requests["status"] != "unfinished")[order]
    replica = requests["replica"].to_numpy()[order]
    judged = _judged(arrival_s, admitted_s, lost, replica, service_s)
    return judged | _backlog(arrival_s, admitted_s) | waits | found


def _beside_the_load(requests: Requests) -> NDArray[np.bool_]:
    """Return which requests [requests] were rejected for what they are, however empty the cluster was."""
    rejected: NDArray[np.bool_] = np.asarray(requests["status"] == "rejected")
    if not rejected.any():
        return rejected
    limited = requests["reason"].str.startswith(RATE_LIMITED)
    return rejected & np.asarray((requests["replica"] >= 0) | limited, dtype=np.bool_)


def independent(ttft_s: Floats) -> float:
    """Return as how many independent requests those of a run count, by how the slowest of them come together.

    `ttft_s` [requests] are in order of arrival, NaN without a first token. Of the slowest 5 % those that are fewer than
    `APART` requests from one another are one burst; independent requests are as many as the run's, over how many of the
    slowest a burst has. Source: the runs estimator of the extremal index, Smith and Weissman, J. R. Stat. Soc. B 56
    (1994), 515-528.
    """
    count = len(ttft_s)
    if count < SLOWEST:
        return float(count)
    waited_s = np.where(np.isnan(ttft_s), math.inf, ttft_s)
    waited_s.partition(count - count // SLOWEST)
    slowest = np.flatnonzero(~(ttft_s < waited_s[count - count // SLOWEST]))
    if len(slowest) == count:  # all alike
        return float(count)
    bursts = 1 + int(np.count_nonzero(np.diff(slowest) >= APART))
    return count * bursts / len(slowest)


def _judged(
    arrival_s: Floats,
    admitted_s: Floats,
    lost: NDArray[np.bool_],
    replica: NDArray[np.int32],
    service_s: float | None,
) -> dict[str, Any]:
    """Return the label and the ratio; requests [requests] are in order of arrival."""
    found: dict[str, Any] = {"label": UNKNOWN, "ratio": None, "ratio_low": None, "ratio_high": None}
    if len(arrival_s) < FEWEST_REQUESTS or arrival_s[0] == arrival_s[-1]:
        return found
    edges_s = np.linspace(arrival_s[0], arrival_s[-1], BATCHES + 1)
    arrivals = _counted(arrival_s, edges_s)
    served, queued_s = _while_waiting(arrival_s, admitted_s, replica, edges_s)
    given_up = _counted(arrival_s[lost], edges_s)
    growth = arrivals - given_up - _counted(np.sort(admitted_s), edges_s)
    lost_share = float(lost.mean())
    loses = _low(given_up) > 0
    long_enough = service_s is not None and arrival_s[-1] - arrival_s[0] >= SERVICES * service_s
    batch_s = edges_s[1] - edges_s[0]
    low, ratio, high = _ratio(arrivals, served, queued_s, batch_s)
    if not math.isnan(ratio):
        found |= {"ratio": ratio, "ratio_low": low, "ratio_high": high}
    half = queued_s[BATCHES // 2 :] / batch_s
    idle = half.mean() + STUDENT_OF_HALF * half.std(ddof=1) / math.sqrt(len(half)) < QUEUED
    if _low(growth) > 0 or (loses and lost_share > LOST_PAST):
        label = PAST
    elif loses and lost_share > LOST_NEAR:
        label = NEAR
    elif long_enough and (idle or high < 1):
        label = BELOW
    else:
        label = NEAR if low > WITHIN and high < 1 / WITHIN else UNKNOWN
    return found | {"label": label}


def _while_waiting(
    arrival_s: Floats, admitted_s: Floats, replica: NDArray[np.int32], edges_s: Floats
) -> tuple[Floats, Floats]:
    """Return by batch the requests that were admitted while others waited, and the mean seconds a replica that took.

    The seconds go from one admission to the next, if a request was there all that time. What is admitted together is
    one admission.
    """
    order = np.argsort(replica, kind="stable").astype(np.int32)
    served, queued_s, replicas = np.zeros(BATCHES), np.zeros(BATCHES + 1), 0
    for part in _blocks(replica[order]):
        ids = order[part]
        found = _of_replicas(arrival_s, admitted_s, replica, ids[~np.isnan(admitted_s[ids])], edges_s)
        served, queued_s, replicas = served + found[0], queued_s + found[1], replicas + found[2]
    return served, np.diff(queued_s) / max(replicas, 1)


def _blocks(replica: NDArray[np.int32]) -> Iterator[slice]:
    """Yield the rows of replicas [requests], which are sorted, so many replicas at a time that memory stays small."""
    begins = np.flatnonzero(np.diff(replica, prepend=replica[:1] - 1))
    starts = begins[np.unique(begins // BLOCK, return_index=True)[1]].tolist()
    yield from map(slice, starts, [*starts[1:], len(replica)])


def _of_replicas(
    arrival_s: Floats,
    admitted_s: Floats,
    replica: NDArray[np.int32],
    order: NDArray[np.int32],
    edges_s: Floats,
) -> tuple[Floats, Floats, int]:
    """Return by batch what some replicas admitted while others waited, until each edge the seconds, and the replicas.

    `order` [their admitted requests] is sorted by replica.
    """
    if not len(order):
        return np.zeros(BATCHES), np.zeros(BATCHES + 1), 0
    group = np.cumsum(np.diff(replica[order], prepend=replica[order[:1]]) != 0, dtype=np.int32)
    # Each replica has a stretch of the time line to itself, so that the latest admission so far is a single scan.
    came_s, until_s = arrival_s[order], admitted_s[order]
    stretch_s = until_s.max() - edges_s[0] + 1.0
    came_s += group * stretch_s
    until_s += group * stretch_s
    np.maximum.accumulate(until_s, out=until_s)
    first = np.flatnonzero(np.concatenate([[True], until_s[1:] > until_s[:-1]]))  # of those admitted together
    together, came_s, until_s = np.diff(first, append=len(order)), came_s[first], until_s[first]
    since_s = np.concatenate([[-math.inf], until_s[:-1]])
    behind = came_s < since_s
    served = _counted(np.sort(admitted_s[order[np.repeat(behind, together)]]), edges_s)
    shift_s = group[first[behind]] * stretch_s
    since_s, until_s = since_s[behind] - shift_s, until_s[behind] - shift_s
    queued_s = np.array([np.clip(edge_s - since_s, 0.0, until_s - since_s).sum() for edge_s in edges_s])
    return served, queued_s, int(group[-1]) + 1


def _ratio(arrivals: Floats, served: Floats, queued_s: Floats, batch_s: float) -> tuple[float, float, float]:
    """Return the offered over the sustainable rate between the ends of its interval, by a jackknife over batches.

    NaN if too few requests were admitted behind others. The jackknife is of the logarithm.
    """
    others = [each.sum() - each for each in (arrivals, served, queued_s)]
    if min(each.min() for each in others) <= 0:
        return math.nan, math.nan, math.nan
    whole = math.log(arrivals.sum() * queued_s.sum() / served.sum() / (BATCHES * batch_s))
    without = libm.log(others[0] * others[2] / others[1] / ((BATCHES - 1) * batch_s))
    parts = BATCHES * whole - (BATCHES - 1) * without
    half = STUDENT * parts.std(ddof=1) / math.sqrt(BATCHES)
    return math.exp(parts.mean() - half), math.exp(parts.mean()), math.exp(parts.mean() + half)


def _low(values: Floats) -> float:
    """Return the lower end of the interval of the mean of a value a batch."""
    return float(values.mean() - STUDENT * values.std(ddof=1) / math.sqrt(BATCHES))


def _counted(times_s: Floats, edges_s: Floats) -> Floats:
    """Return how many of the times, which are sorted, are in each batch; the first one includes its beginning."""
    until = np.searchsorted(times_s, edges_s, side="right")
    until[0] = 0
    return np.diff(until).astype(np.float64)


def _backlog(arrival_s: Floats, admitted_s: Floats) -> dict[str, float | None]:
    if not len(arrival_s):
        return {"arrivals_s": None, "drain_s": None, "given_up_share": None}
    last_admission_s = np.max(admitted_s, initial=arrival_s[-1], where=~np.isnan(admitted_s))
    return {
        "arrivals_s": float(arrival_s[-1] - arrival_s[0]),
        "drain_s": float(last_admission_s - arrival_s[-1]),
        "given_up_share": float(np.isnan(admitted_s).mean()),
    }


def _waits(queue_s: Floats, latency_s: Floats) -> tuple[float | None, dict[str, float | None]]:
    """Return the mean seconds from admission to the end, and how long requests waited before."""
    third = len(queue_s) // 3
    service_s = latency_s - queue_s
    served = ~np.isnan(service_s)
    mean_s = mean(service_s)
    return mean_s, {
        "drift_s": _difference(mean(queue_s[len(queue_s) - third :]), mean(queue_s[:third])),
        "wait_ratio": _quotient(mean(queue_s if served.all() else queue_s[served]), mean_s),
    }


def _difference(a: float | None, b: float | None) -> float | None:
    return None if a is None or b is None else a - b


def _quotient(a: float | None, b: float | None) -> float | None:
    return a / b if a is not None and b is not None and b > 0 else None
