"""What a plan says of itself on a terminal, line by line."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import TYPE_CHECKING

from simlora.config.engine_flags import engine, flag
from simlora.metrics.slo import ATTAINMENT
from simlora.planning.candidate import Candidate
from simlora.planning.machines import ROUTER
from simlora.planning.notices import without_flags
from simlora.planning.tuning import ROUTERS
from simlora.sweeps.question import DEFAULT_ATTAINMENT, Question

if TYPE_CHECKING:
    from simlora.planning.planned import Beside, Planned

SLOWEST, TRAFFIC_MOST = 3.0, 4.0
"""Up to which factors iterations are slowed, and requests sped up."""
BEYOND = 1.1
"""Times the most traffic that a plan carries, at which what binds it is looked for."""


def plan_lines(order: int, each: Planned, question: Question) -> Iterator[str]:
    """Yield what one plan is, what it keeps, how sure that is, and how to start and check it."""
    one = each.candidate
    attainment, least, most = each.figure(ATTAINMENT)
    yield (
        f"Plan {order}: {one.replicas} × {one.machine.name}, USD {one.usd_per_hour:.2f} an hour "
        f"(USD {730 * one.usd_per_hour:,.0f} a month)"
    )
    yield (
        f"  requests within the SLO {100 * attainment:.2f} % ({100 * least:.2f} to {100 * most:.2f} over seeds); "
        f"p95 of TTFT {each.figure('ttft_s.p95')[0]:.3g} s, of TPOT {1e3 * each.figure('tpot_s.p95')[0]:.3g} ms"
    )
    yield (
        f"  binds: {each.binds} (at {BEYOND * each.headroom:.3g} times the traffic); carries "
        f"{_at_least(each.headroom, TRAFFIC_MOST)} times the traffic"
    )
    yield f"  sure: {_sure(each)}"
    for notice in each.notices:
        yield f"  notice: {notice}"
    if one.replicas > 1:
        yield f"  router: {_router(one)}"
    if policies := without_flags(one):
        yield f"  not in the command: {', '.join(policies)}, for which {one.machine.engine} has no flag"
    for count, what, command in each.kinds:
        yield f"  run{f' {count} {what}' if what else ''}: {shlex.join(command)}"
    if each.traffic.ranks:
        yield f"  adapters: {engine(one.machine.engine).adapters}"
    slo = [f"--limit={name}={limit:g}" for name, limit in question.limits.items()]
    if question.attainment not in (None, DEFAULT_ATTAINMENT):
        slo.append(f"--attainment={question.attainment:g}")
    yield f"  check: simlora-capacity {shlex.join([*slo, *each.checked])}"
    yield "  one flag more or less:"
    for b in each.beside:
        said = "does not fit"
        if b.figures:
            missed = "" if b.met else ", past saturation" if b.past else ", misses the SLO"
            said = (
                f"{100 * b.figures[ATTAINMENT]:.2f} %, TTFT {b.figures['ttft_s.p95']:.3g} s, "
                f"TPOT {1e3 * b.figures['tpot_s.p95']:.3g} ms{missed}"
            )
        yield f"    {_flag(one.machine.engine, b, each.activation_share)}: {said}"


def _flag(name: str, beside: Beside, activation_share: float) -> str:
    """Return what is changed: in the words of the engine's command, or how replicas are divided."""
    if beside.divided:
        return beside.divided
    if found := flag(name, beside.key, beside.value, activation_share):
        return " ".join(found)
    return f"without {' '.join(flag(name, beside.key, not beside.value, activation_share))}"


def _at_least(factor: float, most: float) -> str:
    return f"{'at least ' if factor >= most else ''}{factor:.2f}"


def _sure(each: Planned) -> str:
    holds = f"the SLO is kept until iterations take {_at_least(each.slower, SLOWEST)} times as long"
    if each.sure is None:
        return f"{holds}; the calibration does not say its error"
    error = each.candidate.machine.error
    assert error is not None
    beyond = " (which does not count what the notices say is extrapolated)" if each.extrapolates else ""
    return (
        f"{holds}; the calibration is off by {100 * error:.0f} % at the median, "
        f"so that the plan holds in {100 * each.sure:.0f} % of cases{beyond}"
    )


def _router(one: Candidate) -> str:
    """Return what a plan's router is called, and where a user finds one."""
    name = dict(one.settings).get(ROUTER)
    if name is not None:
        return f"{name}{f' ({ROUTERS[name]})' if name in ROUTERS else ''}"
    return ", ".join(own for own in one.machine.overrides if own.startswith(ROUTER))
