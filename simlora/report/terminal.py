"""The final table on stdout: a run in a screenful of plain text."""

from __future__ import annotations

import textwrap
from typing import Any

from simlora.metrics.saturation import BELOW, NEAR, PAST, UNKNOWN
from simlora.metrics.summary import PERCENTILES, STATUSES
from simlora.report.format import (
    ABSENT,
    JOULES_A_KWH,
    METRIC_NAMES,
    clock,
    count,
    counted,
    headline,
    percent,
    rate,
    seconds,
    size,
    targets_in_words,
    window_in_words,
    workload_in_words,
)

WIDTH = 80
STATISTICS = ("mean", *(f"p{percentile}" for percentile in PERCENTILES))
LOAD_WORDS = {
    BELOW: "below saturation",
    NEAR: "near saturation",
    PAST: "past saturation",
    UNKNOWN: "the run is too short to tell",
}


def summary_table(summary: dict[str, Any]) -> str:
    """Return the key figures of a summary as aligned lines of at most 80 columns, without a final newline."""
    system, place = headline(summary)
    lines = [f"{system}: {place}", workload_in_words(summary)]
    if summary.get("complete") is False:
        lines.append("INCOMPLETE: the run was stopped; what follows is what had happened until then")
    lines += ["", *_facts(summary), "", *_distributions(summary)]
    return "\n".join(fitting for line in lines for fitting in _fit(line))


def _facts(summary: dict[str, Any]) -> list[str]:
    slo, adapters, kv = summary["slo"], summary.get("adapters") or {}, summary.get("kv") or {}
    simulation, migration = summary.get("simulation") or {}, summary.get("migration") or {}
    facts = [
        ("Requests", _requests(summary["requests"])),
        ("SLO attainment", f"{percent(slo['attainment'])}  ({targets_in_words(slo['targets'])})"),
        ("Goodput", rate(slo["goodput_rps"], "req")),
        ("Throughput", f"{rate(summary['throughput_rps'], 'req')}, {rate(summary['throughput_tps'], 'tok')}"),
        ("Load", LOAD_WORDS.get((summary.get("load") or {}).get("label", UNKNOWN), UNKNOWN)),
        ("Makespan", seconds(summary["makespan_s"])),
        ("Counted", _window(summary.get("window"))),
        (
            "Adapter loads",
            f"{count(adapters.get('loads'))} ({size(adapters.get('load_bytes'))}{_kinds_of_loads(adapters)}), "
            f"hit rate {percent(adapters.get('hit_rate'))}",
        ),
        ("Host memory", _hosts(adapters)),
        ("Merged", _merged(adapters)),
        ("Moves", _moves(migration)),
        ("Handed over", _handover(summary.get("handover") or {})),
        ("Speculation", _speculation(summary.get("speculation") or {})),
        ("Placement", _plans(summary.get("placement") or {})),
        ("Failures", _failures(summary.get("failures") or {})),
        ("Slow", _slowness(summary.get("slowness") or {})),
        ("Replicas", _scaling(summary.get("scaling") or {})),
        ("Clients", _clients(summary.get("clients") or {})),
        *((f"SLO of {name}", _tenants(each)) for name, each in (slo.get("classes") or {}).items()),
        ("Cost", _cost(summary.get("cost") or {})),
        ("Prefix cache", f"{percent(kv.get('hit_rate'))} of prompt tokens"),
        ("Preemptions", count(kv.get("preemptions")) if kv.get("preemptions") else ABSENT),
        (
            "Simulated in",
            f"{seconds(simulation.get('wall_s'))}, {rate(simulation.get('requests_per_wall_s'), 'req')}"
            f"{_planning(simulation) if migration.get('plans') else ''}",
        ),
    ]
    return [f"{name:<16}{value}" for name, value in facts if not value.startswith(ABSENT)]


def _kinds_of_loads(adapters: dict[str, Any]) -> str:
    kinds = (
        ("disk_loads", "from disk"),
        ("remote_loads", "from other hosts"),
        ("storage_loads", "from storage"),
        ("reloads", "of adapters in use"),
    )
    return "".join(f"; {count(adapters[name])} {words}" for name, words in kinds if adapters.get(name))


def _hosts(adapters: dict[str, Any]) -> str:
    """Return how many adapters hosts hold, where that is not all of them; nothing where it is."""
    held = adapters.get("host_adapters")
    if not held or not max(held) or min(held) == adapters.get("count"):  # none: a LoRA server has them
        return ABSENT
    refused = adapters.get("host_refused")
    without = f"; {counted(refused, 'copy', 'copies')} had no room" if refused else ""
    most = f"at most {count(min(held))} to {count(max(held))} of {count(adapters['count'])} adapters"
    return f"{most}, {size(max(adapters['host_bytes']))}{without}"


def _merged(adapters: dict[str, Any]) -> str:
    """Return how much was merged, and what the switches took; nothing where nothing was."""
    if not adapters.get("switches"):
        return ABSENT
    switches = counted(adapters["switches"], "switch", "switches")
    took = seconds(adapters.get("switch_s"))
    return f"{percent(adapters.get('merged_share'))} of the time, {switches} that took {took}"


def _window(window: dict[str, Any] | None) -> str:
    """Return which requests the figures are of; nothing where it is all of them."""
    return ABSENT if window is None else window_in_words(window)


def _moves(migration: dict[str, Any]) -> str:
    """Return what moved and what it cost, and plans that could not be solved; nothing where nothing was planned."""
    if not migration.get("plans") and not migration.get("moves"):
        return ABSENT
    unsolved = f" ({count(migration['unsolved'])} not solved)" if migration.get("unsolved") else ""
    moves = f"{count(migration['moves'])} in {counted(migration['plans'], 'plan')}{unsolved}"
    if not migration["moves"]:
        return moves
    tokens, adapters = migration["recomputed_tokens"], migration["adapters_loaded"]
    return f"{moves}; {counted(tokens, 'token')} recomputed, {counted(adapters, 'adapter')} loaded"


def _handover(handover: dict[str, Any]) -> str:
    """Return what replicas that prefill gave to those that decode; nothing where each does both."""
    if not handover:
        return ABSENT
    what = f"{counted(handover['requests'], 'request')} ({size(handover['kv_bytes'])} of KV)"
    if not handover["requests"]:
        return what
    wait_s, copy_s = handover["wait_s"]["mean"], handover["copy_s"]["mean"]
    return f"{what}, on average admitted {seconds(wait_s)} after the first token, with the KV {seconds(copy_s)} later"


def _speculation(speculation: dict[str, Any]) -> str:
    """Return what a draft's proposals were worth; nothing without one."""
    if not speculation.get("steps"):
        return ABSENT
    accepted = percent(speculation["acceptance"])
    return f"{speculation['tokens_per_step']:.2f} tokens a step, {accepted} of proposed tokens accepted"


def _plans(placement: dict[str, Any]) -> str:
    """Return what a placement changed by planning anew; nothing where it did not."""
    if not placement.get("plans"):
        return ABSENT
    new = counted(placement["adapters_assigned"], "adapter newly assigned", "adapters newly assigned")
    moved = f", {size(placement['assigned_bytes'])} to be fetched" if placement["assigned_bytes"] else ""
    return f"{count(placement['changes'])} of {counted(placement['plans'], 'plan')} changed it: {new}{moved}"


def _failures(failures: dict[str, Any]) -> str:
    """Return which hosts failed and what that cost; nothing where none did."""
    if not failures.get("failures"):
        return ABSENT
    hosts = f"{counted(failures['failures'], 'failure')} of {counted(failures['hosts'], 'host')}"
    gone = f"{counted(failures['requests'], 'request')} went on elsewhere"
    if failures["restarted"]:
        anew = f"{count(failures['restarted'])} of them anew"
        gone += f", {anew} with {counted(failures['recomputed_tokens'], 'token')} recomputed"
    read = f"; {counted(failures['storage_loads'], 'load')} from storage" if failures["storage_loads"] else ""
    return f"{hosts}, down for {clock(failures['downtime_s'])} in all; {gone}{read}"


def _slowness(slowness: dict[str, Any]) -> str:
    """Return how often replicas straggled and links were slow; nothing where they never were."""
    words = [
        f"{counted(len(slowness[name]), 'time')} {of} of {counted(len({one[key] for one in slowness[name]}), key)}"
        for name, key, of in (("stragglers", "replica", "iterations"), ("slow_links", "host", "the links"))
        if slowness.get(name)
    ]
    return "; ".join(words) or ABSENT


def _scaling(scaling: dict[str, Any]) -> str:
    """Return how many replicas were on; nothing where all were all the time."""
    if not scaling:
        return ABSENT
    boots = f"{counted(scaling['boots'], 'boot')} of {seconds(scaling['boot_s'])}"
    return f"{scaling['least_on']} to {scaling['most_on']}, {scaling['mean_on']:.2f} on average; {boots}"


def _clients(clients: dict[str, Any]) -> str:
    """Return what became of clients' calls over all attempts; nothing where each is one request."""
    if not clients:
        return ABSENT
    ends = (("answered", "answered"), ("gave_up", "given up"), ("unfinished", "unfinished"))
    told = ", ".join(f"{count(clients[name])} {words}" for name, words in ends if clients[name])
    sent = f"{counted(clients['attempts'], 'request')} sent"
    if clients["abandoned"]:
        sent += f", {count(clients['abandoned'])} abandoned"
    within = f"{percent(clients['attainment'])} of calls within the SLO"
    return f"{counted(clients['calls'], 'call')}: {told}; {sent}; {within}"


def _tenants(tenants: dict[str, Any]) -> str:
    """Return what a class of tenants got of what it was promised."""
    of = f"{counted(tenants['requests'], 'request')} for {counted(tenants['adapters'], 'adapter')}"
    return f"{percent(tenants['attainment'])} of {of}  ({targets_in_words(tenants['targets'])})"


def _cost(cost: dict[str, Any]) -> str:
    """Return GPU hours, rent and energy, as far as they are known."""
    if not cost:
        return ABSENT
    words = [f"{cost['gpu_hours']:.3g} GPU hours"]
    if cost["usd"] is not None:
        tokens = cost["usd_per_million_tokens"]
        words.append(
            f"{cost['usd']:.3g} USD" + ("" if tokens is None else f", {tokens:.3g} a million tokens")
        )
    if cost["energy_j"] is not None:
        each = cost["energy_j_per_output_token"]
        words.append(
            f"at most {cost['energy_j'] / JOULES_A_KWH:.3g} kWh"
            + ("" if each is None else f", {each:.3g} J a token out")
        )
    return "; ".join(words)


def _planning(simulation: dict[str, Any]) -> str:
    planning_s = simulation.get("migration_wall_s")
    return f"; {seconds(planning_s)} of it to plan moves" if planning_s else ""


def _requests(requests: dict[str, Any]) -> str:
    others = [
        f"{count(requests[name])} {name}" for name in STATUSES if name == "finished" or requests.get(name)
    ]
    return f"{count(requests['submitted'])} submitted: {', '.join(others)}"


def _distributions(summary: dict[str, Any]) -> list[str]:
    """Return a line for each time that some request has."""
    head = f"{'':<16}" + "".join(f"{name:>12}" for name in STATISTICS)
    rows = [
        f"{name:<16}" + "".join(f"{seconds(summary[metric][statistic]):>12}" for statistic in STATISTICS)
        for metric, name in METRIC_NAMES.items()
        if summary[metric]["mean"] != 0.0
    ]
    return [head, *rows]


def _fit(line: str) -> list[str]:
    """Return a line as lines that fit, whatever a trace named itself."""
    line = "".join(character if character.isprintable() else "?" for character in line)
    return textwrap.wrap(line, WIDTH, subsequent_indent=" " * 16) or [""]
